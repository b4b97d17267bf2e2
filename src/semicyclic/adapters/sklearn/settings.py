"""Parameters of an estimator as values."""

from typing import Any

import numpy as np

from semicyclic.method import step as steps
from semicyclic.method.average import ReadOut
from semicyclic.method.step import RATE, Step
from semicyclic.specs import parse_read_out

# Parameters that must not change between calls of `partial_fit`.
FIXED = ("method", "loss", "step_size", "batch_size", "average", "fit_intercept", "schedule", "zone")


def fixed_settings(estimator: Any) -> dict[str, Any]:
    """Return the parameters that must not change between calls of `partial_fit`, by name."""
    return {name: getattr(estimator, name) for name in FIXED}


def read_out_of(average: Any) -> ReadOut:
    """Return `average` as a read-out; an integer is that of the last cycles."""
    if isinstance(average, int | np.integer) and not isinstance(average, bool) and average > 0:
        return ReadOut("tail", int(average))
    if isinstance(average, str):
        return parse_read_out("average", average)
    raise ValueError(f"average={average!r}: write a read-out such as 'mean', or a number of cycles from 1")


def step_of(step_size: Any) -> Any:
    """Return the step size rule or constant; the string "adaptive" selects AdaGrad."""
    if isinstance(step_size, str) and step_size == "adaptive":
        return steps.adagrad(RATE)
    is_number = isinstance(step_size, int | float | np.number) and not isinstance(step_size, bool)
    if not isinstance(step_size, Step) and not is_number:
        raise ValueError(f"step_size={step_size!r}: give 'adaptive', a number, or a rule of semicyclic.step")
    return step_size
