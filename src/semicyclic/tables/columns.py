"""`Schema`: the type of every column, the time column and the label.

CSV and JSON lines have texts only, Parquet has types. What a column is follows from its cells in
the stream's first rows, not from the format: texts that are all numbers are numbers. After `tidy` a
number is a float64, everything else a text, so the same data give the same rows in every format.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.tables.arrow import (
    BOOLEANS,
    Column,
    as_text,
    booleans,
    is_number,
    is_plain,
    is_text,
    known_texts,
    numbers,
    numeric_share,
    texts,
    value_type,
)
from semicyclic.tables.kernels.hashing import tokens_of
from semicyclic.tables.kernels.timestamps import BAD, NONE, moments
from semicyclic.tables.timestamps import TimeColumn, infer_time_column
from semicyclic.types import Array

NUMBER, CATEGORY, BOOLEAN, TEXT, IGNORED = "number", "category", "boolean", "text", "ignored"
# A column of texts is prose if its cells have so many words and hardly repeat; else categories.
PROSE_WORDS, PROSE_DISTINCT = 3.0, 0.5
# So many of the first cells make a column one of numbers; the others are faults then.
NEARLY_ALL = 0.9
YES_NO = pa.array(["false", "true"])


class ColumnRequest(NamedTuple):
    """What the user says of the columns; the rest follows from the rows."""

    when: tuple[str, ...]
    label: str | None = None
    zone: str = "UTC"
    form: str | None = None
    number: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


class CleanRows(NamedTuple):
    """Rows made tidy: those that are fine, and what is wrong with the others.

    table: the feature columns. labels: float64 of numbers and yes (1) or no (0), Arrow texts else.
    row: the number of each row in its file. faults: (row number, what is wrong), in order.
    missing: how many rows had no label. shifted: local times that were skipped, and moved.
    """

    table: Any
    ticks: Array
    labels: Any
    row: Array
    faults: list[tuple[int, str]]
    missing: int
    shifted: int


@dataclass(frozen=True)
class Schema:
    """What the columns are: `kinds` by name, the clock, and the label with its kind."""

    clock: TimeColumn
    kinds: dict[str, str]
    label: str | None = None
    label_kind: str = NUMBER
    ignored: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def names(self) -> list[str]:
        """Every column that is read."""
        label = [] if self.label is None else [self.label]
        return list(dict.fromkeys([*self.kinds, *self.clock.columns, *label]))

    def to_json(self) -> dict[str, Any]:
        return {
            "when": self.clock.to_json(),
            "kinds": dict(sorted(self.kinds.items())),
            "label": self.label,
            "label_kind": self.label_kind,
        }

    @staticmethod
    def from_json(value: Any) -> "Schema":
        kinds = {str(name): str(kind) for name, kind in value["kinds"].items()}
        if not set(kinds.values()) <= {NUMBER, CATEGORY, BOOLEAN, TEXT}:
            raise ValueError(f"unknown kinds of columns: {sorted(set(kinds.values()))}")
        return Schema(TimeColumn.from_json(value["when"]), kinds, value["label"], str(value["label_kind"]))

    def without_label(self) -> "Schema":
        """The same columns, of rows to predict."""
        return Schema(self.clock, self.kinds)

    def tidy(self, table: Any, row: Array) -> CleanRows:
        """Read the cells of some rows; `row` numbers them in their file."""
        faults: list[tuple[int, str]] = []
        good = np.ones(len(row), bool)

        def refuse(bad: Array, name: str, what: str) -> None:
            new = bad & good
            good[new] = False
            column = _column(table, name)
            for at in np.flatnonzero(new).tolist():
                faults.append((int(row[at]), f"column {name!r}: {_show_cell(column, at)} is {what}"))

        times = self.clock.read(table)
        refuse(times.bad, self.clock.columns[0], _no_time(self.clock))
        held = {}
        for name, kind in self.kinds.items():
            column = _column(table, name)
            if kind == NUMBER:
                values, bad = numbers(column)
                refuse(bad, name, f"not a number, as the column's first rows were (or --category {name})")
                held[name] = pa.array(values)
            elif kind == BOOLEAN:
                values, bad = booleans(column)
                refuse(bad, name, f"neither true nor false, as the first rows were (or --category {name})")
                absent = np.isnan(values)
                held[name] = YES_NO.take(pa.array(np.where(absent, 0, values).astype(np.int64), mask=absent))
            else:
                held[name] = as_text(column)
        labels, unlabelled = self._labels(table, refuse)
        unlabelled &= good
        good &= ~unlabelled
        shifted = int((times.skipped & good).sum())
        ready = pa.table(held) if held else pa.table({"": pa.nulls(len(row), pa.int8())})
        rows, ticks = np.asarray(row), times.ticks
        if not good.all():
            ready, ticks, rows = ready.filter(pa.array(good)), ticks[good], rows[good]
            if labels is not None:
                labels = labels[good] if isinstance(labels, np.ndarray) else labels.filter(pa.array(good))
        faults.sort()
        return CleanRows(ready, ticks, labels, rows, faults, int(unlabelled.sum()), shifted)

    def _labels(self, table: Any, refuse: Any) -> tuple[Any, Array]:
        """The labels, and which rows have none (and nothing else wrong with them)."""
        if self.label is None:
            return None, np.zeros(table.num_rows, bool)
        column = _column(table, self.label)
        if self.label_kind == CATEGORY:
            text = as_text(column)
            return text, ~texts(text).there
        read = booleans if self.label_kind == BOOLEAN else numbers
        values, bad = read(column)
        kind = "true or false" if self.label_kind == BOOLEAN else "a number"
        refuse(bad, self.label, f"not {kind}, as the label's first rows were")
        endless = np.isinf(values)
        refuse(endless, self.label, "not finite")
        return values, np.isnan(values) & ~bad


def infer_schema(table: Any, wish: ColumnRequest) -> Schema:
    """What the columns are, from the stream's first rows and what the user says."""
    present = table.column_names
    asked = {NUMBER: wish.number, CATEGORY: wish.category, TEXT: wish.text, IGNORED: wish.ignore}
    said = {name: kind for kind, names in asked.items() for name in names}
    label = [] if wish.label is None else [wish.label]
    check_columns([*wish.when, *label, *wish.number, *wish.category, *wish.text], present)
    own = {*wish.when, *label}
    if wish.label in wish.when:
        raise ValueError(f"column {wish.label!r} is the time: it cannot be the label too")
    both = sorted(own & set(said))
    if both:
        raise ValueError(f"column {both[0]!r} is the time or the label: it cannot be a feature too")
    clock = infer_time_column(table, wish.when, wish.zone, wish.form)
    kinds, ignored = {}, dict.fromkeys(wish.ignore, "as asked")
    for name in present:
        if name in own:
            continue
        kind = said.get(name) or _kind(_column(table, name))
        if name in said:
            _check_type(name, _column(table, name).type, kind)
        if kind == IGNORED:
            continue
        if kind in (NUMBER, CATEGORY, BOOLEAN, TEXT):
            kinds[name] = kind
        else:
            ignored[name] = kind
    label_kind = NUMBER
    if wish.label is not None:
        _check_type(wish.label, _column(table, wish.label).type, "label")
        label_kind = _label_kind(_column(table, wish.label))
    # In the order of their names, so that a file's order of columns makes no difference.
    return Schema(clock, dict(sorted(kinds.items())), wish.label, label_kind, ignored)


