"""One repetition of the experiment: split, skew, row orders, and every approach with every step size."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from semicyclic.experiments.reproduce import approaches, protocol
from semicyclic.experiments.reproduce.approaches import CLASSES, RepetitionData, StepSizes
from semicyclic.experiments.reproduce.protocol import Protocol
from semicyclic.method.batches import Packed, RowOrder, pack
from semicyclic.method.rows import Rows
from semicyclic.types import Array

# The paper's learning rates; each is half the equivalent logistic step size (docs/math.md#softmax-step).
LEARNING_RATES = (0.1, 0.215, 0.464, 1.0, 2.15)
PAPER = StepSizes(single=2 * 0.464, separate=2 * 1.0)
GRANULARITY = (1, 2, 6, 24, 144, 1440)


@dataclass(frozen=True)
class Experiment:
    """Plan of an experiment.

    steps: logistic step sizes to try; with several, each approach uses its best.
    radius: radius of the ball onto which Prod's two chains are projected.
    granularity: numbers of blocks per day to compare.
    """

    protocol: Protocol
    steps: tuple[StepSizes, ...] = (PAPER,)
    repetitions: int = 10
    seed: int = 0
    radius: float = 10.0
    granularity: tuple[int, ...] = GRANULARITY

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ValueError(f"repetitions={self.repetitions}: must be at least 1")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be 0 or more")
        if not (np.isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"radius={self.radius}: must be a positive number")
        for steps in self.steps:
            if not all(np.isfinite(size) and size > 0 for size in steps):
                raise ValueError(f"step_size={steps.single:g}: must be a positive number")


@dataclass
class Timings:
    """Seconds spent on training and evaluation, summed over repetitions that may run in parallel."""

    train: float = 0.0
    evaluate: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def add(self, what: str, since: float) -> None:
        """Add the seconds since `since`, a `time.perf_counter()` value, to the field `what`."""
        with self.lock:
            setattr(self, what, getattr(self, what) + time.perf_counter() - since)


def grid(sizes: Sequence[float]) -> tuple[StepSizes, ...]:
    """Return step sizes to try, the same for the single chain and the separate chains."""
    return tuple(StepSizes(size, size) for size in sizes)


def generators(seed: np.random.SeedSequence) -> list[np.random.Generator]:
    """Return independent generators for one repetition.

    In order: split, skew of the training rows, skew of the test rows, cyclic order, shuffled order,
    unskewed order, initial weights, granularity.
    """
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
) -> list[approaches.Grades]:
    """Run one repetition.

    Returns for every step size the scores by measure and approach, the matrices of accuracy, and whether
    the data allow the rate of Theorem 4.

    hour: the same rows with block features.
    tick: called after every step size.
    """
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
    results = []
    for steps in plan.steps:
        began = time.perf_counter()
        bank = approaches.fit(data, how, start, steps, plan.radius)
        clock.add("train", began)
        began = time.perf_counter()
        results.append(approaches.grade(bank, data, how, plan.radius))
        clock.add("evaluate", began)
        tick()
    return results


def narrow(rows: Rows) -> Array:
    """Return the blocks of rows in a small integer type, which sorts faster."""
    assert rows.block is not None
    return rows.block.astype(np.uint16) if rows.block.max() < 2**16 else rows.block


def pack_rows(rows: Rows, how: Protocol, order: RowOrder, blocks: int | None = None) -> Packed:
    """Pack rows for training in the given order."""
    count = how.blocks if blocks is None else blocks
    return pack(rows, count, loss=how.loss, batch_size=how.batch_size, classes=CLASSES, order=order)


def _test_rows(rows: Rows, chosen: Array, block: Array) -> Rows:
    """Select rows and assign their blocks."""
    return rows[chosen].with_blocks(block)
