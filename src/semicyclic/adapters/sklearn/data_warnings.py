"""Warnings about likely mistakes in the data, each with a fix."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from semicyclic.adapters.sklearn.fitted import sample_of
from semicyclic.adapters.sklearn.row_times import BlockLocator
from semicyclic.method.rows import Rows
from semicyclic.training.learner import AUTO
from semicyclic.types import Array

# A thousand adaptive steps do not suffice to fit features or labels with a root mean square above
# LARGE_VALUE, or features whose nonzero values have one below SMALL_VALUE.
LARGE_VALUE, SMALL_VALUE = 30.0, 0.4
# With fewer rows, the typical size of a feature is not known well enough to warn that it is small.
MIN_ROWS_FOR_SMALL = 100


def warn_each(messages: Iterable[str]) -> None:
    """Issue warnings that point to the call of `fit` or `partial_fit`."""
    for message in messages:
        warnings.warn(message, stacklevel=5)


def likely_mistakes(
    estimator: Any, rows: Rows, *, located: bool, ignored: Mapping[str, str] | None
) -> Iterator[str]:
    """Yield messages about likely mistakes in the data, each with a fix.

    located: the rows have times or blocks. ignored: unused columns of a frame; None for an array.
    """
    if not located and estimator.method != "consensus":
        yield (
            "the rows have no times or blocks, so one model is fitted for all hours: set time_column= or "
            "block_column= to a column of X, or give when= or blocks="
        )
    if ignored is None:
        yield from _unscaled_columns(estimator, rows)
    elif unused := [f"{name!r} ({reason})" for name, reason in ignored.items() if reason != "as asked"]:
        yield f"columns that are not used: {', '.join(unused)}: convert them, or name them in ignore="


def _unscaled_columns(estimator: Any, rows: Rows) -> Iterator[str]:
    """Yield messages about features or labels of an array that are too large or too small."""
    if not isinstance(estimator.step_size, str) or estimator.method == AUTO:
        return  # the candidates of "auto" include step sizes for labels of any size
    if estimator.step_size.startswith("adaptive"):
        yield from _unusual_sizes(estimator, sample_of(rows))
    assert rows.labels is not None
    label_size = 0.0 if is_classifier(estimator) else float(np.sqrt(np.mean(np.square(rows.labels))))
    if label_size > LARGE_VALUE:
        yield (
            f"y has values around {label_size:,.0f}, and step sizes assume labels around 1: scale them, for "
            "example by TransformedTargetRegressor(regressor=..., transformer=StandardScaler())"
        )


def _unusual_sizes(estimator: Any, sample: Rows) -> Iterator[str]:
    """Yield messages about features that are too large or too small for adaptive steps."""
    size = _column_sizes(sample)
    if size.max() > LARGE_VALUE:
        name = estimator.get_feature_names_out()[int(size.argmax())]
        yield (
            f"column {name!r} has values around {size.max():,.0f}, and adaptive steps assume features around "
            '1: use step_size="normalized", or scale the features'
        )
    typical = _typical_size(sample)
    if 0.0 < typical < SMALL_VALUE and len(sample) >= MIN_ROWS_FOR_SMALL:
        yield (
            f"features have values around {typical:.2g} (as TF-IDF has), and adaptive steps assume features "
            'around 1: use step_size="normalized", or scale the features'
        )


def empty_blocks(locator: BlockLocator, ticks: Array | None, rows: Array) -> Iterator[str]:
    """Yield a message about blocks without rows. rows: [m] the total weight of the rows in each block."""
    empty = np.flatnonzero(rows == 0)
    if len(empty):
        shown = ", ".join(str(locator.labels[block]) for block in empty[:6].tolist())
        times = "" if ticks is None else f". Times run {_time_range(ticks)}"
        yield (
            f"{len(empty)} of {locator.blocks} blocks have no rows ({shown}{', ...' * (len(empty) > 6)}): "
            f"they predict by what the other blocks share{times}"
        )


def _time_range(ticks: Array) -> str:
    ends = np.array([ticks.min(), ticks.max()]).astype("datetime64[us]").astype("datetime64[s]")
    return f"from {ends[0]} to {ends[1]} UTC"


def _column_sizes(rows: Rows) -> Array:
    """Return the root mean square of each column, [d]."""
    square = np.bincount(rows.indices, np.square(rows.values, dtype=np.float64), rows.width)
    return np.asarray(np.sqrt(square / len(rows)))


def _typical_size(rows: Rows) -> float:
    """Return the root mean square of the nonzero values."""
    nonzero = rows.values[rows.values != 0]
    return float(np.sqrt(np.mean(np.square(nonzero, dtype=np.float64)))) if len(nonzero) else 0.0
