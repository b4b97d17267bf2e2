"""Label delay: when labels become known, as numbers of rows. Every comparison with the delay is made here.

A label is known strictly after its row's arrival plus the delay: at that very instant it is not known yet.
"""

import numpy as np

from semicyclic.types import Array


def known_before(arrival: Array, until: Array, delay: int) -> Array:
    """For each time in `until`, the number of rows whose labels were known before it.

    arrival: when rows arrive, ascending. until: when a row is predicted, or when its model was frozen.
    """
    return np.searchsorted(arrival, until - delay, side="left")


def arrived_before_label(arrival: Array, row: int, delay: int) -> int:
    """Return the number of rows that arrive before the label of number `row` is known. arrival: ascending."""
    return int(np.searchsorted(arrival, arrival[row] + delay, side="right"))
