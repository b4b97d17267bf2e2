"""Data frames: taking the time or block column out of a table, leaving the others as features."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_array

from semicyclic.types import Array


class ColumnSplit(NamedTuple):
    """A table without one of its columns, and that column."""

    rest: Any
    column: Any


def is_frame(X: Any) -> bool:
    """Whether a table is a data frame of pandas or Polars, whose columns have names and types."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "get_column"))


def as_table(X: Any) -> Any:
    """A data frame as it is; anything else as an array or a CSR matrix, of whatever type it has."""
    return X if is_frame(X) else check_array(X, accept_sparse="csr", dtype=None, ensure_all_finite=False)


def check_column(column: Any) -> None:
    """Refuse what tells no column."""
    if isinstance(column, bool) or not isinstance(column, str | int | np.integer):
        shown = repr(column) if isinstance(column, bool | float | list) else f"a {type(column).__name__}"
        raise ValueError(f"the column of X is told by {shown}: give its name, or its position")


def position(table: Any, column: str | int) -> int | None:
    """Where a column stands; None where the table does not have it."""
    check_column(column)
    if isinstance(column, str):
        if not is_frame(table):
            raise ValueError(
                f"column {column!r} is told by name, and X is a {type(table).__name__} without names: give "
                "its position, or a data frame (after a transformer, by set_output(transform='pandas'))"
            )
        names = list(table.columns)
        return names.index(column) if column in names else None
    width = table.shape[1]
    return column % width if -width <= column < width else None


def not_there(table: Any, column: Any) -> str:
    """What to say of a column that a table does not have."""
    said = f"X has no column {column!r} to tell where its rows happened"
    if not is_frame(table):
        return f"{said}: there are {table.shape[1]}"
    names = [str(name) for name in table.columns]
    prefixed = [name for name in names if name.endswith(f"__{column}")]
    if prefixed:
        return f"{said}, but {prefixed[0]!r}: make the ColumnTransformer with verbose_feature_names_out=False"
    shown = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
    return f"{said}: its columns are {shown}"


def check_no_times(table: Any, column: Any) -> None:
    """Refuse times among the features, naming them."""
    if not is_frame(table):
        return
    kinds = zip(table.columns, table.dtypes, strict=True)
    times = [str(name) for name, kind in kinds if "datetime" in str(kind).lower() or str(kind) == "Date"]
    if times and column is None:
        raise ValueError(f"column {times[0]!r} holds times: say time_column={times[0]!r}, or leave it out")
    if times:
        raise ValueError(
            f"column {times[0]!r} holds times too: only {column!r} can; make it a number, or leave it out"
        )


def take(table: Any, at: int) -> ColumnSplit:
    """Take off the column at a position."""
    others = [number for number in range(table.shape[1]) if number != at]
    if hasattr(table, "iloc"):
        return ColumnSplit(table.iloc[:, others], table.iloc[:, at])
    if is_frame(table):
        name = list(table.columns)[at]
        return ColumnSplit(table.drop(name), table.get_column(name))
    if hasattr(table, "indptr"):
        return _take_sparse(table, at)
    return ColumnSplit(np.delete(table, at, axis=1), table[:, at])


def _take_sparse(X: Any, at: int) -> ColumnSplit:
    """The same of a CSR matrix; cells that are not stored are 0."""
    held = X.indices == at
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[held]
    column = np.zeros(X.shape[0], X.data.dtype)
    np.add.at(column, row, X.data[held])
    before = np.r_[0, np.cumsum(held)]
    indptr = X.indptr - before[X.indptr]
    indices = X.indices[~held]
    indices = indices - (indices > at).astype(indices.dtype)
    rest = type(X)((X.data[~held], indices, indptr), shape=(X.shape[0], X.shape[1] - 1))
    return ColumnSplit(rest, column)


def take_rows(column: Any, rows: Array) -> Any:
    """Some rows of a column."""
    return column.iloc[rows] if hasattr(column, "iloc") else column[rows]


def absent(column: Any) -> Array:
    """Which cells of a column are missing: NaN, NaT, None or null."""
    if hasattr(column, "is_null"):
        nulls = np.asarray(column.is_null())
        values = column.to_numpy() if column.dtype.is_float() else None
        return nulls if values is None else nulls | np.isnan(values)
    if hasattr(column, "isna"):
        return np.asarray(column.isna())
    values = np.asarray(column)
    if values.dtype.kind == "M":
        return np.asarray(np.isnat(values))
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    if values.dtype == object:
        return np.array([each is None or each != each for each in values], bool)
    return np.zeros(len(values), bool)
