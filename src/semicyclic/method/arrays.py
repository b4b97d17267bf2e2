"""Arrays that kernels read and write: rows, settings, state and records, as named tuples.

The model in block b is w = scale * z, where z = sum_a c[b, a] v_a over the block's active vectors (see
`basis`). `scale` carries projection and dual averaging, so that neither touches every column at every step.
"""

from typing import NamedTuple

import numpy as np

from semicyclic.method.step import ADAGRAD, DUAL
from semicyclic.types import Array


class Layout(NamedTuple):
    """Rows cut into minibatches and visits.

    Row r has the cells starts[r]:starts[r+1] of `columns` and `values`; step t is rows steps[t]:steps[t+1];
    visit v is steps visits[v]:visits[v+1] in cycle[v] and block[v]. `weights` is empty if rows have none.

    Visit v touches the columns lists[first[v]:first[v+1]], each once, the intercept last. They are ordered by
    tile (see `readout`). `columns` are positions in the visit's list, or, if `dense`, columns themselves.
    """

    columns: Array
    values: Array
    starts: Array
    targets: Array
    weights: Array
    steps: Array
    visits: Array
    cycle: Array
    block: Array
    first: Array
    lists: Array
    dense: bool


class Plan(NamedTuple):
    """Settings that stay the same during a run (see `loss`, `step` and `basis`).

    rule, radius, box, eta, l2: by chain. chain, active, coefficient: by slot. slot_weight: by slot, the
    factor of its gradients. owner: the chain of each vector. A slot is a block or, with several hedged
    experts, a block of one of them: expert e has the slots e * m to e * m + m - 1.
    """

    loss: int
    level: float
    intercept: float
    rule: Array
    radius: Array
    box: Array
    eta: Array
    l2: Array
    chain: Array
    active: Array
    coefficient: Array
    slot_weight: Array
    owner: Array


class ChainState(NamedTuple):
    """State of the chains between two steps: vectors [M, d+1, C] and, by chain, scale, norm and step count.

    norm: the squared norm of the chain's unscaled vectors, kept up to date if there is a ball to project
    onto.
    squares: AdaGrad's sums of squared gradients; empty for other rules.
    block_losses: [m, 2] the number of steps of each block, and the sum of their losses.
    """

    vectors: Array
    scale: Array
    norm: Array
    steps: Array
    squares: Array
    block_losses: Array

    def copy(self) -> "ChainState":
        return ChainState(*(array.copy() for array in self))


def first_state(plan: Plan, vectors: Array, blocks: int) -> ChainState:
    """The state before the first step."""
    chains = len(plan.eta)
    scale = np.where(plan.rule == DUAL, plan.eta, 1.0)
    norm = np.zeros(chains)
    for vector, owner in zip(vectors, plan.owner, strict=True):
        norm[owner] += np.sum(vector.astype(np.float64) ** 2)
    squares = np.zeros_like(vectors) if (plan.rule == ADAGRAD).any() else vectors[:0].copy()
    return ChainState(vectors, scale, norm, np.zeros(chains, np.int64), squares, np.zeros((blocks, 2)))


def current_weights(plan: Plan, state: ChainState, slot: int) -> Array:
    """w = scale * sum_a c_a v_a, the weights [d+1, C] of a slot."""
    is_active = plan.active[slot] >= 0
    vectors = state.vectors[plan.active[slot][is_active]]
    factor = plan.coefficient[slot][is_active] * state.scale[plan.chain[slot]]
    return np.asarray(np.tensordot(factor.astype(vectors.dtype), vectors, axes=1))


class Records(NamedTuple):
    """R consecutive records of a run with E experts; a record is one visit, or a part of one.

    cycle, block: [R]. listed, width: [R] its columns are lists[listed : listed + width].
    rows, loss: [R] the weight of its rows, and their losses summed; for hedged experts, expected losses.
    steps, step_loss, most, spread: [R] its steps, the sum and the largest of their losses, and the sum of
        squared distances of each from the mean of those before it in the block (see `loss_stats`).
    weight: [R, E] the sum of its steps' weights, and mass: that of weight times scale.
    scale: [R, E] at its end. fold: [R, E] by which the chain's vectors were multiplied afterwards.
    probability: [R, E] the expert's probability after the record; 1 without a hedge.
    begin: [R, E] where in `changes` its changes begin: V_after - V_before of every active vector, before the
        fold, and, if it has several steps, the mean of its iterates less (mass / weight) sum_a c_a V_before.
        Each is a table [width, C].
    """

    cycle: Array
    block: Array
    listed: Array
    width: Array
    rows: Array
    loss: Array
    steps: Array
    step_loss: Array
    most: Array
    spread: Array
    weight: Array
    mass: Array
    scale: Array
    fold: Array
    probability: Array
    begin: Array
    lists: Array
    changes: Array

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)


# The fields of a record by shape: [R] whole numbers, [R] numbers, [R, E] numbers.
WHOLE, NUMBERS, BY_EXPERT = Records._fields[:4], Records._fields[4:10], Records._fields[10:15]


def blank_records(room: int, experts: int, lists: Array, changes: Array) -> Records:
    """Allocate records for a kernel to fill."""
    whole = [np.empty(room, np.int64) for _ in WHOLE]
    numbers = [np.empty(room) for _ in NUMBERS]
    by_expert = [np.empty((room, experts)) for _ in BY_EXPERT]
    begin = np.empty((room, experts), np.int64)
    return Records._make([*whole, *numbers, *by_expert, begin, lists, changes])


def cut_records(records: Records, count: int, changes: int) -> Records:
    """Return the first `count` records with their changes, without unused space."""
    kept = [array[:count] for array in records[:-2]]
    used = records.changes[:changes]
    if changes < len(records.changes) // 2:
        used = used.copy()  # or all the room would be kept
    cut = Records._make([*kept, records.lists, used])
    if count == 0:
        return cut._replace(lists=records.lists[:0])
    low, high = int(cut.listed[0]), int(cut.listed[-1] + cut.width[-1])
    return cut._replace(listed=cut.listed - low, lists=records.lists[low:high])
