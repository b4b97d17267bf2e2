"""One step of the general loop: moves of the vectors, their scale, projection and L2 penalty.

Vectors are changed in place. `lag` collects what the mean of a visit's iterates lacks (see `general._close`).
"""

from typing import Any

import numpy as np

from semicyclic.jit import loop
from semicyclic.method.arrays import ChainState, Layout, Plan
from semicyclic.method.step import ADAGRAD, DUAL, SGD

# w = scale * v. Below this the scale is folded into v, or v and the lag would grow apart from w and their
# difference lose digits.
FOLD = 0.1


@loop
def column_of(layout: Layout, columns: Any, p: Any) -> Any:
    """The column of cell p, given the list of its visit."""
    return np.int64(layout.columns[p]) if layout.dense else np.int64(columns[layout.columns[p]])


@loop
def move(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    lag: Any,
    slot: Any,
    step: Any,
    columns: Any,
    mass: Any,
    buffers: Any,
) -> Any:
    """Move the active vectors along the minibatch's gradient."""
    _, slope, _, gradient, touched = buffers
    chain = plan.chain[slot]
    rows = (layout.steps[step], layout.steps[step + 1])
    gain = plan.slot_weight[slot] / (rows[1] - rows[0])
    if plan.rule[chain] == ADAGRAD:
        share = lag.dtype.type(gain)
        _move_adagrad(layout, plan, state, lag, slot, rows, columns, slope, mass, share, gradient, touched)
        return
    # Unscaled: v moves by eta / scale, so that w = scale * v moves by eta; dual averaging sums gradients.
    gain *= -(plan.eta[chain] / state.scale[chain] if plan.rule[chain] == SGD else 1.0)
    grown = 0.0
    for c in range(state.vectors.shape[2]):
        bias = 0.0
        for r in range(rows[0], rows[1]):
            move = lag.dtype.type(gain) * slope[r - rows[0], c]
            bias += move
            for p in range(layout.starts[r], layout.starts[r + 1]):
                cell = (column_of(layout, columns, p), c)
                grown += _add(plan, state, lag, slot, cell, move * layout.values[p], mass)
        if plan.intercept > 0:
            cell = (np.int64(state.vectors.shape[1] - 1), c)
            grown += _add(plan, state, lag, slot, cell, lag.dtype.type(bias), mass)
    state.norm[chain] += grown


@loop
def _add(plan: Plan, state: ChainState, lag: Any, slot: Any, cell: Any, change: Any, mass: Any) -> Any:
    """Move every active vector by c_a times `change` in one cell; the growth of the squared norm."""
    j, c = cell
    grown = 0.0
    moved = change * 0
    for a in range(plan.active.shape[1]):
        vector = plan.active[slot, a]
        if vector >= 0:
            factor = lag.dtype.type(plan.coefficient[slot, a])
            before = state.vectors[vector, j, c]
            after = before + factor * change
            state.vectors[vector, j, c] = after
            moved += factor * (after - before)
            # new^2 - old^2 of the rounded numbers: the norm does not drift from the vectors.
            grown += (np.float64(after) - np.float64(before)) * (np.float64(after) + np.float64(before))
    lag[j, c] += mass * moved
    return grown


@loop
def shrink(plan: Plan, state: ChainState, lag: Any, slot: Any, mass: Any) -> Any:
    """Of constant steps with an L2 penalty: multiply the chain's weights by 1 - eta lambda, by their scale.

    The intercept has no penalty, so it is divided by what the scale is multiplied by.
    """
    chain = plan.chain[slot]
    if plan.l2[chain] == 0.0 or plan.rule[chain] != SGD:
        return
    keep = 1.0 - plan.eta[chain] * plan.l2[chain]
    state.scale[chain] *= keep
    if plan.intercept > 0:
        intercept = state.vectors.shape[1] - 1
        vector = plan.active[slot, 0]
        for c in range(state.vectors.shape[2]):
            before = state.vectors[vector, intercept, c]
            after = lag.dtype.type(before / keep)
            state.vectors[vector, intercept, c] = after
            lag[intercept, c] += mass * lag.dtype.type(plan.coefficient[slot, 0]) * (after - before)
            state.norm[chain] += np.float64(after) ** 2 - np.float64(before) ** 2


