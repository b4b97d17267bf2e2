"""Regime of a stream, from the effects of hours, weekdays and periods of time.

none         one model does for all
label_skew   how frequent a label is follows the clock, and what features say does not
opposite     features say in some blocks the opposite of what they say in others
orthogonal   every block has its own model, unrelated to the others'
one_odd      one stretch of the day has its own model, the others share one
smooth       the model changes like a wave over the day
weekly       weekdays differ, hours do not
drift        what is learnt changes from week to week, and not with the clock
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

# Noise alone passes a test so seldom; and what has less than this share of the largest effect is beside it.
RARE, BESIDE = 3e-4, 0.12
HOURS = (24, 12, 8, 6, 4)
# Weeks that a stream must have for a weekly rhythm, and into how many stretches time is cut.
WEEKS, STRETCHES = 3, 8
# So much of what hours have of their own must be explained by one odd stretch, two groups, or a wave.
ABOUT, MOST, NEARLY = 0.6, 0.75, 0.9
# What is to be deployed where `auto` is not: by regime.
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
# A name's confidence: so many draws of days, and so many rows of these at most.
DRAWS, FEW_ROWS = 20, 40_000


class TimeGroups(NamedTuple):
    """The parts that rows are in: block of the day, hour, weekday, stretch of time, day."""

    hour: Array
    clock: Array
    weekday: Array
    stretch: Array
    day: Array
    hours: int
    weekly: bool

    def of(self, rows: Array) -> "TimeGroups":
        """Those of some rows."""
        return self._replace(
            hour=self.hour[rows],
            clock=self.clock[rows],
            weekday=self.weekday[rows],
            stretch=self.stretch[rows],
            day=self.day[rows],
        )


class RegimeEvidence(NamedTuple):
    """What each cut has of its own when the others are allowed for, and the hours' own weights."""

    hour: ScoreTest
    weekday: ScoreTest
    stretch: ScoreTest
    weights: Array
    noise: Array
    rows: Array


