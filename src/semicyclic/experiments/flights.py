"""The paper's approaches on the flights, shuffled within blocks and in calendar order.

All flights from New York in 2013: is an arrival more than 15 minutes late? Hardly ever in the morning,
often in the evening, with no skew added. Two experiments on the same rows:

- the paper's: rows shuffled within their blocks, K = 10 cycles, a tenth held out;
- the calendar's: every day is scored by what was learnt until the day before, then learnt from.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.datasets.flights import BLOCKS, CYCLES, HELD_OUT, Flights
from semicyclic.experiments.reproduce.block_feature import with_indicators
from semicyclic.experiments.reproduce.summary import beyond
from semicyclic.method import basis, train
from semicyclic.method.batches import Packed, RowOrder, empty_batches, encode, pack
from semicyclic.method.evaluate import paired_difference
from semicyclic.method.loss import logistic
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.step import RATE, adagrad
from semicyclic.method.training_loop import iterate
from semicyclic.schedule.numbered import Numbered
from semicyclic.types import Array, ReportProgress

BATCH_SIZE = 16
# The command line's default: per coordinate, and not tuned to these rows.
STEP = adagrad(RATE)
CLASSES = (False, True)

# What is compared, and how it is called.
PAPER = {
    "consensus_last": "one model, last iterate at the end of a block",
    "consensus": "one model, mean of all iterates",
    "iid": "one model, rows shuffled over the whole year (i.i.d.)",
    "hour": "one model, the block as a feature",
    "separate": "a chain for each block, mean",
    "pluralistic": "one chain, a mean for each block",
    "hedged": "hedged between the two",
}
CALENDAR = {
    "single": "one chain, last iterate",
    "consensus": "one chain, mean of all iterates",
    "pluralistic": "one chain, a mean for each block",
    "separate": "a chain for each block, last iterate",
    "hour": "one chain, the block as a feature, last iterate",
    "hedged": "hedged between one chain and separate ones, last iterate",
}


OF_ONE = {"consensus": "single", "pluralistic": "single"}
CHAINS: dict[str, tuple[Any, ...]] = {
    "single": (basis.single,),
    "separate": (basis.separate,),
    "hour": (basis.single,),
    "hedged": (basis.single, basis.separate),
}


def paper_losses(
    flights: Flights, names: Collection[str], *, repetitions: int, seed: int, tell: ReportProgress
) -> dict[str, Array]:
    """[repetitions, m] the log loss on held-out rows of some approaches, by block."""
    found: dict[str, list[Array]] = {name: [] for name in PAPER if name in names}
    for number, child in enumerate(np.random.SeedSequence(seed).spawn(repetitions)):
        tell(number / repetitions, f"as the paper, repetition {number + 1} of {repetitions}")
        split = _split(flights, np.random.default_rng(child))
        runs: dict[str, Run] = {}
        for name, values in found.items():
            values.append(_paper_loss(name, split, runs))
    return {name: np.stack(values) for name, values in found.items()}


def paper_results(flights: Flights, losses: dict[str, Array], *, seed: int) -> dict[str, Any]:
    """What the repetitions sum up to: blocks by their share of the rows, or all alike."""
    share = np.bincount(flights.block, minlength=BLOCKS) / len(flights.rows)
    weighted = {name: losses[name] @ share for name in PAPER}
    return {
        "approaches": PAPER,
        "by_block": {name: losses[name].mean(axis=0).tolist() for name in PAPER},
        "weighted": {name: values.tolist() for name, values in weighted.items()},
        "unweighted": {name: losses[name].mean(axis=1).tolist() for name in PAPER},
        "differences": {
            name: compare_losses(weighted["pluralistic"], weighted[name])
            for name in PAPER
            if name != "pluralistic"
        },
        "settings": {
            "cycles": CYCLES,
            "held_out": HELD_OUT,
            "repetitions": len(weighted["pluralistic"]),
            "seed": seed,
        },
    }


class HeldOutSplit(NamedTuple):
    """Held-out rows, and an order for the others: block by block and cycle by cycle, or mixed."""

    rows: Rows
    test: Rows
    cyclic: RowOrder
    mixed: RowOrder

    def pack(self, rows: Rows, order: RowOrder, blocks: int) -> Packed:
        return pack(rows, blocks, loss=logistic, batch_size=BATCH_SIZE, order=order, classes=CLASSES)


def _split(flights: Flights, rng: np.random.Generator) -> HeldOutSplit:
    held = rng.random(len(flights.rows)) < HELD_OUT
    rows = flights.rows.with_blocks(flights.block)
    order = rng.permutation(np.flatnonzero(~held))
    block = flights.block[order]
    cycle = np.empty(len(order), np.int64)
    for i in range(BLOCKS):
        own = np.flatnonzero(block == i)
        cycle[own] = np.arange(len(own)) * CYCLES // len(own)
    arranged = np.lexsort((block, cycle))
    cyclic = RowOrder(order[arranged], cycle[arranged], block[arranged])
    mixed = RowOrder(order, np.arange(len(order)) * CYCLES // len(order), np.zeros_like(order))
    return HeldOutSplit(rows, rows[np.flatnonzero(held)], cyclic, mixed)


def _paper_loss(name: str, split: HeldOutSplit, runs: dict[str, Run]) -> Array:
    """[m] the loss of an approach on the held-out rows of every block; runs are kept for others."""
    if name == "hour":
        known = with_indicators(split.rows, BLOCKS)
        run = train.consensus(split.pack(known, split.cyclic, BLOCKS), step_size=STEP)
        return _by_block(run.mean().weights, with_indicators(split.test, BLOCKS))
    if name == "iid":
        run = train.consensus(split.pack(split.rows, split.mixed, 1), step_size=STEP)
        return _by_block(np.repeat(run.mean().weights, BLOCKS, axis=0), split.test)
    chain = name if name in ("separate", "hedged") else "pluralistic"
    if chain not in runs:
        packed = split.pack(split.rows, split.cyclic, BLOCKS)
        runs[chain] = getattr(train, chain)(packed, step_size=STEP)
    run = runs[chain]
    if name == "consensus_last":
        # The model that one happens to have, at the end of any of the last day's blocks.
        ends = run.last().weights
        return np.asarray(
            np.mean([_by_block(np.roll(ends, k, axis=0), split.test) for k in range(BLOCKS)], axis=0)
        )
    return _by_block((run.consensus() if name == "consensus" else run.mean()).weights, split.test)


def _by_block(weights: Array, rows: Rows) -> Array:
    """[m] the mean log loss of every block's rows under that block's weights."""
    assert rows.block is not None
    target, _ = encode(rows.labels, logistic, CLASSES)
    loss = logistic.value(_score(weights, rows), target)
    return np.array(_means(loss, rows.block, BLOCKS))


def calendar_losses(flights: Flights, names: Collection[str], *, tell: ReportProgress) -> dict[str, Array]:
    """The log loss of every row by what some approaches had learnt until the day before; NaN on the first."""
    rows = flights.rows.with_blocks(flights.block, flights.cycle)
    known = with_indicators(rows, BLOCKS)
    target, _ = encode(rows.labels, logistic, CLASSES)
    # Three of the approaches are read out of one run.
    chains = {OF_ONE.get(name, name) for name in names}
    runs = {
        name: _begin(known.width if name == "hour" else rows.width, CHAINS[name])
        for name in CHAINS
        if name in chains
    }
    bounds = [*np.unique(flights.cycle, return_index=True)[1].tolist(), len(rows)]
    losses = {name: np.full(len(rows), np.nan) for name in CALENDAR if name in names}
    for day in range(len(bounds) - 1):
        if day % 8 == 0:
            tell(day / len(bounds), f"in the order of time, day {day + 1} of {len(bounds) - 1}")
        own = slice(bounds[day], bounds[day + 1])
        narrow, wide = rows[own], known[own]
        for name, loss in losses.items() if day else ():
            score = _answer(name, runs[OF_ONE.get(name, name)], wide if name == "hour" else narrow)
            loss[own] = logistic.value(score, target[own])
        for name in runs:
            runs[name] = train.extend(runs[name], wide if name == "hour" else narrow)
    return losses


def _begin(width: int, chains: tuple[Any, ...]) -> Run:
    empty = empty_batches(width, BLOCKS, loss=logistic, batch_size=BATCH_SIZE, classes=CLASSES)
    if len(chains) == 1:
        return train.chain(empty, None, chains[0], step_size=STEP)
    return train.hedged(empty, chains=chains, step_size=STEP)


def _answer(name: str, run: Run, rows: Rows) -> Array:
    """The scores of a day's rows by an approach as it stands."""
    assert rows.block is not None
    if name == "consensus":
        weights = run.consensus().weights
    elif name == "pluralistic":
        weights = run.mean().weights
    else:
        weights = np.stack([iterate(run, i).T for i in range(BLOCKS)])
    return _score(weights, rows)


