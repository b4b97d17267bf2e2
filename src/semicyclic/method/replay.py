"""Compiled read-outs: models as sums over a table of records, or replayed from a trace.

A trace has the slope of every row. Slopes are all that couples the columns of a linear model:
given them, each column can be replayed alone, without a dot product or a loss.
"""

from typing import Any

import numpy as np

from semicyclic.method.jit import jit
from semicyclic.method.record import ByColumn, Layout, Page, Plan
from semicyclic.method.step import ADAGRAD


@jit
def combine_table(means: Any, afters: Any, picks: Any, out: Any) -> Any:
    """out[model] += mean_weight * mean + last_weight * after, in double precision."""
    model, record, mean_weight, last_weight = picks
    for k in range(len(model)):
        mean = means[record[k]].ravel()
        after = afters[record[k]].ravel()
        sums = out[model[k]].ravel()
        if mean_weight[k] != 0.0:
            for j in range(len(sums)):
                sums[j] += mean_weight[k] * mean[j]
        if last_weight[k] != 0.0:
            for j in range(len(sums)):
                sums[j] += last_weight[k] * after[j]


@jit
def merge_table(means: Any, weights: Any, slots: Any, running: Any, total: Any) -> Any:
    """Move each slot's running mean towards the records of a table, one after another."""
    for r in range(len(slots)):
        if weights[r] > 0.0:
            total[slots[r]] += weights[r]
            share = means.dtype.type(weights[r] / total[slots[r]])
            mean = means[r].ravel()
            held = running[slots[r]].ravel()
            for j in range(len(held)):
                held[j] += share * (mean[j] - held[j])


@jit
def turn(layout: Layout, steps: Any, width: Any, intercept: Any) -> Any:
    """The rows of some steps by column, the constant column (if there is one) last.

    A stable sort by column in two rounds, first by its leading bits: dealt straight to a
    million columns, every cell would go to another page of memory.
    """
    begin, end = layout.steps[steps[0]], layout.steps[steps[1]]
    low, high = layout.starts[begin], layout.starts[end]
    step = np.empty(end - begin, np.int32)
    for t in range(steps[0], steps[1]):
        step[layout.steps[t] - begin : layout.steps[t + 1] - begin] = t - steps[0]
    shift: Any = np.int64(0)
    while (width >> shift) > 128:
        shift += 1
    # Round one: deal the cells to piles of 2^shift columns.
    pile = np.zeros((width >> shift) + 2, np.int64)
    for p in range(np.uint64(low), np.uint64(high)):
        pile[(layout.columns[p] >> shift) + 1] += 1
    for k in range(len(pile) - 1):
        pile[k + 1] += pile[k]
    at = pile.copy()
    column = np.empty(high - low, layout.columns.dtype)
    row = np.empty(high - low, np.uint32)
    value = np.empty(high - low, layout.values.dtype)
    for r in range(begin, end):
        for p in range(np.uint64(layout.starts[r]), np.uint64(layout.starts[r + 1])):
            j = layout.columns[p]
            to = np.uint64(at[j >> shift])
            at[j >> shift] += 1
            column[to] = j
            row[to] = r - begin
            value[to] = layout.values[p]
    # Round two: sort each pile by column.
    first = np.zeros(width + 1, np.int64)
    rows = np.empty(high - low + (end - begin if intercept else 0), np.uint32)
    values = np.empty(len(rows), layout.values.dtype)
    count = np.zeros(1 << shift, np.int64)
    for k in range(len(pile) - 1):
        count[:] = 0
        base = k << shift
        for p in range(np.uint64(pile[k]), np.uint64(pile[k + 1])):
            count[np.int64(column[p]) - base] += 1
        total = pile[k]
        for c in range(min(len(count), width - base)):
            first[base + c] = total
            total += count[c]
            count[c] = first[base + c]
        for p in range(np.uint64(pile[k]), np.uint64(pile[k + 1])):
            c = np.int64(column[p]) - base
            rows[np.uint64(count[c])] = row[p]
            values[np.uint64(count[c])] = value[p]
            count[c] += 1
    constant = end - begin if intercept else 0
    first[width - 1] = high - low
    first[width] = high - low + constant
    for r in range(constant):
        rows[high - low + r] = r
        values[high - low + r] = 1
    return first, rows, values, step


@jit
def look_ahead(
    plan: Plan, block: Any, fold: Any, held: Any, models: Any, ahead: Any, share: Any, tail: Any
) -> Any:
    """What a change during each record adds to each model, going backwards.

    Every iterate is the start plus the changes before it, so a model, a weighted sum of
    iterates, is a weighted sum of changes: each counts for every later iterate the model
    holds. `ahead` [vectors, models] is that count, `tail` what later folds leave of a change.
    """
    first, model, weight = held
    low, high = models
    left = np.ones(len(plan.eta))
    for r in range(len(block) - 1, -1, -1):
        chain = plan.chain[block[r]]
        if fold[r] != 1.0:
            left[chain] *= fold[r]
            for vector in range(len(ahead)):
                if plan.owner[vector] == chain:
                    ahead[vector] *= fold[r]
        tail[r] = left[chain]
        for a in range(plan.active.shape[1]):
            vector = plan.active[block[r], a]
            if vector >= 0:
                for k in range(first[r], first[r + 1]):
                    if low <= model[k] < high:
                        ahead[vector, model[k] - low] += plan.coefficient[block[r], a] * weight[k]
                share[r, a] = ahead[vector]
    return left


