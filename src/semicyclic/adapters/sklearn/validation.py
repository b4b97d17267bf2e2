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
    not_there,
    position,
    take,
)
from semicyclic.adapters.sklearn.row_times import TimesOrBlocks

DTYPES = (np.float64, np.float32)
UNLABELLED = object()


def column_of(estimator: Any) -> Any:
    """The column of X that tells the time or block; None where there is none."""
    return estimator.block_column if estimator.time_column is None else estimator.time_column


def times_or_blocks(when: Any, blocks: Any) -> TimesOrBlocks | None:
    """What a call says of where its rows happened."""
    if when is not None and blocks is not None:
        raise ValueError("give either when= or blocks=, not both")
    if when is not None:
        return TimesOrBlocks(True, when)
    return None if blocks is None else TimesOrBlocks(False, blocks)


def features_of(
    estimator: Any, X: Any, y: Any, where: TimesOrBlocks | None, *, reset: bool
) -> tuple[Any, Any, TimesOrBlocks | None]:
    """The features of a table, its labels (or None), and where its rows happened.

    reset: whether the estimator learns from these what its columns are.
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
            raise ValueError(not_there(table, column))
        if where is not None:
            name = "when" if where.timed else "blocks"
            raise ValueError(f"column {column!r} of X tells where rows happened: leave out {name}=")
        validate_data(estimator, table, reset=reset, skip_check_array=True)
        assert at is not None
        if table.shape[1] == 1:
            raise ValueError(f"X has column {column!r} alone: there is nothing to learn from")
        rest, values = take(table, at)
        where = TimesOrBlocks(estimator.time_column is not None, values)
        check_no_times(rest, column)
    if labelled:
        return *check_X_y(rest, y, estimator=estimator, **checks), where
    return check_array(rest, estimator=estimator, **checks), None, where


def _is_rest(estimator: Any, table: Any) -> bool:
    """Whether a table is as it was at fit but for the column that tells the time or block.

    Names tell it. A table without names that is one column short could lack any.
    """
    known = getattr(estimator, "feature_names_in_", None)
    if known is None or not is_frame(table):
        return False
    return list(table.columns) == others(known, column_of(estimator))


def others(names: Any, column: Any) -> list[Any]:
    """The names of a table's columns without the one that tells the time or block."""
    left = list(names)
    if column is not None:
        del left[left.index(column) if isinstance(column, str) else column]
    return left
