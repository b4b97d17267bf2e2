"""The demo: the four approaches of the paper on a stream whose labels follow the clock."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.data.datasets import skewed
from semicyclic.method import train
from semicyclic.method.loss import logistic
from semicyclic.method.model import Pluralistic
from semicyclic.method.pack import encode
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.schedule import Schedule

Array = npt.NDArray[Any]

SCHEDULE = Schedule.daily(6, zone="UTC")
STEP_SIZE = 1.0
BATCH_SIZE = 32


class Result(NamedTuple):
    """Progressive log loss: every day's rows scored by the models of the days before."""

    labels: tuple[str, ...]
    by_block: dict[str, list[float]]
    overall: dict[str, float]
    rows: int
    days: int


def run_demo(seed: int = 0, *, progress: Callable[[str], None] = lambda _: None) -> Result:
    """Train the approaches day by day, scoring each day before learning from it."""
    progress("making the stream")
    rows = skewed(seed=seed)
    # The ideal: as many rows of the same mixture in random order, from a draw of its own, so
    # that no row is scored by a model that has seen it.
    mixed = skewed(seed=seed + 1_000_003, mixed=True)
    settings: train.Settings = {"step_size": STEP_SIZE, "batch_size": BATCH_SIZE}
    progress("training the single chain")
    single = train.pluralistic(rows, SCHEDULE, **settings)
    progress("training separate chains")
    separate = train.separate(rows, SCHEDULE, **settings)
    progress("training on shuffled rows")
    ideal = train.consensus(mixed, SCHEDULE, **settings)
    approaches: dict[str, Callable[[int], Pluralistic]] = {
        "consensus, last": lambda day: single.consensus_last(through=day),
        "consensus": lambda day: single.consensus(through=day),
        "separate": lambda day: separate.mean(through=day),
        "pluralistic": lambda day: single.mean(through=day),
        "i.i.d. ideal": lambda day: ideal.mean(through=day),
    }
    progress("scoring")
    losses = {name: _progressive(rows, single, model) for name, model in approaches.items()}
    block = rows.place(SCHEDULE).block
    scored = ~np.isnan(losses["consensus"])
    return Result(
        labels=SCHEDULE.labels,
        by_block={
            name: [float(loss[scored & (block == i)].mean()) for i in range(SCHEDULE.blocks)]
            for name, loss in losses.items()
        },
        overall={name: float(loss[scored].mean()) for name, loss in losses.items()},
        rows=len(rows),
        days=len(np.unique(rows.place(SCHEDULE).cycle)),
    )


def _progressive(rows: Rows, run: Run, model: Callable[[int], Pluralistic]) -> Array:
    """The loss of each row under the model as it stood the evening before; NaN on the first day."""
    cycle = rows.place(SCHEDULE).cycle
    target, _ = encode(rows.labels, logistic, run.classes)
    losses = np.full(len(rows), np.nan)
    days = np.unique(cycle)
    for before, day in pairwise(days):
        own = np.flatnonzero(cycle == day)
        losses[own] = logistic.value(model(int(before)).score(rows[own]), target[own])
    return losses
