"""Steps of a visit that `sgd` and `adagrad` share, inlined into both.

If the layout is dense, a visit runs on the chain's vector in place, and its list says which columns it may
touch. Otherwise these columns are gathered into a small array, in the order of the list, and scattered back
at the end.

Indices are unsigned, or each would first be tested for being negative.
"""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.jit import inline
from semicyclic.method.arrays import ChainState, Layout, Plan, Records
from semicyclic.method.kernels.losses import slopes
from semicyclic.types import Array

# Adding up whole iterates vectorizes: up to this many additions per cell, it is faster than following the
# columns that change.
SUMS_PER_CELL = 4


class Workspace(NamedTuple):
    """Arrays that a loop needs while it runs.

    w: the weights of a visit, expert by expert: the chains' own vectors if the layout is dense, else copies.
    sums: as large, for the means. score, slope, value: by row of a minibatch. held, losses, mass: by expert.
    visit: the first visit. stride: how far apart the experts are in w and sums.
    """

    w: Array
    sums: Array
    score: Array
    slope: Array
    value: Array
    held: Array
    losses: Array
    mass: Array
    visit: int
    stride: int


def make_workspace(layout: Layout, state: ChainState, experts: int, span: tuple[int, int]) -> Workspace:
    """Room for the steps span[0]..span[1]-1."""
    dtype, width = state.vectors.dtype, state.vectors.shape[1]
    visit, last = np.searchsorted(layout.visits, (span[0], span[1] - 1), side="right") - 1
    stride = width if layout.dense else int(np.diff(layout.first[visit : last + 2]).max())
    w = state.vectors.reshape(-1) if layout.dense else np.empty(stride * experts, dtype)
    score, slope, value = np.empty((3, longest_step(layout, span)), dtype)
    sums, held, (losses, mass) = np.zeros(stride * experts, dtype), np.ones(experts), np.zeros((2, experts))
    return Workspace(w, sums, score, slope, value, held, losses, mass, int(visit), stride)


def longest_step(layout: Layout, span: tuple[int, int]) -> int:
    """The most rows of a step among steps span[0]..span[1]-1."""
    return int(np.diff(layout.steps[span[0] : span[1] + 1]).max())


@inline
def gather(vectors: Any, at: Any, lists: Any, listed: Any, n: Any, dense: Any, w: Any, to: Any) -> Any:
    """Copy the columns of a visit from the vector at `at` to w[to:]; nothing if they are used in place."""
    if not dense:
        for k in range(n):
            w[to + k] = vectors[at + np.uint64(lists[listed + k])]


@inline
def scatter(vectors: Any, at: Any, lists: Any, listed: Any, n: Any, dense: Any, w: Any, to: Any) -> Any:
    """Copy the columns of a visit back."""
    if not dense:
        for k in range(n):
            vectors[at + np.uint64(lists[listed + k])] = w[to + k]


@inline
def open_changes(w: Any, at: Any, lists: Any, listed: Any, n: Any, dense: Any, changes: Any, to: Any) -> Any:
    """Keep the weights before the visit where its changes will be."""
    if dense:
        for k in range(n):
            changes[to + k] = w[at + np.uint64(lists[listed + k])]
    else:
        for k in range(n):
            changes[to + k] = w[at + k]


@inline
def score_minibatch(layout: Layout, plan: Plan, room: Workspace, at: Any, bias: Any, rows: Any) -> Any:
    """Score a minibatch by the weights w[at:] with the intercept w[bias], and find the slopes of its loss.

    Returns the sum of the losses, the sum of the slopes, and the mean weight of the rows.
    """
    columns, values, starts, row_weights = layout.columns, layout.values, layout.starts, layout.weights
    w, score, slope, value = room.w, room.score, room.slope, room.value
    zero, one = np.uint64(0), np.uint64(1)
    first, last = rows
    count = last - first
    start = w[bias]
    for r in range(first, last):
        total = start
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
            total += w[at + np.uint64(columns[p])] * values[p]
        score[r - first] = total
    slopes(plan.loss, plan.level, count, score, zero, layout.targets, first, slope, zero, value)
    weight = 1.0
    if len(row_weights) > 0:
        weight = 0.0
        for r in range(count):
            share = row_weights[first + r]
            slope[r] *= share
            value[r] *= share
            weight += share
        weight /= count
    # In one loop, since each sum waits for its last addition.
    here, tilt = 0.0, 0.0
    for r in range(count):
        here += value[r]
        tilt += slope[r]
    return here, tilt, weight


