"""The paper's approaches on the flights data, shuffled within blocks and in calendar order.

The data are all flights from New York in 2013; the label says whether the arrival is more than 15 minutes
late. Late arrivals are rare in the morning and frequent in the evening, so no skew is added. Two experiments
use the same rows:

- paper: rows are shuffled within their blocks, with K = 10 cycles and a tenth of the rows held out;
- calendar: each day is scored by models trained until the day before, and then used for training.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.datasets.flights import BLOCKS, CYCLES, HELD_OUT, Flights
from semicyclic.experiments.reproduce.block_feature import with_indicators
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
# The default of the command line: AdaGrad, not tuned to these rows.
STEP_RULE = adagrad(RATE)
CLASSES = (False, True)

# Approaches of each experiment, and their names in reports.
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


# Approaches that are read out of another approach's run.
RUN_OF = {"consensus": "single", "pluralistic": "single"}
CHAINS_OF_RUN: dict[str, tuple[Any, ...]] = {
    "single": (basis.single,),
    "separate": (basis.separate,),
    "hour": (basis.single,),
    "hedged": (basis.single, basis.separate),
}


def paper_losses(
    flights: Flights, names: Collection[str], *, repetitions: int, seed: int, report_progress: ReportProgress
) -> dict[str, Array]:
    """[repetitions, m] log loss on held-out rows by block, for the approaches `names`."""
    losses: dict[str, list[Array]] = {name: [] for name in PAPER if name in names}
    for number, child in enumerate(np.random.SeedSequence(seed).spawn(repetitions)):
        report_progress(number / repetitions, f"as the paper, repetition {number + 1} of {repetitions}")
        split = _split(flights, np.random.default_rng(child))
        runs: dict[str, Run] = {}
        for name, values in losses.items():
            values.append(_paper_loss(name, split, runs))
    return {name: np.stack(values) for name, values in losses.items()}


def paper_results(flights: Flights, losses: dict[str, Array], *, seed: int) -> dict[str, Any]:
    """Summarize the repetitions, with blocks weighted by their share of the rows, and unweighted."""
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
    """All rows, held-out rows, and two orders of the training rows: cyclic and shuffled."""

    rows: Rows
    test: Rows
    cyclic: RowOrder
    mixed: RowOrder

    def pack(self, rows: Rows, order: RowOrder, blocks: int) -> Packed:
        """Pack rows for training in the given order."""
        return pack(rows, blocks, loss=logistic, batch_size=BATCH_SIZE, order=order, classes=CLASSES)


def _split(flights: Flights, rng: np.random.Generator) -> HeldOutSplit:
    """Hold out random rows, and order the others by cycle and block."""
    held_out = rng.random(len(flights.rows)) < HELD_OUT
    rows = flights.rows.with_blocks(flights.block)
    order = rng.permutation(np.flatnonzero(~held_out))
    block = flights.block[order]
    cycle = np.empty(len(order), np.int64)
    for i in range(BLOCKS):
        in_block = np.flatnonzero(block == i)
        cycle[in_block] = np.arange(len(in_block)) * CYCLES // len(in_block)
    by_visit = np.lexsort((block, cycle))
    cyclic = RowOrder(order[by_visit], cycle[by_visit], block[by_visit])
    mixed = RowOrder(order, np.arange(len(order)) * CYCLES // len(order), np.zeros_like(order))
    return HeldOutSplit(rows, rows[np.flatnonzero(held_out)], cyclic, mixed)


def _paper_loss(name: str, split: HeldOutSplit, runs: dict[str, Run]) -> Array:
    """[m] loss of an approach on the held-out rows of every block; `runs` caches runs that are shared."""
    if name == "hour":
        with_hour = with_indicators(split.rows, BLOCKS)
        run = train.consensus(split.pack(with_hour, split.cyclic, BLOCKS), step_size=STEP_RULE)
        return _by_block(run.mean().weights, with_indicators(split.test, BLOCKS))
    if name == "iid":
        run = train.consensus(split.pack(split.rows, split.mixed, 1), step_size=STEP_RULE)
        return _by_block(np.repeat(run.mean().weights, BLOCKS, axis=0), split.test)
    chain = name if name in ("separate", "hedged") else "pluralistic"
    if chain not in runs:
        packed = split.pack(split.rows, split.cyclic, BLOCKS)
        runs[chain] = getattr(train, chain)(packed, step_size=STEP_RULE)
    run = runs[chain]
    if name == "consensus_last":
        # The current model at the end of any block of the last cycle, averaged over those blocks.
        ends = run.last().weights
        return np.asarray(
            np.mean([_by_block(np.roll(ends, k, axis=0), split.test) for k in range(BLOCKS)], axis=0)
        )
    return _by_block((run.consensus() if name == "consensus" else run.mean()).weights, split.test)


def _by_block(weights: Array, rows: Rows) -> Array:
    """[m] mean log loss of every block's rows under that block's weights."""
    assert rows.block is not None
    target, _ = encode(rows.labels, logistic, CLASSES)
    loss = logistic.value(_score(weights, rows), target)
    return np.array(_means(loss, rows.block, BLOCKS))


def calendar_losses(
    flights: Flights, names: Collection[str], *, report_progress: ReportProgress
) -> dict[str, Array]:
    """[n] log loss of every row under models trained until the day before, for the approaches `names`.

    Rows of the first day have loss NaN.
    """
    rows = flights.rows.with_blocks(flights.block, flights.cycle)
    with_hour = with_indicators(rows, BLOCKS)
    target, _ = encode(rows.labels, logistic, CLASSES)
    # Three of the approaches are read-outs of one run.
    chains = {RUN_OF.get(name, name) for name in names}
    runs = {
        name: _empty_run(with_hour.width if name == "hour" else rows.width, CHAINS_OF_RUN[name])
        for name in CHAINS_OF_RUN
        if name in chains
    }
    bounds = [*np.unique(flights.cycle, return_index=True)[1].tolist(), len(rows)]
    losses = {name: np.full(len(rows), np.nan) for name in CALENDAR if name in names}
    for day in range(len(bounds) - 1):
        if day % 8 == 0:
            report_progress(day / len(bounds), f"in the order of time, day {day + 1} of {len(bounds) - 1}")
        today = slice(bounds[day], bounds[day + 1])
        narrow, wide = rows[today], with_hour[today]
        for name, loss in losses.items() if day else ():
            score = _score_day(name, runs[RUN_OF.get(name, name)], wide if name == "hour" else narrow)
            loss[today] = logistic.value(score, target[today])
        for name in runs:
            runs[name] = train.extend(runs[name], wide if name == "hour" else narrow)
    return losses


def _empty_run(width: int, chains: tuple[Any, ...]) -> Run:
    """Return a run of the given chains without any rows, to be extended."""
    empty = empty_batches(width, BLOCKS, loss=logistic, batch_size=BATCH_SIZE, classes=CLASSES)
    if len(chains) == 1:
        return train.chain(empty, None, chains[0], step_size=STEP_RULE)
    return train.hedged(empty, chains=chains, step_size=STEP_RULE)


def _score_day(name: str, run: Run, rows: Rows) -> Array:
    """Scores of a day's rows under the current models of an approach."""
    assert rows.block is not None
    if name == "consensus":
        weights = run.consensus().weights
    elif name == "pluralistic":
        weights = run.mean().weights
    else:
        weights = np.stack([iterate(run, i).T for i in range(BLOCKS)])
    return _score(weights, rows)


