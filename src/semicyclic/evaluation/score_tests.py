"""Score tests of one model for all rows against models by hour, weekday or period.

One model is fitted to all rows (by Newton's method, on a few of the columns). If it is right everywhere, the
gradient of every part of the rows is noise of known size: g' I^-1 g is chi-squared. What is beyond that, of
the intercept and of the weights, says how much a part has of its own, in nats; and one Newton step from the
common model gives the part's own weights.

Labels are taken as two classes (of several, the one nearest to half of the rows against the rest) or as
numbers with Gaussian errors.
"""

from math import erfc, sqrt
from typing import NamedTuple

import numpy as np

from semicyclic.method.loss import Loss, sigmoid
from semicyclic.method.rows import Rows
from semicyclic.types import Array

# Columns that are looked at, those that vary most; rows at most; rows a part must have for every column.
COLUMNS, ROWS, ENOUGH = 24, 200_000, 12
ROUNDS = 12
# A little more of every column than there is, so that none is singular.
RIDGE = 1.0
# A direction with less than this share of the largest curvature is none.
FLAT = 1e-4
# A column that has less than this share of its variance for itself is left out.
OWN = 0.01
# Errors of numbers count as at least this share of the mean squared error.
QUIET = 0.25


class DenseSample(NamedTuple):
    """Some rows, dense: their columns (the last is one), targets 0 and 1 or numbers, times in order."""

    X: Array
    y: Array
    number: Array
    two: bool


class PooledFit(NamedTuple):
    """One model for all: its weights, and for every row the residual and the curvature."""

    w: Array
    residual: Array
    curvature: Array


class PartScores(NamedTuple):
    """What one model leaves in each part of the rows.

    gradient: [parts, d], curvature: [parts, d, d], rows: [parts].
    """

    gradient: Array
    curvature: Array
    rows: Array


class ScoreTest(NamedTuple):
    """How much parts have of their own, in nats: of the intercept, and of the weights beyond it.

    excess: what is beyond noise, of the sum. chance: how often noise alone would give as much.
    """

    parts: int
    intercept_excess: float
    intercept_chance: float
    weights_excess: float
    weights_chance: float


