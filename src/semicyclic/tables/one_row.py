"""`RowEncoder`: one dict to one sparse row, without Arrow.

It computes exactly what `Schema.clean` and `Features.encode` do for a table of one row, a hundred times
faster. Cells of unusual types or formats, and faults, are left to those: then it returns None.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import isfinite, isnan, sqrt
from typing import Any

import numpy as np

from semicyclic.method.rows import Rows, encoded_rows
from semicyclic.schedule.numbered import AnySchedule
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import EARLIEST, EPOCH, LATEST, local_to_utc
from semicyclic.tables.arrow import BOOLEANS, was_single
from semicyclic.tables.columns import BOOLEAN, CATEGORY, NUMBER
from semicyclic.tables.features import MAX_DEVIATIONS, Features
from semicyclic.tables.kernels import hashing as k
from semicyclic.tables.kernels.timestamps import BAD, NAIVE, NONE, SECOND, ZONED, moments
from semicyclic.tables.timestamps import UNITS_PER_SECOND, TimeColumn

# Maximum number of cells of a column whose features are kept.
MAX_CACHED = 1 << 12
MISSING = frozenset(k.MISSING_WORDS)
MICROSECOND = timedelta(microseconds=1)
NAIVE_EPOCH = EPOCH.replace(tzinfo=None)


class Unusual(Exception):
    """A cell that must be encoded as a table of one row."""


class RowEncoder:
    """Encodes one row at a time, from a mapping of column names to cells. Threads can share it."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.when = features.columns.when
        self.kinds = features.columns.kinds
        self.index = {name: at for at, name in enumerate(features.names)}
        # Columns of category values and tokens, and columns and values of numbers, by column name.
        self.known: dict[str, dict[str, int]] = {name: {} for name in self.kinds}
        self.known_numbers: dict[str, dict[Any, tuple[list[int], list[float]]]] = {
            name: {} for name in self.kinds
        }
        self.numbers: dict[str, tuple[float, float, tuple[float, ...], list[int]]] = {}
        self.missing: dict[str, int] = {}
        for name, kind in self.kinds.items():
            self.missing[name] = self._column(name + k.MISSING)
            if kind == NUMBER:
                scale = features.scales[name]
                bins = [self._column(f"{name}{k.BIN}{b}") for b in range(len(scale.edges) + 1)]
                self.numbers[name] = scale.mean, scale.deviation, scale.edges, [self._column(name), *bins]

    def encode(self, cells: Mapping[str, Any], schedule: AnySchedule | None) -> Rows | None:
        """Return the row, with its block in `schedule`; None if it must be encoded as a table."""
        try:
            columns, values = self._cells(cells)
            block = None
            if isinstance(schedule, Schedule):
                if self.when is None:
                    return None
                _, block = schedule.place_one(ticks_of(self.when, cells))
            elif schedule is not None and schedule.blocks == 1:
                block = 0
        except (Unusual, KeyError, TypeError, UnicodeError, OverflowError):
            return None
        indptr = np.array([0, len(columns)])
        indices, data = np.array(columns, np.int32), np.array(values, np.float32)
        placed = None if block is None else np.array([block])
        return encoded_rows(indptr, indices, data, self.features.width, block=placed)

    def _cells(self, cells: Mapping[str, Any]) -> tuple[list[int], list[Any]]:
        """Return the columns and values of a row, in the order of `Features.encode`."""
        columns: list[int] = []
        values: list[Any] = []
        texts = []
        for name, kind in self.kinds.items():
            cell = cells[name]
            if kind == NUMBER:
                found = self.known_numbers[name].get(cell) or self._number_cells(name, cell)
                columns += found[0]
                values += found[1]
            elif kind in (CATEGORY, BOOLEAN):
                columns.append(self._category(name, _boolean(cell) if kind == BOOLEAN else _text(cell)))
                values.append(1.0)
            else:
                texts.append((name, _text(cell)))
        for name, text in texts:
            self._add_tokens(name, text, columns, values)
        if len(set(columns)) < len(columns) or -1 in columns:
            return _merge(columns, values)
        return columns, values

    def _number_cells(self, name: str, cell: Any) -> tuple[list[int], list[float]]:
        """Return the columns and values of a number."""
        number = _number(cell)
        if isnan(number):
            return [self.missing[name]], [1.0]
        mean, deviation, edges, places = self.numbers[name]
        scaled = min(max((number - mean) / deviation, -MAX_DEVIATIONS), MAX_DEVIATIONS)
        found = [places[0]], [scaled]
        if edges:
            found = [places[0], places[1 + bisect_right(edges, number)]], [scaled, 1.0]
        known = self.known_numbers[name]
        if len(known) >= MAX_CACHED:
            known.clear()
        known[cell] = found
        return found

    def _category(self, name: str, text: str | None) -> int:
        if text is None:
            return self.missing[name]
        return self._look_up(name, text, k.EQUALS)

    def _add_tokens(self, name: str, text: str | None, columns: list[int], values: list[Any]) -> None:
        if text is None:
            columns.append(self.missing[name])
            values.append(1.0)
            return
        tokens = k.tokens_of(text.encode("utf-8"))
        if not tokens:
            return
        value = np.float32(1.0 / sqrt(len(tokens)))
        for token in tokens:
            columns.append(self._look_up(name, token.decode("utf-8"), k.HAS))
            values.append(value)

    def _look_up(self, name: str, value: str, mark: str) -> int:
        known = self.known[name]
        column = known.get(value)
        if column is None:
            column = self._column(name + mark + value)
            if len(known) >= MAX_CACHED:
                known.clear()
            known[value] = column
        return column

    def _column(self, name: str) -> int:
        """Return the column of a feature; -1 if it has none."""
        if self.features.bits is None:
            return self.index.get(name, -1)
        return k.key_of(name) >> (64 - self.features.bits)


