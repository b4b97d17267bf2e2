"""Score tests of one model for all rows against models by hour, weekday or period.

One model is fitted to all rows (by Newton's method, on a few of the columns). If it holds everywhere, the
gradient g of each part of the rows is noise of known size: g' I^-1 g is chi-squared, with I the Fisher
information. The excess over its expectation, for the intercept and for the weights, measures in nats how much
the parts differ. One Newton step from the pooled model gives the part's own weights.

Labels are two classes (of several, the class nearest to half of the rows against the rest) or numbers with
Gaussian errors.
"""

from math import erfc, sqrt
from typing import NamedTuple

import numpy as np

from semicyclic.method.loss import Loss, sigmoid
from semicyclic.method.rows import Rows
from semicyclic.types import Array

# The sample: the columns with the largest variance, and rows spread over the stream.
MAX_COLUMNS, MAX_ROWS = 24, 200_000
# Parts with fewer rows per column are not tested.
MIN_ROWS_PER_COLUMN = 12
MAX_NEWTON_STEPS = 12
# L2 regularization, so that no curvature matrix is singular.
RIDGE = 1.0
# Directions with a smaller share of the largest curvature are ignored.
MIN_CURVATURE_SHARE = 1e-4
# Columns are dropped if earlier ones explain all but this share of their variance.
MIN_UNEXPLAINED_SHARE = 0.01
# Lower bound of a cell's noise variance for numeric labels, as a share of the mean squared error.
MIN_NOISE_SHARE = 0.25


class DenseSample(NamedTuple):
    """A sample of rows with dense, standardized columns, in order of time.

    X: [n, d], the last column is one. y: [n] targets, 0 and 1 or numbers. number: [n] index in the stream.
    two: True if targets are two classes.
    """

    X: Array
    y: Array
    number: Array
    two: bool


class PooledFit(NamedTuple):
    """A model fitted to all rows.

    w: [d] weights. residual, curvature: [n] derivative of the log-likelihood in the score, and its negative
    second derivative.
    """

    w: Array
    residual: Array
    curvature: Array


class PartScores(NamedTuple):
    """Gradient and curvature of the log-likelihood in each part of the rows, at a pooled model.

    gradient: [parts, d]. curvature: [parts, d, d]. rows: [parts] number of rows.
    """

    gradient: Array
    curvature: Array
    rows: Array


class ScoreTest(NamedTuple):
    """Score test of differences between parts, separately for the intercept and for the other weights.

    parts: number of parts with enough rows. excess: effect beyond the expectation under noise, in nats.
    chance: p-value.
    """

    parts: int
    intercept_excess: float
    intercept_chance: float
    weights_excess: float
    weights_chance: float


