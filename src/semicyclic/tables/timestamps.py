"""`TimeColumn`: how the time of a row is written, and its parsing."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.schedule.timezones import EARLIEST, EPOCH, LATEST, from_wall, zone_info
from semicyclic.tables.arrow import (
    Column,
    as_text,
    is_number,
    is_plain,
    is_text,
    numbers,
    texts,
    there,
    value_type,
)
from semicyclic.tables.kernels.hashing import MISSING_WORDS
from semicyclic.tables.kernels.timestamps import BAD, NAIVE, NONE, SECOND, ZONED, clock_times, moments
from semicyclic.types import Array

# How epoch numbers are told apart: seconds of this century have ten figures, and so on.
UNITS = {"s": 1e11, "ms": 1e14, "us": 1e17, "ns": np.inf}
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
HOUR = 3600 * SECOND


class ParsedTimes(NamedTuple):
    """Instants in microseconds since 1970 UTC, which of them are missing or cannot be read, and
    which local times were skipped (and shifted) or happened twice (and count as the earlier)."""

    ticks: Array
    bad: Array
    skipped: Array
    twice: Array


@dataclass(frozen=True)
class TimeColumn:
    """How the time of a row is written.

    columns: one column, or a date and an hour. form: `local` or `zoned` (texts in ISO 8601, or typed
        times), `date and hour`, an epoch unit (s, ms, us, ns), or a pattern of strptime. zone: that of
        times which name none.
    """

    columns: tuple[str, ...]
    form: str
    zone: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "columns": list(self.columns)}

    @staticmethod
    def from_json(value: Any) -> "TimeColumn":
        zone_info(value["zone"])
        return TimeColumn(tuple(value["columns"]), str(value["form"]), str(value["zone"]))

    def check(self, table: Any) -> None:
        """Refuse a table whose times are of a type that cannot be read in this form."""
        for at, name in enumerate(self.columns):
            kind = value_type(table.column(name).type)
            timely = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
            if self.form in ("local", "zoned") or (self.form == "date and hour" and at == 0):
                fine = timely or (is_plain(kind) and not is_number(kind))
            else:
                fine = is_plain(kind) or (at == 1 and pa.types.is_time(kind))
            if not fine:
                raise ValueError(f"column {name!r} is of type {kind}, and times are told as {self.form}")

    def read(self, table: Any) -> ParsedTimes:
        """The times of a table's rows."""
        ticks, kind = self._wall([_column(table, name) for name in self.columns])
        bad = (kind == BAD) | (kind == NONE) | (ticks < EARLIEST) | (ticks > LATEST)
        none = np.zeros(len(ticks), bool)
        if self.form == "zoned" or self.form in PER_SECOND or "%z" in self.form:
            return ParsedTimes(ticks, bad | (kind == NAIVE), none, none)
        bad |= kind == ZONED
        if len(ticks) == 0:
            return ParsedTimes(ticks, bad, none, none)
        held = from_wall(self.zone, np.where(bad, 0, ticks), ambiguous="earlier", missing="shift")
        return ParsedTimes(held.ticks, bad, held.missing & ~bad, held.ambiguous & ~bad)

    def _wall(self, columns: list[Column]) -> tuple[Array, Array]:
        """Ticks, and of each whether it names a zone, does not, or is no time."""
        if self.form == "date and hour":
            day, fine = _parse_text_or_typed(columns[0])
            hour, right = _hours(columns[1])
            return day - day % (24 * HOUR) + hour, np.where(right == NAIVE, fine, right)
        column = columns[0]
        if self.form in PER_SECOND:
            return _epoch(column, self.form)
        if "%" in self.form:
            return _parse_pattern(column, self.form)
        return _parse_text_or_typed(column)


def infer_time_column(table: Any, columns: tuple[str, ...], zone: str, form: str | None = None) -> TimeColumn:
    """How times are written, from the first rows; `form` is a pattern of strptime, where one is needed."""
    zone_info(zone)
    if len(columns) == 2:
        return TimeColumn(columns, "date and hour", zone)
    if form is not None:
        return TimeColumn(columns, form, zone)
    column = _column(table, columns[0])
    if is_text(column):
        kind = _parse_text_or_typed(column)[1]
        known = kind[kind != NONE]
        if len(known) and (known == BAD).mean() > 0.5:
            values, _ = numbers(column)
            if np.isfinite(values).any():
                return TimeColumn(columns, _unit(values), zone)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return TimeColumn(columns, _unit(numbers(column)[0]), zone)
    else:
        kind = _from_typed(column)[1]
    return TimeColumn(columns, "zoned" if (kind == ZONED).sum() > (kind == NAIVE).sum() else "local", zone)