# What a row did: the push it gave its columns per unit of value, and its step. Together, so
# that following a column down the rows costs one access to memory and not two.
DEED = np.dtype([("push", np.float32), ("step", np.int32)])
DEED_DOUBLE = np.dtype([("push", np.float64), ("step", np.int64)])


@jit
def row_deeds(page: Page, step: Any, output: Any, adaptive: Any, deeds: Any) -> Any:
    """Fill `deeds` for one of the outputs; adaptive steps are gained after summing."""
    for r in range(len(step)):
        deeds[r].step = step[r]
        deeds[r].push = page.slope[r, output] * (1.0 if adaptive else page.gain[step[r]])


# How many models a kernel adds to at once: four vectors of eight.
LANES = 32
# How many cells are looked up at once.
WINDOW = 1024


@jit
def _look_up(columns: ByColumn, deeds: Any, at: Any, push: Any, step: Any) -> Any:
    """Fetch the push and the step of the next cells; where the window ends.

    Deeds lie far apart. Fetched one by one, each would be waited for before it is known
    which record comes next; fetched together, they come at the same time. Windows end at the
    same cells wherever a thread began, or sums would be rounded differently.
    """
    count = min(WINDOW - at % WINDOW, len(columns.row) - at)
    for k in range(np.uint64(count)):
        p = np.uint64(at) + k
        deed = np.uint64(columns.row[p])
        push[k] = deeds[deed].push * columns.value[p]
        step[k] = deeds[deed].step
    return at + count


@jit
def _adagrad_record(columns: Any, deeds: Any, steps: Any, cells: Any, state: Any, moved: Any) -> Any:
    """Replay per-coordinate steps of one cell through one record; the lag."""
    until, gain = steps
    vector, square, held, factor, rate, limit = state
    box = vector.dtype.type(limit)
    lag = vector.dtype.type(0.0)
    moved[:] = 0
    at, end = cells
    while at < end:
        step = deeds[columns.row[at]].step
        gradient = vector.dtype.type(0.0)
        while at < end and deeds[columns.row[at]].step == step:
            gradient += deeds[columns.row[at]].push * columns.value[at]
            at += 1
        for a in range(len(held)):
            g = vector.dtype.type(factor[a]) * (gain[step] * gradient)
            if held[a] >= 0 and square[held[a]] + g * g > 0:
                square[held[a]] += g * g
                before = vector[held[a]]
                after = before - vector.dtype.type(rate) * g / np.sqrt(square[held[a]])
                after = min(max(after, -box), box)
                vector[held[a]] = after
                moved[a] += after - before
                lag += until[step] * vector.dtype.type(factor[a]) * (after - before)
    return lag


@jit
def replay_pushes(
    columns: ByColumn, deeds: Any, steps: Any, share: Any, picks: Any, most: Any, out: Any, span: Any
) -> Any:
    """`replay` for gradient steps without projection, and columns of at most `most` cells.

    There every push counts in proportion, so a column needs neither its vectors nor their
    order: share [records, models] is what a push adds to each model. Its rows are filled up
    with zeros to a multiple of LANES, or the last models would be added up one by one.
    """
    owner, until = steps
    first, model, per_step, low, high = picks
    models = np.uint64(share.shape[1])
    push = np.empty(WINDOW, out.dtype)
    step = np.empty(WINDOW, np.int64)
    base = np.int64(0)
    window = np.int64(0)
    total_of = np.zeros(share.shape[1], out.dtype)
    lag_of = np.zeros(share.shape[1], out.dtype)
    for j in range(span[0], span[1]):
        at, end = columns.first[j], columns.first[j + 1]
        if at == end or end - at > most:
            continue
        while at < end:
            if at >= window:
                base = at
                window = _look_up(columns, deeds, at, push, step)
            r = owner[step[at - base]]
            total = out.dtype.type(0.0)
            lag = out.dtype.type(0.0)
            while True:
                t = np.uint64(step[at - base])
                total += push[at - base]
                lag += until[t] * push[at - base]
                at += 1
                # At a window's end the record is cut in two, which changes nothing.
                if at >= end or at >= window or owner[np.uint64(step[at - base])] != r:
                    break
            for q in range(models):
                total_of[q] += total * share[r, q]
            for k in range(first[r], first[r + 1]):
                if low <= model[k] < high:
                    lag_of[model[k] - low] += per_step[k] * lag
        for q in range(high - low):
            out[j, low + q] += total_of[q] - lag_of[q]
        for q in range(models):
            total_of[q] = 0
            lag_of[q] = 0


