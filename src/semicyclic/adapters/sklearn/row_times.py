"""Times or blocks of rows as given to an estimator, and the (cycle, block) they map to."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from semicyclic import specs
from semicyclic.adapters.sklearn.data_frames import absent, take_rows
from semicyclic.schedule.numbered import AnySchedule, Numbered, as_schedule
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timestamps import instants
from semicyclic.schedule.timezones import zone_info
from semicyclic.types import Array

# Numbers below this many seconds, before March 1973, are hardly ever times: they were scaled, are counted in
# minutes or days, or are the nothing of a sparse matrix.
LEAST = 1e8
# In place of a block: not told, and told but not one of those there are.
MISSING, STRANGE = -1, -2


class TimesOrBlocks(NamedTuple):
    """What was told of where rows happened: their times or, where `timed` is false, their blocks."""

    timed: bool
    values: Any


class RowBlocks(NamedTuple):
    """The block of each row, MISSING or STRANGE; with times also the cycle and the ticks."""

    block: Array
    cycle: Array | None = None
    ticks: Array | None = None


@dataclass(frozen=True)
class BlockLocator:
    """How rows find their block.

    names: what blocks are called, where they are neither numbered nor times of a schedule.
    zone: that of times which name none.
    """

    schedule: AnySchedule
    names: tuple[Any, ...] = ()
    zone: str = "UTC"

    @property
    def blocks(self) -> int:
        """m, the number of blocks."""
        return self.schedule.blocks

    @property
    def labels(self) -> tuple[Any, ...]:
        """What to call each block."""
        if self.names:
            return self.names
        return tuple(range(self.blocks)) if isinstance(self.schedule, Numbered) else self.schedule.labels

    def place(self, where: TimesOrBlocks, rows: int) -> RowBlocks:
        """The block of each of so many rows, and with times the cycle."""
        if where.timed:
            values = _length("when", where.values, rows)
            return (
                RowBlocks(np.zeros(rows, np.int64))
                if self.schedule == Numbered(1)
                else self._at_times(values)
            )
        if np.ndim(where.values) == 0:
            where = where._replace(values=np.full(rows, where.values))
        return RowBlocks(self._codes(_length("blocks", where.values, rows)))

    def _at_times(self, values: Any) -> RowBlocks:
        if isinstance(self.schedule, Numbered):
            raise ValueError(
                "these rows have times, and blocks were numbered when the estimator was fitted: give blocks="
            )
        missing = absent(values)
        known = np.flatnonzero(~missing)
        ticks = np.zeros(len(missing), np.int64)
        if len(known):
            ticks[known] = _ticks(
                values if len(known) == len(missing) else take_rows(values, known), self.zone
            )
        cycle, block = self.schedule.place(ticks)
        return RowBlocks(np.where(missing, MISSING, block), cycle, np.where(missing, 0, ticks))

    def _codes(self, values: Any) -> Array:
        missing = absent(values)
        if missing.any():
            known = np.flatnonzero(~missing)
            codes = np.full(len(missing), MISSING)
            if len(known):
                codes[known] = self._codes(take_rows(values, known))
            return codes
        given = np.asarray(values)
        numbers = None if self.names else whole_numbers(given)
        if numbers is None:
            number = {name: code for code, name in enumerate(self.labels)}
            return np.array([number.get(_plain(each), STRANGE) for each in given.tolist()], np.int64)
        inside = (numbers >= 0) & (numbers < self.blocks)
        return numbers if inside.all() else np.where(inside, numbers, STRANGE)


def calendar_of(where: TimesOrBlocks | None, schedule: Any, zone: str | None) -> BlockLocator:
    """The calendar that a schedule and the rows' times or blocks make."""
    if zone is not None:
        zone_info(zone)
    elif where is not None and where.timed and not isinstance(schedule, Schedule):
        zone = zone_named(where.values)
    if isinstance(schedule, str):
        schedule = specs.parse_schedule("schedule", schedule, zone or "UTC")
    if isinstance(schedule, list | tuple):
        return _blocks_by_name(where, [_plain(each) for each in schedule])
    if isinstance(schedule, Numbered):
        schedule = schedule.blocks
    whole = isinstance(schedule, int | np.integer) and not isinstance(schedule, bool)
    if schedule is not None and not isinstance(schedule, Schedule) and not (whole and schedule > 0):
        raise ValueError(
            f"schedule={schedule!r}: give a Schedule, a text such as 'daily:6', or the number of blocks or a "
            "list of their names"
        )
    if where is None:
        count = 1 if schedule is None else schedule if whole else schedule.blocks
        if count > 1:
            raise ValueError(
                f"there are {count} blocks, and nothing tells the block of a row: name the column of X by "
                "time_column= or block_column=, or give when= or blocks="
            )
        return BlockLocator(Numbered(1))
    if where.timed:
        if whole:
            raise ValueError(
                f"schedule={schedule}: numbered blocks do not tell which time belongs to which: "
                f"write 'daily:{schedule}', or a Schedule"
            )
        chosen = Schedule.daily(6, zone=zone or "UTC") if schedule is None else schedule
        return BlockLocator(chosen, zone=zone or chosen.zone)
    if schedule is not None:
        return BlockLocator(as_schedule(schedule))
    given = np.atleast_1d(np.asarray(where.values))
    numbers = whole_numbers(given)
    if numbers is not None:
        if numbers.min() < 0 or numbers.max() >= 10**6:
            raise ValueError(
                "blocks are counted from 0, and there are less than a million: give names instead"
            )
        return BlockLocator(Numbered(int(numbers.max()) + 1))
    if absent(where.values).any():
        raise ValueError("some rows have no block: leave them out when fitting")
    try:
        names = sorted({_plain(each) for each in given.tolist()})
    except TypeError:
        raise ValueError("the blocks are of several kinds: make them all texts or all numbers") from None
    return BlockLocator(Numbered(len(names)), tuple(names))


