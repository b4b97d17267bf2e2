"""Compiled: the chain with one vector in force and one score a row, as fast as C."""

from typing import Any

import numpy as np

from semicyclic.method.jit import inline, jit
from semicyclic.method.record import Layout, Page, Plan, State
from semicyclic.method.slopes import slopes
from semicyclic.method.visit import close_record, longest_step, merge_running, note_loss, open_record

# Weights are given as (array, place of the first): whole arrays and where to look, since cutting
# slices for every minibatch would cost a good part of it.


@inline
def score_rows(layout: Layout, weights: Any, first: Any, last: Any, start: Any, scores: Any) -> Any:
    """score[r] = start + <w, x_r>."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    w, at = weights
    score, to = scores
    for r in range(first, last):
        total = start
        # Unsigned, or every index would first be tested for being negative.
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            total += w[at + np.uint64(columns[p])] * values[p]
        score[to + np.uint64(r - first)] = total


@inline
def move_rows(layout: Layout, weights: Any, first: Any, last: Any, move: Any, to: Any) -> Any:
    """w += c_r x_r for every row r."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    w, at = weights
    for r in range(first, last):
        c = move[to + np.uint64(r - first)]
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            w[at + np.uint64(columns[p])] += c * values[p]


@inline
def move_rows_lagging(
    layout: Layout, weights: Any, lag: Any, first: Any, last: Any, move: Any, to: Any, until: Any
) -> Any:
    """w += c_r x_r, and lag += until c_r x_r, for every row r."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    w, at = weights
    behind, lag_at = lag
    for r in range(first, last):
        c = move[to + np.uint64(r - first)]
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            j = np.uint64(columns[p])
            change = c * values[p]
            w[at + j] += change
            behind[lag_at + j] += until * change


@inline
def slopes_of(
    layout: Layout, plan: Plan, first: Any, count: Any, eta: Any, scores: Any, value: Any, results: Any
) -> Any:
    """The slopes of a minibatch that was scored, times their gain -eta / count.

    Returns the sum of its losses, its weight, and what the intercept is to be moved by.
    """
    slope, to = results
    slopes(plan.loss, plan.level, count, scores[0], scores[1], layout.targets, first, slope, to, value)
    weight = 1.0
    if len(layout.weights) > 0:
        total = 0.0
        for r in range(np.uint64(count)):
            share = layout.weights[np.uint64(first) + r]
            slope[to + r] *= share
            value[r] *= share
            total += share
        weight = total / count
    # In one loop, since each sum waits for its last addition.
    gain = value.dtype.type(eta / count)
    here = 0.0
    tilt = 0.0
    for r in range(np.uint64(count)):
        here += value[r]
        slope[to + r] *= gain
        tilt += slope[to + r]
    return here, weight, value.dtype.type(tilt * plan.intercept)


@jit
def run_line(layout: Layout, plan: Plan, state: State, page: Page, scratch: Any, span: Any) -> Any:
    """Plain SGD with one vector in force a block: the single chain, or separate chains."""
    sums, lag, running, running_weight = scratch
    kind = state.vectors.dtype.type
    width = state.vectors.shape[1]
    zero = np.uint64(0)
    longest = longest_step(layout, span)
    score = np.empty(longest, state.vectors.dtype)
    value = np.empty(longest, state.vectors.dtype)
    tracing = len(page.mean) == 0
    slope = page.slope.ravel() if tracing else np.empty(longest, state.vectors.dtype)
    behind = lag.ravel()
    start_row = layout.steps[span[0]]
    step = span[0]
    visit = np.searchsorted(layout.visits, step, side="right") - 1
    record = 0
    while step < span[1] and record < len(page.weight):
        block = layout.block[visit]
        end = min(layout.visits[visit + 1], span[1])
        chain = plan.chain[block]
        w = state.vectors[plan.active[block, 0]].ravel()
        eta = -plan.eta[chain] * plan.emphasis[block]
        open_record(page, record, visit)
        alone = len(running) > 0 and end - step == 1
        mass = 0.0
        first = layout.steps[step]
        for t in range(step, end):
            last = layout.steps[t + 1]
            count = last - first
            to = np.uint64(first - start_row if tracing else 0)
            score_rows(layout, (w, zero), first, last, w[width - 1], (score, zero))
            here, weight, bias = slopes_of(layout, plan, first, count, eta, (score, 0), value, (slope, to))
            page.loss[record] += here
            note_loss(state, page, record, block, here / count)
            page.rows[record] += weight * count
            mass += weight
            if tracing:
                # The slopes are kept with the gain in them already.
                page.gain[t - span[0]] = 1.0
                page.until[t - span[0]] = mass
                page.record[t - span[0]] = record
            if len(sums) > 0:
                if alone:
                    merge_running(running[block].ravel(), running_weight[block], weight, w, weight)
                else:
                    for j in range(width):
                        sums[j] += weight * w[j]
                move_rows(layout, (w, zero), first, last, slope, to)
            elif tracing:
                move_rows(layout, (w, zero), first, last, slope, to)
            else:
                move_rows_lagging(layout, (w, zero), (behind, zero), first, last, slope, to, kind(mass))
                behind[width - 1] += kind(mass) * bias
            w[width - 1] += bias
            first = last
        state.steps[chain] += end - step
        page.weight[record] = mass
        page.mass[record] = mass
        page.scale[record] = 1.0
        if len(running) > 0:
            if not alone:
                merge_running(running[block].ravel(), running_weight[block], mass, sums, 1.0)
                sums[:] = 0.0
            running_weight[block] += mass
        close_record(plan, state, page, sums, lag, record, block)
        record += 1
        step = end
        visit += step == layout.visits[visit + 1]
    return step, record
