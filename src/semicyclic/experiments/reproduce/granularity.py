"""Accuracy as a function of granularity: the same data with the day divided into more and more blocks."""

import time
from dataclasses import replace

import numpy as np

from semicyclic.experiments.reproduce import approaches, protocol
from semicyclic.experiments.reproduce.approaches import StepSizes
from semicyclic.experiments.reproduce.repetition import Experiment, Timings, generators, narrow, pack_rows
from semicyclic.method import train
from semicyclic.method.batches import RowOrder
from semicyclic.method.rows import Rows
from semicyclic.types import Array

GRANULARITY_APPROACHES = ("pluralistic_average", "per_component_average")


def granularity(
    rows: Rows,
    second: Array,
    plan: Experiment,
    steps: StepSizes,
    seed: np.random.SeedSequence,
    clock: Timings,
) -> Array:
    """[granularities, approaches + 1] accuracy when the same skewed data are divided into more blocks.

    Scores are means over the experiment's base blocks, so they are comparable across granularities.
    Every row is used, once per pass: a block's rows are spread evenly over the days, however few they
    are. A block without rows is merged into the preceding one. The last column is the number of steps,
    which grows with m because a minibatch ends with its block.

    second: [n] second of the day of each row.
    """
    split_rng, skew_rng, test_rng, *_, grain_rng = generators(seed)
    how, labels, base = plan.protocol, rows.labels, narrow(rows)
    assert labels is not None
    began = time.perf_counter()
    parts = protocol.split(len(rows), split_rng)
    kept = protocol.apply_skew(how, parts.train, labels, base, skew_rng)
    tested = protocol.apply_skew(how, parts.test, labels, base, test_rng)
    passes = [kept, *(grain_rng.permutation(kept) for _ in range(how.passes - 1))]
    trained_rows = np.concatenate(passes)
    out = np.empty((len(plan.granularity), len(GRANULARITY_APPROACHES) + 1))
    test, component = rows[tested], base[tested]
    count = np.bincount(component, minlength=how.blocks)
    for g, blocks in enumerate(plan.granularity):
        fine, used = cut(second, kept, blocks)
        order = evenly(trained_rows, fine[trained_rows], how.cycles, used)
        packed = pack_rows(rows, how, order, used)
        fine_test = test.with_blocks(fine[tested].astype(np.int64))
        start = approaches.starts(replace(how, blocks=used), rows.width, grain_rng)
        runs = (
            train.pluralistic(packed, step_size=steps.single * how.scale, initial_weights=start.one),
            train.separate(packed, step_size=steps.separate * how.scale, initial_weights=start.each),
        )
        out[g, -1] = packed.steps.sum()
        clock.add("train", began)
        began = time.perf_counter()
        for a, run in enumerate(runs):
            hits = run.mean().predict(fine_test) == fine_test.labels
            out[g, a] = np.mean(np.bincount(component, hits, how.blocks)[count > 0] / count[count > 0])
        clock.add("evaluate", began)
        began = time.perf_counter()
    return out


def cut(second: Array, kept: Array, blocks: int) -> tuple[Array, int]:
    """Divide the day into `blocks` blocks and merge those without `kept` rows into the preceding one.

    Returns the block of every row, and the number of blocks that remain.
    """
    fine = (second * np.int64(blocks) // protocol.SECONDS_PER_DAY).astype(np.uint32)
    occupied = np.bincount(fine[kept], minlength=blocks) > 0
    merged = np.maximum(np.cumsum(occupied) - 1, 0).astype(np.uint16 if blocks <= 2**16 else np.uint32)
    if not occupied[0]:
        merged[: int(occupied.argmax())] = occupied.sum() - 1
    return merged[fine], int(occupied.sum())


def evenly(rows: Array, block: Array, cycles: int, blocks: int) -> RowOrder:
    """Return an order that spreads the rows of every block evenly over the days."""
    size = np.bincount(block, minlength=blocks)
    order = np.argsort(block, kind="stable")
    cycle = (np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)) * cycles // np.repeat(size, size)
    visit = cycle * blocks + np.repeat(np.arange(blocks), size)
    by_visit = np.argsort(visit.astype(np.uint16) if cycles * blocks <= 2**16 else visit, kind="stable")
    cycle, block = np.divmod(visit[by_visit], blocks)
    return RowOrder(rows[order[by_visit]], cycle, block)
