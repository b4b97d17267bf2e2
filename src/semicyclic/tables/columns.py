"""`Schema`: the type of every column, the time column and the label.

CSV and JSON lines hold only strings, Parquet has types. The type of a column is inferred from its cells
in the stream's first rows, not from the format: a column of numeric strings is a number column. After
`clean`, numbers are float64 and everything else is a string, so the same data give the same rows in every
format.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.tables.arrow import (
    BOOLEANS,
    Column,
    as_text,
    booleans,
    column_named,
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
# A string column is free text if its cells have this many words on average and this share of them is
# distinct; otherwise it is categorical.
MIN_TEXT_WORDS, MIN_TEXT_DISTINCT = 3.0, 0.5
# A string column is numeric if this share of its first cells are numbers; other cells are then faults.
MIN_NUMERIC_SHARE = 0.9
FALSE_TRUE = pa.array(["false", "true"])


@dataclass(frozen=True)
class ColumnRequest:
    """The user's column settings; everything else is inferred from the rows.

    when: the time column, or a date and an hour column; empty for rows without times. zone: time zone of
    times that name none.
    form: strptime pattern of the times. number, category, text, ignore: column names by type.
    """

    when: tuple[str, ...]
    label: str | None = None
    zone: str = "UTC"
    form: str | None = None
    number: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


class CleanRows(NamedTuple):
    """Valid rows of a batch, and the faults of the others.

    table: the feature columns. ticks: times in microseconds since 1970 UTC. labels: float64 for numbers
    and booleans (1 or 0), Arrow strings otherwise. row: row numbers in the file. faults: (row number,
    message), sorted. missing: number of rows without a label. shifted: number of local times that the
    time zone skips and that were shifted.
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
    """Column types: `kinds` of the features by name, the time column `when`, and the label with its type.

    when: None for rows whose times or blocks are not in a column.
    ignored: the reason by name for each column that is not used.
    """

    when: TimeColumn | None
    kinds: dict[str, str]
    label: str | None = None
    label_kind: str = NUMBER
    ignored: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def names(self) -> list[str]:
        """Names of all columns that are read."""
        label = [] if self.label is None else [self.label]
        when = () if self.when is None else self.when.columns
        return list(dict.fromkeys([*self.kinds, *when, *label]))

    def __post_init__(self) -> None:
        if not set(self.kinds.values()) <= {NUMBER, CATEGORY, BOOLEAN, TEXT}:
            raise ValueError(f"unknown column types: {sorted(set(self.kinds.values()))}")

    def without_label(self) -> "Schema":
        """Return the schema without its label, for rows to predict."""
        return Schema(self.when, self.kinds)

    def without_time(self) -> "Schema":
        """Return the schema without its time column, for rows whose blocks are given."""
        return replace(self, when=None)

    def clean(self, table: Any, row: Array) -> CleanRows:
        """Parse the cells of a table; `row` holds the row numbers in the file."""
        faults: list[tuple[int, str]] = []
        good = np.ones(len(row), bool)

        def refuse(bad: Array, name: str, what: str) -> None:
            new = bad & good
            good[new] = False
            column = column_named(table, name)
            for at in np.flatnonzero(new).tolist():
                faults.append((int(row[at]), f"column {name!r}: {_show_cell(column, at)} is {what}"))

        ticks, skipped = np.zeros(len(row), np.int64), ~good
        if self.when is not None:
            ticks, bad_times, skipped, _ = self.when.read(table)
            refuse(bad_times, self.when.columns[0], _time_fault(self.when))
        parsed = {}
        for name, kind in self.kinds.items():
            column = column_named(table, name)
            if kind == NUMBER:
                values, bad = numbers(column)
                refuse(bad, name, f"not a number, as the column's first rows were (or category={[name]!r})")
                parsed[name] = pa.array(values)
            elif kind == BOOLEAN:
                values, bad = booleans(column)
                refuse(bad, name, f"neither true nor false, as the first rows were (or category={[name]!r})")
                absent = np.isnan(values)
                parsed[name] = FALSE_TRUE.take(
                    pa.array(np.where(absent, 0, values).astype(np.int64), mask=absent)
                )
            else:
                parsed[name] = as_text(column)
        labels, unlabelled = self._labels(table, refuse)
        unlabelled &= good
        good &= ~unlabelled
        shifted = int((skipped & good).sum())
        clean = pa.table(parsed) if parsed else pa.table({"": pa.nulls(len(row), pa.int8())})
        rows = np.asarray(row)
        if not good.all():
            clean, ticks, rows = clean.filter(pa.array(good)), ticks[good], rows[good]
            if labels is not None:
                labels = labels[good] if isinstance(labels, np.ndarray) else labels.filter(pa.array(good))
        faults.sort()
        return CleanRows(clean, ticks, labels, rows, faults, int(unlabelled.sum()), shifted)

    def _labels(self, table: Any, refuse: Any) -> tuple[Any, Array]:
        """Return the labels and a mask of the rows without one; invalid labels go to `refuse` instead."""
        if self.label is None:
            return None, np.zeros(table.num_rows, bool)
        column = column_named(table, self.label)
        if self.label_kind == CATEGORY:
            text = as_text(column)
            return text, ~texts(text).there
        read = booleans if self.label_kind == BOOLEAN else numbers
        values, bad = read(column)
        expected = "true or false" if self.label_kind == BOOLEAN else "a number"
        refuse(bad, self.label, f"not {expected}, as the label's first rows were")
        infinite = np.isinf(values)
        refuse(infinite, self.label, "not finite")
        return values, np.isnan(values) & ~bad


