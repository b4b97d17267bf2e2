"""Contents of the `results.json` of a backtest."""

from math import isfinite
from typing import Any, TypedDict

import numpy as np

from semicyclic.evaluation.backtest import Backtest, WeightSnapshot
from semicyclic.evaluation.scores import ScoreSums
from semicyclic.schedule.schedule import Schedule

# Names of the protocols in the results.
PROTOCOL_KEYS = {"progressive": "progressive", "forward": "walk_forward"}
SIGNIFICANT_DIGITS = 7


# Scores of a model by measure, such as log_loss and accuracy.
Scores = dict[str, float]


class Gain(TypedDict):
    """Loss of a model in excess of the automatic choice, paired by cycle; the margin is None if unknown."""

    mean: float
    margin: float | None


class BlockScores(TypedDict):
    """Scores in one block, of the automatic choice, the candidates and the baselines."""

    rows: int
    auto: Scores
    candidates: dict[str, Scores]
    baselines: dict[str, Scores]


class ProtocolResults(TypedDict):
    """Results under one protocol. best: name of the best candidate. intervals: 95 % of the first measure."""

    auto: Scores
    candidates: dict[str, Scores]
    baselines: dict[str, Scores]
    best: str
    intervals: dict[str, list[float] | None]
    gains: dict[str, Gain]
    by_block: dict[str, BlockScores]
    gain_by_cycle: dict[str, list[float]]
    rows_by_cycle: list[int]


class WeightsOverTime(TypedDict):
    """Mixture weights over time, summed by kind of chain, step size and read-out; last: by candidate."""

    at: list[int]
    chains: dict[str, list[float]]
    steps: dict[str, list[float]]
    read_outs: dict[str, list[float]]
    last: dict[str, float]


class BacktestSummary(TypedDict):
    """Results of a backtest by protocol, with the choice over time and the numbers of the cycles."""

    progressive: ProtocolResults
    walk_forward: ProtocolResults
    choice: dict[str, WeightsOverTime]
    cycles: list[int]


def summarize_backtest(result: Backtest, schedule: Schedule, units: tuple[float, float]) -> BacktestSummary:
    """Return, per protocol, scores, confidence intervals, scores by block, gains, and mixture weights.

    units: as in `LabelledStream`.
    """
    return {
        "progressive": _protocol_results(result, result.tallies["progressive"], schedule, units),
        "walk_forward": _protocol_results(result, result.tallies["forward"], schedule, units),
        "choice": {
            key: _weights_over_time(result, result.looks[name]) for name, key in PROTOCOL_KEYS.items()
        },
        "cycles": [int(number) for number in result.cycles],
    }


def _protocol_results(
    result: Backtest, tally: ScoreSums, schedule: Schedule, units: tuple[float, float]
) -> ProtocolResults:
    """Return the results under one protocol."""
    names, count = result.names, result.candidates
    scores = [_round_scores(measures) for measures in tally.overall(units)]
    first = tally.names()[0]
    margin = tally.margins(units[0])
    gap, gap_margin = tally.gaps(count, units[0])
    best = min(range(count), key=lambda k: scores[k][first])
    named = [best, *range(count + 1, len(names))]
    return {
        "auto": scores[count],
        "candidates": dict(zip(names[:count], scores[:count], strict=True)),
        "baselines": dict(zip(names[count + 1 :], scores[count + 1 :], strict=True)),
        "best": names[best],
        "intervals": {names[k]: _interval(scores[k][first], float(margin[k])) for k in (count, *named)},
        "gains": {names[k]: {"mean": float(gap[k]), "margin": _finite_or_none(gap_margin[k])} for k in named},
        "by_block": _block_scores(result, tally, schedule, units),
        "gain_by_cycle": {
            names[k]: [float(gain) for gain in units[0] * (tally.by_cycle[:, k] - tally.by_cycle[:, count])]
            for k in named
        },
        "rows_by_cycle": [int(rows) for rows in tally.cycle_rows],
    }


def _block_scores(
    result: Backtest, tally: ScoreSums, schedule: Schedule, units: tuple[float, float]
) -> dict[str, BlockScores]:
    """Return the mean scores of all models in each block that has rows."""
    first, second = tally.names()
    names, count = result.names, result.candidates
    blocks: dict[str, BlockScores] = {}
    for block, label in enumerate(schedule.labels):
        rows = tally.rows[block]
        if not rows:
            continue
        sums = tally.by_block[:, block] / rows
        scores = [
            _round_scores({first: float(one * units[0]), second: float(other * units[1])})
            for one, other in sums.T
        ]
        blocks[label] = {
            "rows": int(rows),
            "auto": scores[count],
            "candidates": dict(zip(names[:count], scores[:count], strict=True)),
            "baselines": dict(zip(names[count + 1 :], scores[count + 1 :], strict=True)),
        }
    return blocks


def _weights_over_time(result: Backtest, snapshots: list[WeightSnapshot]) -> WeightsOverTime:
    """Return the mixture weight of each kind of chain, each step size and each read-out over time."""
    weights = np.array([snapshot.weights for snapshot in snapshots])
    parts = [name.rsplit(", ", 2) for name in result.names[: result.candidates]]

    def summed(position: int) -> dict[str, list[float]]:
        labels = [part[position] for part in parts]
        return {
            name: [round(float(w), 4) for w in weights[:, [label == name for label in labels]].sum(axis=1)]
            for name in dict.fromkeys(labels)
        }

    last = weights[-1]
    top = np.argsort(-last)[:10]
    return {
        "at": [snapshot.clock for snapshot in snapshots],
        "chains": summed(0),
        "steps": summed(1),
        "read_outs": summed(2),
        "last": {result.names[k]: round(float(last[k]), 4) for k in top},
    }


def _round_scores(scores: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.{SIGNIFICANT_DIGITS}g}") for name, value in scores.items()}


def _interval(value: float, margin: float) -> list[float] | None:
    """Return [value - margin, value + margin], or None if the margin is not finite."""
    return [value - margin, value + margin] if isfinite(margin) else None


def _finite_or_none(value: Any) -> float | None:
    return float(value) if isfinite(value) else None
