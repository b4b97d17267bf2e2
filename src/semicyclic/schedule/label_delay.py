"""Label delay: a label is known strictly after its row's arrival plus the delay.

Kernels that walk through rows one by one (`auto/kernels`) compare the same times directly.
"""

import numpy as np

from semicyclic.types import Array


def known_before(arrival: Array, until: Array, delay: int) -> Array:
    """For each row, the number of labels that were known before `until`.

    arrival: when rows arrive, ascending. until: one time per row, or the time at which its model was frozen.
    """
    return np.searchsorted(arrival + delay, until, side="left")
