"""Settings of a fit, and the rows of one `fit` or `partial_fit` call."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.adapters.sklearn.row_times import RowBlocks, TimesOrBlocks
from semicyclic.method import step as steps
from semicyclic.method import train
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.step import RATE, Step
from semicyclic.types import Array

# The method that tries all, and mixes what has been best lately.
AUTO = "auto"
# What read-outs of single cycles may keep.
RECORDS = 2 * 2**30


class FitSettings(NamedTuple):
    """What a stream is learnt by, from its first row to its last."""

    method: str
    loss: Any
    step_size: Any
    batch_size: int
    average: Any
    fit_intercept: bool
    schedule: Any
    zone: str | None

    def train(self, *data: Any, **settings: Any) -> Run:
        """By the method's name. Beside candidates one chain is run, for what is not of any model."""
        run: Run = getattr(train, "pluralistic" if self.method == AUTO else self.method)(*data, **settings)
        return run

    def settings(self) -> dict[str, Any]:
        """As `train` takes them."""
        step = step_of(self.step_size)
        # The chain beside the candidates is the same whatever is set for the other methods.
        how: dict[str, Any] = {"step_size": step_of("adaptive") if self.method == AUTO else step}
        return how if self.average in ("mean", "last") else {**how, "memory": RECORDS}


class FitRows(NamedTuple):
    """Rows of a call: features, labels as the loss has them, weights, where they happened, and names."""

    X: Any
    y: Array
    weight: Array | None
    where: TimesOrBlocks | None
    columns: Array
    loss: Loss

    def rows(self, how: FitSettings, placed: RowBlocks) -> Rows:
        """Checked, in the order given."""
        where: Any = {"block": placed.block, "cycle": placed.cycle}
        kind = self.X.dtype
        return Rows(self.X, self.y, weight=self.weight, intercept=how.fit_intercept, dtype=kind, **where)

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels are numbers of classes."""
        return tuple(range(self.loss.classes))


def step_of(step_size: Any) -> Any:
    """A rule for steps; a text is the name of one."""
    if isinstance(step_size, str) and step_size == "adaptive":
        return steps.adagrad(RATE)
    number = isinstance(step_size, int | float | np.number) and not isinstance(step_size, bool)
    if not isinstance(step_size, Step) and not number:
        raise ValueError(f"step_size={step_size!r}: write 'adaptive', a number, or a rule of sc.step")
    return step_size