def cuts_of(ticks: Array, zone: str, columns: int) -> TimeGroups:
    """Cut rows by the clock, the week and the calendar; as finely as there are rows for."""
    wall = to_wall(zone, ticks)
    day, within = np.divmod(wall, DAY)
    week = (wall - MONDAY) // (7 * DAY)
    weeks = int(week.max() - week.min()) + 1
    hours = next((each for each in HOURS if len(ticks) >= 2 * score_tests.ENOUGH * columns * each), HOURS[-1])
    span = max(int(day.max() - day.min()) + 1, 1)
    pieces = min(STRETCHES, max(len(ticks) // (2 * score_tests.ENOUGH * columns), 1))
    weekly = weeks > WEEKS
    if weekly:
        pieces = min(pieces, weeks)
        stretch = (week - week.min()) * pieces // weeks
    else:
        stretch = (day - day.min()) * pieces // span
    return TimeGroups(within * hours // DAY, within * 24 // DAY, (day + 3) % 7, stretch, day, hours, weekly)


def evidence_of(sample: DenseSample, cuts: TimeGroups) -> RegimeEvidence:
    """Each cut against one model; where several matter, each against models that allow for the others."""
    common = score_tests.fit(sample)
    stretches = int(cuts.stretch.max()) + 1

    def hours(known: PooledFit) -> ScoreTest:
        return score_tests.score_test(score_tests.parts_of(sample, known, cuts.hour, cuts.hours))

    def time(known: PooledFit) -> ScoreTest:
        return score_tests.score_test(score_tests.parts_of(sample, known, cuts.stretch, stretches))

    hour, aware, other = hours(common), common, common
    if _matters(hour):
        # What the hour does would else hide what time and weekday do.
        other = score_tests.fit_with_levels(sample, score_tests.fit(sample, cuts.hour), cuts.clock)
    stretch = time(other)
    if _matters(stretch):
        # Short pieces, so that what turns within a stretch is not taken for a rhythm.
        aware = score_tests.fit(sample, _pieces(sample, cuts))
        hour = hours(aware)
        if not _matters(hour):
            stretch = time(common)
        if size(stretch) > size(hour):
            other = aware
    weekday = ScoreTest(0, 0.0, 1.0, 0.0, 1.0)
    if cuts.weekly:
        weekday = score_tests.score_test(score_tests.parts_of(sample, other, cuts.weekday, 7))
    parts = score_tests.parts_of(sample, aware, cuts.hour, cuts.hours)
    weights, noise = score_tests.own_weights(parts, common.w)
    return RegimeEvidence(hour, weekday, stretch, weights, noise, parts.rows)


def _pieces(sample: DenseSample, cuts: TimeGroups) -> Array:
    """Time in pieces as short as there are rows for."""
    count = max(len(sample.y) // (3 * score_tests.ENOUGH * sample.X.shape[1]), 1)
    first, last = int(cuts.day.min()), int(cuts.day.max()) + 1
    return np.asarray((cuts.day - first) * min(count, last - first) // (last - first))


def _matters(found: ScoreTest) -> bool:
    return min(found.intercept_chance, found.weights_chance) < RARE


def size(found: ScoreTest) -> float:
    """How much there is beyond noise, of what is no accident."""
    total = found.intercept_excess if found.intercept_chance < RARE else 0.0
    return total + (found.weights_excess if found.weights_chance < RARE else 0.0)


def regime_of(evidence: RegimeEvidence) -> str:
    """The name of what was found."""
    sizes = {
        "hour": size(evidence.hour),
        "weekday": size(evidence.weekday),
        "stretch": size(evidence.stretch),
    }
    largest = max(sizes.values())
    if largest == 0.0:
        return "none"
    there = [name for name, value in sizes.items() if value > BESIDE * largest]
    if len(there) > 1:
        return "mixed"
    if there == ["weekday"]:
        return "weekly"
    if there == ["stretch"]:
        return "drift"
    hour = evidence.hour
    skew = hour.intercept_excess if hour.intercept_chance < RARE else 0.0
    weights = hour.weights_excess if hour.weights_chance < RARE else 0.0
    if weights <= BESIDE * skew:
        return "label_skew"
    return shape_of(evidence)


def shape_of(evidence: RegimeEvidence) -> str:
    """How the hours' own models are related to each other."""
    used = np.flatnonzero(np.isfinite(evidence.noise))
    w, noise = evidence.weights[used], evidence.noise[used]
    share = evidence.rows[used] / evidence.rows[used].sum()
    whole = _spread(w, noise, share)
    if whole <= 0:
        return "mixed"
    odd = min(
        (_spread(w[rest], noise[rest], share[rest]) for rest in _without_arcs(len(used))), default=whole
    )
    if odd <= (1 - MOST) * whole:
        return "one_odd"
    wave = _waves(w, noise, used, len(evidence.noise))
    if wave >= NEARLY:
        return "smooth"
    group = _two_groups(w, share)
    if group is not None:
        inside = sum(
            float(share[own].sum()) * max(_spread(w[own], noise[own], share[own]), 0.0)
            for own in (group, ~group)
        )
        one, other = (share[own] @ w[own] / share[own].sum() for own in (group, ~group))
        cosine = float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12))
        explained = 1.0 - inside / whole
        if explained >= ABOUT and cosine < -0.3:
            return "opposite"
        if explained >= max(MOST, wave):
            return "orthogonal" if cosine < 0.5 else "mixed"
    if wave >= MOST:
        return "smooth"
    mean = share @ w
    common = float(mean @ mean) - float(share**2 @ noise)
    return "orthogonal" if common <= 0.35 * (common + whole) else "mixed"


def _spread(w: Array, noise: Array, share: Array) -> float:
    """How far models are from their mean, squared, less what noise alone would do."""
    if len(w) < 2:
        return 0.0
    part = share / share.sum()
    mean = part @ w
    apart = ((w - mean) ** 2).sum(axis=1)
    return float(part @ (apart - noise * (1 - part)))


def _without_arcs(count: int) -> list[Array]:
    """Which blocks are left when a stretch of neighbours, up to a quarter of the day, is left out."""
    found = []
    for length in range(1, max(count // 4, 1) + 1):
        for start in range(count):
            rest = np.ones(count, bool)
            rest[(start + np.arange(length)) % count] = False
            if rest.sum() >= 2:
                found.append(np.flatnonzero(rest))
    return found


def _two_groups(w: Array, share: Array) -> Array | None:
    """Blocks by the side on which they lie of the direction along which they differ most."""
    apart = w - share @ w
    values, vectors = np.linalg.eigh(apart @ apart.T)
    group = vectors[:, -1] > 0
    return None if group.all() or not group.any() or values[-1] <= 0 else np.asarray(group)


def _waves(w: Array, noise: Array, used: Array, count: int, harmonics: int = 1) -> float:
    """The share of the models' differences that one wave over the day explains."""
    turn = 2 * np.pi * (used + 0.5) / count
    waves = [np.ones(len(used))]
    for h in range(1, harmonics + 1):
        waves += [np.cos(h * turn), np.sin(h * turn)]
    A = np.stack(waves, axis=1)
    if len(used) <= A.shape[1] + 1:
        return 0.0
    mean = w.mean(axis=0)
    rest = w - A @ np.linalg.lstsq(A, w, rcond=None)[0]
    free = (len(used) - A.shape[1]) / len(used)
    whole = ((w - mean) ** 2).sum() - noise.sum() * (1 - 1 / len(used))
    left = (rest**2).sum() - noise.sum() * free
    return 1.0 - max(float(left), 0.0) / max(float(whole), 1e-12)


def confidence_of(sample: DenseSample, cuts: TimeGroups, regime: str, rng: np.random.Generator) -> float:
    """How often two thirds of the days alone lead to the same name."""
    days = np.unique(cuts.day)
    same = 0
    for _ in range(DRAWS):
        drawn = rng.permutation(days)[: max(2 * len(days) // 3, 1)]
        rows = np.flatnonzero(np.isin(cuts.day, drawn))
        if len(rows) > FEW_ROWS:
            rows = rows[np.sort(rng.permutation(len(rows))[:FEW_ROWS])]
        part = DenseSample(sample.X[rows], sample.y[rows], sample.number[rows], sample.two)
        own = cuts.of(rows)
        same += regime_of(evidence_of(part, own)) == regime
    return same / DRAWS
