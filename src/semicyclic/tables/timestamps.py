"""`TimeColumn`: the format of the row times, and their parsing."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.schedule.timezones import EARLIEST, EPOCH, LATEST, from_wall, zone_info
from semicyclic.tables.arrow import (
    Column,
    as_text,
    column_named,
    is_number,
    is_plain,
    is_text,
    numbers,
    texts,
    valid_mask,
    value_type,
)
from semicyclic.tables.kernels.hashing import MISSING_WORDS
from semicyclic.tables.kernels.timestamps import BAD, NAIVE, NONE, SECOND, ZONED, clock_times, moments
from semicyclic.types import Array

# Upper bounds that identify the unit of epoch numbers: seconds of this century have ten digits, and so on.
UNIT_BOUNDS = {"s": 1e11, "ms": 1e14, "us": 1e17, "ns": np.inf}
# Smaller numbers (before March 1973) are hardly ever epoch seconds: they are hours or dates like 20260131.
MIN_EPOCH_SECONDS = 1e8
UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
HOUR = 3600 * SECOND


class ParsedTimes(NamedTuple):
    """Parsed times.

    ticks: microseconds since 1970 UTC. bad: mask of times that are missing or cannot be parsed.
    skipped: mask of local times that the time zone skips; they are shifted. twice: mask of local times
    that occur twice; the earlier instant is used.
    """

    ticks: Array
    bad: Array
    skipped: Array
    twice: Array


@dataclass(frozen=True)
class TimeColumn:
    """Format of the row times.

    columns: one column, or a date and an hour column. form: `local` or `zoned` (ISO 8601 strings, or typed
        times), `date and hour`, an epoch unit (s, ms, us, ns), or a strptime pattern. zone: time zone of
        times that name none.
    """

    columns: tuple[str, ...]
    form: str
    zone: str

    def __post_init__(self) -> None:
        zone_info(self.zone)

    def check(self, table: Any) -> None:
        """Raise if a time column has an Arrow type that cannot be parsed in this form."""
        for at, name in enumerate(self.columns):
            dtype = value_type(table.column(name).type)
            temporal = pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)
            if self.form in ("local", "zoned") or (self.form == "date and hour" and at == 0):
                fits = temporal or (is_plain(dtype) and not is_number(dtype))
            else:
                fits = is_plain(dtype) or (at == 1 and pa.types.is_time(dtype))
            if not fits:
                raise ValueError(
                    f"column {name!r} is of type {dtype}: it cannot be read as a time of form {self.form!r}"
                )

    def read(self, table: Any) -> ParsedTimes:
        """Parse the times of a table's rows."""
        ticks, kind = self._wall_ticks([column_named(table, name) for name in self.columns])
        bad = (kind == BAD) | (kind == NONE) | (ticks < EARLIEST) | (ticks > LATEST)
        none = np.zeros(len(ticks), bool)
        if self.form == "zoned" or self.form in UNITS_PER_SECOND or "%z" in self.form:
            return ParsedTimes(ticks, bad | (kind == NAIVE), none, none)
        bad |= kind == ZONED
        if len(ticks) == 0:
            return ParsedTimes(ticks, bad, none, none)
        instants = from_wall(self.zone, np.where(bad, 0, ticks), ambiguous="earlier", missing="shift")
        return ParsedTimes(instants.ticks, bad, instants.missing & ~bad, instants.ambiguous & ~bad)

    def _wall_ticks(self, columns: list[Column]) -> tuple[Array, Array]:
        """Return ticks without time zone conversion, and for each NAIVE, ZONED, BAD or NONE (missing)."""
        if self.form == "date and hour":
            day, day_kind = _parse_text_or_typed(columns[0])
            hour, hour_kind = _parse_hours(columns[1])
            return day - day % (24 * HOUR) + hour, np.where(hour_kind == NAIVE, day_kind, hour_kind)
        column = columns[0]
        if self.form in UNITS_PER_SECOND:
            return _parse_epoch(column, self.form)
        if "%" in self.form:
            return _parse_pattern(column, self.form)
        return _parse_text_or_typed(column)


def infer_time_column(table: Any, columns: tuple[str, ...], zone: str, form: str | None = None) -> TimeColumn:
    """Infer the time format from the first rows, unless `form` gives a strptime pattern."""
    zone_info(zone)
    if len(columns) == 2:
        return TimeColumn(columns, "date and hour", zone)
    if form is not None:
        return TimeColumn(columns, form, zone)
    column = column_named(table, columns[0])
    if is_text(column):
        kind = _parse_text_or_typed(column)[1]
        known = kind[kind != NONE]
        if len(known) and (known == BAD).mean() > 0.5:
            values, _ = numbers(column)
            if np.isfinite(values).any():
                return TimeColumn(columns, _epoch_unit(values, columns[0]), zone)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return TimeColumn(columns, _epoch_unit(numbers(column)[0], columns[0]), zone)
    else:
        kind = _from_typed(column)[1]
    return TimeColumn(columns, "zoned" if (kind == ZONED).sum() > (kind == NAIVE).sum() else "local", zone)


