"""Fitting: train a run on rows, in one call or incrementally."""

from copy import deepcopy
from math import inf

import numpy as np

from semicyclic.adapters.sklearn.data_warnings import warn_about_data, warn_about_empty_blocks
from semicyclic.adapters.sklearn.fit_settings import AUTO, FitRows, FitSettings
from semicyclic.adapters.sklearn.fitted_run import FittedRun, sample_of
from semicyclic.adapters.sklearn.row_order import order_of
from semicyclic.adapters.sklearn.row_times import BlockLocator, RowBlocks, calendar_of, check_known
from semicyclic.auto.buffer import targets
from semicyclic.auto.calendar import calendar_of as times_of
from semicyclic.auto.candidates import candidate_set_of
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.batches import empty_batches, pack
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.types import Array

# Maximum pages of visit records; beyond it, the records are dropped if no read-out needs them.
MAX_RECORD_PAGES = 64
# Rows per cycle if rows have neither times nor blocks.
ROWS_PER_CYCLE = 32


def learn_all(how: FitSettings, given: FitRows, *, passes: int, rng: np.random.Generator | None) -> FittedRun:
    """Train on all rows in one or more passes; with a generator, shuffle rows within blocks."""
    calendar = calendar_of(given.where, how.schedule, how.zone)
    placed = _locate_rows(given, calendar)
    rows = given.rows(how, placed)
    sample = sample_of(rows)
    warn_about_data(how, given, sample)
    cycle, block = rows.place(calendar.schedule)
    rows.cycle = cycle
    portfolio = None
    if how.method == AUTO:
        if passes != 1:
            raise ValueError(
                f"passes={passes}: method='auto' makes one pass, so set passes=1 or another method"
            )
        rng = None
        portfolio = _add_rows(
            _new_portfolio(how, given, calendar, rows), given.loss, _sort_by_time(rows, placed.ticks)
        )
        portfolio.end()
    order = order_of(placed.ticks, (cycle, block), passes=passes, rng=rng)
    packed = pack(
        rows,
        calendar.schedule,
        loss=given.loss,
        batch_size=how.batch_size,
        classes=given.classes or None,
        order=order,
    )
    run = how.train(packed, **how.settings())
    warn_about_empty_blocks(calendar, placed, np.bincount(block, rows.weight, calendar.blocks))
    latest = -inf if placed.ticks is None else int(placed.ticks.max())
    return FittedRun(run, calendar, how, latest=latest, sample=sample, portfolio=portfolio)


def learn_more(how: FitSettings, given: FitRows, fitted: FittedRun | None) -> FittedRun:
    """Continue training on later rows, and return a new fitted run; `fitted` is not modified."""
    if fitted is None:
        if given.where is not None and not given.where.timed and how.schedule is None:
            raise ValueError(
                "schedule=None: partial_fit with blocks needs all blocks in advance: set schedule=m, their "
                "number, or a list of their names"
            )
        calendar, latest = calendar_of(given.where, how.schedule, how.zone), -inf
    else:
        _check_unchanged(fitted.how, how)
        calendar, latest = fitted.calendar, fitted.latest
    placed = _locate_rows(given, calendar)
    rows = given.rows(how, placed)
    if placed.ticks is not None:
        if placed.ticks.min() < latest:
            raise ValueError(
                "some rows are earlier than the last row of the previous call: partial_fit goes by time, so "
                "pass rows in order (local times without a zone repeat when clocks are set back)"
            )
        latest = int(placed.ticks.max())
    rows, ticks = _sort_by_time(rows, placed.ticks)
    sample = sample_of(rows)
    if fitted is None:
        warn_about_data(how, given, sample)
        run = _new_run(how, given, calendar, rows)
    else:
        run = fitted.run
        if len(run.log.pages) > MAX_RECORD_PAGES and not how.read_out.needs_records:
            run = run.without_records()
    portfolio = None
    if how.method == AUTO:
        previous = None if fitted is None else fitted.portfolio
        portfolio = _new_portfolio(how, given, calendar, rows) if previous is None else deepcopy(previous)
        _add_rows(portfolio, given.loss, (rows, ticks))
    run = train.extend(run, rows, final=False)
    return FittedRun(run, calendar, how, latest=latest, sample=sample, portfolio=portfolio)


def _sort_by_time(rows: Rows, ticks: Array | None) -> tuple[Rows, Array | None]:
    """Return rows sorted by time, with their times in microseconds."""
    if ticks is None or not (np.diff(ticks) < 0).any():
        return rows, ticks
    order = np.argsort(ticks, kind="stable")
    return rows[order], ticks[order]


def _new_portfolio(how: FitSettings, given: FitRows, calendar: BlockLocator, rows: Rows) -> Portfolio:
    """Return untrained candidates."""
    form = candidate_set_of(times_of(calendar.schedule, weekly=False), intercept=how.fit_intercept)
    return Portfolio(form, given.loss, rows.width, intercept=how.fit_intercept, blocks_recur=True)


def _add_rows(portfolio: Portfolio, loss: Loss, arrived: tuple[Rows, Array | None]) -> Portfolio:
    """Train all candidates on sorted rows, in place, and return the portfolio."""
    rows, ticks = arrived
    count = portfolio.rows + np.arange(len(rows))
    clock = count if ticks is None else ticks
    if ticks is None and portfolio.candidate_set.calendar.blocks > 1 and rows.cycle is None:
        # A cycle ends where the block number decreases, not where a call ends.
        cycle, block = rows.place(portfolio.candidate_set.calendar.schedule)
        if portfolio.rows:
            cycle = cycle + portfolio.last[0] + int(block[0] < portfolio.block)
        rows = rows.with_blocks(block, cycle)
    if ticks is None and portfolio.candidate_set.calendar.blocks == 1:
        # Without times or blocks, a cycle is a fixed number of rows; candidates are evaluated at its end.
        rows = rows.with_blocks(np.zeros(len(rows), np.int64), count // ROWS_PER_CYCLE)
    for _ in portfolio.add(rows, clock, None, targets(rows.labels, loss)):
        pass
    return portfolio


def _new_run(how: FitSettings, given: FitRows, calendar: BlockLocator, rows: Rows) -> Run:
    """Return an untrained run."""
    empty = empty_batches(
        rows.width,
        calendar.schedule,
        loss=given.loss,
        batch_size=how.batch_size,
        classes=given.classes,
        intercept=how.fit_intercept,
        dtype=given.X.dtype,
    )
    return how.train(empty, **how.settings())


def _locate_rows(given: FitRows, calendar: BlockLocator) -> RowBlocks:
    """Return the blocks of rows to train on. Raise if one is missing or unknown."""
    if given.where is None:
        if calendar.blocks > 1:
            raise ValueError(
                "the rows have neither time nor block, but earlier rows had: give when= or blocks="
            )
        return RowBlocks(np.zeros(given.X.shape[0], np.int64))
    placed = calendar.place(given.where, given.X.shape[0])
    check_known(placed, calendar, given.where)
    return placed


def _check_unchanged(before: FitSettings, now: FitSettings) -> None:
    """Raise if a setting changed since the first `partial_fit` or `fit`."""
    for name, old, new in zip(FitSettings._fields, before, now, strict=True):
        if old is not new and old != new:
            raise ValueError(
                f"{name} was {old!r} when this stream began and is {new!r} now: set it back, or start again "
                "with fit"
            )