def _score(weights: Array, rows: Rows) -> Array:
    """The scores of rows, each by the weights of its block."""
    return Pluralistic(weights, Numbered(BLOCKS), logistic).score(rows).astype(np.float64)


def calendar_results(flights: Flights, losses: dict[str, Array]) -> dict[str, Any]:
    """What the days sum up to."""
    losses = {name: losses[name] for name in CALENDAR}
    first = np.unique(flights.cycle, return_index=True)[1]
    scored = ~np.isnan(losses["single"])
    assert flights.rows.when is not None
    month = flights.rows.when.astype("datetime64[us]").astype("datetime64[M]").astype(int) % 12
    day = np.searchsorted(first, np.flatnonzero(scored), side="right") - 2
    count = np.bincount(day)
    daily = {name: np.bincount(day, loss[scored]) / count for name, loss in losses.items()}
    everything = {name: float(loss[scored].mean()) for name, loss in losses.items()}
    return {
        "approaches": CALENDAR,
        "days": len(count),
        "all": everything,
        "unweighted": {
            name: float(np.mean(_means(loss[scored], flights.block[scored], BLOCKS)))
            for name, loss in losses.items()
        },
        "by_month": {name: _means(loss[scored], month[scored], 12) for name, loss in losses.items()},
        "by_block": {
            name: _means(loss[scored], flights.block[scored], BLOCKS) for name, loss in losses.items()
        },
        "differences": {
            name: compare_losses(daily["pluralistic"], daily[name])
            for name in CALENDAR
            if name != "pluralistic"
        },
    }


