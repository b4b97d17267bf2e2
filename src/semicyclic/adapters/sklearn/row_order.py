"""Order in which `fit` trains on rows."""

import numpy as np

from semicyclic.method.batches import RowOrder
from semicyclic.types import Array


def order_of(
    ticks: Array | None, located: tuple[Array, Array], *, passes: int, rng: np.random.Generator | None
) -> RowOrder | None:
    """Return the rows sorted by time, `passes` times over; None if they are in this order already.

    With a generator, rows are shuffled within their blocks at each pass. The sequence of blocks stays that of
    time: only the rows within a block are permuted.
    ticks: times in microseconds, or None for the given order. located: cycle and block of each row.
    """
    cycle, block = located
    in_order = ticks is None or not (np.diff(ticks) < 0).any()
    if in_order and rng is None and passes == 1:
        return None
    by_time = np.arange(len(block)) if in_order else np.argsort(np.asarray(ticks), kind="stable")
    cycle, block = cycle[by_time], block[by_time]
    positions = [np.flatnonzero(block == number) for number in np.unique(block)]
    rows = np.tile(by_time, (passes, 1))
    for one_pass in rows if rng is not None else ():
        for inside in positions:
            one_pass[inside] = rng.permutation(one_pass[inside])  # type: ignore[union-attr]
    # The last pass keeps the cycle numbers of the rows; earlier passes get earlier cycle numbers.
    length = int(cycle.max() - cycle.min()) + 1
    offset = np.repeat(np.arange(1 - passes, 1) * length, len(block))
    return RowOrder(rows.ravel(), np.tile(cycle, passes) + offset, np.tile(block, passes))
