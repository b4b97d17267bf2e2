"""Evaluation: matrices of every model on every block's rows, and paired differences.

A cell [i, j] is the metric of the model of block i on the rows of block j. The paper's
consensus is the mean of all cells, its pluralistic score the mean of the diagonal.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method import kernels, metrics
from semicyclic.method.batches import Classes, encode
from semicyclic.method.loss import Loss
from semicyclic.method.metrics import AUC, Metric
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.schedule.numbered import AnySchedule, as_schedule
from semicyclic.types import Array

# Number of parts into which rows are cut on any machine; partial sums are added in order, so the result has
# the same bits everywhere.
PARTS = 16
# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
# Below this many rows a second thread costs more than it saves.
MANY = 4096


@dataclass(frozen=True, eq=False)
class Matrix:
    """Scores of every block's model on every block's rows.

    Parameters
    ----------
    values : array of shape [m, m]
        values[i, j] is the metric of the model of block i on the rows of block j; NaN if there are none.
    share : array of shape [m]
        Each block's share of the rows.
    metric : Metric
    labels : tuple of str
        Names of the blocks.
    """

    values: Array
    share: Array
    metric: Metric
    labels: tuple[str, ...]

    @property
    def diagonal(self) -> Array:
        """[m] the score of each block's model on its own rows."""
        return np.diagonal(self.values)

    @property
    def pluralistic(self) -> float:
        """Mean of the diagonal: each block served by its own model, blocks weighted equally."""
        return _mean(self.diagonal, np.ones(len(self.share)))

    @property
    def pluralistic_by_share(self) -> float:
        """Mean of the diagonal, blocks weighted by their share of the rows (docs/math.md#unequal-blocks)."""
        return _mean(self.diagonal, self.share)

    @property
    def consensus(self) -> float:
        """Mean of all cells: every block served by every model, weighted equally."""
        return _mean(self.values, np.ones(self.values.shape))

    @property
    def consensus_by_share(self) -> float:
        """Mean of all cells, models and blocks weighted by their share of the rows."""
        return _mean(self.values, self.share[:, None] * self.share[None, :])

    def __repr__(self) -> str:
        m = len(self.labels)
        mean = f"diagonal {self.pluralistic_by_share:.4f}, all {self.consensus_by_share:.4f}"
        return f"<Matrix: {self.metric!r} of {m} models on {m} blocks, {mean}>"

    def __str__(self) -> str:
        width = max(8, *(len(label) for label in self.labels)) + 2
        lines = [f"{self.metric.name}: models by row, blocks tested on by column"]
        lines.append(" " * width + "".join(f"{label:>{width}}" for label in self.labels))
        for label, row in zip(self.labels, self.values, strict=True):
            lines.append(f"{label:>{width}}" + "".join(f"{value:>{width}.4f}" for value in row))
        lines.append(f"{'share':>{width}}" + "".join(f"{value:>{width}.4f}" for value in self.share))
        lines.append(
            f"pluralistic (diagonal) {self.pluralistic:.4f}, by share {self.pluralistic_by_share:.4f}; "
            f"consensus (all cells) {self.consensus:.4f}, by share {self.consensus_by_share:.4f}"
        )
        empty = [label for label, value in zip(self.labels, self.diagonal, strict=True) if np.isnan(value)]
        if empty:
            lines.append(f"left out, having no rows to be measured on: {', '.join(empty)}")
        return "\n".join(lines)


def _mean(values: Array, weight: Array) -> float:
    """Weighted mean of the cells that have a value."""
    known = np.isfinite(values)
    total = float((weight * known).sum())
    return float((np.where(known, values, 0.0) * weight).sum() / total) if total > 0 else float("nan")


def matrix(source: Run | Pluralistic, rows: Rows, *, metric: Metric | None = None) -> Matrix:
    """Evaluate every block's model on every block's rows.

    Parameters
    ----------
    source : Run or Pluralistic
        A run is read out by `mean()`.
    rows : Rows
        Labelled rows.
    metric : Metric, optional
        One of `metrics`; by default accuracy, or the error that fits the loss.

    Returns
    -------
    Matrix
    """
    model = source.mean() if isinstance(source, Run) else source
    return matrices([model], rows, metric=metric)[0]