def sample_of(rows: Rows, target: Array, loss: Loss) -> DenseSample:
    """Rows spread over all, and the columns that vary most."""
    count = len(rows)
    number = np.arange(count) if count <= ROWS else np.linspace(0, count - 1, ROWS).astype(np.int64)
    some = rows if count <= ROWS else rows[number]
    total = np.bincount(some.indices, some.values, some.width) / len(some)
    square = np.bincount(some.indices, np.square(some.values, dtype=np.float64), some.width) / len(some)
    spread = square - total**2
    least = ENOUGH * 20
    kept = np.argsort(-spread, kind="stable")[: max(1, min(COLUMNS, len(some) // least))]
    kept = np.sort(kept[spread[kept] > 1e-9])
    place = np.full(some.width, -1)
    place[kept] = np.arange(len(kept))
    X = np.zeros((len(some), len(kept) + 1))
    row = np.repeat(np.arange(len(some)), np.diff(some.indptr))
    held = place[some.indices] >= 0
    np.add.at(X, (row[held], place[some.indices][held]), some.values[held])
    X[:, :-1] -= X[:, :-1].mean(axis=0)
    X[:, :-1] /= np.maximum(X[:, :-1].std(axis=0), 1e-9)
    X[:, -1] = 1.0
    X = X[:, [*_apart(X[:, :-1]), X.shape[1] - 1]]
    own = target[number]
    if loss.classes == 0:
        scale = own.std()
        return DenseSample(X, (own - own.mean()) / (scale if scale > 0 else 1.0), number, two=False)
    if loss.outputs == 1:
        return DenseSample(X, (own > 0).astype(float), number, two=True)
    share = np.bincount(own.astype(np.int64), minlength=loss.outputs) / len(own)
    return DenseSample(X, (own == np.abs(share - 0.5).argmin()).astype(float), number, two=True)


def _apart(X: Array) -> list[int]:
    """Columns none of which says what those before it say already."""
    kept: list[int] = []
    basis = np.zeros((len(X), 0))
    for column in range(X.shape[1]):
        rest = X[:, column] - basis @ (basis.T @ X[:, column])
        if rest @ rest > OWN * len(X):
            kept.append(column)
            basis = np.c_[basis, rest / np.linalg.norm(rest)]
    return kept


def fit(sample: DenseSample, group: Array | None = None) -> PooledFit:
    """The best model for all rows; or one for each group of rows, of which the residuals are kept."""
    if group is None:
        return _fit(sample)
    whole = _fit(sample)
    residual, curvature = whole.residual.copy(), whole.curvature.copy()
    for each in np.unique(group):
        own = group == each
        if own.sum() >= ENOUGH * sample.X.shape[1]:
            found = _fit(DenseSample(sample.X[own], sample.y[own], sample.number[own], sample.two))
            residual[own], curvature[own] = found.residual, found.curvature
    if sample.two:
        return PooledFit(whole.w, residual, curvature)
    return _noise(whole.w, residual / curvature, group)


def _noise(w: Array, miss: Array, cell: Array) -> PooledFit:
    """Errors in units of their own size in each cell; where there are hardly any, not in units of those."""
    _, index = np.unique(cell, return_inverse=True)
    own = np.bincount(index, miss**2) / np.bincount(index)
    noise = np.maximum(own, QUIET * float(np.mean(miss**2)) + 1e-12)[index]
    return PooledFit(w, miss / noise, 1.0 / noise)


def fit_with_levels(sample: DenseSample, known: PooledFit, cell: Array) -> PooledFit:
    """The same with a level of its own for every cell, however few rows it has."""
    count = int(cell.max()) + 1
    total = np.bincount(cell, known.residual, count)
    curvature = np.bincount(cell, known.curvature, count)
    move = np.divide(total, curvature, out=np.zeros(count), where=curvature > 0)[cell]
    residual = known.residual - known.curvature * move
    if sample.two:
        return known._replace(residual=residual)
    return _noise(known.w, residual / known.curvature, cell)


def _fit(sample: DenseSample) -> PooledFit:
    X, y = sample.X, sample.y
    w = np.zeros(X.shape[1])
    ridge = RIDGE * np.eye(len(w))
    ridge[-1, -1] = 1e-9
    if not sample.two:
        w = np.linalg.solve(X.T @ X + ridge, X.T @ y)
        miss = y - X @ w
        noise = max(float(miss.var()), 1e-12)
        return PooledFit(w, miss / noise, np.full(len(y), 1.0 / noise))
    for _ in range(ROUNDS):
        p = sigmoid(X @ w)
        v = np.maximum(p * (1.0 - p), 1e-6)
        move = np.linalg.solve((X * v[:, None]).T @ X + ridge, X.T @ (y - p) - ridge @ w)
        w = w + move
        if np.abs(move).max() < 1e-6:
            break
    p = sigmoid(X @ w)
    return PooledFit(w, y - p, np.maximum(p * (1.0 - p), 1e-6))


def parts_of(sample: DenseSample, common: PooledFit, part: Array, count: int) -> PartScores:
    """Gradient and curvature of each part."""
    d = sample.X.shape[1]
    gradient, curvature = np.zeros((count, d)), np.zeros((count, d, d))
    rows = np.bincount(part, minlength=count)
    for each in np.flatnonzero(rows):
        own = part == each
        X = sample.X[own]
        gradient[each] = X.T @ common.residual[own]
        curvature[each] = (X * common.curvature[own][:, None]).T @ X
    return PartScores(gradient, curvature, rows)


def score_test(parts: PartScores) -> ScoreTest:
    """How much the parts have of their own beyond noise."""
    d = parts.gradient.shape[1]
    used = np.flatnonzero(parts.rows >= ENOUGH * d)
    count = len(used)
    if count < 2:
        return ScoreTest(count, 0.0, 1.0, 0.0, 1.0)
    total = parts.curvature[used].sum(axis=0)
    gradient = parts.gradient[used] - _common_part(parts, used, total)
    intercept = (gradient[:, -1] ** 2 / np.maximum(parts.curvature[used, -1, -1], 1e-12)).sum()
    whole, ranks = 0.0, 0
    for at, each in enumerate(used):
        square, rank = _quadratic_form(gradient[at], parts.curvature[each])
        whole, ranks = whole + square, ranks + rank
    free = count - 1
    weights, more = max(whole - float(intercept), 0.0), ranks - d - free
    return ScoreTest(
        count,
        max(float(intercept) - free, 0.0) / 2,
        chance(float(intercept), free),
        max(weights - more, 0.0) / 2,
        chance(weights, more),
    )


def _quadratic_form(gradient: Array, curvature: Array) -> tuple[float, int]:
    """g' I^-1 g, in as many directions as there are: a column may be constant in a part."""
    values, vectors = np.linalg.eigh(curvature)
    held = values > FLAT * max(float(values[-1]), 1e-12)
    along = (vectors.T @ gradient)[held]
    return float((along**2 / values[held]).sum()), int(held.sum())


def _common_part(parts: PartScores, used: Array, total: Array) -> Array:
    """What the gradients have because the parts used are not all: each part's share of their sum."""
    ridge = FLAT * np.trace(total) / len(total) * np.eye(len(total))
    mean = np.linalg.solve(total + ridge, parts.gradient[used].sum(axis=0))
    return np.asarray(parts.curvature[used] @ mean)


def own_weights(parts: PartScores, common: Array) -> tuple[Array, Array]:
    """[parts, d - 1] each part's weights one Newton step from the common ones; [parts] their noise, squared.

    Parts with too few rows are NaN.
    """
    d = parts.gradient.shape[1]
    w, noise = np.full((len(parts.rows), d - 1), np.nan), np.full(len(parts.rows), np.nan)
    for each in np.flatnonzero(parts.rows >= ENOUGH * d):
        inverse = np.linalg.inv(parts.curvature[each] + RIDGE * np.eye(d))
        w[each] = (common + inverse @ parts.gradient[each])[:-1]
        noise[each] = float(np.trace(inverse[:-1, :-1]))
    return w, noise


def chance(value: float, free: int) -> float:
    """How often a chi-squared variable of so many degrees of freedom is larger (Wilson and Hilferty)."""
    if free < 1:
        return 1.0
    z = ((value / free) ** (1 / 3) - (1 - 2 / (9 * free))) / sqrt(2 / (9 * free))
    return 0.5 * erfc(z / sqrt(2))
