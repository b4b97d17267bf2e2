"""Rows scored when they arrive, by what was known then: honest losses where labels come late."""

from typing import NamedTuple

import numpy as np

from semicyclic.method.learn import iterate
from semicyclic.method.model import Pluralistic
from semicyclic.method.pack import encode
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.schedule import Numbered
from semicyclic.types import Array


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
        block = rows.blocks_in(run.schedule)
        here = np.unique(block)
        weights = np.stack([iterate(run, int(each)).T for each in here])
        now = Pluralistic(weights, Numbered(len(here)), run.loss)
        score = now.score(rows, block=np.searchsorted(here, block)).astype(np.float64)
        target, _ = encode(rows.labels, run.loss, run.classes or None)
        loss = np.asarray(run.loss.value(score, target), np.float64)
        blocks = len(self.rows)
        return Scored(
            self.rows + np.bincount(block, minlength=blocks),
            self.loss + np.bincount(block, loss, blocks),
            self.squares + np.bincount(block, loss**2, blocks),
        )
