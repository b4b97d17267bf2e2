"""Input validation of the estimators: features, labels, times or blocks."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import _check_sample_weight, check_array, check_X_y, validate_data

from semicyclic.adapters.sklearn.data_frames import (
    as_table,
    check_column,
    check_no_times,
    missing_column_message,
    position,
    split_off,
)
from semicyclic.adapters.sklearn.frame_encoding import is_frame, to_arrow
from semicyclic.adapters.sklearn.row_times import time_values
from semicyclic.types import Array

DTYPES = (np.float64, np.float32)
# Passed as y for rows to predict.
UNLABELLED = object()


class Inputs(NamedTuple):
    """Validated arguments of a call.

    features: an array, a CSR matrix, or the feature columns of a frame as an Arrow table. labels: or None.
    when, blocks: the times or blocks of the rows, or None. column: name of the time column of a frame.
    """

    features: Any
    labels: Any
    when: Any
    blocks: Any
    column: str | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])


def column_of(estimator: Any) -> Any:
    """Return the time or block column of X, or None."""
    return estimator.block_column if estimator.time_column is None else estimator.time_column


def inputs_of(estimator: Any, X: Any, y: Any, when: Any, blocks: Any, *, reset: bool) -> Inputs:
    """Validate the arguments of a call of `fit`, `partial_fit` or `predict`.

    when, blocks: times or blocks given to the call; otherwise they are in a column of X.
    reset: set the estimator's number and names of columns from this table, instead of checking against them.
    """
    if when is not None and blocks is not None:
        raise ValueError("give either when= or blocks=, not both")
    if column_of(estimator) is not None:
        check_column(column_of(estimator))
    encodes = is_frame(X) if reset else estimator._fitted.frame is not None
    if encodes:
        return _inputs_of_frame(estimator, X, y, when, blocks, reset=reset)
    return _inputs_of_array(estimator, X, y, when, blocks, reset=reset)


def row_weights(inputs: Inputs, sample_weight: Any) -> Array:
    """Return the weights of rows, one each, 1 if None."""
    features = inputs.features
    dtype = getattr(features, "dtype", np.dtype(np.float32))
    ones = np.ones((inputs.rows, 1))
    return np.asarray(_check_sample_weight(sample_weight, ones, dtype=dtype, ensure_non_negative=True))


def _inputs_of_array(estimator: Any, X: Any, y: Any, when: Any, blocks: Any, *, reset: bool) -> Inputs:
    """Validate an array or sparse matrix, whose columns are features."""
    column = column_of(estimator)
    checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": DTYPES}
    labelled = y is not UNLABELLED
    if labelled:
        checks["y_numeric"] = not is_classifier(estimator)
    if column is None:
        if labelled:
            features, labels = validate_data(estimator, X, y, reset=reset, **checks)
            return Inputs(features, labels, when, blocks)
        return Inputs(validate_data(estimator, X, reset=reset, **checks), None, when, blocks)
    table = as_table(X)
    at = position(table, column)
    if at is None and (reset or isinstance(column, str)):
        raise ValueError(missing_column_message(table, column))
    _check_given_once(column, when, blocks)
    validate_data(estimator, table, reset=reset, skip_check_array=True)
    assert at is not None
    _check_has_features(table, column)
    rest, values = split_off(table, at)
    when, blocks = (None, values) if estimator.time_column is None else (values, None)
    if labelled:
        features, labels = check_X_y(rest, y, estimator=estimator, **checks)
        return Inputs(features, labels, when, blocks)
    return Inputs(check_array(rest, estimator=estimator, **checks), None, when, blocks)


def _inputs_of_frame(estimator: Any, X: Any, y: Any, when: Any, blocks: Any, *, reset: bool) -> Inputs:
    """Validate a data frame, an Arrow table or a list of dicts."""
    if not is_frame(X):
        X = as_table(X)
        validate_data(estimator, X, reset=False, skip_check_array=True)
        X = to_arrow(X, estimator.feature_names_in_)
    elif not hasattr(X, "shape"):
        X = to_arrow(X)
    table = to_arrow(X)
    column, name = column_of(estimator), None
    labels = None
    if y is not UNLABELLED:
        _, labels = check_X_y(
            np.zeros((table.num_rows, 1)), y, estimator=estimator, y_numeric=not is_classifier(estimator)
        )
    if not reset and column is not None and _is_rest(estimator, table):
        return Inputs(table, labels, when, blocks)
    if column is not None:
        at = position(table, column)
        if at is None:
            raise ValueError(missing_column_message(table, column))
        _check_given_once(column, when, blocks)
        _check_has_features(table, column)
        name = table.column_names[at]
    elif reset:
        check_no_times(table)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if name is None:
        return Inputs(table, labels, when, blocks)
    rest = table.drop_columns([name])
    if estimator.time_column is None:
        return Inputs(rest, labels, None, np.array(table.column(name).to_pylist(), dtype=object))
    known = None if reset else estimator._fitted.frame.encoding.features.columns.when
    assert at is not None
    times = time_values(table, at, estimator.zone, estimator.schedule, known)
    return Inputs(rest, labels, times, None, name)


def _check_given_once(column: Any, when: Any, blocks: Any) -> None:
    if when is not None or blocks is not None:
        name = "blocks" if when is None else "when"
        raise ValueError(f"column {column!r} of X already has the time or block of rows: leave out {name}=")


def _check_has_features(table: Any, column: Any) -> None:
    if table.shape[1] == 1:
        raise ValueError(f"X has only column {column!r}, so there is nothing to learn from: add features")


def _is_rest(estimator: Any, table: Any) -> bool:
    """Return whether a table has the columns seen at fit except the time or block column."""
    known = getattr(estimator, "feature_names_in_", None)
    if known is None:
        return False
    return list(table.column_names) == names_without(known, column_of(estimator))


def names_without(names: Any, column: Any) -> list[Any]:
    """Return column names without `column`, a name or position; all of them if it is None."""
    remaining = list(names)
    if column is not None:
        del remaining[remaining.index(column) if isinstance(column, str) else column]
    return remaining
