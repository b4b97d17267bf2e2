"""Synthetic streams of a known regime, to calibrate constants and to test the diagnosis.

Each is logistic: P(label) = sigmoid(<w(t), x> + b(t)), with x standard normal. What follows the clock is

none         nothing
label_skew   b alone: how frequent a label is
opposite     w: in half of the day's blocks it is -w
orthogonal   w: every block has its own, unrelated to the others'
one_odd      w: one block of twelve has its own, the others share one
drift        w turns slowly, from cycle to cycle, and not with the clock
smooth       w is a smooth wave over the day
weekly       w differs between weekdays and weekend, and not within the day
mixed        a common w, a difference for each hour, a skew of labels and of weekends, and a drift
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
# A Monday.
START = 1_700_438_400_000_000


class RegimeStream(NamedTuple):
    """Rows with times, and the score of the best possible prediction of each."""

    rows: Rows
    score: Array


def stream(regime: str, seed: int, *, rows: int = 30_000, days: int = 56, columns: int = 10) -> RegimeStream:
    """A stream of this regime."""
    if regime not in NAMES:
        raise ValueError(f"regime {regime!r}: choose one of {', '.join(NAMES)}")
    rng = np.random.default_rng(np.random.SeedSequence([seed, NAMES.index(regime)]))
    when = np.sort(rng.integers(0, days * DAY, rows))
    X = rng.normal(size=(rows, columns))
    day, within = np.divmod(when, DAY)
    phase, block = within / DAY, within * 12 // DAY
    strength = 1.5
    w = strength * _unit(rng, columns)
    other = strength * _unit(rng, columns)
    bias = np.zeros(rows)
    vary = np.broadcast_to(w, X.shape)
    if regime == "label_skew":
        bias = 1.5 * np.sin(2 * np.pi * phase) + 0.5 * np.cos(4 * np.pi * phase)
    elif regime == "opposite":
        vary = np.where((block < 6)[:, None], w, -w)
    elif regime == "orthogonal":
        basis = np.linalg.qr(rng.normal(size=(max(columns, 12), max(columns, 12))))[0][:12, :columns]
        basis /= np.linalg.norm(basis, axis=1, keepdims=True)
        vary = strength * basis[block]
    elif regime == "one_odd":
        vary = np.where((block == rng.integers(12))[:, None], -other, w)
    elif regime == "drift":
        angle = (2 * np.pi * day / 20)[:, None]
        vary = np.cos(angle) * w + np.sin(angle) * other
    elif regime == "smooth":
        angle = (2 * np.pi * phase)[:, None]
        vary = np.cos(angle) * w + np.sin(angle) * other
    elif regime == "weekly":
        vary = np.where((day % 7 >= 5)[:, None], other, w)
    elif regime == "mixed":
        own = 0.6 * strength * np.stack([_unit(rng, columns) for _ in range(24)])
        angle = (2 * np.pi * day / 80)[:, None]
        vary = np.cos(angle) * w + np.sin(angle) * other + own[within * 24 // DAY]
        bias = np.sin(2 * np.pi * phase) + 0.7 * (day % 7 >= 5)
    score = (X * vary).sum(axis=1) + bias
    label = rng.random(rows) < sigmoid(score)
    return RegimeStream(Rows(X, label, when=(when + START) / 1e6), score)


def _unit(rng: np.random.Generator, columns: int) -> Array:
    direction = rng.normal(size=columns)
    return np.asarray(direction / np.linalg.norm(direction))
