"""Diagnosis: which parts of a stream follow the clock, what that costs, and the regime."""

from typing import Any

import numpy as np

from semicyclic.auto.calendar import WEEKDAYS
from semicyclic.evaluation import score_tests
from semicyclic.evaluation.backtest import Backtest, LabelledStream
from semicyclic.evaluation.backtest_results import summarize_backtest
from semicyclic.evaluation.regime import (
    METHODS,
    RARE,
    RegimeEvidence,
    TimeGroups,
    confidence_of,
    cuts_of,
    evidence_of,
    regime_of,
    size,
)
from semicyclic.evaluation.score_tests import DenseSample, PartScores, ScoreTest
from semicyclic.evaluation.scores import NORMAL
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import to_wall
from semicyclic.types import Array

COUNTS = (2, 3, 4, 6, 8, 12, 24)
# As few blocks as have this share of what the best number of them has.
NEARLY_ALL = 0.9


def diagnose(stream: LabelledStream, zone: str, rng: np.random.Generator) -> dict[str, Any]:
    """What hours, weekdays and stretches of time have of their own; and the verdict."""
    sample = score_tests.sample_of(stream.rows, stream.target, stream.loss)
    cuts = cuts_of(stream.ticks[sample.number], zone, sample.X.shape[1])
    evidence = evidence_of(sample, cuts)
    regime = regime_of(evidence)
    counts = _counts(sample, cuts)
    count = len(sample.y)
    return {
        "verdict": {
            "regime": regime,
            "method": METHODS[regime],
            "blocks": _blocks(regime, evidence, counts),
            "period": _period(regime, evidence),
            "confidence": confidence_of(sample, cuts, regime, rng),
        },
        "columns_looked_at": sample.X.shape[1] - 1,
        "rows_looked_at": count,
        "rhythms": {
            "hours": _effect(evidence.hour, count),
            "weekdays": _effect(evidence.weekday, count),
            "time": _effect(evidence.stretch, count),
        },
        "block_counts": counts,
        "labels": {
            "hours": _labels(stream, _hour(stream, zone), [f"{hour:02d}:00" for hour in range(24)]),
            "weekdays": _labels(stream, _weekday(stream, zone), WEEKDAYS),
            "time": _labels(stream, *_stretches(stream, zone)),
        },
        "models": _models(evidence, cuts),
        "recent_past": _past(sample, cuts),
    }


def _effect(found: ScoreTest, rows: int) -> dict[str, Any]:
    return {
        "parts": found.parts,
        "intercept": {
            "nats_a_row": found.intercept_excess / rows,
            "chance": found.intercept_chance,
            "is_there": found.intercept_chance < RARE,
        },
        "weights": {
            "nats_a_row": found.weights_excess / rows,
            "chance": found.weights_chance,
            "is_there": found.weights_chance < RARE,
        },
    }


def _counts(sample: DenseSample, cuts: TimeGroups) -> list[dict[str, Any]]:
    """The same rows cut into fewer or more blocks of the day."""
    common = score_tests.fit(sample)
    whole = score_tests.parts_of(sample, common, cuts.hour, cuts.hours)
    found = []
    for blocks in COUNTS:
        if cuts.hours % blocks:
            continue
        group = np.arange(cuts.hours) * blocks // cuts.hours
        parts = PartScores(
            *(np.stack([each[group == block].sum(axis=0) for block in range(blocks)]) for each in whole)
        )
        test = score_tests.score_test(parts)
        found.append({"blocks": blocks, "nats_a_row": size(test) / len(sample.y), **_chances(test)})
    return found


def _chances(found: ScoreTest) -> dict[str, float]:
    return {"intercept_chance": found.intercept_chance, "weights_chance": found.weights_chance}


def _blocks(regime: str, evidence: RegimeEvidence, counts: list[dict[str, Any]]) -> int:
    if regime in ("none", "drift"):
        return 1
    if _period(regime, evidence) == "weekly":
        return 7
    best = max((each["nats_a_row"] for each in counts), default=0.0)
    enough = [each["blocks"] for each in counts if each["nats_a_row"] >= NEARLY_ALL * best]
    return min(enough) if best > 0 else 1


def _period(regime: str, evidence: RegimeEvidence) -> str | None:
    if regime in ("none", "drift"):
        return None
    if regime == "weekly" or size(evidence.weekday) > size(evidence.hour):
        return "weekly"
    return "daily" if size(evidence.hour) > 0 else None


def _hour(stream: LabelledStream, zone: str) -> Array:
    return Schedule.daily(24, zone=zone).place(stream.ticks).block


def _weekday(stream: LabelledStream, zone: str) -> Array:
    return Schedule.weekly(7, zone=zone).place(stream.ticks).block


