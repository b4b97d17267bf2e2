"""Regime of a stream, from the effects of hours, weekdays and periods of time.

none         one model suffices for all rows
label_skew   label rates depend on the hour, the weights of features do not
opposite     the weights of features have opposite signs in two groups of blocks
orthogonal   every block has its own model, unrelated to the others'
one_odd      one part of the day has its own model, the rest shares one
smooth       the model varies like a wave over the day
weekly       weekdays differ, hours do not
drift        the model changes from week to week, not with the hour
mixed        several of these at once
"""

from typing import NamedTuple

import numpy as np

from semicyclic.evaluation import score_tests
from semicyclic.evaluation.score_tests import DenseSample, PooledFit, ScoreTest
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.schedule import MONDAY
from semicyclic.schedule.timezones import to_wall
from semicyclic.types import Array

# Significance level of a test; and effects with a smaller share of the largest one are ignored.
SIGNIFICANCE, MIN_EFFECT_SHARE = 3e-4, 0.12
# Numbers of blocks per day to choose from, finest first.
BLOCKS_PER_DAY = (24, 12, 8, 6, 4)
# A weekly rhythm is tested in streams that span more than this many weeks.
MIN_WEEKS = 3
# Maximum number of periods that time is cut into.
MAX_STRETCHES = 8
# Share of the variation between hours that must be explained by two opposite groups; by one odd part of the
# day, two groups or a wave; and by a wave that takes precedence over two groups.
MIN_OPPOSITE_SHARE, MIN_EXPLAINED_SHARE, MIN_CLEAR_WAVE_SHARE = 0.6, 0.75, 0.9
# Recommended method by regime, for deployments without the automatic choice.
METHODS = {
    "none": "consensus",
    "label_skew": "residual",
    "opposite": "separate",
    "orthogonal": "separate",
    "one_odd": "hedged",
    "drift": "consensus",
    "smooth": "residual",
    "weekly": "residual",
    "mixed": "residual",
}
# Confidence of the regime: number of random subsets of days, and maximum number of rows in each.
DRAWS, MAX_ROWS_PER_DRAW = 20, 40_000


class TimeGroups(NamedTuple):
    """Groups of rows by local time, one entry per row.

    hour: block of the day, 0 to `hours` - 1. clock: hour, 0 to 23. weekday: 0 is Monday.
    stretch: period of time. day: number of the day. hours: number of blocks per day.
    weekly: True if the stream is long enough for a weekly rhythm.
    """

    hour: Array
    clock: Array
    weekday: Array
    stretch: Array
    day: Array
    hours: int
    weekly: bool

    def of(self, rows: Array) -> "TimeGroups":
        """Return the groups of some rows."""
        return self._replace(
            hour=self.hour[rows],
            clock=self.clock[rows],
            weekday=self.weekday[rows],
            stretch=self.stretch[rows],
            day=self.day[rows],
        )


class RegimeEvidence(NamedTuple):
    """Score tests of hours, weekdays and periods, each adjusted for the others; and the models by hour.

    weights: [blocks of the day, d - 1] weights of each block's model. noise: [blocks of the day] their
    expected squared error, NaN with too few rows. rows: [blocks of the day] number of rows.
    """

    hour: ScoreTest
    weekday: ScoreTest
    stretch: ScoreTest
    weights: Array
    noise: Array
    rows: Array


