"""General loop: any basis, step rule and number of scores per row, with projection.

Slower than `sgd` and `adagrad`, which cover the most common cases. Vectors are changed in place.
"""

from typing import Any

import numpy as np

from semicyclic.jit import loop
from semicyclic.method.arrays import ChainState, Layout, Plan, Records
from semicyclic.method.kernels.general_step import column_of, fold, move, rescale, shrink, sinks
from semicyclic.method.kernels.hedge import in_play, learn_losses
from semicyclic.method.kernels.losses import slopes, softmax_slopes
from semicyclic.method.kernels.visit import NOTHING, add_step, close_record, longest_step
from semicyclic.method.loss import SOFTMAX
from semicyclic.method.step import ADAGRAD


def run_general(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    records: Records,
    hedge_state: Any,
    toss: Any,
    span: tuple[int, int],
) -> Any:
    """Run the steps span[0]..span[1]-1 or as many as there is room for; see `kernels.advance`."""
    experts, (_, width, outputs), dtype = records.weight.shape[1], state.vectors.shape, state.vectors.dtype
    longest = longest_step(layout, span)
    score, slope = np.empty((2, longest, outputs), dtype)
    adaptive = width if (plan.rule == ADAGRAD).any() else 0
    gradient, touched = np.zeros((adaptive, outputs), dtype), np.zeros(2 * adaptive, np.int64)
    buffers = (score, slope, np.empty(longest, dtype), gradient, touched)
    lag = np.zeros((experts, width, outputs), dtype)
    by_expert = np.ones(experts), np.zeros(experts)
    visit = int(np.searchsorted(layout.visits, span[0], side="right")) - 1
    return _run(layout, plan, state, records, hedge_state, toss, (*span, visit), buffers, lag, by_expert)


@loop
def _run(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    records: Records,
    hedge_state: Any,
    toss: Any,
    span: Any,
    buffers: Any,
    lag: Any,
    by_expert: Any,
) -> Any:
    room, experts = records.weight.shape
    blocks = len(plan.chain) // experts
    outputs = state.vectors.shape[2]
    held, losses = by_expert
    used = np.int64(0)
    record = np.int64(0)
    step, visit = span[0], span[2]
    while step < span[1] and record < room:
        block = layout.block[visit]
        begin, end = step, min(layout.visits[visit + 1], span[1])
        listed, n = layout.first[visit], layout.first[visit + 1] - layout.first[visit]
        need = np.int64(0)
        for e in range(experts):
            need += n * outputs * (_vectors(plan, e * blocks + block) + (end - step > 1))
        if used + need > len(records.changes):
            break
        columns = layout.lists[listed : listed + n]
        for e in range(experts):
            slot = e * blocks + block
            records.begin[record, e] = used
            records.weight[record, e] = 0.0
            records.mass[record, e] = 0.0
            used = _open(plan, state, slot, columns, records.changes, used)
            # Whether the mean is kept is known at the end: a fold may end the record after one step.
            used += n * outputs * (end - step > 1)
        known, heard = NOTHING, (state.block_losses[block, 0], state.block_losses[block, 1])
        folding = False
        while step < end and not folding:
            if hedge_state is not None:
                in_play(hedge_state, block, toss[step] if len(toss) > 0 else -1.0, held)
            count = layout.steps[step + 1] - layout.steps[step]
            mixed, weight = 0.0, 1.0
            for e in range(experts):
                slot = e * blocks + block
                chain = plan.chain[slot]
                losses[e], weight = _gradient(layout, plan, state, slot, step, columns, buffers)
                records.weight[record, e] += held[e] * weight
                records.mass[record, e] += held[e] * weight * state.scale[chain]
                mixed += held[e] * losses[e]
                until = lag.dtype.type(records.mass[record, e])
                shrink(plan, state, lag[e], slot, until)
                move(layout, plan, state, lag[e], slot, step, columns, until, buffers)
                rescale(plan, state, chain)
                folding |= sinks(plan, state, chain)
            if hedge_state is not None:
                learn_losses(hedge_state, block, losses)
            known = add_step(known, heard, weight, mixed * count, count)
            step += 1
        # The records of all experts end together, so that those of one visit belong together.
        for e in range(experts):
            slot = e * blocks + block
            chain = plan.chain[slot]
            _close(plan, state, records, lag[e], (record, e), slot, columns, step - begin > 1)
            records.scale[record, e] = state.scale[chain]
            records.fold[record, e] = 1.0
            records.probability[record, e] = 1.0
            if hedge_state is not None:
                records.probability[record, e] = hedge_state.share[block, e]
            if sinks(plan, state, chain):
                records.fold[record, e] = fold(plan, state, chain)
        close_record(layout, records, state, record, visit, known)
        record += 1
        visit += step == layout.visits[visit + 1]
    return step, record, used


