"""Tables in memory, such as data frames and lists of dicts: conversion to Arrow, and `TableSource`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from semicyclic.tables.arrow import combined
from semicyclic.tables.columns import check_columns
from semicyclic.tables.formats import FilePosition, TableBatch
from semicyclic.tables.sources import ReadPosition, SourceBatch
from semicyclic.tables.timestamps import infer_time_column
from semicyclic.types import Array

# Rows per batch.
BATCH_ROWS = 1 << 16
# Types of cells that Arrow converts together, if a column has no other.
ALIKE: tuple[tuple[type, ...], ...] = (
    (bool, np.bool_),
    (int, float, Decimal, np.integer, np.floating),
    (str,),
    (datetime, np.datetime64),
    (date,),
    (time,),
)


def to_arrow(table: Any) -> Any:
    """Convert a pandas, Polars or Arrow table, or a list of dicts, to an Arrow table.

    A dict lacks a column if none of its rows has it, and has a missing value if another row has it.
    """
    if isinstance(table, pa.Table):
        converted = table
    elif getattr(table, "ndim", 2) == 1 or isinstance(table, str):
        raise TypeError(f"table is a {type(table).__name__}: give a data frame, or a list of dicts")
    elif hasattr(table, "collect_schema") and hasattr(table, "collect"):
        raise TypeError(f"table is a {type(table).__name__}: give table.collect()")
    elif hasattr(table, "iloc") and hasattr(table, "columns"):
        converted = _from_pandas(table)
    elif hasattr(table, "__arrow_c_stream__"):
        converted = pa.table(table)
    elif is_records(table):
        converted = _from_records(table)
    else:
        raise TypeError(
            f"table is a {type(table).__name__}: give a data frame of pandas or Polars, an Arrow table, a "
            "list of dicts, or Rows; for files, those of semicyclic.read"
        )
    converted = _without_views(converted)
    names = converted.column_names
    twice = (
        next((name for name in names if names.count(name) > 1), None)
        if len(set(names)) < len(names)
        else None
    )
    if twice is not None:
        raise ValueError(f"the table has two columns {twice!r}: rename one")
    return converted


def _without_views(table: Any) -> Any:
    """Return a table whose strings are not views, for which Arrow lacks functions such as `take`."""
    for at, name in enumerate(table.column_names):
        column = combined(table.column(at))
        dtype = column.type
        if pa.types.is_string_view(dtype):
            table = table.set_column(at, name, column.cast(pa.large_string()))
        elif pa.types.is_dictionary(dtype) and pa.types.is_string_view(dtype.value_type):
            words = column.dictionary.cast(pa.large_string())
            table = table.set_column(at, name, pa.DictionaryArray.from_arrays(column.indices, words))
    return table


def is_records(table: Any) -> bool:
    """Return whether a table is a sequence of mappings from column names to cells."""
    return (
        isinstance(table, Sequence)
        and not isinstance(table, str | bytes)
        and (all(isinstance(row, Mapping) for row in table))
    )


def is_table(value: Any) -> bool:
    """Return whether `to_arrow` accepts a value."""
    is_frame = hasattr(value, "__arrow_c_stream__") or (hasattr(value, "iloc") and hasattr(value, "columns"))
    return is_frame or hasattr(value, "collect_schema") or (is_records(value) and len(value) > 0)


def _from_records(rows: Sequence[Mapping[Any, Any]]) -> Any:
    names: dict[Any, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise TypeError(f"column name {wrong!r} is a {type(wrong).__name__}: names must be strings")
    if not names:
        raise ValueError("the table has no columns")
    return pa.table({name: column_of([row.get(name) for row in rows]) for name in names})


def columns_to_arrow(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns of any cells, by name, as an Arrow table."""
    return pa.table({name: column_of(list(cells)) for name, cells in columns.items()})


def take_rows(table: Any, rows: Array) -> Any:
    """Return some rows of an Arrow table, in the order of `rows`."""
    return table.take(pa.array(rows))


def _from_pandas(table: Any) -> Any:
    """Convert a pandas data frame; cells of object columns may be of several types."""
    columns = {}
    names = [str(name) for name in table.columns]
    for at, name in enumerate(names):
        series = table.iloc[:, at]
        if names.count(name) > 1:
            raise ValueError(f"the table has two columns {name!r}: rename one")
        if str(series.dtype) == "object":
            columns[name] = column_of(series.tolist())
        else:
            try:
                columns[name] = combined(pa.Array.from_pandas(series))
            except (pa.ArrowException, TypeError) as error:
                raise TypeError(f"column {name!r} has type {series.dtype}: {error}") from None
    if not columns:
        raise ValueError("the table has no columns")
    return pa.table(columns)


