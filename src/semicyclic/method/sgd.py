"""Compiled: plain SGD with one vector per block and one score per row, for one or several hedged chains."""

from typing import Any

import numpy as np

from semicyclic.method.arrays import Layout, Plan, Records, State
from semicyclic.method.jit import jit
from semicyclic.method.settle import in_play, learn_losses
from semicyclic.method.visit import (
    NOTHING,
    SUMS_PER_CELL,
    add_step,
    close_record,
    close_visit,
    longest_list,
    longest_step,
    open_visit,
    score_minibatch,
)


@jit
def run_sgd(
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
    vectors = state.vectors.ravel()
    width, one = np.uint64(state.vectors.shape[1]), np.uint64(1)
    longest = longest_step(layout, span)
    slope = np.empty(longest, state.vectors.dtype)
    buffers = (np.empty_like(slope), slope, np.empty_like(slope))
    stride = width if dense else np.uint64(longest_list(layout, span))
    sums = np.zeros(np.int64(stride) * experts, state.vectors.dtype)
    w = vectors if dense else np.empty(np.int64(stride) * experts, state.vectors.dtype)
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
        cells = starts[steps[end]] - starts[steps[step]]
        summing = several and np.int64(length) * (end - step) <= SUMS_PER_CELL * cells
        column_list = (lists, listed, n, dense)
        frame = (block, blocks, experts, width, stride, used, size)
        open_visit(plan, vectors, w, column_list, changes, frame)
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
                bias = at + length - one
                here, tilt, weight = score_minibatch(
                    cells_of, w, at, bias, (first, last), (plan.loss, plan.level), buffers
                )
                losses[e] = here / count
                mixed += held[e] * here
                mass[e] += held[e] * weight
                gain = kind(-plan.eta[plan.chain[slot]] * plan.emphasis[slot] / count)
                for r in range(count):
                    slope[r] *= gain
                turn = kind(gain * tilt * plan.intercept)
                if several and not summing:
                    until = kind(mass[e])
                    for r in range(first, last):
                        move = slope[r - first]
                        for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
                            j = np.uint64(columns[p])
                            change = move * values[p]
                            w[at + j] += change
                            sums[low + j] += until * change
                    sums[low + length - one] += until * turn
                else:
                    if summing and held[e] > 0.0:
                        part = kind(held[e] * weight)
                        # Cut out here, or the loop would not vectorise.
                        whole = sums[np.int64(low) : np.int64(low + length)]
                        iterate = w[np.int64(at) : np.int64(at + length)]
                        for k in range(len(whole)):
                            whole[k] += part * iterate[k]
                    for r in range(first, last):
                        move = slope[r - first]
                        for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
                            w[at + np.uint64(columns[p])] += move * values[p]
                w[bias] += turn
            if bets is not None:
                learn_losses(bets, block, losses)
            known = add_step(known, heard, weight, mixed, count)
        means = (record, end - step, several, summing, sums, length, mass)
        close_visit(plan, state, records, bets, vectors, w, column_list, frame, means)
        close_record(layout, records, state, record, visit, known)
        used, record, step = used + experts * size, record + 1, end
        visit += step == visits[visit + 1]
    return step, record, used
