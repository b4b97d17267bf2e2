"""Compiled: the parts of a visit that `sgd` and `adagrad` share, inlined into both.

If the layout is dense, a visit runs on the chain's vector in place, and its list says which columns it may
touch. Otherwise these columns are gathered into a small array, in the order of the list, and scattered back
at the end.

Functions take arrays, not the tuples that hold them: taking an array out of a tuple in every step costs more
than a step of a single row. Indices are unsigned, or each would first be tested for being negative.
"""

from typing import Any

import numpy as np

from semicyclic.method.arrays import Layout, Plan, Records
from semicyclic.method.jit import inline, jit
from semicyclic.method.slopes import slopes

# Adding up whole iterates vectorises: up to this many additions per cell, it is faster than following the
# columns that change.
SUMS_PER_CELL = 4


@jit
def longest_step(layout: Layout, span: Any) -> Any:
    """The most rows of a step among steps span[0]..span[1]-1."""
    longest = np.int64(0)
    for t in range(span[0], span[1]):
        longest = max(longest, layout.steps[t + 1] - layout.steps[t])
    return longest


@jit
def longest_list(layout: Layout, span: Any) -> Any:
    """The most columns of a visit among those of steps span[0]..span[1]-1."""
    longest = np.int64(0)
    visit = np.searchsorted(layout.visits, span[0], side="right") - 1
    while visit < len(layout.block) and layout.visits[visit] < span[1]:
        longest = max(longest, layout.first[visit + 1] - layout.first[visit])
        visit += 1
    return longest


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
def score_minibatch(layout: Any, w: Any, at: Any, bias: Any, rows: Any, loss: Any, buffers: Any) -> Any:
    """Score a minibatch by the weights w[at:] with the intercept w[bias], and find the slopes of its loss.

    Returns the sum of the losses, the sum of the slopes, and the mean weight of the rows.
    """
    columns, values, starts, targets, row_weights = layout
    score, slope, value = buffers
    zero, one = np.uint64(0), np.uint64(1)
    first, last = rows
    count = last - first
    start = w[bias]
    for r in range(first, last):
        total = start
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
            total += w[at + np.uint64(columns[p])] * values[p]
        score[r - first] = total
    slopes(loss[0], loss[1], count, score, zero, targets, first, slope, zero, value)
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
def open_visit(plan: Plan, vectors: Any, w: Any, columns: Any, changes: Any, frame: Any) -> Any:
    """Gather the weights of every expert, and keep them where their changes will be.

    columns: lists, where the visit's list begins, how long it is, and whether the layout is dense.
    frame: block, and of `vectors`, `w` and `changes` how much each expert has; where changes begin.
    """
    lists, listed, n, dense = columns
    block, blocks, experts, width, stride, used, size = frame
    for e in range(experts):
        at = np.uint64(plan.active[e * blocks + block, 0]) * width
        place = at if dense else np.uint64(e) * stride
        gather(vectors, at, lists, listed, n, dense, w, place)
        open_changes(w, place, lists, listed, n, dense, changes, np.uint64(used + e * size))


@inline
def close_visit(
    plan: Plan,
    state: Any,
    records: Records,
    bets: Any,
    vectors: Any,
    w: Any,
    columns: Any,
    frame: Any,
    means: Any,
) -> Any:
    """Scatter the weights of every expert, and write its record and its changes."""
    lists, listed, n, dense = columns
    block, blocks, experts, width, stride, used, size = frame
    record, steps, several, summing, sums, length, mass = means
    for e in range(experts):
        slot = e * blocks + block
        at = np.uint64(plan.active[slot, 0]) * width
        place, to = at if dense else np.uint64(e) * stride, np.uint64(used + e * size)
        own = (several, summing, sums, np.uint64(e) * stride, length, mass[e])
        close_changes(w, place, lists, listed, n, dense, records.changes, to, own)
        scatter(vectors, at, lists, listed, n, dense, w, place)
        state.steps[plan.chain[slot]] += steps
        records.begin[record, e] = to
        records.weight[record, e] = mass[e]
        records.mass[record, e] = mass[e]
        records.scale[record, e] = 1.0
        records.fold[record, e] = 1.0
        records.force[record, e] = 1.0
        if bets is not None:
            records.force[record, e] = bets.share[block, e]
        mass[e] = 0.0


# What is known of a record before its first step: the weight of its rows, the sum of their losses; its
# number of steps, the sum and the largest of their losses, and their spread (see `tally`).
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
    state.heard[block, 0] += steps
    state.heard[block, 1] += step_loss
