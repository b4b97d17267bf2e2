"""Synthetic streams of a known regime, to calibrate constants and to test the diagnosis.

Each stream is logistic: P(label) = sigmoid(<w(t), x> + b(t)), with x standard normal. The regimes differ in
how w and b depend on the time; a day has twelve blocks:

none         w and b are constant
label_skew   only b follows the time of day: the frequency of the labels changes
opposite     w in one half of the day's blocks, -w in the other
orthogonal   every block has a separate w, unrelated to the others
one_odd      one block of twelve has a separate w, the others share one
drift        w rotates slowly from day to day, independent of the time of day
smooth       w is a smooth wave over the day
weekly       w differs between weekdays and weekend, but not within the day
mixed        a drifting common w, a difference for each hour, and label skew by time of day and on weekends

In two more regimes, rows close in time depend on each other beyond what a schedule explains. They share a
state that changes at random: four fifths of the variance of their features, and a bias which is part of the
true log odds:

minutes      one day; the state changes every minute, with a correlation of 1/e after 20 minutes
fortnight    two weeks, w and b follow the time of day; the state changes every hour, 1/e after 6 hours
"""

from typing import NamedTuple

import numpy as np

from semicyclic.method.loss import sigmoid
from semicyclic.method.rows import Rows
from semicyclic.schedule.block_edges import DAY
from semicyclic.types import Array

NAMES = (
    "none", "label_skew", "opposite", "orthogonal", "one_odd", "drift", "smooth", "weekly", "mixed",
)  # fmt: skip
# Regimes whose rows depend on each other.
DEPENDENT = ("minutes", "fortnight")
# Of these: days, length of a state in microseconds, and after how many states the correlation is 1/e.
STATES = {"minutes": (1, 60_000_000, 20.0), "fortnight": (14, 3_600_000_000, 6.0)}
# Monday, 20 November 2023, 00:00 UTC, in microseconds since 1970.
START_TICKS = 1_700_438_400_000_000


class RegimeStream(NamedTuple):
    """Rows with times, and the true log odds (`score`) of each label."""

    rows: Rows
    score: Array


def stream(
    regime: str, seed: int, *, rows: int = 30_000, days: int | None = None, columns: int = 10
) -> RegimeStream:
    """Generate a stream of the regime; `columns` is the number of features.

    days: 56 by default, for dependent rows as many as the regime has.
    """
    names = NAMES + DEPENDENT
    if regime not in names:
        raise ValueError(f"regime={regime!r}: choose one of {', '.join(names)}")
    if days is None:
        days = STATES[regime][0] if regime in STATES else 56
    rng = np.random.default_rng(np.random.SeedSequence([seed, names.index(regime)]))
    when = np.sort(rng.integers(0, days * DAY, rows))
    X = rng.normal(size=(rows, columns))
    day, within = np.divmod(when, DAY)
    phase, block = within / DAY, within * 12 // DAY
    strength = 1.5
    w = strength * _unit_vector(rng, columns)
    other = strength * _unit_vector(rng, columns)
    bias = np.zeros(rows)
    row_weights = np.broadcast_to(w, X.shape)
    if regime == "label_skew":
        bias = 1.5 * np.sin(2 * np.pi * phase) + 0.5 * np.cos(4 * np.pi * phase)
    elif regime == "opposite":
        row_weights = np.where((block < 6)[:, None], w, -w)
    elif regime == "orthogonal":
        basis = np.linalg.qr(rng.normal(size=(max(columns, 12), max(columns, 12))))[0][:12, :columns]
        basis /= np.linalg.norm(basis, axis=1, keepdims=True)
        row_weights = strength * basis[block]
    elif regime == "one_odd":
        row_weights = np.where((block == rng.integers(12))[:, None], -other, w)
    elif regime == "drift":
        angle = (2 * np.pi * day / 20)[:, None]
        row_weights = np.cos(angle) * w + np.sin(angle) * other
    elif regime == "smooth":
        angle = (2 * np.pi * phase)[:, None]
        row_weights = np.cos(angle) * w + np.sin(angle) * other
    elif regime == "weekly":
        row_weights = np.where((day % 7 >= 5)[:, None], other, w)
    elif regime == "mixed":
        hourly = 0.6 * strength * np.stack([_unit_vector(rng, columns) for _ in range(24)])
        angle = (2 * np.pi * day / 80)[:, None]
        row_weights = np.cos(angle) * w + np.sin(angle) * other + hourly[within * 24 // DAY]
        bias = np.sin(2 * np.pi * phase) + 0.7 * (day % 7 >= 5)
    elif regime in STATES:
        _, length, memory = STATES[regime]
        if regime == "fortnight":
            angle = (2 * np.pi * phase)[:, None]
            row_weights = w + 0.5 * np.sin(angle) * other
            bias = np.sin(2 * np.pi * phase)
        state = _states(rng, days * DAY // length, columns + 1, memory)[when // length]
        X = np.sqrt(0.2) * X + np.sqrt(0.8) * state[:, 1:]
        bias = bias + state[:, 0]
    score = (X * row_weights).sum(axis=1) + bias
    label = rng.random(rows) < sigmoid(score)
    return RegimeStream(Rows(X, label, when=(when + START_TICKS) / 1e6), score)


def _states(rng: np.random.Generator, count: int, width: int, memory: float) -> Array:
    """Return `count` states of variance one, each correlated with the one before by exp(-1 / memory)."""
    keep = np.exp(-1 / memory)
    states = rng.normal(size=(count, width))
    for at in range(1, count):
        states[at] = keep * states[at - 1] + np.sqrt(1 - keep**2) * states[at]
    return states


def _unit_vector(rng: np.random.Generator, columns: int) -> Array:
    direction = rng.normal(size=columns)
    return np.asarray(direction / np.linalg.norm(direction))