@jit
def replay(
    plan: Plan,
    columns: ByColumn,
    deeds: Any,
    records: Any,
    kept: Any,
    picks: Any,
    weights: Any,
    least: Any,
    out: Any,
    span: Any,
) -> Any:
    """Replay the columns span[0]..span[1]-1 of a trace, adding to out [d+1, models].

    records: (block, fold) of each record; (record, until, gain) of each step.
    kept: the vectors and squares [M, d+1] before the trace, brought to its end here.
    picks: (first, model, held, per_step): record r counts held * z_end - per_step * lag for
        its models first[r]:first[r+1].
    weights: (share, tail, head, beyond, low, high), the models low..high-1 by `look_ahead`.
        A column is either walked through all records, and what it changed counted by
        `beyond` for later pages; or, where it is seldom touched, only through its own
        records, each change counted by `share` for all models at once.
    least: columns with fewer cells were seen to elsewhere.
    """
    block, fold, owner, until, gain = records
    vectors, squares = kept
    first, model, held, per_step = picks
    share, tail, head, beyond, low, high = weights
    kind = vectors.dtype.type
    # A page is written by chains of one rule.
    adagrad = len(block) > 0 and plan.rule[plan.chain[block[0]]] == ADAGRAD
    active = plan.active
    goes_on = beyond.any()
    folds = (fold != 1.0).any()
    moved = np.zeros(active.shape[1], vectors.dtype)
    push = np.empty(WINDOW, vectors.dtype)
    step = np.empty(WINDOW, np.int64)
    base = np.int64(0)
    window = np.int64(0)
    # Apart, since a wide read right after a narrow write to the same place would wait for it.
    total_of = np.zeros(high - low, vectors.dtype)
    lag_of = np.zeros(high - low, vectors.dtype)
    vector = np.zeros(len(vectors), vectors.dtype)
    start = np.zeros(len(vectors), vectors.dtype)
    square = np.zeros(len(squares), vectors.dtype)
    for j in range(span[0], span[1]):
        begin, end = columns.first[j], columns.first[j + 1]
        # A change costs one operation a model, a record to be walked through about two.
        seldom = (end - begin) * (high - low) < 2 * (len(block) + len(model))
        if end - begin < least or (seldom and begin == end and not folds):
            continue
        for v in range(len(vector)):
            vector[v] = vectors[v, j]
            start[v] = vectors[v, j]
            if seldom:
                vector[v] *= kind(head[plan.owner[v]])
        for v in range(len(square)):
            square[v] = squares[v, j]
        at = begin
        r = np.int64(-1)
        while at < end or (not seldom and r < len(block) - 1):
            # The next record: any, or the next one that touches this column.
            if at < end and at >= window:
                base = at
                window = _look_up(columns, deeds, at, push, step)
            r = owner[step[at - base]] if seldom else r + 1
            b = block[r]
            lag = kind(0.0)
            if adagrad:
                stop = at
                while stop < end and owner[deeds[columns.row[stop]].step] == r:
                    stop += 1
                rate = plan.eta[plan.chain[b]]
                limit = plan.box[plan.chain[b]]
                state = (vector, square, active[b], plan.coefficient[b], rate, limit)
                lag = _adagrad_record(columns, deeds, (until, gain), (at, stop), state, moved)
                at = stop
            else:
                total = kind(0.0)
                while at < end:
                    if at >= window:
                        base = at
                        window = _look_up(columns, deeds, at, push, step)
                    t = np.uint64(step[at - base])
                    if owner[t] != r:
                        break
                    total += push[at - base]
                    lag += until[t] * push[at - base]
                    at += 1
                norm = kind(0.0)
                for a in range(len(moved)):
                    factor = kind(plan.coefficient[b, a])
                    norm += factor * factor
                    moved[a] = factor * total
                lag *= norm
            if seldom:
                for a in range(len(moved)):
                    if active[b, a] >= 0:
                        change = moved[a]
                        for q in range(np.uint64(high - low)):
                            total_of[q] += change * share[r, a, q]
                        if not adagrad:
                            vector[active[b, a]] += kind(tail[r]) * change
                for k in range(first[r], first[r + 1]):
                    if low <= model[k] < high:
                        lag_of[model[k] - low] += kind(per_step[k]) * lag
                continue
            z = kind(0.0)
            for a in range(len(moved)):
                v = active[b, a]
                if v >= 0:
                    if not adagrad:
                        vector[v] += moved[a]
                    # Without what was there at the start, counted before.
                    z += kind(plan.coefficient[b, a]) * (vector[v] - start[v])
            for k in range(first[r], first[r + 1]):
                if low <= model[k] < high:
                    total_of[model[k] - low] += kind(held[k]) * z - kind(per_step[k]) * lag
            if fold[r] != 1.0:
                for v in range(len(vector)):
                    if plan.owner[v] == plan.chain[b]:
                        vector[v] *= kind(fold[r])
                        start[v] *= kind(fold[r])
        if goes_on and not seldom:
            for v in range(len(vector)):
                for q in range(high - low):
                    total_of[q] += (vector[v] - start[v]) * kind(beyond[v, q])
        for q in range(high - low):
            out[j, low + q] += total_of[q] - lag_of[q]
            total_of[q] = 0
            lag_of[q] = 0
        for v in range(len(vector)):
            vectors[v, j] = vector[v]
        for v in range(len(square)):
            squares[v, j] = square[v]
