"""Granularity: the same data with the day cut into more and more blocks."""

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

GRAINS = ("pluralistic_average", "per_component_average")


def granularity(
    rows: Rows,
    second: Array,
    plan: Experiment,
    steps: StepSizes,
    seed: np.random.SeedSequence,
    clock: Timings,
) -> Array:
    """[grains, approaches + 1] accuracy when the same skewed data are cut into ever more blocks.

    Scores are means over the experiment's own blocks, so that they can be compared. Every row is
    used: a block's rows are spread evenly over the days, however few they are, and with several
    passes once in each. A block without any is joined to the one before it. The last column is the
    number of steps, which grows with m: a minibatch ends with its block.
    """
    split_rng, skew_rng, test_rng, *_, grain_rng = generators(seed)
    how, labels, base = plan.protocol, rows.labels, narrow(rows)
    assert labels is not None
    began = time.perf_counter()
    parts = protocol.split(len(rows), split_rng)
    kept = protocol.apply_skew(how, parts.train, labels, base, skew_rng)
    tested = protocol.apply_skew(how, parts.test, labels, base, test_rng)
    passes = [kept, *(grain_rng.permutation(kept) for _ in range(how.passes - 1))]
    learnt = np.concatenate(passes)
    out = np.empty((len(plan.granularity), len(GRAINS) + 1))
    test, component = rows[tested], base[tested]
    count = np.bincount(component, minlength=how.blocks)
    for g, blocks in enumerate(plan.granularity):
        fine, used = cut(second, kept, blocks)
        order = evenly(learnt, fine[learnt], how.cycles, used)
        ready = pack_rows(rows, how, order, used)
        here = test.with_blocks(fine[tested].astype(np.int64))
        start = approaches.starts(replace(how, blocks=used), rows.width, grain_rng)
        runs = (
            train.pluralistic(ready, step_size=steps.single * how.scale, initial_weights=start.one),
            train.separate(ready, step_size=steps.separate * how.scale, initial_weights=start.each),
        )
        out[g, -1] = ready.steps.sum()
        clock.add("train", began)
        began = time.perf_counter()
        for a, run in enumerate(runs):
            hits = run.mean().predict(here) == here.labels
            out[g, a] = np.mean(np.bincount(component, hits, how.blocks)[count > 0] / count[count > 0])
        clock.add("evaluate", began)
        began = time.perf_counter()
    return out


def cut(second: Array, kept: Array, blocks: int) -> tuple[Array, int]:
    """The block of every row when the day has so many, those without rows left out; and their number."""
    fine = (second * np.int64(blocks) // protocol.DAY).astype(np.uint32)
    seen = np.bincount(fine[kept], minlength=blocks) > 0
    number = np.maximum(np.cumsum(seen) - 1, 0).astype(np.uint16 if blocks <= 2**16 else np.uint32)
    if not seen[0]:
        number[: int(seen.argmax())] = seen.sum() - 1
    return number[fine], int(seen.sum())


def evenly(rows: Array, block: Array, cycles: int, blocks: int) -> RowOrder:
    """All rows of every block, spread evenly over the days."""
    size = np.bincount(block, minlength=blocks)
    order = np.argsort(block, kind="stable")
    cycle = (np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)) * cycles // np.repeat(size, size)
    visit = cycle * blocks + np.repeat(np.arange(blocks), size)
    again = np.argsort(visit.astype(np.uint16) if cycles * blocks <= 2**16 else visit, kind="stable")
    cycle, block = np.divmod(visit[again], blocks)
    return RowOrder(rows[order[again]], cycle, block)
