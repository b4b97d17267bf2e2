"""Times or blocks of rows given to an estimator, and the (cycle, block) of each row."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from semicyclic import specs, tables
from semicyclic.adapters.sklearn.data_frames import absent, names_of, split_off, take_rows
from semicyclic.schedule.numbered import AnySchedule, Numbered, as_schedule
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timestamps import instants
from semicyclic.schedule.timezones import zone_info
from semicyclic.types import Array

# Smaller numbers (before March 1973) are hardly ever epoch seconds: they were scaled, count minutes or days,
# or are cells that a sparse matrix does not store.
MIN_EPOCH_SECONDS = 1e8
# Block codes for a missing block, and for a block that is not in the schedule.
MISSING, UNKNOWN = -1, -2


@dataclass(frozen=True, eq=False)
class RowTimes:
    """Times of rows, as read from a column of a frame.

    ticks: microseconds since 1970 UTC, 0 where missing. missing: mask of rows without a time.
    column: the format of the times. zone: time zone that the column names, if any.
    """

    ticks: Array
    missing: Array
    column: Any
    zone: str | None

    def __len__(self) -> int:
        return len(self.ticks)

    def order(self) -> Array | None:
        """Return the rows sorted by time, None if they are sorted already."""
        return None if not (np.diff(self.ticks) < 0).any() else np.argsort(self.ticks, kind="stable")

    @staticmethod
    def read(table: Any, name: str, zone: str | None, column: Any = None) -> "RowTimes":
        """Read the times in a column of an Arrow table; raise if one is neither a time nor missing.

        zone: of times that name none, None for that of the column. column: the format, None to infer it.
        """
        cells = tables.arrow.combined(table.column(name))
        named = named_zone(getattr(cells.type, "tz", None))
        if column is None:
            column = tables.timestamps.infer_time_column(table, (name,), zone or named or "UTC")
        column.check(table)
        parsed = column.read(table)
        missing = ~tables.arrow.known_mask(cells)
        wrong = parsed.bad & ~missing
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"row {row}, column {name!r}: {cells[row].as_py()!r} is not a time")
        return RowTimes(np.where(missing, 0, parsed.ticks), missing, column, named)


@dataclass(frozen=True)
class BlockLocator:
    """Maps times or blocks of rows to block numbers.

    names: names of the blocks, if they are neither numbered nor defined by a schedule.
    zone: time zone of times without one.
    """

    schedule: AnySchedule
    names: tuple[Any, ...] = ()
    zone: str = "UTC"

    @property
    def has_times(self) -> bool:
        """True if blocks follow from the times of rows."""
        return isinstance(self.schedule, Schedule)

    @property
    def blocks(self) -> int:
        """Number of blocks, m."""
        return self.schedule.blocks

    @property
    def labels(self) -> tuple[Any, ...]:
        """Label of each block."""
        if self.names:
            return self.names
        return tuple(range(self.blocks)) if isinstance(self.schedule, Numbered) else self.schedule.labels

    def place(self, when: Any, blocks: Any, rows: int) -> tuple[tuple[Array | None, Array], Array | None]:
        """Return the cycle and block of each row, and its time in microseconds.

        A block may be MISSING or UNKNOWN. Without times, there are neither cycles nor times.
        when, blocks: one of them; a single block is that of all rows. rows: the number of rows.
        """
        if when is not None:
            values = _check_length("when", when, rows)
            if self.schedule == Numbered(1):
                return (None, np.zeros(rows, np.int64)), None
            return self._from_times(values)
        values = np.full(rows, blocks) if np.ndim(blocks) == 0 else blocks
        return (None, self._codes(_check_length("blocks", values, rows))), None

    def _from_times(self, values: Any) -> tuple[tuple[Array, Array], Array]:
        if isinstance(self.schedule, Numbered):
            raise ValueError(
                "the rows have times, but the estimator was fitted with numbered blocks: give blocks="
            )
        if isinstance(values, RowTimes):
            missing, ticks = values.missing, values.ticks
        else:
            missing = absent(values)
            known = np.flatnonzero(~missing)
            ticks = np.zeros(len(missing), np.int64)
            if len(known):
                ticks[known] = _ticks(
                    values if len(known) == len(missing) else take_rows(values, known), self.zone
                )
        cycle, block = self.schedule.place(ticks)
        return (cycle, np.where(missing, MISSING, block)), np.where(missing, 0, ticks)

    def _codes(self, values: Any) -> Array:
        """Return the number of each block, MISSING or UNKNOWN."""
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
            code_of = {name: code for code, name in enumerate(self.labels)}
            return np.array([code_of.get(_plain(value), UNKNOWN) for value in given.tolist()], np.int64)
        inside = (numbers >= 0) & (numbers < self.blocks)
        return numbers if inside.all() else np.where(inside, numbers, UNKNOWN)


def time_values(table: Any, at: int, zone: str | None, schedule: Any, column: Any = None) -> Any:
    """Return the times in column `at` of an Arrow table or array.

    zone, schedule: as given to the estimator; times without a zone are in that of the first of them that
    has one. column: the format of the times in an Arrow table, None to infer it.
    """
    names = names_of(table)
    if names is None:
        return split_off(table, at)[1]
    if zone is None and isinstance(schedule, Schedule):
        zone = schedule.zone
    return RowTimes.read(table, names[at], zone, column)


def locator_of(when: Any, blocks: Any, schedule: Any, zone: str | None) -> BlockLocator:
    """Return the locator for a schedule and the given times or blocks. Raise if they do not match."""
    if zone is not None:
        zone_info(zone)
    elif when is not None and not isinstance(schedule, Schedule):
        zone = zone_named(when)
    if isinstance(schedule, str):
        schedule = specs.parse_schedule("schedule", schedule, zone or "UTC")
    if isinstance(schedule, list | tuple):
        return _named_blocks(blocks, [_plain(name) for name in schedule])
    if isinstance(schedule, Numbered):
        schedule = schedule.blocks
    is_count = isinstance(schedule, int | np.integer) and not isinstance(schedule, bool)
    if schedule is not None and not isinstance(schedule, Schedule) and not (is_count and schedule > 0):
        raise ValueError(
            f"schedule={schedule!r}: give a Schedule, a string such as 'daily:6', the number of blocks, or a "
            "list of their names"
        )
    if when is None and blocks is None:
        count = 1 if schedule is None else schedule if is_count else schedule.blocks
        if count > 1:
            raise ValueError(
                f"the schedule has {count} blocks, and the rows have no time or block: set time_column= or "
                "block_column= to a column of X, or give when= or blocks="
            )
        return BlockLocator(Numbered(1))
    if when is not None:
        if is_count:
            raise ValueError(
                f"schedule={schedule}: a number of blocks does not assign times to blocks: "
                f"write 'daily:{schedule}', or give a Schedule"
            )
        chosen = Schedule.daily(6, zone=zone or "UTC") if schedule is None else schedule
        return BlockLocator(chosen, zone=zone or chosen.zone)
    if schedule is not None:
        return BlockLocator(as_schedule(schedule))
    given = np.atleast_1d(np.asarray(blocks))
    numbers = whole_numbers(given)
    if numbers is not None:
        if numbers.min() < 0 or numbers.max() >= 10**6:
            raise ValueError(
                "block numbers are counted from 0 and must be below 1,000,000: give names instead"
            )
        return BlockLocator(Numbered(int(numbers.max()) + 1))
    if absent(blocks).any():
        raise ValueError("some rows have no block: leave them out when fitting")
    try:
        names = sorted({_plain(value) for value in given.tolist()})
    except TypeError:
        raise ValueError("the blocks are of several kinds: make them all strings or all numbers") from None
    return BlockLocator(Numbered(len(names)), tuple(names))


def _named_blocks(blocks: Any, names: list[Any]) -> BlockLocator:
    """Return the locator for a list of block names. blocks: the blocks of the rows, or None."""
    if blocks is None:
        raise ValueError(
            f"schedule={names!r}: names of blocks go with block_column= or blocks=, not with times"
        )
    if len(names) == 0 or len(set(names)) != len(names):
        raise ValueError(f"schedule={names!r}: give at least one name, all of them different")
    return BlockLocator(Numbered(len(names)), tuple(names))


def zone_named(values: Any) -> str | None:
    """Return the time zone of a column of times, or None if it has no single named zone."""
    if isinstance(values, RowTimes):
        return values.zone
    dtype = getattr(values, "dtype", None)
    zone = getattr(dtype, "tz", None) or getattr(dtype, "time_zone", None)
    if zone is None and str(dtype) == "object":
        zones = {str(time.tzinfo) for time in np.asarray(values) if getattr(time, "tzinfo", None) is not None}
        zone = zones.pop() if len(zones) == 1 else None
    return named_zone(zone)


def named_zone(zone: Any) -> str | None:
    """Return the name of a time zone, or None for none and for a fixed offset."""
    try:
        return None if zone is None else zone_info(str(zone)).key
    except ValueError:
        return None


def whole_numbers(values: Array) -> Array | None:
    """Return values as int64, or None if they are not all integers."""
    if values.dtype.kind in "biu":
        return values.astype(np.int64, copy=False)
    if values.dtype == object and all(isinstance(value, int | float) for value in values.tolist()):
        values = values.astype(np.float64)
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.floor(values)).all():
        return values.astype(np.int64)
    return None


def check_known(
    placed: Array, locator: BlockLocator, when: Any, blocks: Any, *, lenient: bool = False
) -> None:
    """Raise if a row's block is missing or unknown; with `lenient`, only if it is unknown.

    placed: the block of each row, from `when` or `blocks`.
    """
    invalid = (placed == UNKNOWN) if lenient else (placed < 0)
    if not invalid.any():
        return
    row = int(invalid.argmax())
    if placed[row] == MISSING:
        what = "block" if when is None else "time"
        raise ValueError(
            f"row {row} has no {what}, and there are {locator.blocks} blocks: leave it out or, to predict "
            "it, set missing='consensus'"
        )
    block = blocks if np.ndim(blocks) == 0 else np.asarray(blocks)[row]
    known = [str(label) for label in locator.labels[:6]] + ["..."] * (locator.blocks > 6)
    remedy = "" if locator.names else "; schedule=m makes m blocks, counted from 0"
    raise ValueError(f"row {row} is in block {_plain(block)!r}: the blocks are {', '.join(known)}{remedy}")


def _ticks(values: Any, zone: str) -> Array:
    """Return times as microseconds since 1970. No value may be missing."""
    dtype = str(getattr(values, "dtype", "")).lower()
    if dtype in ("float32", "float16"):
        raise ValueError(
            f"the times are epoch seconds in {dtype}, where consecutive values are 128 s apart or more: use "
            "float64 (if X is a float32 array or sparse matrix, give when=, or use a data frame)"
        )
    if "date" in dtype:
        return instants(values, zone=zone)
    times = np.asarray(values)
    if times.dtype == object and all(type(time) in (int, float) for time in times.tolist()):
        times = times.astype(np.float64)
    if times.dtype.kind in "US" or (times.dtype == object and any(isinstance(time, str) for time in times)):
        raise ValueError("the times are strings: convert them to datetimes first, as by pandas.to_datetime")
    if times.dtype.kind in "iuf" and (small := np.abs(times) < MIN_EPOCH_SECONDS).any():
        raise ValueError(
            f"a time is {times[small.argmax()]:.6g}, and epoch seconds since 2001 are above 1,000,000,000:"
            " exclude the column from scaling (ColumnTransformer, remainder='passthrough'), pass hours or "
            "block numbers by block_column= or blocks=, or convert times in other units to datetimes"
        )
    return instants(times, zone=zone)


def _check_length(name: str, values: Any, rows: int) -> Any:
    """Return values as a column. Raise if it does not have one value per row."""
    if isinstance(values, RowTimes):
        return values
    column = values if hasattr(values, "dtype") else np.asarray(values)
    if getattr(column, "ndim", 1) != 1:
        raise ValueError(f"{name} is not a column of values: give one value per row")
    if len(column) != rows:
        raise ValueError(f"{name} has {len(column)} values, X has {rows} rows: give one value per row")
    return column


def _plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python object."""
    return value.item() if isinstance(value, np.generic) else value
