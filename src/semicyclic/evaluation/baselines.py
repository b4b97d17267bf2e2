"""Baselines without a model: running rate, previous label, a constant per block.

All answers are scores [rows, C], as the candidates' are: log odds, log probabilities, or numbers. `known`
says for each row how many of the first rows' labels were known when it was answered.
"""

import numpy as np

from semicyclic.method.loss import Loss
from semicyclic.types import Array

RATE, PREVIOUS, BLOCK = "running rate", "previous label", "constant per block"
# Every class counts as seen so often before the first row.
PRIOR = 0.5


def simple(loss: Loss, target: Array, block: Array, known: Array) -> dict[str, Array]:
    """The answers of all baselines of this kind."""
    if loss.classes == 0:
        return {
            RATE: _means(target, known)[:, None],
            PREVIOUS: np.where(known > 0, target[np.maximum(known, 1) - 1], 0.0)[:, None],
            BLOCK: _block_means(target, block, known)[:, None],
        }
    codes = (target > 0).astype(np.int64) if loss.outputs == 1 else target.astype(np.int64)
    classes = loss.classes
    seen = np.eye(classes)[codes]
    found = {
        RATE: _counts(seen, known),
        PREVIOUS: _after(seen, codes, known),
        BLOCK: _by_group(seen, block, known),
    }
    return {name: _scores(loss, counts) for name, counts in found.items()}


def _scores(loss: Loss, counts: Array) -> Array:
    shares = np.log(counts / counts.sum(axis=1, keepdims=True))
    return np.asarray(shares if loss.outputs > 1 else shares[:, 1:] - shares[:, :1])


def _means(target: Array, known: Array) -> Array:
    total = np.r_[0.0, np.cumsum(target)]
    return np.asarray(total[known] / np.maximum(known, 1))


def _counts(seen: Array, known: Array) -> Array:
    total = np.vstack([np.zeros(seen.shape[1]), np.cumsum(seen, axis=0)])
    return np.asarray(total[known] + PRIOR)


def _by_group(seen: Array, group: Array, known: Array) -> Array:
    """Counts of the rows known of the same group."""
    counts = np.empty_like(seen)
    for each in np.unique(group):
        rows = np.flatnonzero(group == each)
        counts[rows] = _counts(seen[rows], np.searchsorted(rows, known[rows], side="left"))
    return counts


def _after(seen: Array, codes: Array, known: Array) -> Array:
    """Counts of what followed the label that was known last, among pairs that are known."""
    before = np.where(known > 0, codes[np.maximum(known, 1) - 1], -1)
    counts = np.full_like(seen, PRIOR)
    for each in range(seen.shape[1]):
        rows = np.flatnonzero(before == each)
        total = np.vstack([np.zeros(seen.shape[1]), np.cumsum(seen[rows], axis=0)])
        counts[rows] = total[np.searchsorted(rows, known[rows], side="left")] + PRIOR
    return counts


def _block_means(target: Array, block: Array, known: Array) -> Array:
    whole = _means(target, known)
    answer = np.empty(len(target))
    for each in np.unique(block):
        rows = np.flatnonzero(block == each)
        count = np.searchsorted(rows, known[rows], side="left")
        answer[rows] = np.where(count > 0, _means(target[rows], count), whole[rows])
    return answer