def infer_schema(table: Any, request: ColumnRequest) -> Schema:
    """Infer the schema from the stream's first rows and the user's settings."""
    present = table.column_names
    requested = {
        NUMBER: request.number,
        CATEGORY: request.category,
        TEXT: request.text,
        IGNORED: request.ignore,
    }
    requested_kind = {name: kind for kind, names in requested.items() for name in names}
    label = [] if request.label is None else [request.label]
    check_columns([*request.when, *label, *request.number, *request.category, *request.text], present)
    reserved = {*request.when, *label}
    if request.label in request.when:
        raise ValueError(f"column {request.label!r} is the time: it cannot be the label too")
    clashes = sorted(reserved & set(requested_kind))
    if clashes:
        raise ValueError(f"column {clashes[0]!r} is the time or the label: it cannot be a feature too")
    clock = None
    if request.when:
        clock = infer_time_column(table, request.when, request.zone, request.form)
    kinds, ignored = {}, dict.fromkeys(request.ignore, "as asked")
    for name in present:
        if name in reserved:
            continue
        kind = requested_kind.get(name) or _infer_kind(column_named(table, name))
        if kind == IGNORED:
            continue
        if name in requested_kind:
            _check_type(name, column_named(table, name).type, kind)
        if kind in (NUMBER, CATEGORY, BOOLEAN, TEXT):
            kinds[name] = kind
        else:
            ignored[name] = kind
    label_kind = NUMBER
    if request.label is not None:
        _check_type(request.label, column_named(table, request.label).type, "label")
        label_kind = _infer_label_kind(column_named(table, request.label))
    # Sorted by name, so that the order of the columns in a file makes no difference.
    return Schema(clock, dict(sorted(kinds.items())), request.label, label_kind, ignored)


def check_types(columns: Schema, table: Any) -> None:
    """Raise if a column of the table has an Arrow type that does not fit the schema."""
    if columns.when is not None:
        columns.when.check(table)
    for name, kind in columns.kinds.items():
        _check_type(name, table.column(name).type, kind)
    if columns.label is not None:
        _check_type(columns.label, table.column(columns.label).type, "label")


def _check_type(name: str, dtype: Any, role: str) -> None:
    plain = value_type(dtype)
    temporal = pa.types.is_timestamp(plain) or pa.types.is_date(plain) or pa.types.is_time(plain)
    if not is_plain(plain) and not (temporal and role in (CATEGORY, TEXT)):
        raise ValueError(f"column {name!r} is of type {dtype}: it cannot be a {role}")


def check_columns(wanted: Iterable[str], present: Sequence[str]) -> None:
    """Raise if the table lacks one of the wanted columns."""
    for name in wanted:
        if name not in present:
            shown = ", ".join(map(repr, present[:20])) + (", ..." if len(present) > 20 else "")
            raise ValueError(f"there is no column {name!r}: the columns are {shown}")