def _stretches(stream: LabelledStream, zone: str) -> tuple[Array, list[str]]:
    """Stretches of time, and the days on which they begin."""
    part = cuts_of(stream.ticks, zone, 1).stretch
    days = to_wall(zone, stream.ticks).astype("datetime64[us]").astype("datetime64[D]")
    return part, [str(days[part == k].min())[5:] if (part == k).any() else "" for k in range(part.max() + 1)]


def _labels(stream: LabelledStream, part: Array, names: Any) -> list[dict[str, Any]]:
    """The rate (of two classes the second, of several each) or mean of labels, with 95 % intervals."""
    loss, count = stream.loss, int(part.max()) + 1
    rows = np.bincount(part, minlength=count)
    found = []
    for k in range(count):
        if rows[k] == 0 or k >= len(names):
            continue
        own = stream.target[part == k]
        if loss.classes > 2:
            share = np.bincount(own.astype(np.int64), minlength=loss.classes) / rows[k]
            found.append({"part": names[k], "rows": int(rows[k]), "rates": [float(each) for each in share]})
            continue
        if loss.classes == 2:
            mean = float((own > 0).mean())
            # Wilson's interval, which is sound for rare labels too.
            z = NORMAL**2 / rows[k]
            centre = (mean + z / 2) / (1 + z)
            half = NORMAL * np.sqrt(mean * (1 - mean) / rows[k] + z / (4 * rows[k])) / (1 + z)
        else:
            scale = stream.units[1]
            mean = centre = float(own.mean()) * scale + stream.origin
            half = NORMAL * float(own.std()) * scale / np.sqrt(rows[k])
        interval = [float(centre - half), float(centre + half)]
        found.append({"part": names[k], "rows": int(rows[k]), "rate": mean, "interval": interval})
    return found


def _models(evidence: RegimeEvidence, cuts: TimeGroups) -> dict[str, Any]:
    """How alike the blocks' own models are: the cosines between their weights; None where rows are few."""
    w = evidence.weights
    length = np.linalg.norm(w, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = (w @ w.T) / np.outer(length, length)
    table = [[float(each) if np.isfinite(each) else None for each in row] for row in cosine]
    return {"blocks": [_clock(24 * k / cuts.hours) for k in range(cuts.hours)], "cosines": table}


def _clock(hours: float) -> str:
    return f"{int(hours):02d}:{round(hours % 1 * 60):02d}"


def _past(sample: DenseSample, cuts: TimeGroups) -> dict[str, float]:
    """How much is left to be said by the past: correlations of what one model by the hour did not foresee."""
    by_hour = score_tests.fit(sample, cuts.hour).residual
    rest = by_hour - by_hour.mean()
    total = float((rest**2).mean()) or 1.0
    one = float((rest[1:] * rest[:-1]).mean()) / total if len(rest) > 1 else 0.0
    days, index = np.unique(cuts.day, return_inverse=True)
    mean = np.bincount(index, rest) / np.bincount(index)
    apart = (np.diff(days) == 1) if len(days) > 2 else np.zeros(0, bool)
    pairs = (mean[1:][apart], mean[:-1][apart]) if apart.any() else (np.zeros(0), np.zeros(0))
    spread = float(mean.var())
    day = float((pairs[0] * pairs[1]).mean()) / spread if len(pairs[0]) > 2 and spread > 0 else 0.0
    return {"row_before": one, "day_before": day}


def costs(found: Backtest, schedule: Schedule, units: tuple[float, float]) -> dict[str, Any]:
    """What it costs to do this or that, from a backtest: among others the last iterate of a cyclic chain."""
    answered = summarize_backtest(found, schedule, units)
    first = "log_loss" if found.tallies["forward"].names()[0] == "log_loss" else "mse"
    forward = answered["walk_forward"]
    scores = {name: each[first] for name, each in forward["candidates"].items()}

    def best(text: str) -> dict[str, Any] | None:
        own = {name: score for name, score in scores.items() if name.startswith(text)}
        if not own:
            return None
        name = min(own, key=lambda each: own[each])
        return {"candidate": name, first: own[name]}

    step = "adaptive 0.2"
    last, mean = f"single, {step}, live", f"single, one model, {step}, mean"
    return {
        "measure": first,
        "auto": forward["auto"][first],
        "last_iterate": scores.get(last),
        "mean_of_all": scores.get(mean),
        "baselines": {name: each[first] for name, each in forward["baselines"].items()},
        "gains": forward["gains"],
        "best": {
            kind: best(kind)
            for kind in (
                "single, one model",
                "single",
                "separate",
                "residual",
                "fourier",
                "block as a feature",
            )
        },
        "progressive_auto": answered["progressive"]["auto"][first],
    }
