"""AdaGrad with one vector per block and one score per row, for one chain or several hedged ones.

Differs from `sgd` in the update: a minibatch's gradient is summed first, then every column it touches takes
an adaptive step, clipped to the box.
"""

from typing import Any

import numpy as np

from semicyclic.jit import loop
from semicyclic.method.arrays import ChainState, Layout, Plan, Records
from semicyclic.method.kernels.hedge import in_play, learn_losses
from semicyclic.method.kernels.visit import (
    NOTHING,
    Workspace,
    add_step,
    close_record,
    close_visit,
    gather,
    make_workspace,
    open_visit,
    scatter,
    score_minibatch,
)


def run_adagrad(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    records: Records,
    hedge_state: Any,
    toss: Any,
    span: tuple[int, int],
) -> Any:
    """Run the steps span[0]..span[1]-1 or as many as there is room for; see `kernels.advance`."""
    room = make_workspace(layout, state, records.weight.shape[1], span)
    squares = state.squares.reshape(-1) if layout.dense else np.empty_like(room.w)
    gradient = np.zeros(room.stride, room.w.dtype)
    columns = np.zeros(room.stride, np.uint8), np.empty(room.stride + 2, np.uint32)
    return _run(layout, plan, state, records, hedge_state, toss, span, room, (squares, gradient, *columns))


@loop
def _run(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    records: Records,
    hedge_state: Any,
    toss: Any,
    span: Any,
    room: Workspace,
    adaptive: Any,
) -> Any:
    """adaptive: squares as `room.w`; gradient; whether a column is touched; the list of those that are."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    steps, visits, lists, dense = layout.steps, layout.visits, layout.lists, layout.dense
    w, sums, slope, held, losses, mass = room.w, room.sums, room.slope, room.held, room.losses, room.mass
    s, gradient, seen, touched = adaptive
    squares = state.squares.reshape(-1)
    most, experts = records.weight.shape
    blocks = len(plan.chain) // experts
    real = state.vectors.dtype.type
    width, zero, one = np.uint64(state.vectors.shape[1]), np.uint64(0), np.uint64(1)
    visit = room.visit
    used, record, step = np.int64(0), np.int64(0), span[0]
    while step < span[1] and record < most:
        block = layout.block[visit]
        end = min(visits[visit + 1], span[1])
        listed = np.uint64(layout.first[visit])
        n = np.uint64(layout.first[visit + 1]) - listed
        several = end - step > 1
        size = np.int64(n) * (2 if several else 1)
        if used + experts * size > len(records.changes):
            break
        length = width if dense else n
        frame = (block, blocks, experts, listed, n, used, size)
        open_visit(layout, plan, state, room, records.changes, frame)
        for e in range(experts):
            at = np.uint64(plan.active[e * blocks + block, 0]) * width
            gather(squares, at, lists, listed, n, dense, s, np.uint64(e * room.stride))
        known, heard = NOTHING, (state.block_losses[block, 0], state.block_losses[block, 1])
        for t in range(step, end):
            first, last = np.uint64(steps[t]), np.uint64(steps[t + 1])
            count = last - first
            if hedge_state is not None:
                in_play(hedge_state, block, toss[t] if len(toss) > 0 else -1.0, held)
            mixed, weight = 0.0, 1.0
            for e in range(experts):
                slot = e * blocks + block
                low = np.uint64(e * room.stride)
                at = np.uint64(plan.active[slot, 0]) * width if dense else low
                bias = at + length - one
                here, tilt, weight = score_minibatch(layout, plan, room, at, bias, (first, last))
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
                rate, box = real(plan.eta[chain]), real(plan.box[chain])
                gain, until = real(plan.slot_weight[slot] / count), real(mass[e])
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
            if hedge_state is not None:
                learn_losses(hedge_state, block, losses)
            known = add_step(known, heard, weight, mixed, count)
        means = (record, end - step, False, length)
        close_visit(layout, plan, state, records, hedge_state, room, frame, means)
        for e in range(experts):
            at = np.uint64(plan.active[e * blocks + block, 0]) * width
            scatter(squares, at, lists, listed, n, dense, s, np.uint64(e * room.stride))
        close_record(layout, records, state, record, visit, known)
        used, record, step = used + experts * size, record + 1, end
        visit += step == visits[visit + 1]
    return step, record, used