def _means(values: Array, group: Array, groups: int) -> list[float]:
    total, count = np.bincount(group, values, groups), np.bincount(group, minlength=groups)
    return [float(value) for value in total / np.maximum(count, 1)]


def compare_losses(one: npt.ArrayLike, other: npt.ArrayLike) -> dict[str, Any]:
    """How much more loss the first has, pair by pair, and whether that stands out."""
    gap = paired_difference(one, other)
    clear = abs(gap.mean) > beyond(gap.repetitions) * gap.error
    return {"mean": gap.mean, "standard_error": gap.error, "clear": bool(clear)}


def about(flights: Flights) -> dict[str, Any]:
    """The rows by hour and by block."""
    late = np.asarray(flights.rows.labels, bool)
    hours, positive = np.bincount(flights.hour, minlength=24), np.bincount(flights.hour, late, 24)
    rows = np.bincount(flights.block, minlength=BLOCKS)
    return {
        "rows": len(flights.rows),
        "days": len(np.unique(flights.cycle)),
        "features": flights.rows.width,
        "labels": list(flights.schedule.labels),
        "starts": [start // 3_600_000_000 for start in flights.schedule.starts],
        "by_hour": {"rows": hours.tolist(), "late": [float(x) for x in positive / np.maximum(hours, 1)]},
        "by_block": {
            "share": (rows / rows.sum()).tolist(),
            "late": (np.bincount(flights.block, late, BLOCKS) / rows).tolist(),
        },
        "late": float(late.mean()),
    }
