"""One repetition of the experiment: its split, skew and orders, every approach and step size."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from semicyclic.experiments.reproduce import approaches, protocol
from semicyclic.experiments.reproduce.approaches import CLASSES, RepetitionData, StepSizes
from semicyclic.experiments.reproduce.protocol import Protocol
from semicyclic.method.batches import Packed, RowOrder, pack
from semicyclic.method.rows import Rows
from semicyclic.types import Array

# The paper's learning rates; of the logistic loss each is half the step (SPEC H4).
LEARNING_RATES = (0.1, 0.215, 0.464, 1.0, 2.15)
PAPER = StepSizes(single=2 * 0.464, separate=2 * 1.0)
GRANULARITY = (1, 2, 6, 24, 144, 1440)


@dataclass(frozen=True)
class Experiment:
    """What is to be run.

    steps: the logistic step sizes tried; with several, each approach takes its best.
    radius: of the ball onto which Prod's pair of chains is projected.
    """

    protocol: Protocol
    steps: tuple[StepSizes, ...] = (PAPER,)
    repetitions: int = 10
    seed: int = 0
    radius: float = 10.0
    granularity: tuple[int, ...] = GRANULARITY

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ValueError(f"--repetitions {self.repetitions}: must be at least 1")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: must be 0 or more")
        if not (np.isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"--radius {self.radius}: must be a positive number")
        for each in self.steps:
            if not all(np.isfinite(size) and size > 0 for size in each):
                raise ValueError(f"--step-size {each.single:g}: must be a positive number")


@dataclass
class Timings:
    """Seconds spent, added up over repetitions that may run side by side."""

    train: float = 0.0
    evaluate: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def add(self, what: str, since: float) -> None:
        with self.lock:
            setattr(self, what, getattr(self, what) + time.perf_counter() - since)


def grid(sizes: Sequence[float]) -> tuple[StepSizes, ...]:
    """Logistic step sizes to be tried for every chain."""
    return tuple(StepSizes(size, size) for size in sizes)


def generators(seed: np.random.SeedSequence) -> list[np.random.Generator]:
    """Split, skew of train and test, order, shuffle, unskewed order, start, grains: each its own."""
    return [
        np.random.default_rng(child)
        for child in np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key).spawn(8)
    ]


def repetition(
    rows: Rows,
    hour: Rows,
    plan: Experiment,
    seed: np.random.SeedSequence,
    clock: Timings,
    tick: Callable[[], None],
) -> list[Any]:
    """For every step size: the scores by measure and approach, and the matrices."""
    began = time.perf_counter()
    split_rng, skew_rng, test_rng, order_rng, mixed_rng, ideal_rng, start_rng, _ = generators(seed)
    how, labels, base = plan.protocol, rows.labels, narrow(rows)
    assert labels is not None
    parts = protocol.split(len(rows), split_rng)
    kept = protocol.apply_skew(how, parts.train, labels, base, skew_rng)
    order = protocol.cyclic(how, kept, base, len(parts.train), order_rng)
    tested = protocol.apply_skew(how, parts.test, labels, base, test_rng)
    test = _test_rows(rows, *protocol.tests(how, tested, base))
    unskewed_test = _test_rows(rows, *protocol.deal_test_rows(how, parts.test))
    data = RepetitionData(
        pack_rows(rows, how, order),
        pack_rows(rows, how, protocol.shuffle_visits(order, mixed_rng)),
        pack_rows(rows, how, protocol.deal_unskewed(how, parts.train, ideal_rng)),
        pack_rows(hour, how, order),
        test,
        unskewed_test,
    )
    start = approaches.starts(how, rows.width, start_rng)
    clock.add("train", began)
    found = []
    for steps in plan.steps:
        began = time.perf_counter()
        bank = approaches.fit(data, how, start, steps, plan.radius)
        clock.add("train", began)
        began = time.perf_counter()
        found.append(
            (*approaches.grade(bank, data, how), approaches.has_theorems_rate(data.cyclic, plan.radius))
        )
        clock.add("evaluate", began)
        tick()
    return found


def narrow(rows: Rows) -> Array:
    """The blocks of rows in small integers, which are sorted faster."""
    assert rows.block is not None
    return rows.block.astype(np.uint16) if rows.block.max() < 2**16 else rows.block


def pack_rows(rows: Rows, how: Protocol, order: RowOrder, blocks: int | None = None) -> Packed:
    """Rows in an order, ready to be learnt from."""
    count = how.blocks if blocks is None else blocks
    return pack(rows, count, loss=how.loss, batch_size=how.batch_size, classes=CLASSES, order=order)


def _test_rows(rows: Rows, chosen: Array, block: Array) -> Rows:
    return rows[chosen].with_blocks(block)