@inline
def close_changes(
    w: Any, at: Any, lists: Any, listed: Any, n: Any, dense: Any, changes: Any, to: Any, means: Any
) -> Any:
    """Write V_after - V_before and, of several steps, the mean minus V_before; clear the sums.

    means: whether there are several steps; whether `sums` holds the sum of the iterates, or their lag behind
        the last one: from w_t = w_end - sum_{s >= t} dw_s it follows that
        sum_t a_t w_t = (sum_t a_t) w_end - sum_s (sum_{t <= s} a_t) dw_s; the sums, where they begin and how
        many there are; and the total weight sum_t a_t.
    """
    several, summing, sums, low, length, weight = means
    share = sums.dtype.type(1.0 / weight if weight > 0.0 else 0.0)
    if several:
        mean = to + n
        for k in range(n):
            j = np.uint64(lists[listed + k]) if dense else k
            before, after = changes[to + k], w[at + j]
            if weight == 0.0:
                changes[mean + k] = 0.0
            elif summing:
                changes[mean + k] = share * sums[low + j] - before
            else:
                changes[mean + k] = after - before - share * sums[low + j]
            changes[to + k] = after - before
            sums[low + j] = 0.0
        if summing and dense:
            # Columns that are not in the list were summed too.
            for j in range(length):
                sums[low + j] = 0.0
    elif dense:
        for k in range(n):
            changes[to + k] = w[at + np.uint64(lists[listed + k])] - changes[to + k]
    else:
        for k in range(n):
            changes[to + k] = w[at + k] - changes[to + k]


@inline
def open_visit(
    layout: Layout, plan: Plan, state: ChainState, room: Workspace, changes: Any, frame: Any
) -> Any:
    """Gather the weights of every expert, and keep them where their changes will be.

    frame: block, number of blocks and of experts; where the list of columns begins and how long it is; where
        the changes begin, and how many numbers they are for each expert.
    """
    block, blocks, experts, listed, n, used, size = frame
    lists, dense, w, vectors = layout.lists, layout.dense, room.w, state.vectors.reshape(-1)
    for e in range(experts):
        at = np.uint64(plan.active[e * blocks + block, 0] * state.vectors.shape[1])
        place = at if dense else np.uint64(e * room.stride)
        gather(vectors, at, lists, listed, n, dense, w, place)
        open_changes(w, place, lists, listed, n, dense, changes, np.uint64(used + e * size))


@inline
def close_visit(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    records: Records,
    hedge_state: Any,
    room: Workspace,
    frame: Any,
    means: Any,
) -> Any:
    """Scatter the weights of every expert, and write its record and its changes.

    means: the number of the record, how many steps it has, whether `sums` holds whole iterates, and how many
        numbers each of them is.
    """
    block, blocks, experts, listed, n, used, size = frame
    record, steps, summing, length = means
    lists, dense, w, mass, vectors = layout.lists, layout.dense, room.w, room.mass, state.vectors.reshape(-1)
    for e in range(experts):
        slot = e * blocks + block
        at, low = np.uint64(plan.active[slot, 0] * state.vectors.shape[1]), np.uint64(e * room.stride)
        place, to = at if dense else low, np.uint64(used + e * size)
        own = (steps > 1, summing, room.sums, low, length, mass[e])
        close_changes(w, place, lists, listed, n, dense, records.changes, to, own)
        scatter(vectors, at, lists, listed, n, dense, w, place)
        state.steps[plan.chain[slot]] += steps
        records.begin[record, e] = to
        records.weight[record, e] = mass[e]
        records.mass[record, e] = mass[e]
        records.scale[record, e] = 1.0
        records.fold[record, e] = 1.0
        records.probability[record, e] = 1.0
        if hedge_state is not None:
            records.probability[record, e] = hedge_state.share[block, e]
        mass[e] = 0.0


# What is known of a record before its first step: the weight of its rows, the sum of their losses; its
# number of steps, the sum and the largest of their losses, and their spread (see `loss_stats`).
NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@inline
def add_step(known: Any, heard: Any, weight: Any, loss: Any, count: Any) -> Any:
    """Count a step of `count` rows with this mean weight and this sum of losses.

    heard: the number of steps of the block before this record, and the sum of their losses.
    """
    rows, total, steps, step_loss, most, spread = known
    here = loss / count
    off = here - (heard[1] + step_loss) / max(heard[0] + steps, 1.0)
    return (
        rows + weight * count,
        total + loss,
        steps + 1.0,
        step_loss + here,
        max(most, here),
        spread + off * off,
    )


@inline
def close_record(layout: Layout, records: Records, state: Any, record: Any, visit: Any, known: Any) -> Any:
    """Write where a record belongs, and what is known of its rows and steps."""
    rows, loss, steps, step_loss, most, spread = known
    block = layout.block[visit]
    records.cycle[record] = layout.cycle[visit]
    records.block[record] = block
    records.listed[record] = layout.first[visit]
    records.width[record] = layout.first[visit + 1] - layout.first[visit]
    records.rows[record] = rows
    records.loss[record] = loss
    records.steps[record] = steps
    records.step_loss[record] = step_loss
    records.most[record] = most
    records.spread[record] = spread
    state.block_losses[block, 0] += steps
    state.block_losses[block, 1] += step_loss
