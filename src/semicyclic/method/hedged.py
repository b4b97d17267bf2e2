"""Compiled: several chains side by side, and per block a hedge between them, in one pass.

The page has room for the experts one after another: of a page with R records each, expert e
writes e * R to e * R + R - 1, and likewise the steps and rows of a trace.
"""

from typing import Any

import numpy as np

from semicyclic.method.abreast import step_abreast
from semicyclic.method.bets import Bets
from semicyclic.method.jit import jit
from semicyclic.method.lifted import fold_scale, lifted_buffers, lifted_step, sinks
from semicyclic.method.record import Layout, Page, Plan, State
from semicyclic.method.settle import in_play, settle
from semicyclic.method.visit import close_record, note_loss, open_record


@jit
def run_hedged(
    layout: Layout, plan: Plan, state: State, page: Page, bets: Bets, toss: Any, scratch: Any, span: Any
) -> Any:
    """Every chain takes every step; what counts of each is its probability at that step.

    toss: a uniform for every step of the layout where experts are drawn, else empty.
    scratch: whether the fast kernel covers all chains; sums [E, d+1] or [E, 0]; lag [E, d+1, C].
    """
    line, sums, lag = scratch
    blocks, experts = bets.share.shape
    buffers = lifted_buffers(layout, plan, state, span)
    flat = (state.vectors.ravel(), sums.ravel(), lag.ravel())
    longest = len(buffers[2])
    score = np.empty(experts * longest, state.vectors.dtype)
    slope = page.slope.ravel() if len(page.mean) == 0 else np.empty_like(score)
    held = np.zeros(experts)
    losses = np.zeros(experts)
    room = len(page.weight) // experts
    steps, rows = len(page.gain) // experts, len(page.slope) // experts
    start_row = layout.steps[span[0]]
    step = span[0]
    visit = np.searchsorted(layout.visits, step, side="right") - 1
    record = 0
    while step < span[1] and record < room:
        block = layout.block[visit]
        end = min(layout.visits[visit + 1], span[1])
        for e in range(experts):
            open_record(page, e * room + record, visit)
        folding = False
        while step < end and not folding:
            in_play(bets, block, toss[step] if len(toss) > 0 else -1.0, held)
            to_step, to_row = step - span[0], layout.steps[step] - start_row
            if line:
                where = (block, blocks, step, (record, room), (to_step, steps), (to_row, rows))
                small = (score, slope, buffers[2])
                step_abreast(layout, plan, state, page, where, held, losses, flat, small)
            else:
                for e in range(experts):
                    slot = e * blocks + block
                    place = (e * room + record, e * steps + to_step, e * rows + to_row)
                    losses[e] = lifted_step(
                        layout, plan, state, page, slot, step, held[e], lag[e], place, buffers
                    )
                    folding |= sinks(plan, state, plan.chain[slot])
            mixed = 0.0
            for e in range(experts):
                mixed += held[e] * losses[e]
            note_loss(state, page, record, block, mixed)
            settle(bets, block, losses)
            step += 1
        # All records end together, so that those of one visit belong together.
        for e in range(experts):
            own = e * room + record
            chain = plan.chain[e * blocks + block]
            page.scale[own] = state.scale[chain]
            page.force[own] = bets.share[block, e]
            close_record(plan, state, page, sums[e], lag[e], own, e * blocks + block)
            if sinks(plan, state, chain):
                page.fold[own] = fold_scale(plan, state, chain)
        record += 1
        visit += step == layout.visits[visit + 1]
    return step, record
