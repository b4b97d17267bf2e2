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
    split_off,
)

DTYPES = (np.float64, np.float32)
# Passed as y for rows to predict.
UNLABELLED = object()


def column_of(estimator: Any) -> Any:
    """Return the time or block column of X, or None."""
    return estimator.block_column if estimator.time_column is None else estimator.time_column


def features_of(
    estimator: Any, X: Any, y: Any, when: Any, blocks: Any, *, reset: bool
) -> tuple[Any, Any, Any, Any]:
    """Validate a table, and return its features, and the labels, times and blocks of its rows, or None.

    when, blocks: times or blocks given to the call; otherwise they are in a column of X.
    reset: set the estimator's number and names of columns from this table, instead of checking against them.
    """
    if when is not None and blocks is not None:
        raise ValueError("give either when= or blocks=, not both")
    column = column_of(estimator)
    checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": DTYPES}
    labelled = y is not UNLABELLED
    if labelled:
        checks["y_numeric"] = not is_classifier(estimator)
    if column is None:
        check_no_times(X, None)
        if labelled:
            return *validate_data(estimator, X, y, reset=reset, **checks), when, blocks
        return validate_data(estimator, X, reset=reset, **checks), None, when, blocks
    check_column(column)
    table = as_table(X)
    if not reset and _is_rest(estimator, table):
        rest = table
    else:
        at = position(table, column)
        if at is None and (reset or isinstance(column, str)):
            raise ValueError(missing_column_message(table, column))
        if when is not None or blocks is not None:
            name = "blocks" if when is None else "when"
            raise ValueError(
                f"column {column!r} of X already has the time or block of rows: leave out {name}="
            )
        validate_data(estimator, table, reset=reset, skip_check_array=True)
        assert at is not None
        if table.shape[1] == 1:
            raise ValueError(f"X has only column {column!r}, so there is nothing to learn from: add features")
        rest, values = split_off(table, at)
        when, blocks = (None, values) if estimator.time_column is None else (values, None)
        check_no_times(rest, column)
    if labelled:
        return *check_X_y(rest, y, estimator=estimator, **checks), when, blocks
    return check_array(rest, estimator=estimator, **checks), None, when, blocks


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
