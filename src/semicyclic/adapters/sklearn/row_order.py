"""Order in which `fit` learns from rows."""

import numpy as np

from semicyclic.method.batches import RowOrder
from semicyclic.types import Array


def order_of(
    ticks: Array | None, place: tuple[Array, Array], *, passes: int, rng: np.random.Generator | None
) -> RowOrder | None:
    """By time, so many times over; with a generator, rows shuffled within their blocks at each pass.

    place: the cycle and block of each row. Blocks follow each other as they do in time: a place in a
    visit is given to some row of the same block. None where rows are in this order already.
    """
    cycle, block = place
    in_order = ticks is None or not (np.diff(ticks) < 0).any()
    if in_order and rng is None and passes == 1:
        return None
    by_time = np.arange(len(block)) if in_order else np.argsort(np.asarray(ticks), kind="stable")
    cycle, block = cycle[by_time], block[by_time]
    places = [np.flatnonzero(block == each) for each in np.unique(block)]
    rows = np.tile(by_time, (passes, 1))
    for once in rows if rng is not None else ():
        for own in places:
            once[own] = rng.permutation(once[own])  # type: ignore[union-attr]
    # The last pass has the cycles of the rows; those before come in cycles before.
    length = int(cycle.max() - cycle.min()) + 1
    early = np.repeat(np.arange(1 - passes, 1) * length, len(block))
    return RowOrder(rows.ravel(), np.tile(cycle, passes) + early, np.tile(block, passes))
