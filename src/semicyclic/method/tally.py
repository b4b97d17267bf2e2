"""Running sums of progressive losses by block: all that a certificate needs (`certify`)."""

from typing import NamedTuple

import numpy as np

from semicyclic.types import Array


class Tally(NamedTuple):
    """By block: steps, the sum of their losses, the largest, their spread.

    spread: the sum of (x_t - c_t)^2, where c_t is the mean of the block's losses before x_t (0
        for its first): known before x_t is, as an empirical Bernstein bound wants it.
    """

    steps: Array
    total: Array
    most: Array
    spread: Array


def first_tally(blocks: int) -> Tally:
    """Nothing seen yet."""
    return Tally(*(np.zeros(blocks) for _ in Tally._fields))


def tally_on(before: Tally, block: Array, steps: Array, loss: Array, most: Array, spread: Array) -> Tally:
    """Count further records, given as `Page` has them."""
    blocks = len(before.steps)
    largest = before.most.copy()
    np.maximum.at(largest, block, most)
    return Tally(
        before.steps + np.bincount(block, steps, blocks),
        before.total + np.bincount(block, loss, blocks),
        largest,
        before.spread + np.bincount(block, spread, blocks),
    )
