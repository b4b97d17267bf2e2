"""Input validation of the estimators: features, labels, times or blocks."""

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_array, check_X_y, validate_data

from semicyclic.adapters.sklearn.data_frames import (
    as_table,
    check_column,
    check_no_times,
    is_frame,
    missing_column_message,
    position,
    take,
)
from semicyclic.adapters.sklearn.row_times import TimesOrBlocks

DTYPES = (np.float64, np.float32)
# Passed as y for rows to predict.
UNLABELLED = object()


def column_of(estimator: Any) -> Any:
    """Return the time or block column of X, or None."""
    return estimator.block_column if estimator.time_column is None else estimator.time_column


def times_or_blocks(when: Any, blocks: Any) -> TimesOrBlocks | None:
    """Return the times or blocks given to a call, or None. Raise if both are given."""
    if when is not None and blocks is not None:
        raise ValueError("give either when= or blocks=, not both")
    if when is not None:
        return TimesOrBlocks(True, when)
    return None if blocks is None else TimesOrBlocks(False, blocks)


def features_of(
    estimator: Any, X: Any, y: Any, where: TimesOrBlocks | None, *, reset: bool
) -> tuple[Any, Any, TimesOrBlocks | None]:
    """Validate a table, and return its features, its labels (or None), and the times or blocks of its rows.

    reset: set the estimator's number and names of columns from this table, instead of checking against them.
    """
    column = column_of(estimator)
    checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": DTYPES}
    labelled = y is not UNLABELLED
    if labelled:
        checks["y_numeric"] = not is_classifier(estimator)
    if column is None:
        check_no_times(X, None)
        if labelled:
            return *validate_data(estimator, X, y, reset=reset, **checks), where
        return validate_data(estimator, X, reset=reset, **checks), None, where
    check_column(column)
    table = as_table(X)
    if not reset and _is_rest(estimator, table):
        rest = table
    else:
        at = position(table, column)
        if at is None and (reset or isinstance(column, str)):
            raise ValueError(missing_column_message(table, column))
        if where is not None:
            name = "when" if where.timed else "blocks"
            raise ValueError(
                f"column {column!r} of X already has the time or block of rows: leave out {name}="
            )
        validate_data(estimator, table, reset=reset, skip_check_array=True)
        assert at is not None
        if table.shape[1] == 1:
            raise ValueError(f"X has only column {column!r}, so there is nothing to learn from: add features")
        rest, values = take(table, at)
        where = TimesOrBlocks(estimator.time_column is not None, values)
        check_no_times(rest, column)
    if labelled:
        return *check_X_y(rest, y, estimator=estimator, **checks), where
    return check_array(rest, estimator=estimator, **checks), None, where


def _is_rest(estimator: Any, table: Any) -> bool:
    """Return whether a table has the columns seen at fit except the time or block column.

    Only names can show this: a table without names that is one column short could lack any column.
    """
    known = getattr(estimator, "feature_names_in_", None)
    if known is None or not is_frame(table):
        return False
    return list(table.columns) == names_without(known, column_of(estimator))


def names_without(names: Any, column: Any) -> list[Any]:
    """Return column names without `column`, a name or position; all of them if it is None."""
    remaining = list(names)
    if column is not None:
        del remaining[remaining.index(column) if isinstance(column, str) else column]
    return remaining