def check_types(columns: Schema, table: Any) -> None:
    """Refuse a table in which a column is of a type that no cell of its kind can have."""
    columns.clock.check(table)
    for name, kind in columns.kinds.items():
        _check_type(name, table.column(name).type, kind)
    if columns.label is not None:
        _check_type(columns.label, table.column(columns.label).type, "label")


def _check_type(name: str, kind: Any, asked: str) -> None:
    plain = value_type(kind)
    timely = pa.types.is_timestamp(plain) or pa.types.is_date(plain) or pa.types.is_time(plain)
    if not is_plain(plain) and not (timely and asked in (CATEGORY, TEXT)):
        raise ValueError(f"column {name!r} is of type {kind}: it cannot be a {asked}")


def check_columns(wanted: Iterable[str], present: Sequence[str]) -> None:
    """Refuse names that the file does not have."""
    for name in wanted:
        if name not in present:
            shown = ", ".join(map(repr, present[:20])) + (", ..." if len(present) > 20 else "")
            raise ValueError(f"there is no column {name!r}: the columns are {shown}")


def _kind(column: Column) -> str:
    """What a feature column is, by its cells."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _kind(column.dictionary_decode())
    if is_number(kind):
        return NUMBER
    if pa.types.is_boolean(kind):
        return BOOLEAN
    if pa.types.is_temporal(kind):
        return "a time"
    if not is_text(column) and not pa.types.is_null(kind):
        return f"of type {kind}"
    known = known_texts(column)
    if len(known) == 0:
        return CATEGORY
    if _is_boolean(known):
        return BOOLEAN
    if numeric_share(known) >= NEARLY_ALL:
        return NUMBER
    if _are_times(known):
        return "a time"
    words = np.mean([len(tokens_of(each.as_buffer())) for each in known[:1000]])
    distinct = len(pc.unique(known)) / len(known)
    return TEXT if words >= PROSE_WORDS and distinct >= PROSE_DISTINCT else CATEGORY


def _are_times(known: Column) -> bool:
    if not pc.match_substring_regex(known[:1], r"^\s*[0-9]{4}[-/]")[0].as_py():
        return False
    when = np.empty(len(known), np.int64)
    moments(*texts(known), np.empty(len(known), np.int64), when)
    return not ((when == BAD) | (when == NONE)).any()


def _label_kind(column: Column) -> str:
    if pa.types.is_boolean(column.type):
        return BOOLEAN
    if is_text(column) or pa.types.is_dictionary(column.type):
        known = known_texts(column)
        if len(known) and _is_boolean(known):
            return BOOLEAN
        return NUMBER if len(known) == 0 or numeric_share(known) >= NEARLY_ALL else CATEGORY
    return NUMBER


def _is_boolean(known: Column) -> bool:
    return set(pc.unique(known).to_pylist()) <= set(BOOLEANS)


def _column(table: Any, name: str) -> Column:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _show_cell(column: Column, at: int) -> str:
    value = column[at].as_py()
    text = "an empty cell" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _no_time(clock: TimeColumn) -> str:
    if clock.form == "date and hour":
        return "no date with an hour from 0 to 24"
    if clock.form in ("s", "ms", "us", "ns"):
        return f"no time in epoch {clock.form}, as the first rows had them"
    if "%" in clock.form:
        return f"no time like {clock.form}"
    zone = "with a zone" if clock.form == "zoned" else "without a zone"
    return f"not a time {zone}, such as 2013-01-31 05:15: say --when-format, such as '%d.%m.%Y %H:%M'"
