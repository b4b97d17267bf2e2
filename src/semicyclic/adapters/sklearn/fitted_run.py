"""`FittedRun`: the run of a fitted estimator, and its models, computed on first use."""

import warnings
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from semicyclic.adapters.sklearn.fit_settings import FitSettings
from semicyclic.adapters.sklearn.row_times import BlockLocator
from semicyclic.auto.export import describe_choice, model_weights
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.evaluate import Matrix, matrix
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.schedule.numbered import Numbered
from semicyclic.types import Array

# Maximum size of the sample of rows that is kept for `matrix_`.
MAX_SAMPLE_ROWS, MAX_SAMPLE_CELLS = 1 << 16, 1 << 20


class FittedRun:
    """A run with its calendar, and the models computed from them. Immutable except for cached properties.

    how: settings of the fit.
    latest: time of the last row, in microseconds since 1970.
    sample: sample of the rows of the last call.
    portfolio: all candidates if the method is auto, else None.
    """

    def __init__(
        self,
        run: Run,
        calendar: BlockLocator,
        how: FitSettings,
        *,
        latest: float,
        sample: Rows,
        portfolio: Portfolio | None = None,
    ) -> None:
        self.run, self.calendar, self.how = run, calendar, how
        self.latest, self.sample, self.portfolio = latest, sample, portfolio

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the log of visits if no read-out needs it: it may be 100 times the size of the models."""
        state = {
            name: value for name, value in vars(self).items() if name not in ("finished_run", "scoring_model")
        }
        if not self.how.read_out.needs_records:
            state["run"] = self.run.without_records()
        return state

    @cached_property
    def finished_run(self) -> Run:
        """The run after a final step on the rows of an unfilled minibatch."""
        return self.run if self.run.pending is None else train.finish(self.run)

    @cached_property
    def model(self) -> Pluralistic:
        """The read-out `average`, or the mixture of candidates; the consensus for blocks without rows."""
        if self.portfolio is not None:
            return self._mixture(self.portfolio)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*were never visited")
            return self.finished_run.read_out(self.how.read_out)

    def _mixture(self, portfolio: Portfolio) -> Pluralistic:
        """Return the mixture of candidates as one model; the consensus for blocks without rows."""
        if portfolio.waiting is not None and portfolio.waiting.size:
            portfolio = deepcopy(portfolio)
            portfolio.end()
        dtype = self.sample.values.dtype
        weights, run = model_weights(portfolio).astype(dtype), self.finished_run
        unseen = np.flatnonzero(self.share == 0)
        if len(unseen):
            weights[unseen] = np.tensordot(self.share.astype(dtype), weights, axes=1)
        about = {"read_out": "auto", "rows": portfolio.rows, "chosen": describe_choice(portfolio)}
        codes = run.classes
        return Pluralistic(weights, run.schedule, run.loss, codes, tuple(unseen.tolist()), None, about)

    @cached_property
    def share(self) -> Array:
        """Each block's share of the rows, [m]."""
        _, rows = self.finished_run.loss_sums()
        return np.asarray(rows / rows.sum())

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