def _merge(columns: list[int], values: list[Any]) -> tuple[list[int], list[Any]]:
    """Add up the values of equal columns in single precision, and leave out column -1."""
    merged: dict[int, Any] = {}
    for column, value in zip(columns, values, strict=True):
        if column >= 0:
            merged[column] = np.float32(merged[column]) + np.float32(value) if column in merged else value
    return list(merged), list(merged.values())


def _number(cell: Any) -> float:
    if cell is None:
        return float("nan")
    if isinstance(cell, float):
        return _shortest_decimal(float(cell))
    if isinstance(cell, int | np.integer | np.bool_):
        return float(cell)
    if type(cell) is str:
        if cell in MISSING:
            return float("nan")
        try:
            # Python accepts what Arrow does not (1_000, infinity, spaces within): only plain forms.
            if cell.replace(".", "", 1).lstrip("+-").isdecimal() and cell.isascii():
                return _shortest_decimal(float(cell))
        except ValueError:
            pass
    raise Unusual


def _shortest_decimal(number: float) -> float:
    """Return the shortest decimal of a number that has the value of a single-precision one."""
    return float(str(np.float32(number))) if was_single(number) else number


def _text(cell: Any) -> str | None:
    if cell is None or (isinstance(cell, float) and isnan(cell)):
        return None
    if type(cell) is str:
        return None if cell in MISSING else cell
    if type(cell) is bool:
        return "true" if cell else "false"
    if type(cell) is int:
        return str(cell)
    raise Unusual


def _boolean(cell: Any) -> str | None:
    if cell is None or (isinstance(cell, float) and isnan(cell)):
        return None
    if type(cell) is bool:
        return "true" if cell else "false"
    if type(cell) is str:
        if cell in MISSING:
            return None
        if cell in BOOLEANS:
            return "true" if BOOLEANS[cell] else "false"
    raise Unusual


def ticks_of(when: TimeColumn, cells: Mapping[str, Any]) -> int:
    """Return the time of a row in microseconds since 1970 UTC."""
    if len(when.columns) > 1:
        raise Unusual
    cell = cells[when.columns[0]]
    read: Callable[[Any, str], tuple[int, int]]
    if when.form in UNITS_PER_SECOND:
        read = _from_epoch
    elif "%" in when.form:
        read = _from_pattern
    else:
        read = _from_text_or_datetime
    ticks, kind = read(cell, when.form)
    if kind in (BAD, NONE) or not EARLIEST <= ticks <= LATEST:
        raise Unusual
    if when.form == "zoned" or when.form in UNITS_PER_SECOND or "%z" in when.form:
        if kind == NAIVE:
            raise Unusual
        return ticks
    if kind == ZONED:
        raise Unusual
    return local_to_utc(when.zone, ticks)


def _from_epoch(cell: Any, unit: str) -> tuple[int, int]:
    if type(cell) is int and unit == "ns":
        return cell // 1000, ZONED
    if type(cell) not in (int, float) or not isfinite(cell) or abs(cell) >= 1e12 * UNITS_PER_SECOND[unit]:
        raise Unusual
    return round(float(cell) * (SECOND / UNITS_PER_SECOND[unit])), ZONED


def _from_pattern(cell: Any, form: str) -> tuple[int, int]:
    if type(cell) is not str:
        raise Unusual
    try:
        time = datetime.strptime(cell, form)
    except ValueError:
        raise Unusual from None
    return _from_datetime(time)


def _from_datetime(time: datetime) -> tuple[int, int]:
    if time.utcoffset() is None:
        return int((time.replace(tzinfo=None) - NAIVE_EPOCH) // MICROSECOND), NAIVE
    return int((time - EPOCH) // MICROSECOND), ZONED


def _from_text_or_datetime(cell: Any, form: str) -> tuple[int, int]:  # noqa: ARG001
    if isinstance(cell, datetime) and getattr(cell, "nanosecond", 0) == 0 and cell == cell:
        return _from_datetime(cell)
    if type(cell) is not str or cell in MISSING:
        raise Unusual
    data = np.frombuffer(cell.encode("utf-8"), np.uint8)
    ticks, kind = np.empty(1, np.int64), np.empty(1, np.int64)
    moments(data, np.array([0, len(data)], np.int32), np.ones(1, bool), ticks, kind)
    return int(ticks[0]), int(kind[0])