def _unit(values: Array) -> str:
    known = np.abs(values[np.isfinite(values)])
    size = float(np.median(known)) if len(known) else 0.0
    return next(unit for unit, below in UNITS.items() if size < below)


def _column(table: Any, name: str) -> Column:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _parse_pattern(column: Column, form: str) -> tuple[Array, Array]:
    """Times written as a pattern of strptime has it: by Python, which knows that February is short."""
    text = as_text(column).dictionary_encode()
    ticks, kind = [], []
    for value in text.dictionary.to_pylist():
        try:
            found = datetime.strptime(value, form)
        except (ValueError, TypeError):
            ticks.append(0)
            kind.append(NONE if value in MISSING_WORDS else BAD)
            continue
        naive = found.tzinfo is None
        ticks.append((found - (EPOCH.replace(tzinfo=None) if naive else EPOCH)) // timedelta(microseconds=1))
        kind.append(NAIVE if naive else ZONED)
    known = there(text)
    place = pc.fill_null(text.indices, 0).to_numpy(zero_copy_only=False)
    if not ticks:
        return np.zeros(len(column), np.int64), np.full(len(column), NONE)
    return np.array(ticks, np.int64)[place], np.where(known, np.array(kind)[place], NONE)


def _epoch(column: Column, unit: str) -> tuple[Array, Array]:
    values, bad = numbers(column)
    kind = np.where(bad, BAD, np.where(np.isnan(values), NONE, ZONED))
    fine = np.isfinite(values) & (np.abs(values) < 1e12 * PER_SECOND[unit])
    ticks = np.round(np.where(fine, values, 0.0) * (SECOND / PER_SECOND[unit])).astype(np.int64)
    if unit == "ns":
        # Whole nanoseconds are more than a float can tell apart, and cut to microseconds.
        whole, exact = _whole(column)
        ticks = np.where(exact & fine, whole // 1000, ticks)
    return ticks, np.where(fine, kind, np.where(kind == NONE, NONE, BAD))


def _whole(column: Column) -> tuple[Array, Array]:
    """Cells as whole numbers, and which of them are."""
    if is_text(column):
        text = pc.utf8_trim_whitespace(as_text(column))
        column = pc.cast(
            pc.if_else(pc.match_substring_regex(text, r"^[+-]?[0-8]?[0-9]{1,18}$"), text, None), pa.int64()
        )
    elif not pa.types.is_integer(column.type):
        return np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    return pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False), there(column)


def _parse_text_or_typed(column: Column) -> tuple[Array, Array]:
    if not is_text(column):
        return _from_typed(column)
    ticks, kind = np.empty(len(column), np.int64), np.empty(len(column), np.int64)
    moments(*texts(column), ticks, kind)
    return ticks, kind


def _from_typed(column: Column) -> tuple[Array, Array]:
    """Times or dates as the file has them."""
    zoned = getattr(column.type, "tz", None) is not None
    if pa.types.is_dictionary(column.type):
        return _parse_text_or_typed(column.dictionary_decode())
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return np.zeros(len(column), np.int64), np.where(there(column), BAD, NONE)
    # Nanoseconds are cut off, as in texts.
    whole = pc.cast(column, pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
    ticks = pc.fill_null(pc.cast(whole, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return ticks, np.where(there(column), ZONED if zoned else NAIVE, NONE)


def _hours(column: Column) -> tuple[Array, Array]:
    """Times of the day: whole or broken hours, texts such as 17:30, or typed."""
    if pa.types.is_time(column.type):
        whole = pc.cast(pc.cast(column, pa.time64("us"), safe=False), pa.int64())
        return pc.fill_null(whole, 0).to_numpy(zero_copy_only=False), np.where(there(column), NAIVE, NONE)
    values, bad = numbers(column)
    fine = (values >= 0) & (values <= 24) & ~bad
    kind = np.where(fine, NAIVE, np.where(np.isnan(values) & ~bad, NONE, BAD))
    ticks = np.round(np.where(fine, values, 0.0) * HOUR).astype(np.int64)
    if is_text(column) and bad.any():
        read, right = np.empty(len(column), np.int64), np.empty(len(column), np.int64)
        clock_times(*texts(column), read, right)
        ticks, kind = np.where(bad, read, ticks), np.where(bad, right, kind)
    return ticks, kind
