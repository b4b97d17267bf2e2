"""Diagnosis of a stream: effects of the time of day and the weekday, their cost, and the regime."""

from typing import Any, TypedDict

import numpy as np

from semicyclic.auto.calendar import WEEKDAYS
from semicyclic.evaluation import score_tests
from semicyclic.evaluation.backtest import Backtest, LabelledStream
from semicyclic.evaluation.backtest_results import summarize_backtest
from semicyclic.evaluation.regime import (
    METHODS,
    SIGNIFICANCE,
    RegimeEvidence,
    TimeGroups,
    confidence_of,
    cuts_of,
    effect_size,
    evidence_of,
    regime_of,
)
from semicyclic.evaluation.score_tests import DenseSample, PartScores, ScoreTest
from semicyclic.evaluation.scores import NORMAL
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import to_wall
from semicyclic.types import Array

# Numbers of blocks per day to compare.
BLOCK_COUNTS = (2, 3, 4, 6, 8, 12, 24)
# The verdict is the smallest number of blocks with at least this share of the largest effect size.
MIN_SHARE_OF_BEST = 0.9


class Verdict(TypedDict):
    """The regime, and the method, number of blocks and period that it recommends. confidence: 0 to 1."""

    regime: str
    method: str
    blocks: int
    period: str | None
    confidence: float


class EffectSize(TypedDict):
    """An effect in nats per row, and the p-value of its test."""

    nats_a_row: float
    chance: float
    is_there: bool


class Effect(TypedDict):
    """Effect of a part of time on the intercept and on the weights; parts: number of parts."""

    parts: int
    intercept: EffectSize
    weights: EffectSize


class BlockCount(TypedDict):
    """Effect size with the day cut into a number of blocks, and the p-values of its tests."""

    blocks: int
    nats_a_row: float
    intercept_chance: float
    weights_chance: float


class Similarity(TypedDict):
    """Cosines between the weights of the blocks' models; None for blocks with too few rows."""

    blocks: list[str]
    cosines: list[list[float | None]]


class Diagnosis(TypedDict):
    """Effects of hours, weekdays and periods of time, label rates by them, and the verdict."""

    verdict: Verdict
    columns_looked_at: int
    rows_looked_at: int
    rhythms: dict[str, Effect]
    block_counts: list[BlockCount]
    labels: dict[str, list[dict[str, Any]]]
    models: Similarity
    recent_past: dict[str, float]


def diagnose(stream: LabelledStream, zone: str, rng: np.random.Generator) -> Diagnosis:
    """Return the effects of hours, weekdays and periods of time, and the verdict."""
    sample = score_tests.sample_of(stream.rows, stream.target, stream.loss)
    cuts = cuts_of(stream.ticks[sample.number], zone, sample.X.shape[1])
    evidence = evidence_of(sample, cuts)
    regime = regime_of(evidence)
    counts = _compare_block_counts(sample, cuts)
    count = len(sample.y)
    return {
        "verdict": {
            "regime": regime,
            "method": METHODS[regime],
            "blocks": _recommended_blocks(regime, evidence, counts),
            "period": _recommended_period(regime, evidence),
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
            "hours": _label_rates(stream, _hour(stream, zone), [f"{hour:02d}:00" for hour in range(24)]),
            "weekdays": _label_rates(stream, _weekday(stream, zone), WEEKDAYS),
            "time": _label_rates(stream, *_stretches(stream, zone)),
        },
        "models": _model_similarity(evidence, cuts),
        "recent_past": _residual_correlations(sample, cuts),
    }


def _effect(test: ScoreTest, rows: int) -> Effect:
    """Return the result of a score test, with effects in nats per row."""
    return {
        "parts": test.parts,
        "intercept": {
            "nats_a_row": test.intercept_excess / rows,
            "chance": test.intercept_chance,
            "is_there": test.intercept_chance < SIGNIFICANCE,
        },
        "weights": {
            "nats_a_row": test.weights_excess / rows,
            "chance": test.weights_chance,
            "is_there": test.weights_chance < SIGNIFICANCE,
        },
    }


def _compare_block_counts(sample: DenseSample, cuts: TimeGroups) -> list[BlockCount]:
    """Return the effect size for the day cut into fewer or more blocks."""
    common = score_tests.fit(sample)
    finest = score_tests.parts_of(sample, common, cuts.hour, cuts.hours)
    results: list[BlockCount] = []
    for blocks in BLOCK_COUNTS:
        if cuts.hours % blocks:
            continue
        group = np.arange(cuts.hours) * blocks // cuts.hours
        parts = PartScores(
            *(np.stack([array[group == block].sum(axis=0) for block in range(blocks)]) for array in finest)
        )
        test = score_tests.score_test(parts)
        results.append(
            {
                "blocks": blocks,
                "nats_a_row": effect_size(test) / len(sample.y),
                "intercept_chance": test.intercept_chance,
                "weights_chance": test.weights_chance,
            }
        )
    return results


def _recommended_blocks(regime: str, evidence: RegimeEvidence, counts: list[BlockCount]) -> int:
    """Return the recommended number of blocks: 1 without a rhythm, 7 for a weekly one."""
    if regime in ("none", "drift"):
        return 1
    if _recommended_period(regime, evidence) == "weekly":
        return 7
    best = max((result["nats_a_row"] for result in counts), default=0.0)
    sufficient = [result["blocks"] for result in counts if result["nats_a_row"] >= MIN_SHARE_OF_BEST * best]
    return min(sufficient) if best > 0 else 1


