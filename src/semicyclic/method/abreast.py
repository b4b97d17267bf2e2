"""Compiled: one step of several chains at once, all with one vector in force and one score a row.

Two chains abreast read the columns and values of a row once instead of twice.
"""

from typing import Any

import numpy as np

from semicyclic.method.jit import inline
from semicyclic.method.line import move_rows, move_rows_lagging, score_rows, slopes_of
from semicyclic.method.record import Layout, Page, Plan, State


@inline
def _score_two(layout: Layout, w: Any, places: Any, first: Any, last: Any, starts: Any, scores: Any) -> Any:
    """The scores of two chains, whose weights begin at places[0] and places[1]."""
    one, other = places
    score, to_one, to_other = scores
    columns, values, begins = layout.columns, layout.values, layout.starts
    for r in range(first, last):
        total, total_other = starts
        for p in range(np.uint64(begins[r]), np.uint64(begins[r + 1])):
            j = np.uint64(columns[p])
            total += w[one + j] * values[p]
            total_other += w[other + j] * values[p]
        score[to_one + np.uint64(r - first)] = total
        score[to_other + np.uint64(r - first)] = total_other


@inline
def _move_two(layout: Layout, w: Any, places: Any, first: Any, last: Any, move: Any, froms: Any) -> Any:
    """Move the weights of two chains along their rows."""
    one, other = places
    columns, values, begins = layout.columns, layout.values, layout.starts
    for r in range(first, last):
        c = move[froms[0] + np.uint64(r - first)]
        c_other = move[froms[1] + np.uint64(r - first)]
        for p in range(np.uint64(begins[r]), np.uint64(begins[r + 1])):
            j = np.uint64(columns[p])
            w[one + j] += c * values[p]
            w[other + j] += c_other * values[p]


@inline
def step_abreast(
    layout: Layout,
    plan: Plan,
    state: State,
    page: Page,
    where: Any,
    held: Any,
    losses: Any,
    flat: Any,
    buffers: Any,
) -> Any:
    """One step of every chain, each counted for its share `held`; their losses.

    where: the first slot and how many lie between two chains' slots; the step; and the page's
        first record, step and row to write to with how many lie between two chains'.
    flat: vectors, sums and lag of all chains, each as one array.
    buffers: scores and slopes of all chains, one after another, and losses of one.
    """
    slot, blocks, step, (record, room), (to_step, steps), (to_row, rows) = where
    w, sums, lag = flat
    score, slope, value = buffers
    experts = len(held)
    width = np.uint64(state.vectors.shape[1])
    first, last = layout.steps[step], layout.steps[step + 1]
    count = last - first
    longest = np.uint64(len(value))
    tracing = len(page.mean) == 0
    # Where a chain's slopes begin, and how many lie between two chains'.
    to, apart = (np.uint64(to_row), np.uint64(rows)) if tracing else (np.uint64(0), longest)
    e = 0
    while e < experts:
        at = np.uint64(plan.active[slot + e * blocks, 0]) * width
        begin = np.uint64(e) * longest
        if e + 1 < experts:
            other = np.uint64(plan.active[slot + (e + 1) * blocks, 0]) * width
            starts = (w[at + width - np.uint64(1)], w[other + width - np.uint64(1)])
            _score_two(layout, w, (at, other), first, last, starts, (score, begin, begin + longest))
        else:
            score_rows(layout, (w, at), first, last, w[at + width - np.uint64(1)], (score, begin))
        e += 2
    for e in range(experts):
        own = record + e * room
        chain = plan.chain[slot + e * blocks]
        at = np.uint64(plan.active[slot + e * blocks, 0]) * width
        eta = -plan.eta[chain] * plan.emphasis[slot + e * blocks]
        results = (slope, to + np.uint64(e) * apart)
        scores = (score, np.uint64(e) * longest)
        here, weight, bias = slopes_of(layout, plan, first, count, eta, scores, value, results)
        losses[e] = here / count
        page.loss[own] += held[e] * here
        page.rows[own] += held[e] * weight * count
        page.weight[own] += held[e] * weight
        page.mass[own] = page.weight[own]
        state.steps[chain] += 1
        if tracing:
            page.gain[to_step + e * steps] = 1.0
            page.until[to_step + e * steps] = page.mass[own]
            page.record[to_step + e * steps] = own
        elif len(sums) > 0:
            if held[e] > 0.0:
                part = held[e] * weight
                # Cut out here, or the loop would not vectorise.
                total = sums[e * np.int64(width) : (e + 1) * np.int64(width)]
                iterate = w[np.int64(at) : np.int64(at + width)]
                for j in range(len(total)):
                    total[j] += part * iterate[j]
        else:
            until = value.dtype.type(page.mass[own])
            behind = np.uint64(e) * width
            move_rows_lagging(layout, (w, at), (lag, behind), first, last, slope, results[1], until)
            lag[behind + width - np.uint64(1)] += until * bias
        w[at + width - np.uint64(1)] += bias
    if not tracing and len(sums) == 0:
        return
    e = 0
    while e < experts:
        at = np.uint64(plan.active[slot + e * blocks, 0]) * width
        begin = to + np.uint64(e) * apart
        if e + 1 < experts:
            other = np.uint64(plan.active[slot + (e + 1) * blocks, 0]) * width
            _move_two(layout, w, (at, other), first, last, slope, (begin, begin + apart))
        else:
            move_rows(layout, (w, at), first, last, slope, begin)
        e += 2
