"""The `results.json` of a backtest."""

from math import isfinite
from typing import Any

import numpy as np

from semicyclic.evaluation.backtest import Backtest, WeightSnapshot
from semicyclic.evaluation.scores import ScoreSums
from semicyclic.schedule.schedule import Schedule

KEYS = {"progressive": "progressive", "forward": "walk_forward"}
DIGITS = 7


def summarize_backtest(found: Backtest, schedule: Schedule, units: tuple[float, float]) -> dict[str, Any]:
    """Both questions: scores, intervals, blocks, gains; and how the choice went."""
    return {
        **{key: _question(found, found.tallies[name], schedule, units) for name, key in KEYS.items()},
        "choice": {key: _choice(found, found.looks[name]) for name, key in KEYS.items()},
        "cycles": [int(each) for each in found.cycles],
    }


def _question(
    found: Backtest, tally: ScoreSums, schedule: Schedule, units: tuple[float, float]
) -> dict[str, Any]:
    names, count = found.names, found.candidates
    scores = [_round_scores(each) for each in tally.overall(units)]
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
        # How much better the choice was, cycle by cycle.
        "gains": {names[k]: {"mean": float(gap[k]), "margin": _number(gap_margin[k])} for k in named},
        "by_block": _blocks(found, tally, schedule, units),
        "gain_by_cycle": {
            names[k]: [float(each) for each in units[0] * (tally.by_cycle[:, k] - tally.by_cycle[:, count])]
            for k in named
        },
        "rows_by_cycle": [int(each) for each in tally.cycle_rows],
    }


def _blocks(
    found: Backtest, tally: ScoreSums, schedule: Schedule, units: tuple[float, float]
) -> dict[str, Any]:
    first, second = tally.names()
    names, count = found.names, found.candidates
    blocks = {}
    for block, label in enumerate(schedule.labels):
        rows = tally.rows[block]
        if not rows:
            continue
        sums = tally.by_block[:, block] / rows
        each = [
            _round_scores({first: float(one * units[0]), second: float(other * units[1])})
            for one, other in sums.T
        ]
        blocks[label] = {
            "rows": int(rows),
            "auto": each[count],
            "candidates": dict(zip(names[:count], each[:count], strict=True)),
            "baselines": dict(zip(names[count + 1 :], each[count + 1 :], strict=True)),
        }
    return blocks


def _choice(found: Backtest, looks: list[WeightSnapshot]) -> dict[str, Any]:
    """How much weight each kind of chain, each step and each read-out had, over time."""
    weights = np.array([look.weights for look in looks])
    parts = [name.rsplit(", ", 2) for name in found.names[: found.candidates]]
    summed = {}
    for what, place in (("chains", 0), ("steps", 1), ("read_outs", 2)):
        own = [part[place] for part in parts]
        summed[what] = {
            name: [round(float(each), 4) for each in weights[:, [at == name for at in own]].sum(axis=1)]
            for name in dict.fromkeys(own)
        }
    last = weights[-1]
    top = np.argsort(-last)[:10]
    return {
        "at": [look.clock for look in looks],
        **summed,
        "last": {found.names[k]: round(float(last[k]), 4) for k in top},
    }


def _round_scores(scores: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.{DIGITS}g}") for name, value in scores.items()}


def _interval(value: float, margin: float) -> list[float] | None:
    return [value - margin, value + margin] if isfinite(margin) else None


def _number(value: Any) -> float | None:
    return float(value) if isfinite(value) else None
