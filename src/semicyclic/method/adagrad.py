"""Compiled: AdaGrad with one vector per block and one score per row, for one chain or several hedged ones.

As `sgd`, but for the move: a minibatch's gradient is summed first, then every column it touches takes an
adaptive step, clipped to the box.
"""

from typing import Any

import numpy as np

from semicyclic.method.arrays import Layout, Plan, Records, State
from semicyclic.method.jit import jit
from semicyclic.method.settle import in_play, learn_losses
from semicyclic.method.visit import (
    NOTHING,
    add_step,
    close_record,
    close_visit,
    gather,
    longest_list,
    longest_step,
    open_visit,
    scatter,
    score_minibatch,
)


@jit
def run_adagrad(
    layout: Layout, plan: Plan, state: State, records: Records, bets: Any, toss: Any, span: Any
) -> Any:
    """Run the steps span[0]..span[1]-1 or as many as there is room for; see `kernels.advance`."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    cells_of = (columns, values, starts, layout.targets, layout.weights)
    steps, visits, lists, dense = layout.steps, layout.visits, layout.lists, layout.dense
    changes = records.changes
    room, experts = records.weight.shape
    blocks = len(plan.chain) // experts
    kind = state.vectors.dtype.type
    vectors, squares = state.vectors.ravel(), state.squares.ravel()
    width, zero, one = np.uint64(state.vectors.shape[1]), np.uint64(0), np.uint64(1)
    longest = longest_step(layout, span)
    slope = np.empty(longest, state.vectors.dtype)
    buffers = (np.empty_like(slope), slope, np.empty_like(slope))
    stride = width if dense else np.uint64(longest_list(layout, span))
    sums = np.zeros(np.int64(stride) * experts, state.vectors.dtype)
    w = vectors if dense else np.empty(np.int64(stride) * experts, state.vectors.dtype)
    s = squares if dense else np.empty(np.int64(stride) * experts, state.vectors.dtype)
    gradient = np.zeros(stride, state.vectors.dtype)
    seen = np.zeros(stride, np.uint8)
    touched = np.empty(np.int64(stride) + 2, np.uint32)
    held, losses, mass = np.ones(experts), np.zeros(experts), np.zeros(experts)
    used, record, step = np.int64(0), np.int64(0), span[0]
    visit = np.searchsorted(visits, step, side="right") - 1
    while step < span[1] and record < room:
        block = layout.block[visit]
        end = min(visits[visit + 1], span[1])
        listed = np.uint64(layout.first[visit])
        n = np.uint64(layout.first[visit + 1]) - listed
        several = end - step > 1
        size = np.int64(n) * (2 if several else 1)
        if used + experts * size > len(changes):
            break
        length = width if dense else n
        column_list = (lists, listed, n, dense)
        frame = (block, blocks, experts, width, stride, used, size)
        open_visit(plan, vectors, w, column_list, changes, frame)
        for e in range(experts):
            at = np.uint64(plan.active[e * blocks + block, 0]) * width
            gather(squares, at, lists, listed, n, dense, s, np.uint64(e) * stride)
        known, heard = NOTHING, (state.heard[block, 0], state.heard[block, 1])
        for t in range(step, end):
            first, last = np.uint64(steps[t]), np.uint64(steps[t + 1])
            count = last - first
            if bets is not None:
                in_play(bets, block, toss[t] if len(toss) > 0 else -1.0, held)
            mixed, weight = 0.0, 1.0
            for e in range(experts):
                slot = e * blocks + block
                low = np.uint64(e) * stride
                at = np.uint64(plan.active[slot, 0]) * width if dense else low
                here, tilt, weight = score_minibatch(
                    cells_of, w, at, at + length - one, (first, last), (plan.loss, plan.level), buffers
                )
                losses[e] = here / count
                mixed += held[e] * here
                mass[e] += held[e] * weight
                moved = zero
                for r in range(first, last):
                    push = slope[r - first]
                    for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
                        j = np.uint64(columns[p])
                        # Written whether new or not: a branch would be mispredicted, which costs more.
                        touched[moved] = j
                        moved += np.uint64(seen[j] == 0)
                        seen[j] = 1
                        gradient[j] += push * values[p]
                if plan.intercept > 0:
                    gradient[length - one] = tilt
                    touched[moved] = length - one
                    moved += one
                chain = plan.chain[slot]
                rate, box = kind(plan.eta[chain]), kind(plan.box[chain])
                gain, until = kind(plan.emphasis[slot] / count), kind(mass[e])
                for k in range(moved):
                    j = np.uint64(touched[k])
                    # Divided once, after the sum: slopes that cancel must leave exactly 0.
                    g = gain * gradient[j]
                    seen[j] = 0
                    gradient[j] = 0.0
                    square = s[at + j] + g * g
                    s[at + j] = square
                    if square > 0.0:
                        before = w[at + j]
                        after = min(max(before - rate * g / np.sqrt(square), -box), box)
                        w[at + j] = after
                        if several:
                            sums[low + j] += until * (after - before)
            if bets is not None:
                learn_losses(bets, block, losses)
            known = add_step(known, heard, weight, mixed, count)
        means = (record, end - step, several, False, sums, length, mass)
        close_visit(plan, state, records, bets, vectors, w, column_list, frame, means)
        for e in range(experts):
            at = np.uint64(plan.active[e * blocks + block, 0]) * width
            scatter(squares, at, lists, listed, n, dense, s, np.uint64(e) * stride)
        close_record(layout, records, state, record, visit, known)
        used, record, step = used + experts * size, record + 1, end
        visit += step == visits[visit + 1]
    return step, record, used
