"""The model: one set of weights per block, and the schedule that chooses among them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.method.schedule import Schedule

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pluralistic:
    """(w^1..w^m): for each block the weights [C, d+1], the intercept last.

    fallback: the blocks that were never visited; they hold the consensus mean.
    """

    weights: Array
    schedule: Schedule | int
    loss: Loss
    classes: tuple[Any, ...] = ()
    fallback: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.weights.ndim != 3 or self.weights.shape[1] != self.loss.outputs:
            raise ValueError(
                f"weights have shape {self.weights.shape}: they must be [blocks, "
                f"{self.loss.outputs}, columns + 1]"
            )
        blocks = self.schedule if isinstance(self.schedule, int) else self.schedule.blocks
        if len(self.weights) != blocks:
            raise ValueError(f"weights of {len(self.weights)} blocks for a schedule of {blocks}")
        # A view of its own, so that the caller's array stays as it is.
        object.__setattr__(self, "weights", self.weights.view())
        self.weights.flags.writeable = False

    def __repr__(self) -> str:
        m, c, d = self.weights.shape
        spare = f", {len(self.fallback)} never visited" if self.fallback else ""
        return f"Pluralistic({m} blocks, {d - 1:,} columns, {c} output(s), {self.loss!r}{spare})"

    @property
    def blocks(self) -> int:
        """m, the number of blocks."""
        return len(self.weights)

    def score(
        self,
        rows: Rows,
        *,
        block: int | npt.ArrayLike | None = None,
        membership: npt.ArrayLike | None = None,
    ) -> Array:
        """<w^i, x> of each row, [n] or for several classes [n, C].

        The block i is the row's own, or `block` (one for all, or one a row). With
        `membership`, a distribution over blocks for each row or one for all, the
        score is that of the mixture sum_i a(i) w^i, which keeps the guarantee (SPEC G2).
        """
        from semicyclic.method.kernels import score_rows

        if not isinstance(rows, Rows):
            raise TypeError(f"rows is a {type(rows).__name__}: make it Rows(X, when=...)")
        columns = self.weights.shape[2] - 1
        if rows.width != columns:
            raise ValueError(f"rows have {rows.width} columns, the model {columns}")
        if membership is not None:
            if block is not None:
                raise ValueError("give either block= or membership=, not both")
            return self._finish(self._mixed(rows, np.asarray(membership, dtype=np.float64)))
        if block is None:
            chosen = rows.blocks_in(self.schedule)
        else:
            given = np.asarray(block)
            if given.dtype.kind not in "iu" or given.shape not in ((), (len(rows),)):
                raise ValueError("block must be a whole number, or one for each row")
            chosen = np.broadcast_to(given.astype(np.int64), len(rows))
            wrong = (chosen < 0) | (chosen >= self.blocks)
            if wrong.any():
                bad = chosen[int(wrong.argmax())]
                raise ValueError(f"block {bad}: the model has blocks 0 to {self.blocks - 1}")
        out = np.empty((len(rows), self.weights.shape[1]), rows.values.dtype)
        score_rows((rows.indptr, rows.indices, rows.values), self.weights, chosen, out)
        return self._finish(out)

    def _mixed(self, rows: Rows, membership: Array) -> Array:
        if membership.shape not in ((self.blocks,), (len(rows), self.blocks)):
            raise ValueError(f"membership has shape {membership.shape}: it must end in {self.blocks} blocks")
        share = np.broadcast_to(membership, (len(rows), self.blocks))
        fine = np.isfinite(share).all(axis=1) & (share >= 0).all(axis=1)
        fine &= np.abs(share.sum(axis=1) - 1.0) < 1e-6
        if not fine.all():
            row = int((~fine).argmax())
            raise ValueError(f"membership of row {row} is not a distribution: {share[row]}")
        total = np.zeros((len(rows), self.weights.shape[1]))
        for i in np.flatnonzero(share.any(axis=0)):
            total += share[:, i, None] * self.score(rows, block=int(i)).reshape(len(rows), -1)
        return total

    def _finish(self, score: Array) -> Array:
        return score if score.shape[1] > 1 else score[:, 0]

    def predict(self, rows: Rows, **where: Any) -> Array:
        """The prediction for each row: a probability (of the second class, or [n, C]) or a number."""
        return self.loss.link(self.score(rows, **where))

    def classify(self, rows: Rows, **where: Any) -> Array:
        """The class of each row; a score of exactly 0 is the first class (SPEC H3)."""
        if not self.classes:
            raise ValueError("this model has no classes: use predict")
        score = self.score(rows, **where)
        code = (score > 0).astype(int) if score.ndim == 1 else score.argmax(axis=1)
        return np.asarray(np.asarray(self.classes)[code])

    def mixture(self, share: npt.ArrayLike) -> Array:
        """sum_i a(i) w^i, one set of weights [C, d+1] for a client with availability `share`."""
        return np.asarray(np.tensordot(np.asarray(share), self.weights, axes=1))