def column_of(cells: Sequence[Any]) -> Any:
    """Convert cells to an Arrow array. Cells of several types become text, as in a JSON file."""
    values = [None if _is_missing(cell) else cell for cell in cells]
    kinds = {type(value) for value in values if value is not None}
    for alike in ALIKE:
        # `datetime` is a `date`, and `bool` an `int`: the first group that fits all cells is taken.
        if (
            kinds
            and all(issubclass(kind, alike) for kind in kinds)
            and not (alike is not ALIKE[0] and kinds & {bool, np.bool_})
        ):
            converted = _convert(values)
            if converted is not None:
                return converted
            break
    if not kinds:
        return pa.nulls(len(values), pa.string())
    if kinds <= {list, tuple, dict, np.ndarray, set}:
        return pa.nulls(len(values), pa.list_(pa.string()))  # cannot be a feature; the type says so
    return pa.array([_as_text(value) for value in values], pa.string())


def _is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN, NaT or pandas.NA."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, np.datetime64):
        return bool(np.isnat(cell))
    return isinstance(cell, float | np.floating | Decimal) and cell != cell


def _convert(values: list[Any]) -> Any:
    """Convert cells of one kind; return None if Arrow cannot."""
    plain = [_plain_value(value) for value in values]
    try:
        if any(isinstance(value, float) for value in plain):
            plain = [None if value is None else float(value) for value in plain]
    except OverflowError:
        return None
    aware = {value.utcoffset() is not None for value in plain if isinstance(value, datetime)}
    try:
        if aware == {True}:
            # Zones may differ from row to row: then only the instant counts.
            zones = {str(value.tzinfo) for value in plain if value is not None}
            (zone,) = zones if len(zones) == 1 and "/" in min(zones) else ("UTC",)
            return pa.array(plain, pa.timestamp("us", zone))
        return None if len(aware) > 1 else pa.array(plain)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def _plain_value(value: Any) -> Any:
    """Convert a Decimal, or a number or time of NumPy, to Python's; leave anything else."""
    if isinstance(value, np.float32 | np.float16):
        return float(str(value))  # the shortest decimal, as a file would have it
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item()
    return value.item() if isinstance(value, np.number | np.bool_) else value


def _as_text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, int | float):
        return json.dumps(cell)
    return str(cell)


@dataclass
class TableSource:
    """A table in memory as a source of rows, in the order given, or of time if `when` is given.

    when: the time column, or a date and an hour column. zone, form: of the times, as in `ColumnRequest`.
    Rows are numbered from 0 in the order given.
    """

    table: Any
    when: tuple[str, ...] = ()
    zone: str = "UTC"
    form: str | None = None
    ignore: tuple[str, ...] = ()
    row: Array = field(init=False)

    def __post_init__(self) -> None:
        table = to_arrow(self.table)
        self.row = np.arange(table.num_rows)
        dropped = [name for name in self.ignore if name in table.column_names]
        self.table = table.drop_columns(dropped) if dropped else table
        if self.when and table.num_rows:
            check_columns(self.when, table.column_names)
            self._sort()

    @property
    def can_reread(self) -> bool:
        """True: the rows can be read several times."""
        return True

    def name(self, file: int) -> str:  # noqa: ARG002
        """Return the name of the source for messages."""
        return "table"

    def parts(self, mark: ReadPosition) -> Iterator[SourceBatch]:  # noqa: ARG002
        """Yield all rows in batches."""
        total = self.table.num_rows
        for first in range(0, max(total, 1), BATCH_ROWS):
            part = self.table.slice(first, BATCH_ROWS)
            end = first + part.num_rows
            rows = self.row[first:end]
            batch = TableBatch(part, rows, [], FilePosition(end, end), "", end / max(total, 1))
            yield SourceBatch(batch, 0, ReadPosition())

    def _sort(self) -> None:
        """Sort the rows by time; rows whose time cannot be read come first."""
        times = infer_time_column(self.table, self.when, self.zone, self.form)
        times.check(self.table)
        parsed = times.read(self.table)
        ticks = np.where(parsed.bad, np.iinfo(np.int64).min, parsed.ticks)
        if (np.diff(ticks) < 0).any():
            self.row = np.argsort(ticks, kind="stable")
            self.table = self.table.take(pa.array(self.row))
