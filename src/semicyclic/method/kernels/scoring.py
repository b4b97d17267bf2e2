"""Scores and metrics of rows, for one model or many at once.

A row is read once; the weights of all models for a column lie side by side, so one cell of the
row is one multiply-add for a whole vector of models.
"""

from typing import Any

import numpy as np

from semicyclic.jit import inline, jit
from semicyclic.method.kernels.losses import decay, log_one_plus
from semicyclic.method.kernels.simd import LANES, dot64
from semicyclic.method.metrics import ABSOLUTE_ERROR, ACCURACY, LOG_LOSS, SQUARED_ERROR

# The most rows whose sum is kept in single precision before it is added to the total.
SHORT = 64


@jit
def score_parts(rows: Any, weights: Any, order: Any, bounds: Any, out: Any, parts: Any) -> Any:
    """out[q, k] = the score of row order[k] by model q."""
    indptr, indices, values = rows
    score, intercepts = np.empty(LANES, weights.dtype), (len(weights) - 1) * LANES
    for k in range(bounds[parts[0]], bounds[parts[1]]):
        dot64(weights, intercepts, 0, LANES, indices, values, indptr[order[k]], indptr[order[k] + 1], score)
        for q in range(len(out)):
            out[q, k] = score[q]


@jit
def measure_parts(
    rows: Any, weights: Any, labels: Any, metric: Any, outputs: Any, bounds: Any, total: Any, parts: Any
) -> Any:
    """Add up the metric of the rows of parts[0]..parts[1]-1, by block and model.

    labels: (block, target, weight); weight is empty if all rows have weight 1.
    outputs: how many neighboring lanes are the scores of one model.
    bounds: where parts of the rows begin and end. total: [parts, m, LANES].
    """
    block, target, row_weight = labels
    code, level = metric
    score = np.empty(LANES, weights.dtype)
    sums = np.empty(LANES, weights.dtype)
    weight = np.ones(1, weights.dtype) if len(row_weight) == 0 else row_weight
    results = (score, sums, (weight, np.uint64(len(row_weight) > 0)))
    for part in range(parts[0], parts[1]):
        first = bounds[part]
        while first < bounds[part + 1]:
            last = first + 1
            while last < bounds[part + 1] and last - first < SHORT and block[last] == block[first]:
                last += 1
            sums[:] = 0
            if outputs > 1:
                _classes(rows, weights, target, (first, last), results, code, outputs)
            elif code == ACCURACY:
                _hits(rows, weights, target, (first, last), results)
            elif code == LOG_LOSS:
                _log_losses(rows, weights, target, (first, last), results)
            else:
                _errors(rows, weights, target, (first, last), results, code, weights.dtype.type(level))
            whole = total[part, block[first]]
            for q in range(LANES):
                whole[q] += sums[q]
            first = last


@jit
def _hits(rows: Any, weights: Any, target: Any, span: Any, results: Any) -> Any:
    """Add up correct predictions; a score of exactly 0 predicts the first class (docs/math.md#scores)."""
    indptr, indices, values = rows
    score, sums, (weight, each) = results
    intercepts = (len(weights) - 1) * LANES
    zero = weights.dtype.type(0.0)
    for r in range(np.uint64(span[0]), np.uint64(span[1])):
        dot64(weights, intercepts, 0, LANES, indices, values, indptr[r], indptr[r + np.uint64(1)], score)
        y = target[r]
        counts = weight[r * each]
        for q in range(LANES):
            sums[q] += counts if (score[q] > zero) == (y > zero) else zero


@jit
def _log_losses(rows: Any, weights: Any, target: Any, span: Any, results: Any) -> Any:
    indptr, indices, values = rows
    score, sums, (weight, each) = results
    intercepts = (len(weights) - 1) * LANES
    zero = weights.dtype.type(0.0)
    for r in range(np.uint64(span[0]), np.uint64(span[1])):
        dot64(weights, intercepts, 0, LANES, indices, values, indptr[r], indptr[r + np.uint64(1)], score)
        y = target[r]
        counts = weight[r * each]
        for q in range(LANES):
            margin = score[q] * y
            value = log_one_plus(decay(-abs(margin))) + (zero if margin > zero else -margin)
            sums[q] += counts * value


@jit
def _errors(rows: Any, weights: Any, target: Any, span: Any, results: Any, code: Any, level: Any) -> Any:
    """Absolute and squared errors, and the pinball loss."""
    indptr, indices, values = rows
    score, sums, (weight, each) = results
    intercepts = (len(weights) - 1) * LANES
    zero = weights.dtype.type(0.0)
    for r in range(np.uint64(span[0]), np.uint64(span[1])):
        dot64(weights, intercepts, 0, LANES, indices, values, indptr[r], indptr[r + np.uint64(1)], score)
        y = target[r]
        counts = weight[r * each]
        if code == SQUARED_ERROR:
            for q in range(LANES):
                sums[q] += counts * (score[q] - y) * (score[q] - y)
        else:
            over = weights.dtype.type(1.0) - level
            under = level
            if code == ABSOLUTE_ERROR:
                over = weights.dtype.type(1.0)
                under = over
            for q in range(LANES):
                miss = score[q] - y
                sums[q] += counts * miss * (over if miss > zero else -under)


@jit
def _classes(rows: Any, weights: Any, target: Any, span: Any, results: Any, code: Any, outputs: Any) -> Any:
    """Accuracy or log loss of models with several scores each."""
    indptr, indices, values = rows
    score, sums, (weight, each) = results
    intercepts = (len(weights) - 1) * LANES
    for r in range(np.uint64(span[0]), np.uint64(span[1])):
        dot64(weights, intercepts, 0, LANES, indices, values, indptr[r], indptr[r + np.uint64(1)], score)
        target_class = np.int64(target[r])
        for q in range(LANES // outputs):
            first = q * outputs
            top = first
            for c in range(first + 1, first + outputs):
                if score[c] > score[top]:
                    top = c
            if code == ACCURACY:
                value = 1.0 if top - first == target_class else 0.0
            else:
                total = 0.0
                for c in range(first, first + outputs):
                    total += np.exp(np.float64(score[c] - score[top]))
                value = np.log(total) + (score[top] - score[first + target_class])
            sums[q] += weight[r * each] * value


@inline
def _dot(rows: Any, w: Any, r: Any) -> Any:
    """<w, x_r>, the intercept last in w."""
    indptr, indices, values = rows
    total = w[len(w) - 1]
    for p in range(indptr[r], indptr[r + 1]):
        total += w[indices[p]] * values[p]
    return total


@jit
def score_some(rows: Any, weights: Any, chosen: Any, out: Any) -> Any:
    """out[r] = <weights, x_r> for the rows chosen, for each of the C outputs."""
    for r in chosen:
        for c in range(out.shape[1]):
            out[r, c] = _dot(rows, weights[c], r)


@jit
def score_rows(rows: Any, weights: Any, block: Any, out: Any) -> Any:
    """out[r] = <weights[block[r]], x_r> for each of the C outputs."""
    for r in range(len(out)):
        for c in range(out.shape[1]):
            out[r, c] = _dot(rows, weights[block[r], c], r)
