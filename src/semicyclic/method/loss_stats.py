"""Running sums of progressive losses per block, from which `theory.certificate` follows."""

from typing import NamedTuple

import numpy as np

from semicyclic.types import Array


class LossStats(NamedTuple):
    """By block: number of steps, sum of their losses, largest loss, spread.

    spread: the sum of (x_t - c_t)^2, where c_t is the mean of the block's losses before x_t (0 for the
        first). An empirical Bernstein bound needs a centre that is known before x_t.
    """

    steps: Array
    total: Array
    most: Array
    spread: Array


def no_losses(blocks: int) -> LossStats:
    """Statistics of no steps."""
    return LossStats(*(np.zeros(blocks) for _ in LossStats._fields))


def add_losses(
    before: LossStats, block: Array, steps: Array, loss: Array, most: Array, spread: Array
) -> LossStats:
    """Add the losses of further records, in the format of `Records`."""
    blocks = len(before.steps)
    largest = before.most.copy()
    np.maximum.at(largest, block, most)
    return LossStats(
        before.steps + np.bincount(block, steps, blocks),
        before.total + np.bincount(block, loss, blocks),
        largest,
        before.spread + np.bincount(block, spread, blocks),
    )
