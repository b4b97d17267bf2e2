"""Compiled: the chain in a lifted space, any basis and rule, any number of scores a row."""

from typing import Any

import numpy as np

from semicyclic.method.jit import jit
from semicyclic.method.loss import SOFTMAX
from semicyclic.method.record import Layout, Page, Plan, State
from semicyclic.method.slopes import slopes, softmax_slopes
from semicyclic.method.step import ADAGRAD, DUAL, SGD
from semicyclic.method.visit import close_record, longest_step, note_loss, open_record

# w = scale * v: below this the scale is folded into v, or v and the lag would grow apart
# and cancel digits in their difference.
FOLD = 0.1


@jit
def _score_any(layout: Layout, plan: Plan, state: State, block: Any, rows: Any, score: Any) -> Any:
    held = plan.active[block]
    scale = state.scale[plan.chain[block]]
    width = state.vectors.shape[1]
    for r in range(rows[0], rows[1]):
        for c in range(score.shape[1]):
            total = score.dtype.type(0.0)
            for a in range(len(held)):
                if held[a] >= 0:
                    v = state.vectors[held[a]]
                    dot = v[width - 1, c]
                    for p in range(layout.starts[r], layout.starts[r + 1]):
                        dot += v[layout.columns[p], c] * layout.values[p]
                    total += score.dtype.type(plan.coefficient[block, a]) * dot
            score[r - rows[0], c] = score.dtype.type(scale) * total


@jit
def _add(plan: Plan, state: State, lag: Any, block: Any, cell: Any, change: Any, mass: Any) -> Any:
    """Move every vector in force by c_a times `change` in one cell; the norm's growth."""
    j, c = cell
    grown = 0.0
    moved = change * 0
    for a in range(plan.active.shape[1]):
        vector = plan.active[block, a]
        if vector >= 0:
            factor = state.vectors.dtype.type(plan.coefficient[block, a])
            before = state.vectors[vector, j, c]
            after = before + factor * change
            state.vectors[vector, j, c] = after
            moved += factor * (after - before)
            # new^2 - old^2 of the rounded numbers: the norm does not drift from the vectors.
            grown += (np.float64(after) - np.float64(before)) * (np.float64(after) + np.float64(before))
    if mass != 0:
        lag[j, c] += mass * moved
    return grown


@jit
def _move_any(
    layout: Layout,
    plan: Plan,
    state: State,
    lag: Any,
    block: Any,
    rows: Any,
    slope: Any,
    mass: Any,
    gain: Any,
) -> Any:
    """v += gain * gradient, in unscaled terms; the norm is kept up to date."""
    kind = state.vectors.dtype.type
    chain = plan.chain[block]
    width = state.vectors.shape[1]
    grown = 0.0
    for c in range(state.vectors.shape[2]):
        bias = 0.0
        for r in range(rows[0], rows[1]):
            move = gain * slope[r - rows[0], c]
            bias += move
            for p in range(layout.starts[r], layout.starts[r + 1]):
                cell = (np.int64(layout.columns[p]), c)
                grown += _add(plan, state, lag, block, cell, move * layout.values[p], mass)
        if plan.intercept > 0:
            grown += _add(plan, state, lag, block, (np.int64(width - 1), c), kind(bias), mass)
    state.norm[chain] += grown


@jit
def _move_adagrad(
    layout: Layout,
    plan: Plan,
    state: State,
    lag: Any,
    block: Any,
    rows: Any,
    slope: Any,
    mass: Any,
    share: Any,
    gradient: Any,
    touched: Any,
) -> Any:
    """Per-coordinate steps on the minibatch's gradient, clipped to the box."""
    kind = state.vectors.dtype.type
    width = state.vectors.shape[1]
    count = 0
    for r in range(rows[0], rows[1]):
        for p in range(layout.starts[r], layout.starts[r + 1]):
            j = layout.columns[p]
            if touched[width + j] == 0:
                touched[width + j] = 1
                touched[count] = j
                count += 1
            for c in range(slope.shape[1]):
                gradient[j, c] += slope[r - rows[0], c] * layout.values[p]
        if plan.intercept > 0:
            for c in range(slope.shape[1]):
                gradient[width - 1, c] += slope[r - rows[0], c]
    if plan.intercept > 0:
        touched[count] = width - 1
        count += 1
    rate = plan.eta[plan.chain[block]]
    box = kind(plan.box[plan.chain[block]])
    for k in range(count):
        j = touched[k]
        touched[width + j] = 0
        for c in range(slope.shape[1]):
            moved = kind(0.0)
            for a in range(plan.active.shape[1]):
                vector = plan.active[block, a]
                if vector < 0:
                    continue
                factor = kind(plan.coefficient[block, a])
                # Divided once, after the sum: slopes that cancel must leave exactly nothing.
                g = factor * (share * gradient[j, c])
                state.squares[vector, j, c] += g * g
                if state.squares[vector, j, c] == 0:
                    continue
                before = state.vectors[vector, j, c]
                after = before - kind(rate) * g / np.sqrt(state.squares[vector, j, c])
                after = min(max(after, -box), box)
                state.vectors[vector, j, c] = after
                moved += factor * (after - before)
            if mass != 0:
                lag[j, c] += mass * moved
            gradient[j, c] = 0


