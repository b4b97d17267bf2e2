"""Visits: runs of consecutive rows with equal (cycle, block)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.types import Array


class Visits(NamedTuple):
    """Visits: visit v is rows start[v]:start[v+1], all with the same cycle[v] and block[v]."""

    start: Array
    cycle: Array
    block: Array


def visits(cycle: npt.ArrayLike, block: npt.ArrayLike) -> Visits:
    """Cut a sequence of (cycle, block) into visits, in order of arrival.

    Parameters
    ----------
    cycle, block : arrays of shape [n]

    Returns
    -------
    Visits
        Visit v is rows start[v]:start[v+1], in cycle[v] and block[v].
    """
    cycles, blocks = np.asarray(cycle, np.int64), np.asarray(block, np.int64)
    if cycles.ndim != 1 or cycles.shape != blocks.shape:
        raise ValueError(f"cycle has shape {cycles.shape} and block {blocks.shape}: give one of each per row")
    if len(cycles) == 0:
        return Visits(np.zeros(1, np.int64), cycles, blocks)
    change = (cycles[1:] != cycles[:-1]) | (blocks[1:] != blocks[:-1])
    first = np.r_[0, np.flatnonzero(change) + 1]
    return Visits(np.r_[first, len(cycles)].astype(np.int64), cycles[first], blocks[first])
