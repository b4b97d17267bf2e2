"""State of the candidates: arrays that the kernels read and write."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.types import Array

LANES, STEPS, KINDS = 8, 4, 5


FRESH = 4


class RowWindow(NamedTuple):
    """Rows: cells (the intercept among them), targets, weights, squared norms, and their places and times.

    clock: when a row comes. dawn: when the models that answer it in a walk forward were frozen.
    """

    starts: Array
    columns: Array
    values: Array
    target: Array
    weight: Array
    norm: Array
    fine: Array
    cycle: Array
    clock: Array
    dawn: Array


class CandidateState(NamedTuple):
    """Where all chains stand. D columns, C scores a row.

    vectors: [V, D, C, 8]; squares: [V, D, C, 4] of the gradients of adaptive lanes.
    frozen: [G, D, C, 5, 8] read-outs by group; fresh: [G, D, C, 8] what a shorter tail would be.
    held: [G, 5] the weights of mean, tail, fading mean, last cycle and fresh. seen: [G, 2] the latest
        cycle, and how many.
    lag: [kinds, D, C, 8] of the open visit. early, early_frozen, early_seen: as of the last dawn.
    open: fine block and cycle of the open visit (-1: none), rows learnt from, the last dawn, and where
        the last row was predicted.
    mass: weight of the open visit; rows whose norms were seen; their mean squared norm.
    """

    vectors: Array
    squares: Array
    frozen: Array
    fresh: Array
    held: Array
    seen: Array
    lag: Array
    early: Array
    early_frozen: Array
    early_seen: Array
    open: Array
    mass: Array


def no_candidates(tables: Any, columns: int, outputs: int, apart: int) -> CandidateState:
    """Chains that have learnt nothing. apart: how many groups are kept as of dawn too."""
    V, G, kinds = tables.vectors, tables.groups, len(tables.active)

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, np.float32)

    return CandidateState(
        zeros(V, columns, outputs, LANES),
        zeros(V, columns, outputs, STEPS),
        zeros(G, columns, outputs, KINDS, LANES),
        zeros(G, columns, outputs, LANES),
        np.zeros((G, 5)),
        np.zeros((G, 2), np.int64),
        zeros(kinds, columns, outputs, LANES),
        zeros(V, columns, outputs, LANES),
        zeros(apart, columns, outputs, KINDS, LANES),
        np.zeros((apart, 2), np.int64),
        np.array([-1, -1, 0, -(2**62), -1, -1]),
        np.zeros(3),
    )


def widen(state: CandidateState, columns: int) -> CandidateState:
    """The same with room for more columns."""

    def wider(name: str, array: Array) -> Array:
        if name in ("held", "seen", "early_seen", "open", "mass"):
            return array
        room = np.zeros((len(array), columns, *array.shape[2:]), np.float32)
        room[:, : array.shape[1]] = array
        return room

    return CandidateState(*(wider(name, array) for name, array in state._asdict().items()))


def workspace(tables: Any, outputs: int) -> tuple[Array, ...]:
    """Room for the scores of all chains, their slopes and losses."""
    size = len(tables.active) * LANES
    shapes = size * outputs, size * outputs, size, size
    return tuple(np.empty(shape, np.float32) for shape in shapes)
