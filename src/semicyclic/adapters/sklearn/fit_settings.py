"""Settings of a fit, and the rows of one `fit` or `partial_fit` call."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.adapters.sklearn.row_times import RowBlocks, TimesOrBlocks
from semicyclic.method import step as steps
from semicyclic.method import train
from semicyclic.method.average import ReadOut
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.step import RATE, Step
from semicyclic.specs import parse_read_out
from semicyclic.types import Array

# The method that trains all candidates and mixes those with the least recent loss.
AUTO = "auto"
# Memory limit in bytes for visit records, which read-outs of single cycles need.
MAX_RECORD_BYTES = 2 * 2**30


class FitSettings(NamedTuple):
    """Settings of the estimator that must not change between `partial_fit` calls."""

    method: str
    loss: Any
    step_size: Any
    batch_size: int
    average: Any
    fit_intercept: bool
    schedule: Any
    zone: str | None

    def train(self, *data: Any, **settings: Any) -> Run:
        """Train by `method`. For "auto", train the chain that records progressive losses and row shares."""
        run: Run = getattr(train, "pluralistic" if self.method == AUTO else self.method)(*data, **settings)
        return run

    def settings(self) -> dict[str, Any]:
        """Return the step size and memory limit as keyword arguments of `train`."""
        step = step_of(self.step_size)
        # The chain trained in addition to the candidates ignores `step_size`.
        options: dict[str, Any] = {"step_size": step_of("adaptive") if self.method == AUTO else step}
        return {**options, "memory": MAX_RECORD_BYTES} if self.read_out.needs_records else options

    @property
    def read_out(self) -> ReadOut:
        """`average` as a read-out; a whole number is that of the last cycles."""
        average = self.average
        if isinstance(average, int | np.integer) and not isinstance(average, bool) and average > 0:
            return ReadOut("tail", int(average))
        if isinstance(average, str):
            return parse_read_out("average", average)
        raise ValueError(f"average={average!r}: write mean, last, tail, fading, or a number of cycles from 1")


class FitRows(NamedTuple):
    """Rows of one call.

    y: numbers, or class codes. where: times or blocks of the rows. columns: feature names.
    """

    X: Any
    y: Array
    weight: Array | None
    where: TimesOrBlocks | None
    columns: Array
    loss: Loss

    def rows(self, how: FitSettings, placed: RowBlocks) -> Rows:
        """Return the rows in the given order, with their cycles and blocks."""
        where: Any = {"block": placed.block, "cycle": placed.cycle}
        dtype = self.X.dtype
        return Rows(self.X, self.y, weight=self.weight, intercept=how.fit_intercept, dtype=dtype, **where)

    @property
    def classes(self) -> tuple[int, ...]:
        """Class codes, 0 to C - 1; empty for a regressor."""
        return tuple(range(self.loss.classes))


def step_of(step_size: Any) -> Any:
    """Return the step size rule or constant; the string "adaptive" selects AdaGrad."""
    if isinstance(step_size, str) and step_size == "adaptive":
        return steps.adagrad(RATE)
    is_number = isinstance(step_size, int | float | np.number) and not isinstance(step_size, bool)
    if not isinstance(step_size, Step) and not is_number:
        raise ValueError(f"step_size={step_size!r}: give 'adaptive', a number, or a rule of semicyclic.step")
    return step_size
