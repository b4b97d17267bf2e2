"""`FittedRun`: the run of a fitted estimator and its models, read out on first use."""

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

READ_OUTS = ("mean", "last", "tail")
# Of the rows of a fit, so many and so many cells are kept at most, to be measured on when asked.
SAMPLE_ROWS, SAMPLE_CELLS = 1 << 16, 1 << 20


def check_average(average: Any) -> None:
    """Refuse a read-out that there is not."""
    cycles = isinstance(average, int | np.integer) and not isinstance(average, bool) and average > 0
    if not cycles and average not in READ_OUTS:
        raise ValueError(f"average={average!r}: choose 'mean', 'last', 'tail', or a number of cycles")


class FittedRun:
    """A run with its calendar, and what follows from them; it never changes but by filling in.

    how: what the run was learnt by.
    latest: the time of the last row, in microseconds since 1970.
    sample: some of the rows it has learnt from last.
    portfolio: all candidates, where the method is auto.
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
        """Without the log of visits, where no read-out needs it: it may be a hundred times the models."""
        state = {name: value for name, value in vars(self).items() if name not in ("run_by_now", "answering")}
        if self.how.average in ("mean", "last"):
            state["run"] = self.run.without_records()
        return state

    @cached_property
    def run_by_now(self) -> Run:
        """The run as if no rows would follow: it has learnt from those of an unfilled minibatch too."""
        return self.run if self.run.pending is None else train.finish(self.run)

    @cached_property
    def model(self) -> Pluralistic:
        """The read-out that was asked for, or the mixture; a block without rows has the consensus."""
        if self.portfolio is not None:
            return self._mixture(self.portfolio)
        run, average = self.run_by_now, self.how.average
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*were never visited")
            if average == "mean":
                return run.mean()
            if average == "last":
                return run.last()
            cycles = len(np.unique(run.log.places()[0]))
            return run.tail(max(cycles // 2, 1) if average == "tail" else int(average))

    def _mixture(self, portfolio: Portfolio) -> Pluralistic:
        if portfolio.waiting is not None and portfolio.waiting.size:
            portfolio = deepcopy(portfolio)
            portfolio.end()
        kind = self.sample.values.dtype
        weights, run = model_weights(portfolio).astype(kind), self.run_by_now
        unseen = np.flatnonzero(self.share == 0)
        if len(unseen):
            weights[unseen] = np.tensordot(self.share.astype(kind), weights, axes=1)
        about = {"read_out": "auto", "rows": portfolio.rows, "chosen": describe_choice(portfolio)}
        codes = run.classes
        return Pluralistic(weights, run.schedule, run.loss, codes, tuple(unseen.tolist()), None, about)

    @cached_property
    def share(self) -> Array:
        """[m] each block's share of the rows."""
        _, rows = self.run_by_now.loss_sums()
        return np.asarray(rows / rows.sum())

    @cached_property
    def answering(self) -> Pluralistic:
        """The models of all blocks, and after them the consensus: all of them, by their shares."""
        model = self.model
        if model.blocks == 1:
            return model
        consensus = model.mixture(self.share).astype(model.held.dtype)
        weights = np.concatenate([model.weights, consensus[None]])
        return replace(model, held=weights, schedule=Numbered(model.blocks + 1))

    @cached_property
    def matrix(self) -> Matrix:
        """Every block's model on every block's rows, of those kept."""
        return matrix(self.model, self.sample)


def sample_of(rows: Rows) -> Rows:
    """Rows spread evenly over all, few enough to be kept."""
    cells = max(len(rows.values) // len(rows), 1)
    most = max(min(SAMPLE_ROWS, SAMPLE_CELLS // cells), 1)
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