def cuts_of(ticks: Array, zone: str, columns: int) -> TimeGroups:
    """Group rows by hour, weekday and period of time, as finely as the number of rows allows.

    ticks: microseconds since 1970 UTC. columns: number of columns of the models to fit.
    """
    wall = to_wall(zone, ticks)
    day, within = np.divmod(wall, DAY)
    week = (wall - MONDAY) // (7 * DAY)
    weeks = int(week.max() - week.min()) + 1
    min_rows = 2 * score_tests.MIN_ROWS_PER_COLUMN * columns
    hours = next((count for count in BLOCKS_PER_DAY if len(ticks) >= min_rows * count), BLOCKS_PER_DAY[-1])
    span = max(int(day.max() - day.min()) + 1, 1)
    pieces = min(MAX_STRETCHES, max(len(ticks) // min_rows, 1))
    weekly = weeks > MIN_WEEKS
    if weekly:
        pieces = min(pieces, weeks)
        stretch = (week - week.min()) * pieces // weeks
    else:
        stretch = (day - day.min()) * pieces // span
    return TimeGroups(within * hours // DAY, within * 24 // DAY, (day + 3) % 7, stretch, day, hours, weekly)


def evidence_of(sample: DenseSample, cuts: TimeGroups) -> RegimeEvidence:
    """Test hours, weekdays and periods against one model; if several matter, adjust each for the others."""
    common = score_tests.fit(sample)
    stretches = int(cuts.stretch.max()) + 1

    def hours(null: PooledFit) -> ScoreTest:
        return score_tests.score_test(score_tests.parts_of(sample, null, cuts.hour, cuts.hours))

    def time(null: PooledFit) -> ScoreTest:
        return score_tests.score_test(score_tests.parts_of(sample, null, cuts.stretch, stretches))

    # Null models for the hour and for the other tests.
    hour, hour_null, other = hours(common), common, common
    if _is_significant(hour):
        # Otherwise the effect of the hour would hide those of time and weekday.
        other = score_tests.fit_with_levels(sample, score_tests.fit(sample, cuts.hour), cuts.clock)
    stretch = time(other)
    if _is_significant(stretch):
        # Short periods, so that a change within a period is not mistaken for a rhythm.
        hour_null = score_tests.fit(sample, _short_periods(sample, cuts))
        hour = hours(hour_null)
        if not _is_significant(hour):
            stretch = time(common)
        if effect_size(stretch) > effect_size(hour):
            other = hour_null
    weekday = ScoreTest(0, 0.0, 1.0, 0.0, 1.0)
    if cuts.weekly:
        weekday = score_tests.score_test(score_tests.parts_of(sample, other, cuts.weekday, 7))
    parts = score_tests.parts_of(sample, hour_null, cuts.hour, cuts.hours)
    weights, noise = score_tests.own_weights(parts, common.w)
    return RegimeEvidence(hour, weekday, stretch, weights, noise, parts.rows)


def _short_periods(sample: DenseSample, cuts: TimeGroups) -> Array:
    """Return each row's period of time, with periods as short as the number of rows allows."""
    count = max(len(sample.y) // (3 * score_tests.MIN_ROWS_PER_COLUMN * sample.X.shape[1]), 1)
    first, last = int(cuts.day.min()), int(cuts.day.max()) + 1
    return np.asarray((cuts.day - first) * min(count, last - first) // (last - first))


def _is_significant(test: ScoreTest) -> bool:
    return min(test.intercept_chance, test.weights_chance) < SIGNIFICANCE


def effect_size(test: ScoreTest) -> float:
    """Return the sum of the significant effects in excess of noise, in nats."""
    total = test.intercept_excess if test.intercept_chance < SIGNIFICANCE else 0.0
    return total + (test.weights_excess if test.weights_chance < SIGNIFICANCE else 0.0)


def regime_of(evidence: RegimeEvidence) -> str:
    """Return the name of the regime."""
    sizes = {
        "hour": effect_size(evidence.hour),
        "weekday": effect_size(evidence.weekday),
        "stretch": effect_size(evidence.stretch),
    }
    largest = max(sizes.values())
    if largest == 0.0:
        return "none"
    present = [name for name, value in sizes.items() if value > MIN_EFFECT_SHARE * largest]
    if len(present) > 1:
        return "mixed"
    if present == ["weekday"]:
        return "weekly"
    if present == ["stretch"]:
        return "drift"
    hour = evidence.hour
    skew = hour.intercept_excess if hour.intercept_chance < SIGNIFICANCE else 0.0
    weights = hour.weights_excess if hour.weights_chance < SIGNIFICANCE else 0.0
    if weights <= MIN_EFFECT_SHARE * skew:
        return "label_skew"
    return shape_of(evidence)


def shape_of(evidence: RegimeEvidence) -> str:
    """Return the regime that describes how the models of the hours are related to each other."""
    used = np.flatnonzero(np.isfinite(evidence.noise))
    w, noise = evidence.weights[used], evidence.noise[used]
    share = evidence.rows[used] / evidence.rows[used].sum()
    total = _variance(w, noise, share)
    if total <= 0:
        return "mixed"
    without_odd = min(
        (_variance(w[rest], noise[rest], share[rest]) for rest in _without_arcs(len(used))), default=total
    )
    if without_odd <= (1 - MIN_EXPLAINED_SHARE) * total:
        return "one_odd"
    wave = _wave_share(w, noise, used, len(evidence.noise))
    if wave >= MIN_CLEAR_WAVE_SHARE:
        return "smooth"
    group = _two_groups(w, share)
    if group is not None:
        within = sum(
            float(share[side].sum()) * max(_variance(w[side], noise[side], share[side]), 0.0)
            for side in (group, ~group)
        )
        one, other = (share[side] @ w[side] / share[side].sum() for side in (group, ~group))
        cosine = float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12))
        explained = 1.0 - within / total
        if explained >= MIN_OPPOSITE_SHARE and cosine < -0.3:
            return "opposite"
        if explained >= max(MIN_EXPLAINED_SHARE, wave):
            return "orthogonal" if cosine < 0.5 else "mixed"
    if wave >= MIN_EXPLAINED_SHARE:
        return "smooth"
    mean = share @ w
    common = float(mean @ mean) - float(share**2 @ noise)
    return "orthogonal" if common <= 0.35 * (common + total) else "mixed"


def _variance(w: Array, noise: Array, share: Array) -> float:
    """Return the mean squared distance of models from their mean, less the part expected from noise."""
    if len(w) < 2:
        return 0.0
    part = share / share.sum()
    mean = part @ w
    distance = ((w - mean) ** 2).sum(axis=1)
    return float(part @ (distance - noise * (1 - part)))


def _without_arcs(count: int) -> list[Array]:
    """Return the blocks that remain without each arc of neighboring blocks of up to a quarter of the day."""
    remaining = []
    for length in range(1, max(count // 4, 1) + 1):
        for start in range(count):
            rest = np.ones(count, bool)
            rest[(start + np.arange(length)) % count] = False
            if rest.sum() >= 2:
                remaining.append(np.flatnonzero(rest))
    return remaining


def _two_groups(w: Array, share: Array) -> Array | None:
    """Split blocks by their sign along the first principal component; None if all are on one side."""
    centered = w - share @ w
    values, vectors = np.linalg.eigh(centered @ centered.T)
    group = vectors[:, -1] > 0
    return None if group.all() or not group.any() or values[-1] <= 0 else np.asarray(group)


def _wave_share(w: Array, noise: Array, used: Array, count: int, harmonics: int = 1) -> float:
    """Return the share of the variation between models that a wave over the day explains."""
    turn = 2 * np.pi * (used + 0.5) / count
    waves = [np.ones(len(used))]
    for h in range(1, harmonics + 1):
        waves += [np.cos(h * turn), np.sin(h * turn)]
    A = np.stack(waves, axis=1)
    if len(used) <= A.shape[1] + 1:
        return 0.0
    mean = w.mean(axis=0)
    residual = w - A @ np.linalg.lstsq(A, w, rcond=None)[0]
    free = (len(used) - A.shape[1]) / len(used)
    total = ((w - mean) ** 2).sum() - noise.sum() * (1 - 1 / len(used))
    unexplained = (residual**2).sum() - noise.sum() * free
    return 1.0 - max(float(unexplained), 0.0) / max(float(total), 1e-12)


def confidence_of(sample: DenseSample, cuts: TimeGroups, regime: str, rng: np.random.Generator) -> float:
    """Return the share of random subsets of two thirds of the days that lead to the same regime."""
    days = np.unique(cuts.day)
    same = 0
    for _ in range(DRAWS):
        drawn = rng.permutation(days)[: max(2 * len(days) // 3, 1)]
        rows = np.flatnonzero(np.isin(cuts.day, drawn))
        if len(rows) > MAX_ROWS_PER_DRAW:
            rows = rows[np.sort(rng.permutation(len(rows))[:MAX_ROWS_PER_DRAW])]
        part = DenseSample(sample.X[rows], sample.y[rows], sample.number[rows], sample.two)
        same += regime_of(evidence_of(part, cuts.of(rows))) == regime
    return same / DRAWS
