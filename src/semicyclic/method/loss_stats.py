"""Running sums of progressive losses per block, from which `theory.certificate` follows."""

from typing import NamedTuple

import numpy as np

from semicyclic.types import Array


class LossStats(NamedTuple):
    """By block: steps, the sum of their losses, the largest, their spread.

    spread: the sum of (x_t - c_t)^2, where c_t is the mean of the block's losses before x_t (0
        for its first): known before x_t is, as an empirical Bernstein bound wants it.
    """

    steps: Array
    total: Array
    most: Array
    spread: Array


def no_losses(blocks: int) -> LossStats:
    """Nothing seen yet."""
    return LossStats(*(np.zeros(blocks) for _ in LossStats._fields))


def add_losses(
    before: LossStats, block: Array, steps: Array, loss: Array, most: Array, spread: Array
) -> LossStats:
    """Count further records, given as `Records` has them."""
    blocks = len(before.steps)
    largest = before.most.copy()
    np.maximum.at(largest, block, most)
    return LossStats(
        before.steps + np.bincount(block, steps, blocks),
        before.total + np.bincount(block, loss, blocks),
        largest,
        before.spread + np.bincount(block, spread, blocks),
    )