@loop
def _move_adagrad(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    lag: Any,
    slot: Any,
    rows: Any,
    columns: Any,
    slope: Any,
    mass: Any,
    share: Any,
    gradient: Any,
    touched: Any,
) -> Any:
    """Per-coordinate steps on the minibatch's gradient, clipped to the box."""
    real = lag.dtype.type
    width = state.vectors.shape[1]
    count = 0
    for r in range(rows[0], rows[1]):
        for p in range(layout.starts[r], layout.starts[r + 1]):
            j = column_of(layout, columns, p)
            if touched[width + j] == 0:
                touched[width + j] = 1
                touched[count] = j
                count += 1
            for c in range(slope.shape[1]):
                gradient[j, c] += slope[r - rows[0], c] * layout.values[p]
        if plan.intercept > 0:
            for c in range(slope.shape[1]):
                gradient[width - 1, c] += slope[r - rows[0], c]
    penalty = real(plan.l2[plan.chain[slot]])
    if plan.intercept > 0:
        touched[count] = width - 1
        count += 1
    rate = real(plan.eta[plan.chain[slot]])
    box = real(plan.box[plan.chain[slot]])
    for k in range(count):
        j = touched[k]
        touched[width + j] = 0
        for c in range(slope.shape[1]):
            moved = real(0.0)
            for a in range(plan.active.shape[1]):
                vector = plan.active[slot, a]
                if vector < 0:
                    continue
                factor = real(plan.coefficient[slot, a])
                # Divided once, after the sum: slopes that cancel must leave exactly 0.
                g = factor * (share * gradient[j, c])
                if penalty > 0.0 and j < width - 1:
                    g += penalty * state.vectors[vector, j, c]
                state.squares[vector, j, c] += g * g
                if state.squares[vector, j, c] == 0:
                    continue
                before = state.vectors[vector, j, c]
                after = before - rate * g / np.sqrt(state.squares[vector, j, c])
                after = min(max(after, -box), box)
                state.vectors[vector, j, c] = after
                moved += factor * (after - before)
            lag[j, c] += mass * moved
            gradient[j, c] = 0


@loop
def rescale(plan: Plan, state: ChainState, chain: Any) -> Any:
    """After a step: the projection onto the ball, and the step size of dual averaging."""
    state.steps[chain] += 1
    if plan.rule[chain] == DUAL:
        state.scale[chain] = plan.eta[chain] / np.sqrt(state.steps[chain] + 1.0)
    size = np.sqrt(max(state.norm[chain], 0.0)) * state.scale[chain]
    if size > plan.radius[chain]:
        state.scale[chain] *= plan.radius[chain] / size


@loop
def sinks(plan: Plan, state: ChainState, chain: Any) -> Any:
    """Whether projections have made the scale so small that it must be multiplied into the vectors."""
    return plan.rule[chain] == SGD and state.scale[chain] < FOLD


@loop
def fold(plan: Plan, state: ChainState, chain: Any) -> Any:
    """Multiply the scale into the vectors of a chain and recompute its norm; return the old scale."""
    scale = state.scale[chain]
    state.scale[chain] = 1.0
    state.norm[chain] = 0.0
    for vector in range(len(plan.owner)):
        if plan.owner[vector] == chain:
            for j in range(state.vectors.shape[1]):
                for c in range(state.vectors.shape[2]):
                    state.vectors[vector, j, c] *= state.vectors.dtype.type(scale)
                    state.norm[chain] += np.float64(state.vectors[vector, j, c]) ** 2
    return scale