def check_column_names(when: Sequence[Any], label: Any) -> None:
    """Raise unless the time column, or a date and an hour column, and the label are given by their names."""
    if not all(isinstance(name, str) for name in when):
        raise ValueError("when= is not the name of a column: give its name, such as 'time', not its values")
    if len(when) not in (1, 2):
        raise ValueError(f"when={list(when)!r}: give one column, or two: a date and an hour")
    if label is not None and not isinstance(label, str):
        raise ValueError("label= is not the name of a column: give its name, such as 'late', not its values")


def check_not_ignored(wanted: Iterable[str | None], ignored: Collection[str]) -> None:
    """Raise if a column that is needed is one of those to leave out."""
    for name in wanted:
        if name in ignored:
            raise ValueError(f"ignore=[{name!r}, ...]: this column is needed as the time or the label")


def check_row_columns(wanted: Collection[str], present: Collection[str], *, row: int | None = None) -> None:
    """Raise if rows to predict lack columns of the model; name those, and the columns it does not know.

    row: number of the row in a list of dicts; None if all rows have the same columns.
    """
    missing = [name for name in wanted if name not in present]
    if missing:
        unknown = [name for name in present if name not in wanted]
        rest = f"; columns that the model does not know: {_list_names(unknown)}" if unknown else ""
        where = "" if row is None else f"row {row}: "
        raise ValueError(
            f"{where}missing: {_list_names(missing)}, which the model was trained on{rest}. "
            "Give None where a value is unknown"
        )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")


def _infer_kind(column: Column) -> str:
    """Infer the type of a feature column from its cells; any other word is the reason to ignore it."""
    dtype = column.type
    if pa.types.is_dictionary(dtype):
        return CATEGORY
    if is_number(dtype):
        return NUMBER
    if pa.types.is_boolean(dtype):
        return BOOLEAN
    if pa.types.is_temporal(dtype):
        return "a time"
    if not is_text(column) and not pa.types.is_null(dtype):
        return f"of type {dtype}"
    known = known_texts(column)
    if len(known) == 0:
        return CATEGORY
    if _is_boolean(known):
        return BOOLEAN
    if numeric_share(known) >= MIN_NUMERIC_SHARE:
        return NUMBER
    if _are_times(known):
        return "a time"
    words = np.mean([len(tokens_of(cell.as_buffer())) for cell in known[:1000]])
    distinct = len(pc.unique(known)) / len(known)
    return TEXT if words >= MIN_TEXT_WORDS and distinct >= MIN_TEXT_DISTINCT else CATEGORY


def _are_times(known: Column) -> bool:
    if not pc.match_substring_regex(known[:1], r"^\s*[0-9]{4}[-/]")[0].as_py():
        return False
    when = np.empty(len(known), np.int64)
    moments(*texts(known), np.empty(len(known), np.int64), when)
    return not ((when == BAD) | (when == NONE)).any()


def _infer_label_kind(column: Column) -> str:
    if pa.types.is_boolean(column.type):
        return BOOLEAN
    if is_text(column) or pa.types.is_dictionary(column.type):
        known = known_texts(column)
        if len(known) and _is_boolean(known):
            return BOOLEAN
        return NUMBER if len(known) == 0 or numeric_share(known) >= MIN_NUMERIC_SHARE else CATEGORY
    return NUMBER


def _is_boolean(known: Column) -> bool:
    return set(pc.unique(known).to_pylist()) <= set(BOOLEANS)


def _show_cell(column: Column, at: int) -> str:
    value = column[at].as_py()
    text = "an empty cell" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _time_fault(clock: TimeColumn) -> str:
    if clock.form == "date and hour":
        return "no date with an hour from 0 to 24"
    if clock.form in ("s", "ms", "us", "ns"):
        return f"no time in epoch {clock.form}, as the first rows had them"
    if "%" in clock.form:
        return f"no time like {clock.form}"
    zone, offset = ("with a zone", "+01:00") if clock.form == "zoned" else ("without a zone", "")
    return f"not a time {zone}, such as 2013-01-31 05:15{offset} (or when_format='%d.%m.%Y %H:%M')"
