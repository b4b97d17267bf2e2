"""`Fitted`: the learner of a fitted estimator, and its models, computed on first use."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from semicyclic.adapters.sklearn.frame_encoding import FrameEncoding
from semicyclic.adapters.sklearn.row_times import MISSING, BlockLocator
from semicyclic.auto.calendar import calendar_of
from semicyclic.method.evaluate import Matrix, matrix
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.schedule.numbered import Numbered
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.labels import Labels
from semicyclic.training.learner import AutoLearner, Learner
from semicyclic.training.results import finish_model
from semicyclic.types import Array

# Maximum size of the sample of rows that is kept for `matrix_`.
MAX_SAMPLE_ROWS, MAX_SAMPLE_CELLS = 1 << 16, 1 << 20
# Computed again after unpickling.
CACHED = ("ended", "block_model", "scoring_weights")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A learner with its blocks, and the models computed from them.

    settings: the estimator's parameters that must not change between calls of `partial_fit`.
    sample: sample of the rows of the last call. frame: how frames become rows, None for arrays.
    labels: encoding of the labels. weights: [blocks of the model] weight of the rows trained on.
    latest: time of the last row, in microseconds since 1970.
    """

    learner: Learner
    locator: BlockLocator
    settings: dict[str, Any]
    sample: Rows
    frame: FrameEncoding | None
    labels: Labels
    weights: Array = field(default_factory=lambda: np.zeros(0))
    latest: float = -inf

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the log of visits if no read-out needs it: it may be 100 times the size of the models."""
        state = {name: value for name, value in vars(self).items() if name not in CACHED}
        return state | {"learner": self.learner.without_records()}

    def count(self, rows: Rows, ticks: Array | None) -> "Fitted":
        """Return the same after counting rows that the learner was trained on, with their times, if any."""
        assert rows.block is not None
        if ticks is not None:
            fine = self._fine_blocks(ticks, rows.block)
        else:
            fine = rows.block if self._calendar is None else self._calendar.first_of(rows.block)
        weights = np.bincount(fine, rows.weight, len(self.owner)).astype(np.float64)
        if len(self.weights):
            weights += self.weights
        latest = self.latest if ticks is None else int(ticks.max())
        return replace(self, weights=weights, latest=latest)

    def _fine_blocks(self, ticks: Array, block: Array) -> Array:
        """Return the blocks of the model at some times. block: those of the estimator's schedule."""
        if isinstance(self.fine_schedule, Schedule) and self.fine_schedule != self.locator.schedule:
            return self.fine_schedule.place(ticks).block
        return block

    @cached_property
    def _calendar(self) -> Any:
        is_auto = isinstance(self.learner, AutoLearner)
        return calendar_of(self.locator.schedule) if is_auto else None

    @property
    def fine_schedule(self) -> Any:
        """Schedule of the model, which may distinguish weekdays that the estimator's schedule does not."""
        return self.locator.schedule if self._calendar is None else self._calendar.model

    @property
    def owner(self) -> Array:
        """[blocks of the model] the block of the estimator's schedule that contains each."""
        return np.arange(self.locator.blocks) if self._calendar is None else self._calendar.block

    @cached_property
    def ended(self) -> Learner:
        """The learner after training on all rows, also those of an unfilled minibatch."""
        if not self.learner.waiting:
            return self.learner
        ended = self.learner.copy()
        ended.end()
        return ended

    @cached_property
    def model(self) -> Pluralistic:
        """The model that predicts."""
        encoding = None if self.frame is None else self.frame.encoding
        return finish_model(self.ended.model(), self.labels, encoding)

    @cached_property
    def block_model(self) -> Pluralistic:
        """The model of every block of the estimator's schedule.

        The mean over the model's blocks within each, weighted by rows.
        """
        if len(self.owner) == self.locator.blocks:
            return self.model
        shares = np.zeros((self.locator.blocks, len(self.owner)))
        shares[self.owner, np.arange(len(self.owner))] = self.weights
        empty = shares.sum(axis=1) == 0
        shares[self.owner, np.arange(len(self.owner))] += empty[self.owner]
        shares /= shares.sum(axis=1, keepdims=True)
        weights = np.stack([self.model.mixture(share) for share in shares]).astype(self.model.weights.dtype)
        unseen = tuple(np.flatnonzero(empty).tolist())
        return replace(self.model, held=weights, schedule=self.locator.schedule, fallback=unseen)

    @cached_property
    def scoring_weights(self) -> Pluralistic:
        """The models of all blocks to predict for: see `place`."""
        model = self.model
        if model.blocks == 1:
            return model
        total = self.weights.sum()
        share = self.weights / total if total > 0 else np.full(len(self.weights), 1 / len(self.weights))
        consensus = model.mixture(share).astype(model.weights.dtype)
        parts = [model.weights, self.block_model.weights, consensus[None]]
        if self.block_model is model:
            del parts[1]
        weights = np.concatenate(parts)
        return replace(model, held=weights, schedule=Numbered(len(weights)), features=None)

    def place(self, block: Array, ticks: Array | None) -> Array:
        """Return the block of `scoring_weights` for rows to predict.

        With times, that is the model's own block; with blocks only, the block of the estimator's schedule;
        and the consensus of all blocks for rows without either.
        """
        count = self.scoring_weights.blocks
        known = np.where(block == MISSING, 0, block)
        if ticks is not None:
            known = self._fine_blocks(ticks, known)
        elif self.block_model is not self.model:
            known = known + self.model.blocks
        return np.where(block == MISSING, count - 1, known)

    @cached_property
    def matrix(self) -> Matrix:
        """Scores of every block's model on every block's rows of the sample."""
        return matrix(self.block_model, self.sample)


def sample_of(rows: Rows) -> Rows:
    """Return an evenly spaced sample of rows, within the size limits."""
    cells = max(len(rows.values) // len(rows), 1)
    max_rows = max(min(MAX_SAMPLE_ROWS, MAX_SAMPLE_CELLS // cells), 1)
    if len(rows) <= max_rows:
        return rows
    return rows[np.linspace(0, len(rows) - 1, max_rows).astype(np.int64)]
