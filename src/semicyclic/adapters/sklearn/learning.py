"""From rows to a run: all of them at once, or as they come."""

from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.adapters.sklearn.fitted import Fitted, sample_of
from semicyclic.adapters.sklearn.how import Given, How
from semicyclic.adapters.sklearn.order import order_of
from semicyclic.adapters.sklearn.places import Calendar, Placed, calendar_of, check_known
from semicyclic.adapters.sklearn.remarks import say_what_is_unseen, say_what_may_be_wrong
from semicyclic.method import train
from semicyclic.method.loss import Loss
from semicyclic.method.pack import nothing, pack
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.schedule import visits

Array = npt.NDArray[Any]

# A mean of each block is kept up to date where that costs at most so much per cell of the rows, and
# beyond so many pages of records they are folded.
KEPT, FREE, PAGES = 16, 1 << 20, 64


def learn_all(how: How, given: Given, *, passes: int, rng: np.random.Generator | None) -> Fitted:
    """One or more passes over rows that are all there; with a generator, shuffled within blocks."""
    calendar = calendar_of(given.where, how.schedule, how.zone)
    placed = _placed(given, calendar)
    rows = given.rows(how, placed)
    sample = sample_of(rows)
    say_what_may_be_wrong(how, given, sample)
    cycle, block = rows.place(calendar.schedule)
    rows.cycle = cycle
    order = order_of(placed.ticks, (cycle, block), passes=passes, rng=rng)
    packed = pack(
        rows,
        calendar.schedule,
        loss=given.loss,
        batch_size=how.batch_size,
        classes=given.classes or None,
        order=order,
    )
    running = _is_cheap(len(packed.layout.block), rows, given.loss)
    run = getattr(train, how.method)(packed, running=running, **how.settings())
    say_what_is_unseen(calendar, placed, np.bincount(block, rows.weight, calendar.blocks))
    latest = -inf if placed.ticks is None else int(placed.ticks.max())
    return Fitted(run, calendar, how, latest=latest, sample=sample)


def learn_more(how: How, given: Given, fitted: Fitted | None) -> Fitted:
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
    placed = _placed(given, calendar)
    rows = given.rows(how, placed)
    if placed.ticks is not None:
        if placed.ticks.min() < latest:
            raise ValueError(
                "these rows begin before the rows of the last call end: partial_fit goes by time (and times "
                "without a zone go back when clocks do)"
            )
        latest = int(placed.ticks.max())
        if (np.diff(placed.ticks) < 0).any():
            rows = rows[np.argsort(placed.ticks, kind="stable")]
    sample = sample_of(rows)
    if fitted is None:
        say_what_may_be_wrong(how, given, sample)
        run = _first_run(how, given, calendar, rows)
    else:
        run = fitted.run
        if len(run.log.pages) > PAGES * run.log.experts and how.average in ("mean", "last"):
            run = run.folded()
    run = train.more(run, rows, ended=False)
    return Fitted(run, calendar, how, latest=latest, sample=sample)


def _first_run(how: How, given: Given, calendar: Calendar, rows: Rows) -> Run:
    """A run that has learnt nothing yet."""
    empty = nothing(
        rows.width,
        calendar.schedule,
        loss=given.loss,
        batch_size=how.batch_size,
        classes=given.classes,
        intercept=how.fit_intercept,
        dtype=given.X.dtype,
    )
    running = _is_cheap(len(visits(*rows.place(calendar.schedule)).block), rows, given.loss)
    run: Run = getattr(train, how.method)(empty, running=running, **how.settings())
    return run


def _is_cheap(count: int, rows: Rows, loss: Loss) -> bool:
    """Whether so many visits can afford to bring whole models up to date."""
    return count * (rows.width + 1) * loss.outputs <= KEPT * len(rows.values) + FREE


def _placed(given: Given, calendar: Calendar) -> Placed:
    """Where rows to learn from happened; all of it must be known."""
    if given.where is None:
        if calendar.blocks > 1:
            raise ValueError(
                "these rows have neither time nor block, and those before had: give when= or blocks="
            )
        return Placed(np.zeros(given.X.shape[0], np.int64))
    placed = calendar.place(given.where, given.X.shape[0])
    check_known(placed, calendar, given.where)
    return placed


def _check_unchanged(before: How, now: How) -> None:
    for name, old, new in zip(How._fields, before, now, strict=True):
        if old is not new and old != new:
            raise ValueError(
                f"{name} was {old!r} when this stream began and is {new!r} now: set it back, or begin anew "
                "with fit"
            )