def _recommended_period(regime: str, evidence: RegimeEvidence) -> str | None:
    """Return "daily" or "weekly", or None without a rhythm."""
    if regime in ("none", "drift"):
        return None
    if regime == "weekly" or effect_size(evidence.weekday) > effect_size(evidence.hour):
        return "weekly"
    return "daily" if effect_size(evidence.hour) > 0 else None


def _hour(stream: LabelledStream, zone: str) -> Array:
    return Schedule.daily(24, zone=zone).place(stream.ticks).block


def _weekday(stream: LabelledStream, zone: str) -> Array:
    return Schedule.weekly(7, zone=zone).place(stream.ticks).block


def _stretches(stream: LabelledStream, zone: str) -> tuple[Array, list[str]]:
    """Return each row's period of time, and the month and day on which each period begins."""
    part = cuts_of(stream.ticks, zone, 1).stretch
    days = to_wall(zone, stream.ticks).astype("datetime64[us]").astype("datetime64[D]")
    return part, [str(days[part == k].min())[5:] if (part == k).any() else "" for k in range(part.max() + 1)]


def _label_rates(stream: LabelledStream, part: Array, names: Any) -> list[dict[str, Any]]:
    """Return label rates or means by part of the rows, with 95 % confidence intervals.

    For two classes it is the rate of the second, for several classes the rate of each without an interval.
    part: [rows]. names: of the parts; parts without a name or without rows are left out.
    """
    loss, count = stream.loss, int(part.max()) + 1
    rows = np.bincount(part, minlength=count)
    rates = []
    for k in range(count):
        if rows[k] == 0 or k >= len(names):
            continue
        target = stream.target[part == k]
        if loss.classes > 2:
            share = np.bincount(target.astype(np.int64), minlength=loss.classes) / rows[k]
            rates.append({"part": names[k], "rows": int(rows[k]), "rates": [float(rate) for rate in share]})
            continue
        if loss.classes == 2:
            mean = float((target > 0).mean())
            # Wilson's interval, which is valid for rare labels too.
            z = NORMAL**2 / rows[k]
            centre = (mean + z / 2) / (1 + z)
            half = NORMAL * np.sqrt(mean * (1 - mean) / rows[k] + z / (4 * rows[k])) / (1 + z)
        else:
            scale = stream.units[1]
            mean = centre = float(target.mean()) * scale + stream.origin
            half = NORMAL * float(target.std()) * scale / np.sqrt(rows[k])
        interval = [float(centre - half), float(centre + half)]
        rates.append({"part": names[k], "rows": int(rows[k]), "rate": mean, "interval": interval})
    return rates


def _model_similarity(evidence: RegimeEvidence, cuts: TimeGroups) -> Similarity:
    w = evidence.weights
    length = np.linalg.norm(w, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = (w @ w.T) / np.outer(length, length)
    table = [[float(value) if np.isfinite(value) else None for value in row] for row in cosine]
    return {"blocks": [_clock_label(24 * k / cuts.hours) for k in range(cuts.hours)], "cosines": table}


def _clock_label(hours: float) -> str:
    """Format hours since midnight as HH:MM."""
    return f"{int(hours):02d}:{round(hours % 1 * 60):02d}"


def _residual_correlations(sample: DenseSample, cuts: TimeGroups) -> dict[str, float]:
    """Return autocorrelations of the residuals of models by hour, between rows and between days."""
    by_hour = score_tests.fit(sample, cuts.hour).residual
    residual = by_hour - by_hour.mean()
    total = float((residual**2).mean()) or 1.0
    one = float((residual[1:] * residual[:-1]).mean()) / total if len(residual) > 1 else 0.0
    days, index = np.unique(cuts.day, return_inverse=True)
    mean = np.bincount(index, residual) / np.bincount(index)
    adjacent = (np.diff(days) == 1) if len(days) > 2 else np.zeros(0, bool)
    pairs = (mean[1:][adjacent], mean[:-1][adjacent]) if adjacent.any() else (np.zeros(0), np.zeros(0))
    spread = float(mean.var())
    day = float((pairs[0] * pairs[1]).mean()) / spread if len(pairs[0]) > 2 and spread > 0 else 0.0
    return {"row_before": one, "day_before": day}


def costs(result: Backtest, schedule: Schedule, units: tuple[float, float]) -> dict[str, Any]:
    """Return the walk-forward losses of a backtest by method, among them the last iterate of a cyclic chain.

    units: as in `LabelledStream`.
    """
    results = summarize_backtest(result, schedule, units)
    first = "log_loss" if result.tallies["forward"].names()[0] == "log_loss" else "mse"
    forward = results["walk_forward"]
    scores = {name: measures[first] for name, measures in forward["candidates"].items()}

    def best(prefix: str) -> dict[str, Any] | None:
        matching = {name: score for name, score in scores.items() if name.startswith(prefix)}
        if not matching:
            return None
        name = min(matching, key=lambda candidate: matching[candidate])
        return {"candidate": name, first: matching[name]}

    step = "adaptive 0.2"
    last, mean = f"single, {step}, live", f"single, one model, {step}, mean"
    return {
        "measure": first,
        "auto": forward["auto"][first],
        "last_iterate": scores.get(last),
        "mean_of_all": scores.get(mean),
        "baselines": {name: measures[first] for name, measures in forward["baselines"].items()},
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
        "progressive_auto": results["progressive"]["auto"][first],
    }