def _epoch_unit(values: Array, name: str) -> str:
    """Return the unit of epoch numbers; raise if they are too small to be any."""
    known = np.abs(values[np.isfinite(values)])
    size = float(np.median(known)) if len(known) else MIN_EPOCH_SECONDS
    if size < MIN_EPOCH_SECONDS:
        raise ValueError(
            f"column {name!r} has numbers around {size:.10g}, too small for seconds since 1970: give a "
            "column of times, or two, a date and an hour; or when_format=, such as '%Y%m%d'"
        )
    return next(unit for unit, below in UNIT_BOUNDS.items() if size < below)


def _parse_pattern(column: Column, form: str) -> tuple[Array, Array]:
    """Parse times with a strptime pattern; uses Python's strptime, which rejects dates like 30 February."""
    text = as_text(column).dictionary_encode()
    ticks, kind = [], []
    for value in text.dictionary.to_pylist():
        try:
            time = datetime.strptime(value, form)
        except (ValueError, TypeError):
            ticks.append(0)
            kind.append(NONE if value in MISSING_WORDS else BAD)
            continue
        naive = time.tzinfo is None
        ticks.append((time - (EPOCH.replace(tzinfo=None) if naive else EPOCH)) // timedelta(microseconds=1))
        kind.append(NAIVE if naive else ZONED)
    known = valid_mask(text)
    index = pc.fill_null(text.indices, 0).to_numpy(zero_copy_only=False)
    if not ticks:
        return np.zeros(len(column), np.int64), np.full(len(column), NONE)
    return np.array(ticks, np.int64)[index], np.where(known, np.array(kind)[index], NONE)


def _parse_epoch(column: Column, unit: str) -> tuple[Array, Array]:
    values, bad = numbers(column)
    kind = np.where(bad, BAD, np.where(np.isnan(values), NONE, ZONED))
    fine = np.isfinite(values) & (np.abs(values) < 1e12 * UNITS_PER_SECOND[unit])
    ticks = np.round(np.where(fine, values, 0.0) * (SECOND / UNITS_PER_SECOND[unit])).astype(np.int64)
    if unit == "ns":
        # A float64 cannot represent epoch nanoseconds exactly: truncate the integers to microseconds.
        integers, exact = _integers(column)
        ticks = np.where(exact & fine, integers // 1000, ticks)
    return ticks, np.where(fine, kind, np.where(kind == NONE, NONE, BAD))


def _integers(column: Column) -> tuple[Array, Array]:
    """Return the cells as int64 and a mask of the cells that are integers."""
    if is_text(column):
        text = pc.utf8_trim_whitespace(as_text(column))
        column = pc.cast(
            pc.if_else(pc.match_substring_regex(text, r"^[+-]?[0-8]?[0-9]{1,18}$"), text, None), pa.int64()
        )
    elif not pa.types.is_integer(column.type):
        return np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    return pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False), valid_mask(column)


def _parse_text_or_typed(column: Column) -> tuple[Array, Array]:
    if not is_text(column):
        return _from_typed(column)
    ticks, kind = np.empty(len(column), np.int64), np.empty(len(column), np.int64)
    moments(*texts(column), ticks, kind)
    return ticks, kind


def _from_typed(column: Column) -> tuple[Array, Array]:
    """Convert typed timestamps or dates."""
    zoned = getattr(column.type, "tz", None) is not None
    if pa.types.is_dictionary(column.type):
        return _parse_text_or_typed(column.dictionary_decode())
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return np.zeros(len(column), np.int64), np.where(valid_mask(column), BAD, NONE)
    # Nanoseconds are truncated, as in strings.
    microseconds = pc.cast(column, pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
    ticks = pc.fill_null(pc.cast(microseconds, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return ticks, np.where(valid_mask(column), ZONED if zoned else NAIVE, NONE)


def _parse_hours(column: Column) -> tuple[Array, Array]:
    """Parse times of day: hours (integer or fractional), strings such as 17:30, or typed times."""
    if pa.types.is_time(column.type):
        microseconds = pc.cast(pc.cast(column, pa.time64("us"), safe=False), pa.int64())
        return pc.fill_null(microseconds, 0).to_numpy(zero_copy_only=False), np.where(
            valid_mask(column), NAIVE, NONE
        )
    values, bad = numbers(column)
    fine = (values >= 0) & (values <= 24) & ~bad
    kind = np.where(fine, NAIVE, np.where(np.isnan(values) & ~bad, NONE, BAD))
    ticks = np.round(np.where(fine, values, 0.0) * HOUR).astype(np.int64)
    if is_text(column) and bad.any():
        parsed, parsed_kind = np.empty(len(column), np.int64), np.empty(len(column), np.int64)
        clock_times(*texts(column), parsed, parsed_kind)
        ticks, kind = np.where(bad, parsed, ticks), np.where(bad, parsed_kind, kind)
    return ticks, kind
