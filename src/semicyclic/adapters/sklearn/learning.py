"""From rows to a run: all of them at once, or as they come."""

import warnings
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.adapters.sklearn.fitted import Fitted, sample_of
from semicyclic.adapters.sklearn.order import order_of, spreads, typical
from semicyclic.adapters.sklearn.places import Calendar, Placed, Where, calendar_of, check_known
from semicyclic.method import step as steps
from semicyclic.method import train
from semicyclic.method.loss import Loss
from semicyclic.method.pack import nothing, pack
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.schedule import visits
from semicyclic.method.step import Step

Array = npt.NDArray[Any]

METHODS = {
    "pluralistic": train.pluralistic,
    "separate": train.separate,
    "residual": train.residual,
    "hedged": train.hedged,
    "consensus": train.consensus,
}
# AdaGrad's rate: of six from .05 to 2 within 5 % of the best wherever a block has a thousand rows.
RATE = 0.2
# Features and labels beyond this are not learnt within a thousand steps of that rate; nor are features whose
# values, where there are any, are smaller than this.
LARGE, SMALL, ENOUGH = 30.0, 0.4, 100
# What read-outs of single cycles may keep.
RECORDS = 2 * 2**30
# A mean of each block is kept up to date where that costs at most so much per cell of the rows, and
# beyond so many pages of records they are folded.
KEPT, FREE, PAGES = 16, 1 << 20, 64


class How(NamedTuple):
    """What a stream is learnt by, from its first row to its last."""

    method: str
    loss: Any
    step_size: Any
    batch_size: int
    average: Any
    fit_intercept: bool
    schedule: Any
    zone: str | None

    def settings(self) -> dict[str, Any]:
        """As `train` takes them."""
        how: dict[str, Any] = {"step_size": step_of(self.step_size)}
        return how if self.average in ("mean", "last") else {**how, "memory": RECORDS}


class Given(NamedTuple):
    """Rows of a call: features, labels as the loss has them, weights, where they happened, and names."""

    X: Any
    y: Array
    weight: Array | None
    where: Where | None
    columns: Array
    loss: Loss

    def rows(self, how: How, placed: Placed) -> Rows:
        """Checked, in the order given."""
        where: Any = {"block": placed.block, "cycle": placed.cycle}
        kind = self.X.dtype
        return Rows(self.X, self.y, weight=self.weight, intercept=how.fit_intercept, dtype=kind, **where)

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels are numbers of classes."""
        return tuple(range(self.loss.classes))


def learn_all(how: How, given: Given, *, passes: int, rng: np.random.Generator | None) -> Fitted:
    """One or more passes over rows that are all there; with a generator, shuffled within blocks."""
    calendar = calendar_of(given.where, how.schedule, how.zone)
    placed = _placed(given, calendar)
    rows = given.rows(how, placed)
    _say_what_may_be_wrong(how, given, rows)
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
    run = METHODS[how.method](packed, running=running, **how.settings())
    _say_what_is_unseen(calendar, placed, np.bincount(block, rows.weight, calendar.blocks))
    latest = -inf if placed.ticks is None else int(placed.ticks.max())
    return Fitted(run, calendar, how, latest=latest, sample=sample_of(rows))


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
    if fitted is None:
        _say_what_may_be_wrong(how, given, rows)
        run = _first_run(how, given, calendar, rows)
    else:
        run = fitted.run
        if len(run.log.pages) > PAGES * run.log.experts and how.average in ("mean", "last"):
            run = run.folded()
    run = train.more(run, rows, ended=False)
    return Fitted(run, calendar, how, latest=latest, sample=sample_of(rows))


def step_of(step_size: Any) -> Any:
    """A rule for steps; a text is the name of one."""
    if isinstance(step_size, str) and step_size == "adaptive":
        return steps.adagrad(RATE)
    number = isinstance(step_size, int | float | np.number) and not isinstance(step_size, bool)
    if not isinstance(step_size, Step) and not number:
        raise ValueError(f"step_size={step_size!r}: write 'adaptive', a number, or a rule of sc.step")
    return step_size


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
    return METHODS[how.method](empty, running=running, **how.settings())


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


def _say_what_may_be_wrong(how: How, given: Given, rows: Rows) -> None:
    if given.where is None and how.method != "consensus":
        _warn(
            "nothing was told of times or blocks, so this learns one model for all hours: name the column of "
            "X by time_column= or block_column=, or give when= or blocks="
        )
    if not isinstance(how.step_size, str):
        return
    some = sample_of(rows)
    spread = spreads(some)
    if spread.max() > LARGE:
        _warn(
            f"column {given.columns[int(spread.argmax())]!r} has values around {spread.max():,.0f}: steps "
            "are sized for features around 1. Scale them first, as by StandardScaler in a ColumnTransformer "
            "that passes the time through"
        )
    size = typical(some)
    # Of a few rows nobody knows what is typical.
    if 0.0 < size < SMALL and len(some) >= ENOUGH:
        _warn(
            f"features have values around {size:.2g}, as TF-IDF has: steps are sized for features around 1. "
            f"Take step_size=semicyclic.step.adagrad({RATE / size:.1g}), or scale the features"
        )
    size = 0.0 if given.loss.classes else float(np.sqrt(np.mean(np.square(given.y))))
    if size > LARGE:
        _warn(
            f"y has values around {size:,.0f}: steps are sized for labels around 1. Scale them, as "
            "TransformedTargetRegressor(regressor=..., transformer=StandardScaler()) does"
        )


def _say_what_is_unseen(calendar: Calendar, placed: Placed, rows: Array) -> None:
    unseen = np.flatnonzero(rows == 0)
    if len(unseen):
        some = ", ".join(str(calendar.labels[block]) for block in unseen[:6].tolist())
        _warn(
            f"{len(unseen)} of {calendar.blocks} blocks have no rows ({some}{', ...' * (len(unseen) > 6)}): "
            "they answer by the consensus of the others"
            + ("" if placed.ticks is None else f". Times run {_reach(placed.ticks)}")
        )


def _reach(ticks: Array) -> str:
    ends = np.array([ticks.min(), ticks.max()]).astype("datetime64[us]").astype("datetime64[s]")
    return f"from {ends[0]} to {ends[1]} UTC"


def _warn(message: str) -> None:
    # As from the call of fit or partial_fit.
    warnings.warn(message, stacklevel=5)
