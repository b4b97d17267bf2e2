"""Fitting: train a learner on rows, in one call or incrementally."""

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from semicyclic.adapters.sklearn.data_warnings import warn_about_data, warn_about_empty_blocks
from semicyclic.adapters.sklearn.fitted import Fitted, sample_of
from semicyclic.adapters.sklearn.row_order import order_of
from semicyclic.adapters.sklearn.row_times import BlockLocator, check_known, locator_of
from semicyclic.adapters.sklearn.settings import fixed_settings, read_out_of, step_of
from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import candidate_set_of
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.batches import Packed, empty_batches, pack
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.training.learner import AUTO, AutoLearner, ChainLearner, Learner
from semicyclic.types import Array

# Maximum pages of visit records; beyond it, the records are dropped if no read-out needs them.
MAX_RECORD_PAGES = 64
# Memory limit in bytes for visit records, which read-outs of single cycles need.
MAX_RECORD_BYTES = 2 * 2**30
# Rows per cycle if rows have neither times nor blocks.
ROWS_PER_CYCLE = 32


def learn_all(
    estimator: Any, rows: Rows, loss: Loss, when: Any, blocks: Any, rng: np.random.Generator | None
) -> Fitted:
    """Train on all rows in one or more passes; with a generator, a chain shuffles rows within blocks.

    rows: as validated, without blocks. when, blocks: their times or blocks, or None.
    """
    locator = locator_of(when, blocks, estimator.schedule, estimator.zone)
    rows, ticks = _locate(locator, rows, when, blocks)
    sample = sample_of(rows)
    warn_about_data(estimator, rows, sample, has_blocks=when is not None or blocks is not None)
    cycle, block = rows.place(locator.schedule)
    learner: Learner
    if estimator.method == AUTO:
        if estimator.passes != 1:
            raise ValueError(
                f"passes={estimator.passes}: method='auto' makes one pass, so set passes=1 or another method"
            )
        learner = _new_auto(locator, rows, loss)
        learner.learn(*_sort_by_time(rows, ticks), None)
        learner.end()
    else:
        rows = rows.with_blocks(block, cycle)
        order = order_of(ticks, (cycle, block), passes=int(estimator.passes), rng=rng)
        codes = tuple(range(loss.classes)) or None
        settings: Any = {"loss": loss, "batch_size": estimator.batch_size, "classes": codes, "order": order}
        learner = _new_chain(estimator, pack(rows, locator.schedule, **settings))
    warn_about_empty_blocks(locator, ticks, np.bincount(block, rows.weight, locator.blocks))
    latest = -inf if ticks is None else int(ticks.max())
    return Fitted(learner, locator, fixed_settings(estimator), latest, sample)


def learn_more(
    estimator: Any, rows: Rows, loss: Loss, when: Any, blocks: Any, fitted: Fitted | None
) -> Fitted:
    """Continue training on later rows, and return what is fitted then; `fitted` is not modified."""
    if fitted is None:
        if blocks is not None and estimator.schedule is None:
            raise ValueError(
                "schedule=None: partial_fit with blocks needs all blocks in advance: set schedule=m, their "
                "number, or a list of their names"
            )
        locator, latest = locator_of(when, blocks, estimator.schedule, estimator.zone), -inf
    else:
        _check_unchanged(fitted.settings, fixed_settings(estimator))
        locator, latest = fitted.locator, fitted.latest
    rows, ticks = _locate(locator, rows, when, blocks)
    if ticks is not None:
        if ticks.min() < latest:
            raise ValueError(
                "some rows are earlier than the last row of the previous call: partial_fit goes by time, so "
                "pass rows in order (local times without a zone repeat when clocks are set back)"
            )
        latest = int(ticks.max())
    rows, clock = _sort_by_time(rows, ticks)
    sample = sample_of(rows)
    learner: Learner
    if fitted is not None:
        learner = fitted.learner.without_records(MAX_RECORD_PAGES).copy()
    else:
        warn_about_data(estimator, rows, sample, has_blocks=when is not None or blocks is not None)
        if estimator.method == AUTO:
            learner = _new_auto(locator, rows, loss)
        else:
            learner = _new_chain(estimator, _no_rows(estimator, locator, rows, loss))
    learner.learn(rows, clock, None)
    return Fitted(learner, locator, fixed_settings(estimator), latest, sample)


