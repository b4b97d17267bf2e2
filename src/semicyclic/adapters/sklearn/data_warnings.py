"""Warnings about likely mistakes in the data, each with a fix."""

import warnings

import numpy as np

from semicyclic.adapters.sklearn.fit_settings import AUTO, FitRows, FitSettings
from semicyclic.adapters.sklearn.row_times import BlockLocator, RowBlocks
from semicyclic.method.rows import Rows
from semicyclic.method.step import RATE
from semicyclic.types import Array

# Features and labels beyond this are not learnt within a thousand adaptive steps; nor are features whose
# values, where there are any, are smaller than this.
LARGE, SMALL, ENOUGH = 30.0, 0.4, 100


def say_what_may_be_wrong(how: FitSettings, given: FitRows, some: Rows) -> None:
    """Of what a stream begins with, and some of its rows: times left out, features and labels of odd size."""
    if given.where is None and how.method != "consensus":
        _warn(
            "nothing was told of times or blocks, so this learns one model for all hours: name the column of "
            "X by time_column= or block_column=, or give when= or blocks="
        )
    if not isinstance(how.step_size, str):
        return
    spread = _spreads(some)
    if spread.max() > LARGE:
        _warn(
            f"column {given.columns[int(spread.argmax())]!r} has values around {spread.max():,.0f}: steps "
            "are sized for features around 1. Scale them first, as by StandardScaler in a ColumnTransformer "
            "that passes the time through"
        )
    if how.method == AUTO:
        return  # among its steps there are some for any size
    size = _typical(some)
    # Of a few rows nobody knows what is typical.
    if 0.0 < size < SMALL and len(some) >= ENOUGH:
        _warn(
            f"features have values around {size:.2g}, as TF-IDF has: steps are sized for features around 1. "
            f"Take step_size=semicyclic.step.adagrad({RATE / size:.1g}), or scale the features"
        )
    size = 0.0 if given.loss.classes else float(np.sqrt(np.mean(np.square(given.y))))
    if size > LARGE:
        _warn(
            f"y has values around {size:,.0f}: steps are sized for labels around 1. Scale them, as "
            "TransformedTargetRegressor(regressor=..., transformer=StandardScaler()) does"
        )


def say_what_is_unseen(calendar: BlockLocator, placed: RowBlocks, rows: Array) -> None:
    """Of all rows: the blocks that have none. rows: [m] how many there are."""
    unseen = np.flatnonzero(rows == 0)
    if len(unseen):
        some = ", ".join(str(calendar.labels[block]) for block in unseen[:6].tolist())
        _warn(
            f"{len(unseen)} of {calendar.blocks} blocks have no rows ({some}{', ...' * (len(unseen) > 6)}): "
            "they answer by the consensus of the others"
            + ("" if placed.ticks is None else f". Times run {_reach(placed.ticks)}")
        )


def _reach(ticks: Array) -> str:
    ends = np.array([ticks.min(), ticks.max()]).astype("datetime64[us]").astype("datetime64[s]")
    return f"from {ends[0]} to {ends[1]} UTC"


def _warn(message: str) -> None:
    # As from the call of fit or partial_fit.
    warnings.warn(message, stacklevel=6)


def _spreads(rows: Rows) -> Array:
    """[d] the root mean square of each column."""
    square = np.bincount(rows.indices, np.square(rows.values, dtype=np.float64), rows.width)
    return np.asarray(np.sqrt(square / len(rows)))


def _typical(rows: Rows) -> float:
    """The root mean square of the values that are not 0."""
    held = rows.values[rows.values != 0]
    return float(np.sqrt(np.mean(np.square(held, dtype=np.float64)))) if len(held) else 0.0
