"""`Fitted`: the learner of a fitted estimator, and its models, computed on first use."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from semicyclic.adapters.sklearn.row_times import BlockLocator
from semicyclic.method.evaluate import Matrix, matrix
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.schedule.numbered import Numbered
from semicyclic.training.learner import Learner
from semicyclic.types import Array

# Maximum size of the sample of rows that is kept for `matrix_`.
MAX_SAMPLE_ROWS, MAX_SAMPLE_CELLS = 1 << 16, 1 << 20


@dataclass(frozen=True, eq=False)
class Fitted:
    """A learner with its blocks, and the models computed from them.

    settings: the estimator's parameters that must not change between calls of `partial_fit`.
    latest: time of the last row, in microseconds since 1970. sample: sample of the rows of the last call.
    """

    learner: Learner
    locator: BlockLocator
    settings: dict[str, Any]
    latest: float
    sample: Rows

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the log of visits if no read-out needs it: it may be 100 times the size of the models."""
        state = {name: value for name, value in vars(self).items() if name not in ("ended", "scoring_model")}
        return state | {"learner": self.learner.without_records()}

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
        """The model of every block; the consensus for blocks without rows."""
        return self.ended.model()

    @cached_property
    def share(self) -> Array:
        """Each block's share of the rows, [m]; equal shares if no row has weight."""
        rows = self.ended.losses().rows
        return np.asarray(rows / rows.sum()) if rows.sum() > 0 else np.full(len(rows), 1 / len(rows))

    @cached_property
    def scoring_model(self) -> Pluralistic:
        """The models of all blocks, followed by the consensus: their mean, weighted by `share`."""
        model = self.model
        if model.blocks == 1:
            return model
        consensus = model.mixture(self.share).astype(model.held.dtype)
        weights = np.concatenate([model.weights, consensus[None]])
        return replace(model, held=weights, schedule=Numbered(model.blocks + 1))

    @cached_property
    def matrix(self) -> Matrix:
        """Scores of every block's model on every block's rows of the sample."""
        return matrix(self.model, self.sample)


def sample_of(rows: Rows) -> Rows:
    """Return an evenly spaced sample of rows, within the size limits."""
    cells = max(len(rows.values) // len(rows), 1)
    max_rows = max(min(MAX_SAMPLE_ROWS, MAX_SAMPLE_CELLS // cells), 1)
    if len(rows) <= max_rows:
        return rows
    return rows[np.linspace(0, len(rows) - 1, max_rows).astype(np.int64)]