@dataclass
class EstimatorAuto(AutoLearner):
    """The automatic choice for rows that may have no times, cycles or blocks.

    dtype: type of the weights.
    """

    dtype: Any

    def learn(self, rows: Rows, clock: Array, ticks: Array | None) -> None:
        """Train on sorted rows. clock: their times, or numbers from 0 if they have none."""
        portfolio = self.portfolio
        schedule = portfolio.candidate_set.calendar.schedule
        if rows.cycle is None:
            clock = clock + portfolio.rows
            if schedule.blocks == 1:
                # Without times or blocks, a cycle is a number of rows; candidates are evaluated at its end.
                rows = rows.with_blocks(np.zeros(len(rows), np.int64), clock // ROWS_PER_CYCLE)
            else:
                # A cycle ends where the block number decreases, not where a call ends.
                cycle, block = rows.place(schedule)
                if portfolio.rows:
                    cycle = cycle + portfolio.last.cycle + int(block[0] < portfolio.last.block)
                rows = rows.with_blocks(block, cycle)
        super().learn(rows, clock, ticks)

    def model(self) -> Pluralistic:
        """Return the mixture of candidates; the consensus for blocks without rows."""
        mixture = super().model()
        weights = mixture.weights.astype(self.dtype)
        rows = self.losses().rows
        if mixture.fallback and rows.sum() > 0:
            consensus = np.tensordot((rows / rows.sum()).astype(self.dtype), weights, axes=1)
            weights[list(mixture.fallback)] = consensus
        about = {"read_out": AUTO, "rows": self.portfolio.rows, "chosen": self.choice()}
        codes = tuple(range(self.loss.classes))
        return Pluralistic(weights, mixture.schedule, self.loss, codes, mixture.fallback, None, about)


def _new_auto(locator: BlockLocator, rows: Rows, loss: Loss) -> EstimatorAuto:
    """Return untrained candidates."""
    intercept = rows.intercept
    form = candidate_set_of(calendar_of(locator.schedule, weekly=False), intercept=intercept)
    portfolio = Portfolio(form, loss, rows.width, intercept=intercept, blocks_recur=True)
    return EstimatorAuto(portfolio, rows.values.dtype)


def _new_chain(estimator: Any, packed: Packed) -> ChainLearner:
    """Return a chain trained on packed rows, of which there may be none."""
    read_out = read_out_of(estimator.average)
    settings: train.Settings = {"step_size": step_of(estimator.step_size)}
    if read_out.needs_records:
        settings["memory"] = MAX_RECORD_BYTES
    return ChainLearner(getattr(train, estimator.method)(packed, **settings), read_out)


def _no_rows(estimator: Any, locator: BlockLocator, rows: Rows, loss: Loss) -> Packed:
    """Return no rows, in the format of `rows`."""
    return empty_batches(
        rows.width,
        locator.schedule,
        loss=loss,
        batch_size=estimator.batch_size,
        classes=tuple(range(loss.classes)),
        intercept=rows.intercept,
        dtype=rows.values.dtype,
    )


def _locate(locator: BlockLocator, rows: Rows, when: Any, blocks: Any) -> tuple[Rows, Array | None]:
    """Return rows to train on with their blocks, and their times, if any. Raise if a block is unknown."""
    if when is None and blocks is None:
        if locator.blocks > 1:
            raise ValueError(
                "the rows have neither time nor block, but earlier rows had: give when= or blocks="
            )
        return rows.with_blocks(np.zeros(len(rows), np.int64)), None
    (cycle, block), ticks = locator.place(when, blocks, len(rows))
    check_known(block, locator, when, blocks)
    return rows.with_blocks(block, cycle), ticks


def _sort_by_time(rows: Rows, ticks: Array | None) -> tuple[Rows, Array]:
    """Return rows sorted by time, with their times in microseconds, or numbers if they have none."""
    if ticks is None:
        return rows, np.arange(len(rows))
    if not (np.diff(ticks) < 0).any():
        return rows, ticks
    order = np.argsort(ticks, kind="stable")
    return rows[order], ticks[order]


def _check_unchanged(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise if a setting changed since the first `partial_fit` or `fit`."""
    for name, new in now.items():
        old = before[name]
        if old is not new and old != new:
            raise ValueError(
                f"{name} was {old!r} when this stream began and is {new!r} now: set it back, or start again "
                "with fit"
            )
