"""SGD with one vector per block and one score per row, for one chain or several hedged ones."""

from typing import Any

import numpy as np

from semicyclic.jit import loop
from semicyclic.method.arrays import ChainState, Layout, Plan, Records
from semicyclic.method.kernels.hedge import in_play, learn_losses
from semicyclic.method.kernels.visit import (
    NOTHING,
    SUMS_PER_CELL,
    Workspace,
    add_step,
    close_record,
    close_visit,
    make_workspace,
    open_visit,
    score_minibatch,
)


def run_sgd(
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
    return _run(layout, plan, state, records, hedge_state, toss, span, room)


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
) -> Any:
    columns, values, starts = layout.columns, layout.values, layout.starts
    steps, visits, dense = layout.steps, layout.visits, layout.dense
    w, sums, slope, held, losses, mass = room.w, room.sums, room.slope, room.held, room.losses, room.mass
    most, experts = records.weight.shape
    blocks = len(plan.chain) // experts
    kind = state.vectors.dtype.type
    width, one, visit = np.uint64(state.vectors.shape[1]), np.uint64(1), room.visit
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
        cells = starts[steps[end]] - starts[steps[step]]
        summing = several and np.int64(length) * (end - step) <= SUMS_PER_CELL * cells
        frame = (block, blocks, experts, listed, n, used, size)
        open_visit(layout, plan, state, room, records.changes, frame)
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
                gain = kind(-plan.eta[plan.chain[slot]] * plan.slot_weight[slot] / count)
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
                        # Cut out here, or the loop would not vectorize.
                        whole = sums[np.int64(low) : np.int64(low + length)]
                        iterate = w[np.int64(at) : np.int64(at + length)]
                        for k in range(len(whole)):
                            whole[k] += part * iterate[k]
                    for r in range(first, last):
                        move = slope[r - first]
                        for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
                            w[at + np.uint64(columns[p])] += move * values[p]
                w[bias] += turn
            if hedge_state is not None:
                learn_losses(hedge_state, block, losses)
            known = add_step(known, heard, weight, mixed, count)
        means = (record, end - step, summing, length)
        close_visit(layout, plan, state, records, hedge_state, room, frame, means)
        close_record(layout, records, state, record, visit, known)
        used, record, step = used + experts * size, record + 1, end
        visit += step == visits[visit + 1]
    return step, record, used