def matrices(
    models: Sequence[Pluralistic],
    rows: Rows,
    *,
    metric: Metric | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,  # noqa: ARG005
) -> list[Matrix]:
    """Evaluate many models on the same rows, 64 blocks' models per pass over the rows.

    Parameters
    ----------
    models : sequence of Pluralistic
        Models with the same schedule, loss and columns.
    rows : Rows
        Labelled rows. Scores are computed in their precision.
    metric : Metric, optional
        One of `metrics`; by default accuracy, or the error that fits the loss.
    progress : callable, optional
        Called with the number of passes done and their total.

    Returns
    -------
    list of Matrix
    """
    first = _alike(models, rows)
    chosen = metrics.natural(first.loss) if metric is None else metric
    chosen.check(first.loss)
    block = rows.blocks_in(first.schedule)
    target, _ = encode(rows.labels, first.loss, first.classes or None)
    weight = np.zeros(0, rows.values.dtype) if rows.weight is None else rows.weight
    labels = block, target.astype(rows.values.dtype), weight
    count = np.bincount(block, weight if len(weight) else None, first.blocks).astype(float)
    job = _auc if chosen.code == AUC else _measure
    values = job(models, rows, labels, chosen, progress)
    with np.errstate(invalid="ignore", divide="ignore"):
        if chosen.code != AUC:
            values = values / np.where(count > 0, count, np.nan)
        share = count / count.sum()
    return [Matrix(each, share, chosen, first.schedule.labels) for each in values]


def _alike(models: Sequence[Pluralistic], rows: Rows) -> Pluralistic:
    """The first model; raise if another one differs in format."""
    if not models:
        raise ValueError("there are no models to evaluate")
    first = models[0]
    for model in models:
        if not isinstance(model, Pluralistic):
            raise TypeError(f"a model is a {type(model).__name__}: read it out of a run, such as run.mean()")
        same = model.loss == first.loss and model.classes == first.classes
        if not same or model.shape != first.shape or model.schedule != first.schedule:
            raise ValueError(
                "models evaluated together must have the same loss, classes, schedule and columns"
            )
    if not isinstance(rows, Rows):
        raise TypeError(f"rows is a {type(rows).__name__}: make it Rows(X, y, when=...)")
    if rows.width != first.shape[2] - 1:
        raise ValueError(f"rows have {rows.width} columns, the models {first.shape[2] - 1}")
    return first


def by_block(
    weights: Array, rows: Rows, schedule: AnySchedule | int, *, loss: Loss, classes: Classes, metric: Metric
) -> Array:
    """[L, m] metric of each of L sets of weights [L, C, d+1] on the rows of every block."""
    metric.check(loss)
    block = rows.blocks_in(schedule)
    blocks = as_schedule(schedule).blocks
    if metric.code == AUC:
        raise ValueError("by_block adds up the metrics of rows: for auc use matrices")
    target, _ = encode(rows.labels, loss, classes or None)
    weight = np.zeros(0, rows.values.dtype) if rows.weight is None else rows.weight
    count = np.bincount(block, weight if len(weight) else None, blocks).astype(float)
    labels = block, target.astype(rows.values.dtype), weight
    sums = _sums(len(weights), weights.__getitem__, rows, labels, metric, blocks, lambda done, of: None)  # noqa: ARG005
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.where(count > 0, count, np.nan))


def _lanes(total: int, outputs: int) -> Iterator[range]:
    """Ranges of sets of weights that are evaluated together in one pass."""

    if outputs > kernels.simd.LANES:
        raise ValueError(f"{outputs} classes: at most {kernels.simd.LANES} can be evaluated")
    per_pass = kernels.simd.LANES // outputs
    for low in range(0, total, per_pass):
        yield range(low, min(low + per_pass, total))


def _table(chosen: range, weights: Callable[[int], Array], rows: Rows) -> Array:
    """[d+1, LANES] sets of weights in adjacent columns, C lanes each."""

    outputs, width = weights(chosen[0]).shape
    table = np.zeros((width, kernels.simd.LANES), rows.values.dtype)
    for lane, each in enumerate(chosen):
        table[:, lane * outputs : (lane + 1) * outputs] = weights(each).T
    return table


