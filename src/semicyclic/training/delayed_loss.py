"""Progressive loss with delayed labels: rows are scored on arrival, before their label is known."""

from typing import NamedTuple

import numpy as np

from semicyclic.method.batches import encode
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.training_loop import iterate
from semicyclic.schedule.numbered import Numbered
from semicyclic.types import Array


class DelayedLoss(NamedTuple):
    """Per block [m]: rows scored on arrival, the sum of their losses, and the sum of squared losses."""

    rows: Array
    loss: Array
    squares: Array

    @staticmethod
    def none(blocks: int) -> "DelayedLoss":
        return DelayedLoss(*(np.zeros(blocks) for _ in DelayedLoss._fields))

    def add(self, run: Run, rows: Rows) -> "DelayedLoss":
        """Score rows with the current weights of their blocks, and return the updated sums."""
        block = rows.blocks_in(run.schedule)
        present = np.unique(block)
        weights = np.stack([iterate(run, int(number)).T for number in present])
        current = Pluralistic(weights, Numbered(len(present)), run.loss)
        score = current.score(rows, block=np.searchsorted(present, block)).astype(np.float64)
        target, _ = encode(rows.labels, run.loss, run.classes or None)
        loss = np.asarray(run.loss.value(score, target), np.float64)
        blocks = len(self.rows)
        return DelayedLoss(
            self.rows + np.bincount(block, minlength=blocks),
            self.loss + np.bincount(block, loss, blocks),
            self.squares + np.bincount(block, loss**2, blocks),
        )
