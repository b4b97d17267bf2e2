"""Compiled: the record of a visit, and the running mean of its block."""

from typing import Any

import numpy as np

from semicyclic.method.jit import jit
from semicyclic.method.record import Layout, Page, Plan, State


@jit
def open_record(page: Page, record: Any, visit: Any) -> Any:
    page.visit[record] = visit
    page.weight[record] = 0.0
    page.mass[record] = 0.0
    page.fold[record] = 1.0
    page.loss[record] = 0.0
    page.rows[record] = 0.0
    page.steps[record] = 0.0
    page.step_loss[record] = 0.0
    page.most[record] = 0.0
    page.spread[record] = 0.0
    page.force[record] = 1.0


@jit
def note_loss(state: State, page: Page, record: Any, block: Any, loss: Any) -> Any:
    """What a certificate needs to know of a step's loss."""
    heard = state.heard
    off = loss - heard[block, 1] / max(heard[block, 0], 1.0)
    page.spread[record] += off * off
    heard[block, 0] += 1.0
    heard[block, 1] += loss
    page.steps[record] += 1.0
    page.step_loss[record] += loss
    page.most[record] = max(page.most[record], loss)


@jit
def close_record(plan: Plan, state: State, page: Page, sums: Any, lag: Any, record: Any, block: Any) -> Any:
    """Write the record's mean and end; clear the sums and the lag.

    The sum of the iterates is `sums`, or mass * z - lag where they were not summed one by one:
    from z_t = z_end - sum_{s>=t} dz_s follows sum_t a_t z_t = mass * z_end - sum_s until_s dz_s.
    """
    if len(page.mean) == 0:
        return
    held = plan.active[block]
    kind = state.vectors.dtype.type
    after = page.after[record].ravel()
    after[:] = 0
    for a in range(len(held)):
        if held[a] >= 0:
            factor = kind(plan.coefficient[block, a] * page.scale[record])
            v = state.vectors[held[a]].ravel()
            for j in range(len(v)):
                after[j] += factor * v[j]
    mean = page.mean[record].ravel()
    weight = page.weight[record]
    if weight == 0.0:
        mean[:] = after
    elif len(sums) > 0:
        share = 1.0 / weight
        for j in range(len(mean)):
            mean[j] = share * sums[j]
    else:
        whole = kind(page.mass[record] / weight / page.scale[record])
        share = kind(1.0 / weight)
        behind = lag.ravel()
        for j in range(len(mean)):
            mean[j] = whole * after[j] - share * behind[j]
    sums[:] = 0.0
    lag[:] = 0


@jit
def merge_running(mean: Any, before: Any, added: Any, sums: Any, unit: Any) -> Any:
    """Move a running mean of weight `before` towards `added` more; their sum is unit * sums."""
    total = before + added
    if total == 0.0:
        return
    keep = mean.dtype.type(before / total)
    share = mean.dtype.type(unit / total)
    for j in range(len(mean)):
        mean[j] = keep * mean[j] + share * mean.dtype.type(sums[j])


@jit
def longest_step(layout: Layout, span: Any) -> Any:
    longest = np.int64(0)
    for t in range(span[0], span[1]):
        longest = max(longest, layout.steps[t + 1] - layout.steps[t])
    return longest