def _of_models(models: Sequence[Pluralistic]) -> Callable[[int], Array]:
    """Return a function from a running number to the weights of a block of a model."""
    blocks = models[0].blocks
    return lambda each: models[each // blocks].block_weights(each % blocks)


def _measure(
    models: Sequence[Pluralistic],
    rows: Rows,
    labels: Any,
    metric: Metric,
    progress: Callable[[int, int], None],
) -> Array:
    """[models, m, m] sums of a metric over the rows of each block."""
    blocks = models[0].blocks
    total = len(models) * blocks
    sums = _sums(total, _of_models(models), rows, labels, metric, blocks, progress)
    return sums.reshape(len(models), blocks, blocks)


def _sums(
    total: int,
    weights: Callable[[int], Array],
    rows: Rows,
    labels: Any,
    metric: Metric,
    blocks: int,
    progress: Callable[[int, int], None],
) -> Array:
    """[total, m] sums of a metric over the rows of each block, for `total` sets of weights."""

    out = np.zeros((total, blocks))
    outputs = weights(0).shape[0]
    cells, what = (rows.indptr, rows.indices, rows.values), (metric.code, metric.level)
    bounds = np.linspace(0, len(rows), PARTS + 1).astype(np.int64)
    passes = list(_lanes(total, outputs))
    for number, chosen in enumerate(passes):
        sums = np.zeros((PARTS, blocks, kernels.simd.LANES))
        table = _table(chosen, weights, rows)
        _share_out(
            partial(kernels.scoring.measure_parts, cells, table, labels, what, outputs, bounds, sums),
            len(rows),
        )
        out[chosen.start : chosen.stop] = sums[:, :, : len(chosen)].sum(axis=0).T
        progress(number + 1, len(passes))
    return out


def _share_out(job: Callable[[tuple[int, int]], object], rows: int) -> None:
    """Run `job` on all PARTS of the rows, on all cores."""
    cores = 1 if rows < MANY else min(os.cpu_count() or 1, PARTS)
    cuts = [PARTS * core // cores for core in range(cores + 1)]
    if cores == 1:
        job((0, PARTS))
        return
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(job, pairwise(cuts)))


def _auc(
    models: Sequence[Pluralistic],
    rows: Rows,
    labels: Any,
    metric: Metric,  # noqa: ARG001
    progress: Callable[[int, int], None],
) -> Array:
    """[models, m, m] AUC: how often a positive row of a block outscores a negative one; ties count half."""

    block, target, weight = labels
    blocks = models[0].blocks
    out = np.full((len(models), blocks, blocks), np.nan)
    order = np.argsort(block, kind="stable")
    bounds = np.searchsorted(block[order], np.arange(blocks + 1))
    starts = np.linspace(0, len(rows), PARTS + 1).astype(np.int64)
    positive = target[order] > 0
    row_weight = weight[order] if len(weight) else np.ones(len(order))
    cells = rows.indptr, rows.indices, rows.values
    passes = list(_lanes(len(models) * blocks, 1))
    for number, chosen in enumerate(passes):
        scores = np.empty((len(chosen), len(order)), rows.values.dtype)
        table = _table(chosen, _of_models(models), rows)
        _share_out(partial(kernels.scoring.score_parts, cells, table, order, starts, scores), len(rows))
        for lane, each in enumerate(chosen):
            for other, (low, high) in enumerate(pairwise(bounds)):
                part = slice(low, high)
                cell = each // blocks, each % blocks, other
                out[cell] = area(scores[lane, part], positive[part], row_weight[part])
        progress(number + 1, len(passes))
    return out


def area(score: Array, positive: Array, weight: Array) -> float:
    """Area under the ROC curve; NaN if a class is missing."""
    order = np.argsort(score)
    score, plus = score[order], np.where(positive, weight, 0.0)[order]
    minus = np.where(positive, 0.0, weight)[order]
    if plus.sum() <= 0 or minus.sum() <= 0:
        return float("nan")
    first = np.flatnonzero(np.r_[True, score[1:] != score[:-1]])
    plus, minus = np.add.reduceat(plus, first), np.add.reduceat(minus, first)
    below = np.cumsum(minus) - minus
    return float((plus * (below + minus / 2)).sum() / (plus.sum() * minus.sum()))


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences and its standard error.

    Parameters
    ----------
    mean, error : float
    repetitions : int
    """

    mean: float
    error: float
    repetitions: int

    @property
    def is_significant(self) -> bool:
        """Whether the mean exceeds its standard error by Student's t at 95 %, and by at least two of them."""
        return abs(self.mean) > max(T_95[min(self.repetitions - 2, len(T_95) - 1)], 2.0) * self.error

    def __str__(self) -> str:
        return f"{self.mean:+.4f} +- {self.error:.4f} ({self.repetitions} repetitions)"


def paired_difference(one: npt.ArrayLike, other: npt.ArrayLike) -> Difference:
    """Mean difference between two sets of scores, of repetitions that share their data.

    What repetitions have in common cancels within each pair, so the standard error is that of the difference.

    Parameters
    ----------
    one, other : sequence of float
        A score for each repetition.

    Returns
    -------
    Difference

    Raises
    ------
    ValueError
        If the lengths differ, or there are fewer than two repetitions.
    """
    gap = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    if gap.ndim != 1 or np.shape(one) != np.shape(other):
        raise ValueError(
            f"scores have shapes {np.shape(one)} and {np.shape(other)}: give one for each repetition"
        )
    if len(gap) < 2:
        raise ValueError("a standard error needs at least two repetitions")
    return Difference(float(gap.mean()), float(gap.std(ddof=1)) / sqrt(len(gap)), len(gap))