@jit
def _rescale(plan: Plan, state: State, chain: Any) -> Any:
    """After a step: the projection onto the ball, and the step of dual averaging."""
    state.steps[chain] += 1
    if plan.rule[chain] == DUAL:
        state.scale[chain] = plan.eta[chain] / np.sqrt(state.steps[chain] + 1.0)
    size = np.sqrt(max(state.norm[chain], 0.0)) * state.scale[chain]
    if size > plan.radius[chain]:
        state.scale[chain] *= plan.radius[chain] / size


@jit
def fold_scale(plan: Plan, state: State, chain: Any) -> Any:
    """Multiply the scale into the vectors of a chain; its norm is taken afresh."""
    scale = state.scale[chain]
    state.scale[chain] = 1.0
    state.norm[chain] = 0.0
    for vector in range(len(plan.owner)):
        if plan.owner[vector] == chain:
            cells = state.vectors[vector].ravel()
            for j in range(len(cells)):
                cells[j] *= state.vectors.dtype.type(scale)
                state.norm[chain] += np.float64(cells[j]) ** 2
    return scale


@jit
def sinks(plan: Plan, state: State, chain: Any) -> Any:
    """Whether projections have made the scale so small that it is time to fold it."""
    return plan.rule[chain] == SGD and state.scale[chain] < FOLD


@jit
def lifted_buffers(layout: Layout, plan: Plan, state: State, span: Any) -> Any:
    """Room for what a minibatch needs: scores, slopes, losses; for AdaGrad its gradient."""
    longest = longest_step(layout, span)
    _, width, outputs = state.vectors.shape
    adagrad = (plan.rule == ADAGRAD).any()
    score = np.empty((longest, outputs), state.vectors.dtype)
    slope = np.empty((longest, outputs), state.vectors.dtype)
    value = np.empty(longest, state.vectors.dtype)
    gradient = np.zeros((width if adagrad else 0, outputs), state.vectors.dtype)
    touched = np.zeros(2 * width if adagrad else 0, np.int64)
    return score, slope, value, gradient, touched


@jit
def lifted_step(
    layout: Layout,
    plan: Plan,
    state: State,
    page: Page,
    slot: Any,
    step: Any,
    share: Any,
    lag: Any,
    place: Any,
    buffers: Any,
) -> Any:
    """One step of any chain, counted for `share` of its weight; its loss.

    place: the record, and where in the page a trace of this step and of its rows goes.
    """
    record, to_step, to_row = place
    score, slope, value, gradient, touched = buffers
    kind = state.vectors.dtype.type
    chain = plan.chain[slot]
    rule = plan.rule[chain]
    rows = (layout.steps[step], layout.steps[step + 1])
    count = rows[1] - rows[0]
    _score_any(layout, plan, state, slot, rows, score)
    target = layout.targets[rows[0] : rows[1]]
    if plan.loss == SOFTMAX:
        softmax_slopes(score[:count], target, slope[:count], value[:count])
    else:
        slopes(plan.loss, plan.level, count, score[:, 0], 0, target, 0, slope[:, 0], 0, value)
    weight = 1.0
    if len(layout.weights) > 0:
        total = 0.0
        for r in range(count):
            value[r] *= layout.weights[rows[0] + r]
            total += layout.weights[rows[0] + r]
            for c in range(slope.shape[1]):
                slope[r, c] *= layout.weights[rows[0] + r]
        weight = total / count
    here = 0.0
    for r in range(count):
        here += value[r]
    page.loss[record] += share * here
    page.rows[record] += share * weight * count
    page.weight[record] += share * weight
    page.mass[record] += share * weight * state.scale[chain]
    tracing = len(page.mean) == 0
    # A trace needs no lag.
    until = kind(0.0 if tracing else page.mass[record])
    gain = plan.emphasis[slot] / count
    if rule != ADAGRAD:
        gain *= -(plan.eta[chain] / state.scale[chain] if rule == SGD else 1.0)
    if tracing:
        page.gain[to_step] = gain
        page.until[to_step] = page.mass[record]
        page.record[to_step] = record
        page.slope[to_row : to_row + count] = slope[:count]
    if rule == ADAGRAD:
        _move_adagrad(layout, plan, state, lag, slot, rows, slope, until, kind(gain), gradient, touched)
    else:
        _move_any(layout, plan, state, lag, slot, rows, slope, until, kind(gain))
    _rescale(plan, state, chain)
    return here / count


@jit
def run_lifted(layout: Layout, plan: Plan, state: State, page: Page, scratch: Any, span: Any) -> Any:
    """Any basis, any number of scores, any rule, with or without projection."""
    sums, lag, _running, _weight = scratch
    buffers = lifted_buffers(layout, plan, state, span)
    start_row = layout.steps[span[0]]
    step = span[0]
    visit = np.searchsorted(layout.visits, step, side="right") - 1
    record = 0
    while step < span[1] and record < len(page.weight):
        block = layout.block[visit]
        end = min(layout.visits[visit + 1], span[1])
        chain = plan.chain[block]
        open_record(page, record, visit)
        while step < end:
            place = (record, step - span[0], layout.steps[step] - start_row)
            loss = lifted_step(layout, plan, state, page, block, step, 1.0, lag, place, buffers)
            note_loss(state, page, record, block, loss)
            step += 1
            if sinks(plan, state, chain):
                break
        page.scale[record] = state.scale[chain]
        close_record(plan, state, page, sums, lag, record, block)
        if sinks(plan, state, chain):
            page.fold[record] = fold_scale(plan, state, chain)
        record += 1
        visit += step == layout.visits[visit + 1]
    return step, record
