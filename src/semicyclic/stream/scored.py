"""Rows scored when they arrive, by what was known then: honest losses where labels come late."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.method.chain import in_force
from semicyclic.method.hedge import in_play
from semicyclic.method.loss import Loss
from semicyclic.method.pack import encode
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run

Array = npt.NDArray[Any]


class Scored(NamedTuple):
    """By block: rows that were scored on arrival, their losses, and these squared."""

    rows: Array
    loss: Array
    squares: Array

    @staticmethod
    def none(blocks: int) -> "Scored":
        return Scored(*(np.zeros(blocks) for _ in Scored._fields))

    def add(self, run: Run, rows: Rows) -> "Scored":
        """Score rows by the weights now in force in their blocks."""
        from semicyclic.method.kernels import score_rows

        block = rows.blocks_in(run.schedule)
        here = np.unique(block)
        weights = np.stack([weights_now(run, int(each)).T for each in here])
        score = np.empty((len(rows), run.loss.outputs), rows.values.dtype)
        cells = rows.indptr, rows.indices, rows.values
        score_rows(cells, weights, np.searchsorted(here, block), score)
        loss = losses(run.loss, score, rows.labels, run.classes)
        blocks = len(self.rows)
        return Scored(
            self.rows + np.bincount(block, minlength=blocks),
            self.loss + np.bincount(block, loss, blocks),
            self.squares + np.bincount(block, loss**2, blocks),
        )


def losses(loss: Loss, score: Array, labels: Any, classes: tuple[Any, ...]) -> Array:
    """The loss of every score."""
    target, _ = encode(labels, loss, classes or None)
    scores = score.astype(np.float64)
    return np.asarray(loss.value(scores if loss.outputs > 1 else scores[:, 0], target), np.float64)


def weights_now(run: Run, block: int) -> Array:
    """[d+1, C] what is in force in a block now."""
    if run.bets is None:
        return in_force(run.log.plan, run.state, block)
    blocks, experts = run.bets.share.shape
    parts = [in_force(run.log.plan, run.state, e * blocks + block) for e in range(experts)]
    return np.asarray(np.tensordot(in_play(run.bets, block, None), parts, axes=1))
