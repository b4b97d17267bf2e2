"""Training state of the candidates: arrays that the kernels read and write."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.types import Array

# Step sizes per chain (half constant, half AdaGrad), step sizes of each sort, and read-outs per group.
LANES, STEPS, READ_OUTS = 8, 4, 3


class RowWindow(NamedTuple):
    """Rows laid out for the kernels: sparse cells, targets, weights, blocks and times.

    starts, columns, values: cells in CSR form, including the intercept and the marks.
    target, weight, norm: [n] encoded label, weight, and squared norm of the features and the intercept.
    fine, cycle: [n] finest block and cycle.
    frozen_at: [n] freeze time in microseconds, that is when the models that predict the row in the
        walk-forward protocol were last updated.
    known, known_frozen: [new rows] number of rows of the window whose labels are known when a new row
        arrives, and at its freeze time. New rows are the last of the window.
    """

    starts: Array
    columns: Array
    values: Array
    target: Array
    weight: Array
    norm: Array
    fine: Array
    cycle: Array
    frozen_at: Array
    known: Array
    known_frozen: Array


class CandidateState(NamedTuple):
    """State of all chains, for V vectors, G groups of blocks, D columns, C scores per row and 8 lanes.

    vectors: [V, D, C, 8] current weights.
    squares: [V, D, C, 4] sums of squared gradients of the AdaGrad lanes.
    frozen: [G, D, C, 3, 8] read-outs by group. total_weight: [G, 3] their total weights.
    seen: [G, 2] latest cycle, and number of cycles.
    lag: [kinds of chains, D, C, 8] weighted steps of the open visit, from which its mean iterate is computed.
    early, early_frozen, early_seen: `vectors`, `frozen` and `seen` at the last freeze time.
    position: [6] finest block and cycle of the open visit (-1 if none), number of rows trained on, last
        freeze time, finest block and cycle of the last predicted row.
    mass: [3] weight of the open visit, number of rows whose norm was measured, their mean squared norm.
    """

    vectors: Array
    squares: Array
    frozen: Array
    total_weight: Array
    seen: Array
    lag: Array
    early: Array
    early_frozen: Array
    early_seen: Array
    position: Array
    mass: Array


def new_candidate_state(tables: Any, columns: int, outputs: int) -> CandidateState:
    """Return the state of untrained chains."""
    V, G, kinds = tables.vectors, tables.groups, len(tables.active)

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, np.float32)

    return CandidateState(
        zeros(V, columns, outputs, LANES),
        zeros(V, columns, outputs, STEPS),
        zeros(G, columns, outputs, READ_OUTS, LANES),
        np.zeros((G, READ_OUTS)),
        np.zeros((G, 2), np.int64),
        zeros(kinds, columns, outputs, LANES),
        zeros(V, columns, outputs, LANES),
        zeros(G, columns, outputs, READ_OUTS, LANES),
        np.zeros((G, 2), np.int64),
        np.array([-1, -1, 0, -(2**62), -1, -1]),
        np.zeros(3),
    )


def widen(state: CandidateState, columns: int) -> CandidateState:
    """Return the state with room for `columns` columns; new weights are zero."""

    def widen_array(name: str, array: Array) -> Array:
        if name in ("total_weight", "seen", "early_seen", "position", "mass"):
            return array
        room = np.zeros((len(array), columns, *array.shape[2:]), np.float32)
        room[:, : array.shape[1]] = array
        return room

    return CandidateState(*(widen_array(name, array) for name, array in state._asdict().items()))


def workspace(tables: Any, outputs: int) -> tuple[Array, ...]:
    """Return scratch arrays: scores and slopes of all chains, their losses, and the repeated target."""
    size = len(tables.active) * LANES
    shapes = size * outputs, size * outputs, size, size
    return tuple(np.empty(shape, np.float32) for shape in shapes)