@loop
def _vectors(plan: Plan, slot: Any) -> Any:
    """The number of active vectors."""
    count = np.int64(0)
    for a in range(plan.active.shape[1]):
        count += plan.active[slot, a] >= 0
    return count


@loop
def _open(plan: Plan, state: ChainState, slot: Any, columns: Any, changes: Any, to: Any) -> Any:
    """Keep the active vectors before the visit where their changes will be; where these end."""
    for a in range(plan.active.shape[1]):
        vector = plan.active[slot, a]
        if vector >= 0:
            for k in range(len(columns)):
                for c in range(state.vectors.shape[2]):
                    changes[to] = state.vectors[vector, columns[k], c]
                    to += 1
    return to


@loop
def _close(
    plan: Plan,
    state: ChainState,
    records: Records,
    lag: Any,
    place: Any,
    slot: Any,
    columns: Any,
    several: Any,
) -> Any:
    """Write V_after - V_before and, of several steps, the mean minus (mass / weight) sum_a c_a V_before.

    The mean is (mass * sum_a c_a V_after - lag) / weight (see `visit.close_changes`).
    """
    changes, to = records.changes, records.begin[place]
    real, outputs = changes.dtype.type, state.vectors.shape[2]
    size = len(columns) * outputs
    mean = to + size * _vectors(plan, slot)
    weight = records.weight[place]
    whole, share = real(0.0), real(0.0)
    if weight > 0.0:
        whole, share = real(records.mass[place] / weight), real(1.0 / weight)
    for k in range(len(columns)):
        for c in range(outputs):
            if several:
                changes[mean + k * outputs + c] = -share * lag[columns[k], c]
            lag[columns[k], c] = 0.0
    for a in range(plan.active.shape[1]):
        vector = plan.active[slot, a]
        if vector >= 0:
            factor = whole * real(plan.coefficient[slot, a])
            for k in range(len(columns)):
                for c in range(outputs):
                    at = k * outputs + c
                    moved = state.vectors[vector, columns[k], c] - changes[to + at]
                    changes[to + at] = moved
                    if several:
                        changes[mean + at] += factor * moved
            to += size


@loop
def _gradient(
    layout: Layout, plan: Plan, state: ChainState, slot: Any, step: Any, columns: Any, buffers: Any
) -> Any:
    """The slopes of a minibatch, into its buffer; its loss and its weight."""
    score, slope, value, _, _ = buffers
    first, last = layout.steps[step], layout.steps[step + 1]
    count = last - first
    scale = score.dtype.type(state.scale[plan.chain[slot]])
    width = state.vectors.shape[1]
    for r in range(first, last):
        for c in range(score.shape[1]):
            total = score.dtype.type(0.0)
            for a in range(plan.active.shape[1]):
                vector = plan.active[slot, a]
                if vector >= 0:
                    dot = state.vectors[vector, width - 1, c]
                    for p in range(layout.starts[r], layout.starts[r + 1]):
                        dot += state.vectors[vector, column_of(layout, columns, p), c] * layout.values[p]
                    total += score.dtype.type(plan.coefficient[slot, a]) * dot
            score[r - first, c] = scale * total
    target = layout.targets[first:last]
    if plan.loss == SOFTMAX:
        softmax_slopes(score[:count], target, slope[:count], value[:count])
    else:
        slopes(plan.loss, plan.level, count, score[:, 0], 0, target, 0, slope[:, 0], 0, value)
    weight = 1.0
    if len(layout.weights) > 0:
        total_weight = 0.0
        for r in range(count):
            share = layout.weights[first + r]
            value[r] *= share
            total_weight += share
            for c in range(slope.shape[1]):
                slope[r, c] *= share
        weight = total_weight / count
    here = 0.0
    for r in range(count):
        here += value[r]
    return here / count, weight
