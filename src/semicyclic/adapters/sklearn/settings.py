"""Parameters of an estimator as values."""

from typing import Any, cast

import numpy as np

from semicyclic.adapters.sklearn.row_times import BlockLocator
from semicyclic.method.average import ReadOut
from semicyclic.method.loss import Loss
from semicyclic.schedule.schedule import Schedule
from semicyclic.specs import parse_read_out, parse_step
from semicyclic.tables.columns import ColumnRequest
from semicyclic.training.config import (
    TrainConfig,
    check_feature_settings,
    check_named_once,
    parse_horizon,
    parse_memory,
)

# Parameters that must not change between calls of `partial_fit`.
FIXED = (
    "method", "loss", "step_size", "batch_size", "l2", "average", "fit_intercept", "schedule", "zone",
    "memory", "bins", "bits", "number", "category", "text", "ignore", "horizon",
)  # fmt: skip
COLUMN_TYPES = ("number", "category", "text", "ignore")


def fixed_settings(estimator: Any) -> dict[str, Any]:
    """Return the parameters that must not change between calls of `partial_fit`, by name."""
    return {name: getattr(estimator, name) for name in FIXED}


def check_features(estimator: Any) -> None:
    """Raise if a parameter of the encoding of frames is invalid."""
    parse_memory(estimator.memory)
    parse_horizon(estimator.horizon)
    check_feature_settings(estimator.bins, estimator.bits)
    by_type = {name: getattr(estimator, name) or () for name in COLUMN_TYPES}
    for name, names in by_type.items():
        if isinstance(names, str):
            raise ValueError(f"{name}={names!r}: give a list of column names, such as [{names!r}]")
    check_named_once(by_type)


def config_of(estimator: Any, locator: BlockLocator, loss: Loss, column: str | None) -> TrainConfig:
    """Return the parameters as the settings of a training run. column: name of the time column of a frame."""
    by_type = (tuple(getattr(estimator, name) or ()) for name in COLUMN_TYPES)
    when = () if column is None else (column,)
    return TrainConfig(
        ColumnRequest(when, None, locator.zone, None, *by_type),
        # Rows with blocks have numbered ones; only files need a clock.
        cast(Schedule, locator.schedule),
        method=estimator.method,
        loss=loss,
        step=parse_step("step_size", estimator.step_size),
        batch_size=int(estimator.batch_size),
        l2=float(estimator.l2),
        memory=parse_memory(estimator.memory),
        bits=estimator.bits,
        bins=int(estimator.bins),
        read_out=read_out_of(estimator.average),
        horizon=parse_horizon(estimator.horizon),
    )


def read_out_of(average: Any) -> ReadOut:
    """Return `average` as a read-out; an integer is that of the last cycles."""
    if isinstance(average, int | np.integer) and not isinstance(average, bool) and average > 0:
        return ReadOut("tail", int(average))
    if isinstance(average, str | ReadOut):
        return parse_read_out("average", average)
    raise ValueError(f"average={average!r}: write a read-out such as 'mean', or a number of cycles from 1")