def sample_of(rows: Rows, target: Array, loss: Loss) -> DenseSample:
    """Return a sample of rows evenly spread over the stream, with the columns of largest variance."""
    count = len(rows)
    number = np.arange(count) if count <= MAX_ROWS else np.linspace(0, count - 1, MAX_ROWS).astype(np.int64)
    sampled = rows if count <= MAX_ROWS else rows[number]
    size, width = len(sampled), sampled.width
    mean = np.bincount(sampled.indices, sampled.values, width) / size
    square = np.bincount(sampled.indices, np.square(sampled.values, dtype=np.float64), width) / size
    variance = square - mean**2
    rows_per_column = MIN_ROWS_PER_COLUMN * 20
    kept = np.argsort(-variance, kind="stable")[: max(1, min(MAX_COLUMNS, size // rows_per_column))]
    kept = np.sort(kept[variance[kept] > 1e-9])
    column = np.full(width, -1)
    column[kept] = np.arange(len(kept))
    X = np.zeros((size, len(kept) + 1))
    row = np.repeat(np.arange(size), np.diff(sampled.indptr))
    is_kept = column[sampled.indices] >= 0
    np.add.at(X, (row[is_kept], column[sampled.indices][is_kept]), sampled.values[is_kept])
    X[:, :-1] -= X[:, :-1].mean(axis=0)
    X[:, :-1] /= np.maximum(X[:, :-1].std(axis=0), 1e-9)
    X[:, -1] = 1.0
    X = X[:, [*_independent_columns(X[:, :-1]), X.shape[1] - 1]]
    y = target[number]
    if loss.classes == 0:
        scale = y.std()
        return DenseSample(X, (y - y.mean()) / (scale if scale > 0 else 1.0), number, two=False)
    if loss.outputs == 1:
        return DenseSample(X, (y > 0).astype(float), number, two=True)
    share = np.bincount(y.astype(np.int64), minlength=loss.outputs) / len(y)
    return DenseSample(X, (y == np.abs(share - 0.5).argmin()).astype(float), number, two=True)


def _independent_columns(X: Array) -> list[int]:
    """Return the columns that are not nearly a linear combination of those before (Gram-Schmidt)."""
    kept: list[int] = []
    basis = np.zeros((len(X), 0))
    for column in range(X.shape[1]):
        residual = X[:, column] - basis @ (basis.T @ X[:, column])
        if residual @ residual > MIN_UNEXPLAINED_SHARE * len(X):
            kept.append(column)
            basis = np.c_[basis, residual / np.linalg.norm(residual)]
    return kept


def fit(sample: DenseSample, group: Array | None = None) -> PooledFit:
    """Fit one model to all rows.

    With `group` [n], residuals and curvatures are those of a separate model per group with enough rows.
    """
    if group is None:
        return _fit_all(sample)
    pooled = _fit_all(sample)
    residual, curvature = pooled.residual.copy(), pooled.curvature.copy()
    for number in np.unique(group):
        rows = group == number
        if rows.sum() >= MIN_ROWS_PER_COLUMN * sample.X.shape[1]:
            part = _fit_all(DenseSample(sample.X[rows], sample.y[rows], sample.number[rows], sample.two))
            residual[rows], curvature[rows] = part.residual, part.curvature
    if sample.two:
        return PooledFit(pooled.w, residual, curvature)
    return _with_cell_noise(pooled.w, residual / curvature, group)


def _with_cell_noise(w: Array, error: Array, cell: Array) -> PooledFit:
    """Return a fit with Gaussian errors whose variance is estimated per cell, with a lower bound."""
    _, index = np.unique(cell, return_inverse=True)
    variance = np.bincount(index, error**2) / np.bincount(index)
    noise = np.maximum(variance, MIN_NOISE_SHARE * float(np.mean(error**2)) + 1e-12)[index]
    return PooledFit(w, error / noise, 1.0 / noise)


def fit_with_levels(sample: DenseSample, known: PooledFit, cell: Array) -> PooledFit:
    """Add a separate intercept for every cell, however few rows it has, to a fit (one Newton step)."""
    count = int(cell.max()) + 1
    total = np.bincount(cell, known.residual, count)
    curvature = np.bincount(cell, known.curvature, count)
    move = np.divide(total, curvature, out=np.zeros(count), where=curvature > 0)[cell]
    residual = known.residual - known.curvature * move
    if sample.two:
        return known._replace(residual=residual)
    return _with_cell_noise(known.w, residual / known.curvature, cell)


def _fit_all(sample: DenseSample) -> PooledFit:
    """Fit a logistic or linear regression to all rows."""
    X, y = sample.X, sample.y
    w = np.zeros(X.shape[1])
    ridge = RIDGE * np.eye(len(w))
    ridge[-1, -1] = 1e-9
    if not sample.two:
        w = np.linalg.solve(X.T @ X + ridge, X.T @ y)
        error = y - X @ w
        noise = max(float(error.var()), 1e-12)
        return PooledFit(w, error / noise, np.full(len(y), 1.0 / noise))
    for _ in range(MAX_NEWTON_STEPS):
        p = sigmoid(X @ w)
        v = np.maximum(p * (1.0 - p), 1e-6)
        move = np.linalg.solve((X * v[:, None]).T @ X + ridge, X.T @ (y - p) - ridge @ w)
        w = w + move
        if np.abs(move).max() < 1e-6:
            break
    p = sigmoid(X @ w)
    return PooledFit(w, y - p, np.maximum(p * (1.0 - p), 1e-6))


def parts_of(sample: DenseSample, common: PooledFit, part: Array, count: int) -> PartScores:
    """Return gradient and curvature of each part. part: [n] part of each row. count: number of parts."""
    d = sample.X.shape[1]
    gradient, curvature = np.zeros((count, d)), np.zeros((count, d, d))
    rows = np.bincount(part, minlength=count)
    for number in np.flatnonzero(rows):
        in_part = part == number
        X = sample.X[in_part]
        gradient[number] = X.T @ common.residual[in_part]
        curvature[number] = (X * common.curvature[in_part][:, None]).T @ X
    return PartScores(gradient, curvature, rows)


def score_test(parts: PartScores) -> ScoreTest:
    """Test whether parts with enough rows differ from the pooled model by more than noise."""
    d = parts.gradient.shape[1]
    used = np.flatnonzero(parts.rows >= MIN_ROWS_PER_COLUMN * d)
    count = len(used)
    if count < 2:
        return ScoreTest(count, 0.0, 1.0, 0.0, 1.0)
    total = parts.curvature[used].sum(axis=0)
    gradient = parts.gradient[used] - _common_part(parts, used, total)
    intercept = (gradient[:, -1] ** 2 / np.maximum(parts.curvature[used, -1, -1], 1e-12)).sum()
    statistic, ranks = 0.0, 0
    for index, part in enumerate(used):
        square, rank = _quadratic_form(gradient[index], parts.curvature[part])
        statistic, ranks = statistic + square, ranks + rank
    # Degrees of freedom of the intercepts, and of the other weights.
    free = count - 1
    weights, more = max(statistic - float(intercept), 0.0), ranks - d - free
    return ScoreTest(
        count,
        max(float(intercept) - free, 0.0) / 2,
        chi2_p_value(float(intercept), free),
        max(weights - more, 0.0) / 2,
        chi2_p_value(weights, more),
    )


def _quadratic_form(gradient: Array, curvature: Array) -> tuple[float, int]:
    """Return g' I^-1 g and the rank of I, which is less than full if a column is constant in a part."""
    values, vectors = np.linalg.eigh(curvature)
    used = values > MIN_CURVATURE_SHARE * max(float(values[-1]), 1e-12)
    along = (vectors.T @ gradient)[used]
    return float((along**2 / values[used]).sum()), int(used.sum())


def _common_part(parts: PartScores, used: Array, total: Array) -> Array:
    """Return each part's share of the sum of gradients, which is not zero since some parts are left out."""
    ridge = MIN_CURVATURE_SHARE * np.trace(total) / len(total) * np.eye(len(total))
    mean = np.linalg.solve(total + ridge, parts.gradient[used].sum(axis=0))
    return np.asarray(parts.curvature[used] @ mean)


def own_weights(parts: PartScores, common: Array) -> tuple[Array, Array]:
    """Return each part's weights, one Newton step from the pooled ones, and their expected squared error.

    Shapes are [parts, d - 1] and [parts]; parts with too few rows are NaN.
    """
    d = parts.gradient.shape[1]
    w, noise = np.full((len(parts.rows), d - 1), np.nan), np.full(len(parts.rows), np.nan)
    for part in np.flatnonzero(parts.rows >= MIN_ROWS_PER_COLUMN * d):
        inverse = np.linalg.inv(parts.curvature[part] + RIDGE * np.eye(d))
        w[part] = (common + inverse @ parts.gradient[part])[:-1]
        noise[part] = float(np.trace(inverse[:-1, :-1]))
    return w, noise


def chi2_p_value(value: float, free: int) -> float:
    """Return the upper tail of the chi-squared distribution with `free` degrees of freedom.

    Uses the approximation of Wilson and Hilferty.
    """
    if free < 1:
        return 1.0
    z = ((value / free) ** (1 / 3) - (1 - 2 / (9 * free))) / sqrt(2 / (9 * free))
    return 0.5 * erfc(z / sqrt(2))
