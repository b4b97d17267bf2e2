"""Compiled: adaptive steps with one vector in force and one score a row; otherwise as `lifted`.

One chain, or several abreast with a hedge between them. Whatever the loop over steps needs is cut out
before it: taking arrays out of tuples in every step would cost more than the step of a single row.
"""

from typing import Any

import numpy as np

from semicyclic.method.bets import Bets
from semicyclic.method.jit import jit
from semicyclic.method.record import Layout, Page, Plan, State
from semicyclic.method.settle import in_play, settle
from semicyclic.method.slopes import slopes
from semicyclic.method.visit import close_record, longest_step, note_loss, open_record


@jit
def run_adaptive(
    layout: Layout, plan: Plan, state: State, page: Page, bets: Bets, toss: Any, scratch: Any, span: Any
) -> Any:
    """AdaGrad with one vector in force a block: the single chain, separate chains, or a hedge of such.

    The page is as `hedged` has it. scratch: whether there is a hedge; sums [E, 0], lag [E, d+1, 1].
    """
    hedging, sums, lag = scratch
    columns, values, starts, targets = layout.columns, layout.values, layout.starts, layout.targets
    weights, steps = layout.weights, layout.steps
    vectors, squares, behind = state.vectors.ravel(), state.squares.ravel(), lag.ravel()
    losses_page, rows_page, weight_page = page.loss, page.rows, page.weight
    gain_page, until_page, record_page = page.gain, page.until, page.record
    code, level, intercept = plan.loss, plan.level, plan.intercept
    chain_of, active, emphasis, eta, boxes = plan.chain, plan.active, plan.emphasis, plan.eta, plan.box
    kind = state.vectors.dtype.type
    none, zero, one = kind(0.0), np.uint64(0), np.uint64(1)
    width = np.uint64(state.vectors.shape[1])
    experts = len(lag)
    blocks = len(chain_of) // experts
    room, per_step, per_row = (
        len(weight_page) // experts,
        len(gain_page) // experts,
        len(page.slope) // experts,
    )
    tracing = len(page.mean) == 0
    longest = longest_step(layout, span)
    score = np.empty(longest, state.vectors.dtype)
    value = np.empty(longest, state.vectors.dtype)
    slope = page.slope.ravel() if tracing else np.empty(longest, state.vectors.dtype)
    gradient = np.zeros(width, state.vectors.dtype)
    seen = np.zeros(width, np.uint8)
    touched = np.empty(width + np.uint64(2), np.uint32)
    held, losses = np.ones(experts), np.zeros(experts)
    start_row = steps[span[0]]
    step = span[0]
    visit = np.searchsorted(layout.visits, step, side="right") - 1
    record = 0
    while step < span[1] and record < room:
        block = layout.block[visit]
        end = min(layout.visits[visit + 1], span[1])
        for e in range(experts):
            open_record(page, e * room + record, visit)
        for t in range(step, end):
            first, last = np.uint64(steps[t]), np.uint64(steps[t + 1])
            count = last - first
            if hedging:
                in_play(bets, block, toss[t] if len(toss) > 0 else -1.0, held)
            for e in range(experts):
                slot, own = e * blocks + block, e * room + record
                at = np.uint64(active[slot, 0]) * width
                to = np.uint64(e * per_row + steps[t] - start_row) if tracing else zero
                for r in range(first, last):
                    total = vectors[at + width - one]
                    for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
                        total += vectors[at + np.uint64(columns[p])] * values[p]
                    score[r - first] = total
                slopes(code, level, count, score, zero, targets, first, slope, to, value)
                weight = 1.0
                if len(weights) > 0:
                    weight = 0.0
                    for r in range(count):
                        share = weights[first + r]
                        slope[to + r] *= share
                        value[r] *= share
                        weight += share
                    weight /= count
                here, tilt = 0.0, none
                for r in range(count):
                    here += value[r]
                    tilt += slope[to + r]
                losses[e] = here / count
                losses_page[own] += held[e] * here
                rows_page[own] += held[e] * weight * count
                weight_page[own] += held[e] * weight
                gain = emphasis[slot] / count
                if tracing:
                    gain_page[e * per_step + t - span[0]] = gain
                    until_page[e * per_step + t - span[0]] = weight_page[own]
                    record_page[e * per_step + t - span[0]] = own
                moved = zero
                for r in range(first, last):
                    push = slope[to + r - first]
                    for p in range(np.uint64(starts[r]), np.uint64(starts[r + one])):
                        j = np.uint64(columns[p])
                        # Written whether new or not: nobody can foretell, and a wrong guess costs more.
                        touched[moved] = j
                        moved += np.uint64(seen[j] == 0)
                        seen[j] = 1
                        gradient[j] += push * values[p]
                if intercept > 0:
                    gradient[width - one] = tilt
                    touched[moved] = width - one
                    moved += one
                chain = chain_of[slot]
                rate, box = kind(eta[chain]), kind(boxes[chain])
                part, until, lags = kind(gain), kind(weight_page[own]), np.uint64(e) * width
                for k in range(moved):
                    j = np.uint64(touched[k])
                    # Divided once, after the sum: slopes that cancel must leave exactly nothing.
                    g = part * gradient[j]
                    seen[j] = 0
                    gradient[j] = none
                    square = squares[at + j] + g * g
                    squares[at + j] = square
                    if square > none:
                        before = vectors[at + j]
                        after = min(max(before - rate * g / np.sqrt(square), -box), box)
                        vectors[at + j] = after
                        # A trace needs no lag.
                        if not tracing:
                            behind[lags + j] += until * (after - before)
            mixed = losses[0]
            if hedging:
                mixed = 0.0
                for e in range(experts):
                    mixed += held[e] * losses[e]
                settle(bets, block, losses)
            note_loss(state, page, record, block, mixed)
        for e in range(experts):
            own, slot = e * room + record, e * blocks + block
            state.steps[chain_of[slot]] += end - step
            page.mass[own] = weight_page[own]
            page.scale[own] = 1.0
            page.force[own] = bets.share[block, e] if hedging else 1.0
            close_record(plan, state, page, sums[e], lag[e], own, slot)
        record += 1
        step = end
        visit += step == layout.visits[visit + 1]
    return step, record
