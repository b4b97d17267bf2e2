"""Columns of tables: the time or block column apart from the features."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from semicyclic.types import Array


def as_table(X: Any) -> Any:
    """Return an array or CSR matrix of the same dtype."""
    return check_array(X, accept_sparse="csr", dtype=None, ensure_all_finite=False)


def names_of(table: Any) -> list[str] | None:
    """Return the column names of an Arrow table; None for an array."""
    names: list[str] | None = getattr(table, "column_names", None)
    return names


def check_column(column: Any) -> None:
    """Raise if `column` is neither a name nor a position."""
    if isinstance(column, bool) or not isinstance(column, str | int | np.integer):
        shown = repr(column) if isinstance(column, bool | float | list) else f"a {type(column).__name__}"
        raise ValueError(f"the time or block column is {shown}: give its name or its position in X")


def position(table: Any, column: str | int) -> int | None:
    """Return the position of a column, or None if the table does not have it.

    table: an Arrow table, an array, or a CSR matrix.
    """
    check_column(column)
    if isinstance(column, str):
        names = names_of(table)
        if names is None:
            raise ValueError(
                f"column {column!r} is a name, and X is a {type(table).__name__} without names: give its "
                "position, or a data frame (after a transformer, by set_output(transform='pandas'))"
            )
        return names.index(column) if column in names else None
    width = int(table.shape[1])
    return int(column) % width if -width <= column < width else None


def missing_column_message(table: Any, column: Any) -> str:
    """Return the error message for a time or block column that the table does not have."""
    problem = f"X has no column {column!r} with the time or block of its rows"
    names = names_of(table)
    if names is None:
        return f"{problem}: it has {table.shape[1]} columns"
    prefixed = [name for name in names if name.endswith(f"__{column}")]
    if prefixed:
        return f"{problem}, but {prefixed[0]!r}: set verbose_feature_names_out=False in the ColumnTransformer"
    shown = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
    return f"{problem}: its columns are {shown}"


def check_no_times(table: Any) -> None:
    """Raise if a column of an Arrow table has times, and no time column was named."""
    times = [field.name for field in table.schema if str(field.type).startswith(("timestamp", "date"))]
    if times:
        raise ValueError(f"column {times[0]!r} has times: set time_column={times[0]!r}, or drop the column")


def split_off(table: Any, at: int) -> tuple[Any, Any]:
    """Return an array or CSR matrix without the column at position `at`, and that column."""
    if hasattr(table, "indptr"):
        return _split_off_sparse(table, at)
    return np.delete(table, at, axis=1), table[:, at]


def _split_off_sparse(X: Any, at: int) -> tuple[Any, Any]:
    """Do so for a CSR matrix; cells of the column that are not stored are 0."""
    in_column = X.indices == at
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[in_column]
    column = np.zeros(X.shape[0], X.data.dtype)
    np.add.at(column, row, X.data[in_column])
    removed = np.r_[0, np.cumsum(in_column)]
    indptr = X.indptr - removed[X.indptr]
    indices = X.indices[~in_column]
    indices = indices - (indices > at).astype(indices.dtype)
    rest = type(X)((X.data[~in_column], indices, indptr), shape=(X.shape[0], X.shape[1] - 1))
    return rest, column


def take_rows(column: Any, rows: Array) -> Any:
    """Return some rows of a column."""
    return column.iloc[rows] if hasattr(column, "iloc") else column[rows]


def absent(column: Any) -> Array:
    """Return a mask of the missing cells of a column: NaN, NaT, None or null."""
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
        return np.array([value is None or value != value for value in values], bool)
    return np.zeros(len(values), bool)
