"""`Pluralistic`: one set of weights per block, and the schedule that selects among them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method import kernels
from semicyclic.method.delta_weights import DeltaWeights
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Encoding, Rows
from semicyclic.schedule.numbered import AnySchedule, as_schedule
from semicyclic.types import Array

# Models with at most this many weights are decoded to an array at the first score.
MAX_DECODED_WEIGHTS = 1 << 24


@dataclass(frozen=True, eq=False)
class Pluralistic:
    """Model with one set of linear weights per block; immutable.

    Parameters
    ----------
    held : array of shape [m, C, d+1], or DeltaWeights
        The weights, the intercept last. An array that fits is shared with the caller: do not change it
        afterwards.
    schedule : Schedule or Numbered
        Maps times to blocks.
    loss : Loss
        Its link turns scores into predictions.
    classes : tuple
        The classes in the order of their codes; empty for regression.
    fallback : tuple of int
        Blocks that were never visited; they have the consensus mean.
    features : Encoding, optional
        How the rows of a table become features; stored with the model.
    provenance : JSON value
        Where the model comes from; stored with the model.
    """

    held: Array | DeltaWeights
    schedule: AnySchedule
    loss: Loss
    classes: tuple[Any, ...] = ()
    fallback: tuple[int, ...] = ()
    features: Encoding | None = None
    provenance: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.held, DeltaWeights):
            weights = np.asarray(self.held)
            if weights.dtype.kind not in "biuf":
                raise ValueError(f"weights hold {weights.dtype}: they must be numbers")
            if weights.dtype not in (np.float32, np.float64) or not weights.dtype.isnative:
                small = weights.dtype.kind == "f" and weights.dtype.itemsize <= 4
                weights = weights.astype(np.float32 if small else np.float64)
            # A view, so that making it read-only leaves the caller's array as it is.
            object.__setattr__(self, "held", weights.view())
            self.held.flags.writeable = False
        object.__setattr__(self, "schedule", as_schedule(self.schedule))
        object.__setattr__(self, "classes", tuple(_plain(each) for each in self.classes))
        object.__setattr__(self, "fallback", tuple(int(block) for block in self.fallback))
        if len(self.held.shape) != 3 or self.held.shape[1] != self.loss.outputs:
            raise ValueError(
                f"weights have shape {self.held.shape}: they must be [blocks, "
                f"{self.loss.outputs}, columns + 1]"
            )
        if len(self.held) != self.schedule.blocks:
            raise ValueError(f"weights of {len(self.held)} blocks for a schedule of {self.schedule.blocks}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_fast_weights"}

    def __repr__(self) -> str:
        m, c, d = self.shape
        spare = f", {len(self.fallback)} never visited" if self.fallback else ""
        return f"Pluralistic({m} blocks, {d - 1:,} columns, {c} output(s), {self.loss!r}{spare})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(blocks, outputs, columns + 1)."""
        m, c, d = self.held.shape
        return m, c, d

    @property
    def blocks(self) -> int:
        """m, the number of blocks."""
        return self.shape[0]

    @property
    def weights(self) -> Array:
        """[m, C, d+1] all weights; delta-encoded ones are decoded on every call."""
        return self.held.table() if isinstance(self.held, DeltaWeights) else self.held

    def block_weights(self, block: int) -> Array:
        """Return the weights [C, d+1] of one block.

        Parameters
        ----------
        block : int
            From 0.
        """
        if not 0 <= block < self.blocks:
            raise ValueError(f"block {block}: the model has blocks 0 to {self.blocks - 1}")
        return self.held.block(block) if isinstance(self.held, DeltaWeights) else np.asarray(self.held[block])

    def score(
        self,
        table: Any,
        *,
        block: int | npt.ArrayLike | None = None,
        membership: npt.ArrayLike | None = None,
    ) -> Array:
        """Linear scores <w^i, x> of rows.

        Parameters
        ----------
        table : Rows, table or dict
            Rows with times or blocks, unless `block` or `membership` is given. A model trained from a table
            also takes a pandas, Polars or Arrow table, a list of dicts, or one row as a dict or a Series of
            pandas; columns that it does not know are ignored.
        block : int or array of int, optional
            Use this block's weights, one for all rows or one per row.
        membership : array of shape [m] or [n, m], optional
            Distribution over blocks: the score is that of the mixture sum_i a(i) w^i
            (docs/math.md#soft-prediction).

        Returns
        -------
        array of shape [n], or [n, C] for several classes; of one dict, without the first axis
        """
        table = _dict_of_series(table)
        rows = self._rows(table, located=block is None and membership is None)
        columns = self.shape[2] - 1
        if rows.width != columns:
            raise ValueError(f"rows have {rows.width} columns, the model {columns}")
        if membership is not None:
            if block is not None:
                raise ValueError("give either block= or membership=, not both")
            score = self._mixture_scores(rows, np.asarray(membership, dtype=np.float64))
        elif block is None:
            score = self._block_scores(rows, rows.blocks_in(self.schedule))
        else:
            given = np.asarray(block)
            if given.dtype.kind not in "iu" or given.shape not in ((), (len(rows),)):
                raise ValueError("block must be a whole number, or one for each row")
            chosen = np.broadcast_to(given.astype(np.int64), len(rows))
            wrong = (chosen < 0) | (chosen >= self.blocks)
            if wrong.any():
                bad = chosen[int(wrong.argmax())]
                raise ValueError(f"block {bad}: the model has blocks 0 to {self.blocks - 1}")
            score = self._block_scores(rows, chosen)
        if score.shape[1] == 1:
            score = score[:, 0]
        return score[0] if isinstance(table, Mapping) else score

    def _rows(self, table: Any, *, located: bool) -> Rows:
        """Return a table as rows; if `located`, with their blocks."""
        if isinstance(table, Rows):
            if self.features is not None and table.features is not None:
                self.features.check_same(table.features)
            return table
        if self.features is None:
            raise TypeError(
                f"the model was not trained from a table, and this is a {type(table).__name__}: give "
                "Rows(X, when=...)"
            )
        return self.features.rows(table, self.schedule if located else None)

    def _block_scores(self, rows: Rows, block: Array) -> Array:
        """[n, C] the scores of rows by the weights of their blocks."""
        dtype = np.promote_types(rows.values.dtype, self.held.dtype)
        out = np.empty((len(rows), self.shape[1]), dtype)
        cells = rows.indptr, rows.indices, rows.values
        if isinstance(self._fast_weights, DeltaWeights):
            order = np.argsort(block, kind="stable")
            bounds = np.searchsorted(block[order], np.arange(self.blocks + 1))
            for each, weights in self._fast_weights.walk(block):
                kernels.scoring.score_some(cells, weights, order[bounds[each] : bounds[each + 1]], out)
        else:
            kernels.scoring.score_rows(cells, self._fast_weights, block, out)
        return out

    @cached_property
    def _fast_weights(self) -> Array | DeltaWeights:
        """The weights as an array, if that is not too large to keep next to the delta-encoded ones."""
        size = int(np.prod(self.shape, dtype=np.float64))
        return self.weights if size <= MAX_DECODED_WEIGHTS else self.held

    def _mixture_scores(self, rows: Rows, membership: Array) -> Array:
        if membership.shape not in ((self.blocks,), (len(rows), self.blocks)):
            raise ValueError(f"membership has shape {membership.shape}: it must end in {self.blocks} blocks")
        share = np.broadcast_to(membership, (len(rows), self.blocks))
        fine = np.isfinite(share).all(axis=1) & (share >= 0).all(axis=1)
        fine &= np.abs(share.sum(axis=1) - 1.0) < 1e-6
        if not fine.all():
            row = int((~fine).argmax())
            raise ValueError(f"membership of row {row} is not a distribution: {share[row]}")
        total = np.zeros((len(rows), self.shape[1]))
        for i in np.flatnonzero(share.any(axis=0)):
            chosen = np.full(len(rows), i)
            total += share[:, i, None] * self._block_scores(rows, chosen)
        return total

    def predict(self, table: Any, **where: Any) -> Any:
        """Predict the class or number of each row; a score of exactly 0 is the first class.

        Parameters
        ----------
        table : Rows, table or dict
            As in `score`.
        **where
            `block` or `membership`, as in `score`.

        Returns
        -------
        array of shape [n], or the class or number of one dict
        """
        table = _dict_of_series(table)
        score = self.score(table, **where)
        if not self.classes:
            predicted = self.loss.link(score)
            return float(predicted) if isinstance(table, Mapping) else predicted
        code = (score > 0).astype(int) if self.loss.outputs == 1 else score.argmax(axis=-1)
        return self.classes[code] if isinstance(table, Mapping) else np.asarray(self.classes)[code]

    def predict_proba(self, table: Any, **where: Any) -> Array:
        """Predict the probability of each class.

        Parameters
        ----------
        table : Rows, table or dict
            As in `score`.
        **where
            `block` or `membership`, as in `score`.

        Returns
        -------
        array of shape [n, classes], in the order of `classes`; of one dict, without the first axis

        Raises
        ------
        ValueError
            If the model predicts numbers, or its loss has no probabilities.
        """
        if not self.classes:
            raise ValueError("this model predicts numbers, not classes: use predict")
        if self.loss.name == "hinge":
            raise ValueError(
                "loss hinge has no probabilities: use predict or score, or train with loss.logistic"
            )
        # In double precision, so that the probabilities of a row sum to 1 as other libraries check it.
        chance = self.loss.link(self.score(table, **where).astype(np.float64))
        if self.loss.outputs > 1:
            return chance
        both = np.empty((*chance.shape, 2))
        both[..., 0], both[..., 1] = 1.0 - chance, chance
        return both

    def mixture(self, share: npt.ArrayLike) -> Array:
        """Return one set of weights, sum_i a(i) w^i, for a client with availability a.

        Parameters
        ----------
        share : array of shape [m]
            a, the share of each block.

        Returns
        -------
        array of shape [C, d+1]
        """
        given = np.asarray(share, dtype=np.float64)
        if given.shape != (self.blocks,) or not np.isfinite(given).all():
            raise ValueError(f"share must be {self.blocks} finite numbers, one for each block")
        total = np.zeros(self.shape[1:])
        for block in np.flatnonzero(given):
            total += given[block] * self.block_weights(int(block))
        return total


def _dict_of_series(table: Any) -> Any:
    """Return a row of a pandas data frame as a dict; leave anything else."""
    if getattr(table, "ndim", None) == 1 and hasattr(table, "to_dict") and hasattr(table, "index"):
        if not all(isinstance(name, str) for name in table.index):
            raise TypeError(f"table is a {type(table).__name__}: give a data frame, or one row of it")
        return table.to_dict()
    return table


def _plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python one."""
    return value.item() if isinstance(value, np.generic) else value
