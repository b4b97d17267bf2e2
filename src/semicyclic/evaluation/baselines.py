"""Baselines without a model: running rate, previous label, a constant per block.

Predictions are scores [rows, C] as those of the candidates: log odds, log probabilities, or numbers.
`known` [rows] is the number of labels, counted from the first row, that were known when a row was predicted.
"""

import numpy as np

from semicyclic.method.loss import Loss
from semicyclic.types import Array

RATE, PREVIOUS, BLOCK = "running rate", "previous label", "constant per block"
# Pseudocount of every class before the first row.
PRIOR_COUNT = 0.5


def simple(loss: Loss, target: Array, block: Array, known: Array) -> dict[str, Array]:
    """Return the predictions of the running rate, the previous label and the rate of the block, by name.

    known: [n] number of rows whose labels are known when a row is predicted.
    """
    if loss.classes == 0:
        return {
            RATE: _means(target, known)[:, None],
            PREVIOUS: np.where(known > 0, target[np.maximum(known, 1) - 1], 0.0)[:, None],
            BLOCK: _block_means(target, block, known)[:, None],
        }
    codes = (target > 0).astype(np.int64) if loss.outputs == 1 else target.astype(np.int64)
    classes = loss.classes
    seen = np.eye(classes)[codes]
    counts = {
        RATE: _class_counts(seen, known),
        PREVIOUS: _counts_after_previous(seen, codes, known),
        BLOCK: _counts_in_group(seen, block, known),
    }
    return {name: _scores_of_counts(loss, table) for name, table in counts.items()}


def _scores_of_counts(loss: Loss, counts: Array) -> Array:
    """Return class counts [rows, classes] as log odds (two classes) or log probabilities."""
    shares = np.log(counts / counts.sum(axis=1, keepdims=True))
    return np.asarray(shares if loss.outputs > 1 else shares[:, 1:] - shares[:, :1])


def _means(target: Array, known: Array) -> Array:
    """Return the mean of the known targets at each row; 0 if there are none."""
    total = np.r_[0.0, np.cumsum(target)]
    return np.asarray(total[known] / np.maximum(known, 1))


def _class_counts(seen: Array, known: Array) -> Array:
    """Return known labels by class at each row, plus the prior count. seen: [rows, classes] one-hot."""
    total = np.vstack([np.zeros(seen.shape[1]), np.cumsum(seen, axis=0)])
    return np.asarray(total[known] + PRIOR_COUNT)


def _counts_in_group(seen: Array, group: Array, known: Array) -> Array:
    """Return the counts of known labels in each row's group."""
    counts = np.empty_like(seen)
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        counts[rows] = _class_counts(seen[rows], np.searchsorted(rows, known[rows], side="left"))
    return counts


def _counts_after_previous(seen: Array, codes: Array, known: Array) -> Array:
    """Return the counts of known labels among rows with the same last known label as each row."""
    before = np.where(known > 0, codes[np.maximum(known, 1) - 1], -1)
    counts = np.full_like(seen, PRIOR_COUNT)
    for code in range(seen.shape[1]):
        rows = np.flatnonzero(before == code)
        total = np.vstack([np.zeros(seen.shape[1]), np.cumsum(seen[rows], axis=0)])
        counts[rows] = total[np.searchsorted(rows, known[rows], side="left")] + PRIOR_COUNT
    return counts


def _block_means(target: Array, block: Array, known: Array) -> Array:
    """Return the mean of the known targets in each row's block; of all blocks if the block has none."""
    overall = _means(target, known)
    means = np.empty(len(target))
    for number in np.unique(block):
        rows = np.flatnonzero(block == number)
        count = np.searchsorted(rows, known[rows], side="left")
        means[rows] = np.where(count > 0, _means(target[rows], count), overall[rows])
    return means
