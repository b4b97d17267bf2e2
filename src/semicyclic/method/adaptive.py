"""Compiled: adaptive steps with one vector in force and one score a row; otherwise as `lifted`."""

from typing import Any

import numpy as np

from semicyclic.method.jit import inline, jit
from semicyclic.method.line import score_rows
from semicyclic.method.record import Layout, Page, Plan, State
from semicyclic.method.slopes import slopes
from semicyclic.method.visit import close_record, longest_step, note_loss, open_record


@inline
def _weigh(layout: Layout, first: Any, count: Any, slope: Any, to: Any, value: Any) -> Any:
    """Multiply slopes and losses by the rows' weights, if they have any: the mean weight."""
    if len(layout.weights) == 0:
        return 1.0
    total = 0.0
    for r in range(np.uint64(count)):
        share = layout.weights[np.uint64(first) + r]
        slope[to + r] *= share
        value[r] *= share
        total += share
    return total / count


@inline
def _gather(layout: Layout, first: Any, last: Any, slope: Any, to: Any, gradient: Any, marks: Any) -> Any:
    """Sum up the gradient of a minibatch; how many columns it has."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    seen, touched = marks
    count = np.uint64(0)
    for r in range(first, last):
        c = slope[to + np.uint64(r - first)]
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            j = np.uint64(columns[p])
            if seen[j] == 0:
                seen[j] = 1
                touched[count] = j
                count += np.uint64(1)
            gradient[j] += c * values[p]
    return count


@jit
def run_adaptive(layout: Layout, plan: Plan, state: State, page: Page, scratch: Any, span: Any) -> Any:
    """AdaGrad with one vector in force a block: the single chain, or separate chains."""
    sums, lag, _running, _weight = scratch
    kind = state.vectors.dtype.type
    width = np.uint64(state.vectors.shape[1])
    zero, one = np.uint64(0), np.uint64(1)
    longest = longest_step(layout, span)
    score = np.empty(longest, state.vectors.dtype)
    value = np.empty(longest, state.vectors.dtype)
    tracing = len(page.mean) == 0
    slope = page.slope.ravel() if tracing else np.empty(longest, state.vectors.dtype)
    behind = lag.ravel()
    gradient = np.zeros(width, state.vectors.dtype)
    marks = np.zeros(width, np.uint8), np.empty(width, np.uint32)
    seen, touched = marks
    start_row = layout.steps[span[0]]
    step = span[0]
    visit = np.searchsorted(layout.visits, step, side="right") - 1
    record = 0
    while step < span[1] and record < len(page.weight):
        block = layout.block[visit]
        end = min(layout.visits[visit + 1], span[1])
        chain = plan.chain[block]
        w = state.vectors[plan.active[block, 0]].ravel()
        squares = state.squares[plan.active[block, 0]].ravel()
        rate, box = kind(plan.eta[chain]), kind(plan.box[chain])
        open_record(page, record, visit)
        mass = 0.0
        for t in range(step, end):
            first, last = layout.steps[t], layout.steps[t + 1]
            count = last - first
            to = np.uint64(first - start_row if tracing else 0)
            score_rows(layout, (w, zero), first, last, w[width - one], (score, zero))
            slopes(plan.loss, plan.level, count, (score, 0), (layout.targets, first), (slope, to), value)
            weight = _weigh(layout, first, count, slope, to, value)
            here = 0.0
            tilt = kind(0.0)
            for r in range(np.uint64(count)):
                here += value[r]
                tilt += slope[to + r]
            page.loss[record] += here
            page.rows[record] += weight * count
            note_loss(state, page, record, block, here / count)
            mass += weight
            gain = plan.emphasis[block] / count
            if tracing:
                page.gain[t - span[0]] = gain
                page.until[t - span[0]] = mass
                page.record[t - span[0]] = record
            held = _gather(layout, first, last, slope, to, gradient, marks)
            if plan.intercept > 0:
                gradient[width - one] = tilt
                touched[held] = width - one
                held += one
            share, until = kind(gain), kind(0.0 if tracing else mass)
            for k in range(held):
                j = np.uint64(touched[k])
                # Divided once, after the sum: slopes that cancel must leave exactly nothing.
                g = share * gradient[j]
                seen[j] = 0
                gradient[j] = kind(0.0)
                total = squares[j] + g * g
                squares[j] = total
                if total > kind(0.0):
                    before = w[j]
                    after = min(max(before - rate * g / np.sqrt(total), -box), box)
                    w[j] = after
                    behind[j] += until * (after - before)
            state.steps[chain] += 1
        page.weight[record] = mass
        page.mass[record] = mass
        page.scale[record] = 1.0
        close_record(plan, state, page, sums, lag, record, block)
        record += 1
        step = end
        visit += step == layout.visits[visit + 1]
    return step, record