def _blocks_by_name(where: TimesOrBlocks | None, names: list[Any]) -> BlockLocator:
    """Blocks that are called so."""
    if where is None or where.timed:
        raise ValueError(f"schedule={names!r}: names of blocks go with block_column= or blocks=")
    if len(names) == 0 or len(set(names)) != len(names):
        raise ValueError(f"schedule={names!r}: give at least one name, all of them different")
    return BlockLocator(Numbered(len(names)), tuple(names))


def zone_named(values: Any) -> str | None:
    """The zone that a column of times names for all of them, if any."""
    dtype = getattr(values, "dtype", None)
    told = getattr(dtype, "tz", None) or getattr(dtype, "time_zone", None)
    if told is None and str(dtype) == "object":
        zones = {str(each.tzinfo) for each in np.asarray(values) if getattr(each, "tzinfo", None) is not None}
        told = zones.pop() if len(zones) == 1 else None
    if told is None:
        return None
    try:
        return zone_info(str(told)).key
    except ValueError:
        return None  # a fixed offset has no name


def whole_numbers(values: Array) -> Array | None:
    """Values as whole numbers; None where they are not."""
    if values.dtype.kind in "biu":
        return values.astype(np.int64, copy=False)
    if values.dtype == object and all(isinstance(each, int | float) for each in values.tolist()):
        values = values.astype(np.float64)
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.floor(values)).all():
        return values.astype(np.int64)
    return None


def check_known(
    placed: RowBlocks, calendar: BlockLocator, where: TimesOrBlocks, *, lenient: bool = False
) -> None:
    """Refuse rows of which nobody knows the block; with `lenient` only those that name one there is not."""
    unknown = (placed.block == STRANGE) if lenient else (placed.block < 0)
    if not unknown.any():
        return
    row = int(unknown.argmax())
    if placed.block[row] == MISSING:
        what = "time" if where.timed else "block"
        raise ValueError(
            f"row {row} has no {what}, and there are {calendar.blocks} blocks to choose from: leave it out, "
            "or to predict it make the estimator with missing='consensus'"
        )
    told = where.values if np.ndim(where.values) == 0 else np.asarray(where.values)[row]
    known = [str(label) for label in calendar.labels[:6]] + ["..."] * (calendar.blocks > 6)
    remedy = "" if calendar.names else "; schedule=m makes m blocks, counted from 0"
    raise ValueError(f"row {row} is in block {_plain(told)!r}: the blocks are {', '.join(known)}{remedy}")


def _ticks(values: Any, zone: str) -> Array:
    """Microseconds since 1970 of times that are all there."""
    kind = str(getattr(values, "dtype", "")).lower()
    if kind in ("float32", "float16"):
        raise ValueError(
            f"the times are epoch seconds in {kind}, which are 128 s apart nowadays: keep them in float64 "
            "(an array or a sparse matrix of float32 cannot hold them: give when=, or a data frame)"
        )
    if "date" in kind:
        return instants(values, zone=zone)
    told = np.asarray(values)
    if told.dtype == object and all(type(each) in (int, float) for each in told.tolist()):
        told = told.astype(np.float64)
    if told.dtype.kind in "US" or (told.dtype == object and any(isinstance(each, str) for each in told)):
        raise ValueError("the times are texts: make them datetimes first, as by pandas.to_datetime")
    if told.dtype.kind in "iuf" and (small := np.abs(told) < LEAST).any():
        raise ValueError(
            f"a time is {told[int(small.argmax())]:.6g}, and epoch seconds of today are above 1,000,000,000. "
            "If a scaler came before, keep the column out of it (ColumnTransformer, remainder="
            "'passthrough'); hours and other numbers of blocks go by block_column= or blocks=; times that "
            "are counted otherwise must be made datetimes"
        )
    return instants(told, zone=zone)


def _length(name: str, values: Any, rows: int) -> Any:
    """Values as a column of so many rows."""
    column = values if hasattr(values, "dtype") else np.asarray(values)
    if getattr(column, "ndim", 1) != 1:
        raise ValueError(f"{name} is no column of values: give one for each row")
    if len(column) != rows:
        raise ValueError(f"{name} has {len(column)} values, X has {rows} rows: give one for each")
    return column


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
