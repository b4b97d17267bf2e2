"""Fitting: from rows to a run, in one call or incrementally."""

from copy import deepcopy
from math import inf

import numpy as np

from semicyclic.adapters.sklearn.data_warnings import say_what_is_unseen, say_what_may_be_wrong
from semicyclic.adapters.sklearn.fit_settings import AUTO, FitRows, FitSettings
from semicyclic.adapters.sklearn.fitted_run import FittedRun, sample_of
from semicyclic.adapters.sklearn.row_order import order_of
from semicyclic.adapters.sklearn.row_times import BlockLocator, RowBlocks, calendar_of, check_known
from semicyclic.auto.buffer import targets
from semicyclic.auto.calendar import calendar_of as times_of
from semicyclic.auto.candidates import form_of
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.batches import empty_batches, pack
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.types import Array

# The most pages of records; beyond, they are folded.
PAGES = 64
# Rows of a cycle where there is none.
CYCLE = 32


def learn_all(how: FitSettings, given: FitRows, *, passes: int, rng: np.random.Generator | None) -> FittedRun:
    """One or more passes over rows that are all there; with a generator, shuffled within blocks."""
    calendar = calendar_of(given.where, how.schedule, how.zone)
    placed = _locate_rows(given, calendar)
    rows = given.rows(how, placed)
    sample = sample_of(rows)
    say_what_may_be_wrong(how, given, sample)
    cycle, block = rows.place(calendar.schedule)
    rows.cycle = cycle
    portfolio = None
    if how.method == AUTO:
        if passes != 1:
            raise ValueError(f"passes={passes}: method='auto' makes one pass, in the order of time")
        rng = None
        portfolio = _add_rows(
            _portfolio(how, given, calendar, rows), given.loss, _by_time(rows, placed.ticks)
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
    say_what_is_unseen(calendar, placed, np.bincount(block, rows.weight, calendar.blocks))
    latest = -inf if placed.ticks is None else int(placed.ticks.max())
    return FittedRun(run, calendar, how, latest=latest, sample=sample, portfolio=portfolio)


def learn_more(how: FitSettings, given: FitRows, fitted: FittedRun | None) -> FittedRun:
    """Go on with rows that follow those before; what was fitted stays as it was."""
    if fitted is None:
        if given.where is not None and not given.where.timed and how.schedule is None:
            raise ValueError(
                "the first rows do not tell which blocks there will be: say schedule=m, their number, or "
                "give a list of their names"
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
                "these rows begin before the rows of the last call end: partial_fit goes by time (and times "
                "without a zone go back when clocks do)"
            )
        latest = int(placed.ticks.max())
    rows, ticks = _by_time(rows, placed.ticks)
    sample = sample_of(rows)
    if fitted is None:
        say_what_may_be_wrong(how, given, sample)
        run = _first_run(how, given, calendar, rows)
    else:
        run = fitted.run
        if len(run.log.pages) > PAGES and how.average in ("mean", "last"):
            run = run.without_records()
    portfolio = None
    if how.method == AUTO:
        before = None if fitted is None else fitted.portfolio
        portfolio = _portfolio(how, given, calendar, rows) if before is None else deepcopy(before)
        _add_rows(portfolio, given.loss, (rows, ticks))
    run = train.extend(run, rows, final=False)
    return FittedRun(run, calendar, how, latest=latest, sample=sample, portfolio=portfolio)


def _by_time(rows: Rows, ticks: Array | None) -> tuple[Rows, Array | None]:
    """Rows in the order of time, and their times."""
    if ticks is None or not (np.diff(ticks) < 0).any():
        return rows, ticks
    order = np.argsort(ticks, kind="stable")
    return rows[order], ticks[order]


def _portfolio(how: FitSettings, given: FitRows, calendar: BlockLocator, rows: Rows) -> Portfolio:
    """All candidates, which have learnt nothing yet."""
    form = form_of(times_of(calendar.schedule, weekly=False), intercept=how.fit_intercept)
    return Portfolio(form, given.loss, rows.width, intercept=how.fit_intercept, apart=True)


def _add_rows(portfolio: Portfolio, loss: Loss, came: tuple[Rows, Array | None]) -> Portfolio:
    """The same, when rows have come."""
    rows, ticks = came
    count = portfolio.rows + np.arange(len(rows))
    clock = count if ticks is None else ticks
    if ticks is None and portfolio.form.calendar.blocks > 1 and rows.cycle is None:
        # A cycle ends where the number of the block falls, and not where a call ends.
        cycle, block = rows.place(portfolio.form.calendar.schedule)
        if portfolio.rows:
            cycle = cycle + portfolio.last[0] + int(block[0] < portfolio.block)
        rows = rows.with_blocks(block, cycle)
    if ticks is None and portfolio.form.calendar.blocks == 1:
        # Nothing tells a rhythm: so many rows are called a cycle, at whose end candidates are judged.
        rows = rows.with_blocks(np.zeros(len(rows), np.int64), count // CYCLE)
    for _ in portfolio.add(rows, clock, None, targets(rows.labels, loss)):
        pass
    return portfolio


def _first_run(how: FitSettings, given: FitRows, calendar: BlockLocator, rows: Rows) -> Run:
    """A run that has learnt nothing yet."""
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
    """Where rows to learn from happened; all of it must be known."""
    if given.where is None:
        if calendar.blocks > 1:
            raise ValueError(
                "these rows have neither time nor block, and those before had: give when= or blocks="
            )
        return RowBlocks(np.zeros(given.X.shape[0], np.int64))
    placed = calendar.place(given.where, given.X.shape[0])
    check_known(placed, calendar, given.where)
    return placed


def _check_unchanged(before: FitSettings, now: FitSettings) -> None:
    for name, old, new in zip(FitSettings._fields, before, now, strict=True):
        if old is not new and old != new:
            raise ValueError(
                f"{name} was {old!r} when this stream began and is {new!r} now: set it back, or begin anew "
                "with fit"
            )
