"""Local SGD of a device on the logistic loss."""

import numpy as np

from semicyclic.jit import jit
from semicyclic.types import Array

CsrArrays = tuple[Array, Array, Array]


@jit
def train_weights(cells: CsrArrays, labels: Array, weights: Array, order: Array, step_size: float) -> Array:
    """Run one minibatch step per row of `order` [steps, batch]; return the weights, intercept last."""
    indptr, indices, values = cells
    w = weights.copy()
    steps, batch = order.shape
    slope = np.empty(batch)
    for t in range(steps):
        for b in range(batch):
            row = order[t, b]
            score = w[-1]
            for at in range(indptr[row], indptr[row + 1]):
                score += values[at] * w[indices[at]]
            slope[b] = (1.0 / (1.0 + np.exp(-score)) - labels[row]) * step_size / batch
        for b in range(batch):
            row = order[t, b]
            for at in range(indptr[row], indptr[row + 1]):
                w[indices[at]] -= slope[b] * values[at]
            w[-1] -= slope[b]
    return w


@jit
def loss_before(cells: CsrArrays, labels: Array, weights: Array, begin: int, end: int) -> float:
    """Mean logistic loss of weights on the rows [begin, end)."""
    indptr, indices, values = cells
    total = 0.0
    for row in range(begin, end):
        score = weights[-1]
        for at in range(indptr[row], indptr[row + 1]):
            score += values[at] * weights[indices[at]]
        # log(1 + exp(score)) without overflow.
        total += max(score, 0.0) + np.log1p(np.exp(-abs(score))) - labels[row] * score
    return total / (end - begin)


@jit
def scores(cells: CsrArrays, weights: Array, begin: int, end: int) -> Array:
    """Scores <w, x> of the rows [begin, end)."""
    indptr, indices, values = cells
    out = np.empty(end - begin)
    for row in range(begin, end):
        score = weights[-1]
        for at in range(indptr[row], indptr[row + 1]):
            score += values[at] * weights[indices[at]]
        out[row - begin] = score
    return out


def log_loss(score: Array, labels: Array) -> float:
    """Mean logistic loss of scores for labels 0 and 1."""
    return float(np.mean(np.logaddexp(0.0, score) - labels * score))