def _score(weights: Array, rows: Rows) -> Array:
    """Scores of rows, each under the weights of its block."""
    return Pluralistic(weights, Numbered(BLOCKS), logistic).score(rows).astype(np.float64)


def calendar_results(flights: Flights, losses: dict[str, Array]) -> dict[str, Any]:
    """Summarize the losses of all days but the first: in total, by month and by block, with differences."""
    losses = {name: losses[name] for name in CALENDAR}
    first = np.unique(flights.cycle, return_index=True)[1]
    scored = ~np.isnan(losses["single"])
    assert flights.rows.when is not None
    month = flights.rows.when.astype("datetime64[us]").astype("datetime64[M]").astype(int) % 12
    day = np.searchsorted(first, np.flatnonzero(scored), side="right") - 2
    count = np.bincount(day)
    daily = {name: np.bincount(day, loss[scored]) / count for name, loss in losses.items()}
    overall = {name: float(loss[scored].mean()) for name, loss in losses.items()}
    return {
        "approaches": CALENDAR,
        "days": len(count),
        "all": overall,
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
    """Mean of the values in each group; 0 for an empty group."""
    total, count = np.bincount(group, values, groups), np.bincount(group, minlength=groups)
    return [float(value) for value in total / np.maximum(count, 1)]


def compare_losses(one: npt.ArrayLike, other: npt.ArrayLike) -> dict[str, Any]:
    """Paired difference of losses, `one` minus `other`: mean, standard error and significance."""
    gap = paired_difference(one, other)
    return {"mean": gap.mean, "standard_error": gap.error, "clear": gap.is_significant}


def about(flights: Flights) -> dict[str, Any]:
    """Describe the data set: size, and rows and late arrivals by hour and by block."""
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
