"""The chain, compiled. Same signature and same results as the plain one in `chain`.

`_run_line` is the common case, one vector in force and one score a row, and is as fast as C;
`_run_any` is everything else. Both follow the same plan: score the minibatch with the weights
before its update, find the slopes, update, project; at the end of a visit write its record.
"""

from typing import Any

import numpy as np

from semicyclic.method.jit import inline, jit
from semicyclic.method.loss import SOFTMAX
from semicyclic.method.record import Layout, Page, Plan, Running, State
from semicyclic.method.slopes import slopes, softmax_slopes
from semicyclic.method.step import ADAGRAD, DUAL, SGD

# w = scale * v: below this the scale is folded into v, or v and the lag would grow apart
# and cancel digits in their difference.
FOLD = 0.1


# This engine can write traces as well as tables.
TRACES = True


def keeps_running(layout: Layout, plan: Plan, state: State) -> bool:
    """Whether each block's mean can be kept up to date almost for nothing."""
    return _takes_line(plan, state) and _sums_iterates(layout, state.vectors.shape[1])


def advance(
    layout: Layout,
    plan: Plan,
    state: State,
    page: Page,
    span: tuple[int, int],
    running: Running | None = None,
) -> tuple[int, int]:
    """Run the steps span[0]..span[1]-1, changing `state` and filling `page`.

    Returns the step reached and the records written: the page may be full before the end.
    `running`, where given, has each block's mean brought up to date as well.
    """
    line = _takes_line(plan, state)
    shape = state.vectors.shape[1:]
    summing = line and (running is not None or (page.is_table and _sums_iterates(layout, shape[0])))
    sums = np.zeros(shape[0] if summing else 0)
    lag = np.zeros(shape, state.vectors.dtype)
    means = running or Running(np.zeros((0, *shape), state.vectors.dtype), np.zeros(0))
    run = _run_line if line else _run_any
    reached, records = run(layout, plan, state, page, (sums, lag, *means), span)
    return int(reached), int(records)


def _takes_line(plan: Plan, state: State) -> bool:
    """Whether the fast kernel covers this run."""
    return (
        plan.rule == SGD
        and state.vectors.shape[2] == 1
        and plan.active.shape[1] == 1
        and bool(np.isinf(plan.radius))
        and bool((plan.coefficient == 1.0).all())
    )


def _sums_iterates(layout: Layout, width: int) -> bool:
    """Whether adding up whole iterates is cheaper than following the columns that move."""
    return width <= 4 * len(layout.values) / (len(layout.steps) - 1)


# ------------------------------------------------------------------------ the records


@jit
def _open_record(page: Page, record: Any, visit: Any) -> Any:
    page.visit[record] = visit
    page.weight[record] = 0.0
    page.mass[record] = 0.0
    page.fold[record] = 1.0
    page.loss[record] = 0.0
    page.step_loss[record] = 0.0
    page.rows[record] = 0.0


@jit
def _close_record(plan: Plan, state: State, page: Page, sums: Any, lag: Any, record: Any, block: Any) -> Any:
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
def _merge_running(mean: Any, before: Any, added: Any, sums: Any, unit: Any) -> Any:
    """Move a running mean of weight `before` towards `added` more; their sum is unit * sums."""
    total = before + added
    if total == 0.0:
        return
    keep = mean.dtype.type(before / total)
    share = mean.dtype.type(unit / total)
    for j in range(len(mean)):
        mean[j] = keep * mean[j] + share * mean.dtype.type(sums[j])


# ------------------------------------------------- one vector in force, one score a row


@inline
def _score_rows(layout: Layout, w: Any, first: Any, last: Any, start: Any, score: Any) -> Any:
    """score[r] = start + <w, x_r>."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    for r in range(first, last):
        total = start
        # Unsigned, or every index would first be tested for being negative.
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            total += w[np.uint64(columns[p])] * values[p]
        score[r - first] = total


@inline
def _move_rows(layout: Layout, w: Any, first: Any, last: Any, move: Any, to: Any) -> Any:
    """w += c_r x_r for every row r."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    for r in range(first, last):
        c = move[to + np.uint64(r - first)]
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            w[np.uint64(columns[p])] += c * values[p]


@inline
def _move_rows_lagging(
    layout: Layout, w: Any, lag: Any, first: Any, last: Any, move: Any, to: Any, until: Any
) -> Any:
    """w += c_r x_r, and lag += until c_r x_r, for every row r."""
    columns, values, starts = layout.columns, layout.values, layout.starts
    for r in range(first, last):
        c = move[to + np.uint64(r - first)]
        for p in range(np.uint64(starts[r]), np.uint64(starts[r + 1])):
            j = np.uint64(columns[p])
            change = c * values[p]
            w[j] += change
            lag[j] += until * change


@jit
def _run_line(layout: Layout, plan: Plan, state: State, page: Page, scratch: Any, span: Any) -> Any:
    """Plain SGD with one vector in force a block: the single chain, or separate chains."""
    sums, lag, running, running_weight = scratch
    kind = state.vectors.dtype.type
    width = state.vectors.shape[1]
    longest = _longest(layout, span)
    score = np.empty(longest, state.vectors.dtype)
    value = np.empty(longest, state.vectors.dtype)
    tracing = len(page.mean) == 0
    slope = page.slope.ravel() if tracing else np.empty(longest, state.vectors.dtype)
    behind = lag.ravel()
    weighted = len(layout.weights) > 0
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
        _open_record(page, record, visit)
        alone = len(running) > 0 and end - step == 1
        mass = 0.0
        first = layout.steps[step]
        for t in range(step, end):
            last = layout.steps[t + 1]
            count = last - first
            _score_rows(layout, w, first, last, w[width - 1], score)
            to = np.uint64(first - start_row if tracing else 0)
            targets = (layout.targets, first)
            slopes(plan.loss, plan.level, count, (score, 0), targets, (slope, to), value)
            weight = 1.0
            here = 0.0
            if weighted:
                total = 0.0
                for r in range(np.uint64(count)):
                    slope[to + r] *= layout.weights[np.uint64(first) + r]
                    here += value[r] * layout.weights[np.uint64(first) + r]
                    total += layout.weights[np.uint64(first) + r]
                weight = total / count
            else:
                for r in range(np.uint64(count)):
                    here += value[r]
            page.loss[record] += here
            page.step_loss[record] += here / count
            page.rows[record] += weight * count
            mass += weight
            if tracing:
                # The slopes are kept with the gain in them already.
                page.gain[t - span[0]] = 1.0
                page.until[t - span[0]] = mass
                page.record[t - span[0]] = record
            gain = kind(eta / count)
            tilt = 0.0
            for r in range(np.uint64(count)):
                slope[to + r] *= gain
                tilt += slope[to + r]
            bias = kind(tilt * plan.intercept)
            if len(sums) > 0:
                if alone:
                    _merge_running(running[block].ravel(), running_weight[block], weight, w, weight)
                else:
                    for j in range(width):
                        sums[j] += weight * w[j]
                _move_rows(layout, w, first, last, slope, to)
            elif tracing:
                _move_rows(layout, w, first, last, slope, to)
            else:
                _move_rows_lagging(layout, w, behind, first, last, slope, to, kind(mass))
                behind[width - 1] += kind(mass) * bias
            w[width - 1] += bias
            first = last
        state.steps[chain] += end - step
        page.weight[record] = mass
        page.mass[record] = mass
        page.scale[record] = 1.0
        if len(running) > 0:
            if not alone:
                _merge_running(running[block].ravel(), running_weight[block], mass, sums, 1.0)
                sums[:] = 0.0
            running_weight[block] += mass
        _close_record(plan, state, page, sums, lag, record, block)
        record += 1
        step = end
        visit += step == layout.visits[visit + 1]
    return step, record


@jit
def _longest(layout: Layout, span: Any) -> Any:
    longest = np.int64(0)
    for t in range(span[0], span[1]):
        longest = max(longest, layout.steps[t + 1] - layout.steps[t])
    return longest


# --------------------------------------------------------------------- everything else


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
                after = min(max(after, -kind(plan.box)), kind(plan.box))
                state.vectors[vector, j, c] = after
                moved += factor * (after - before)
            if mass != 0:
                lag[j, c] += mass * moved
            gradient[j, c] = 0


@jit
def _rescale(plan: Plan, state: State, chain: Any) -> Any:
    """After a step: the projection onto the ball, and the step of dual averaging."""
    state.steps[chain] += 1
    if plan.rule == DUAL:
        state.scale[chain] = plan.eta[chain] / np.sqrt(state.steps[chain] + 1.0)
    size = np.sqrt(max(state.norm[chain], 0.0)) * state.scale[chain]
    if size > plan.radius:
        state.scale[chain] *= plan.radius / size


@jit
def _fold(plan: Plan, state: State, chain: Any) -> Any:
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
def _run_any(layout: Layout, plan: Plan, state: State, page: Page, scratch: Any, span: Any) -> Any:
    """Any basis, any number of scores, any rule, with or without projection."""
    sums, lag, _running, _weight = scratch
    kind = state.vectors.dtype.type
    _, width, outputs = state.vectors.shape
    longest = _longest(layout, span)
    score = np.empty((longest, outputs), state.vectors.dtype)
    slope = np.empty((longest, outputs), state.vectors.dtype)
    value = np.empty(longest, state.vectors.dtype)
    adagrad = plan.rule == ADAGRAD
    gradient = np.zeros((width if adagrad else 0, outputs), state.vectors.dtype)
    touched = np.zeros(2 * width if adagrad else 0, np.int64)
    tracing = len(page.mean) == 0
    start_row = layout.steps[span[0]]
    step = span[0]
    visit = np.searchsorted(layout.visits, step, side="right") - 1
    record = 0
    while step < span[1] and record < len(page.weight):
        block = layout.block[visit]
        end = min(layout.visits[visit + 1], span[1])
        chain = plan.chain[block]
        _open_record(page, record, visit)
        while step < end:
            rows = (layout.steps[step], layout.steps[step + 1])
            count = rows[1] - rows[0]
            _score_any(layout, plan, state, block, rows, score)
            target = layout.targets[rows[0] : rows[1]]
            if plan.loss == SOFTMAX:
                softmax_slopes(score[:count], target, slope[:count], value[:count])
            else:
                results = (slope[:, 0], 0)
                slopes(plan.loss, plan.level, count, (score[:, 0], 0), (target, 0), results, value)
            weight = 1.0
            if len(layout.weights) > 0:
                total = 0.0
                for r in range(count):
                    value[r] *= layout.weights[rows[0] + r]
                    total += layout.weights[rows[0] + r]
                    for c in range(outputs):
                        slope[r, c] *= layout.weights[rows[0] + r]
                weight = total / count
            here = 0.0
            for r in range(count):
                here += value[r]
            page.loss[record] += here
            page.step_loss[record] += here / count
            page.rows[record] += weight * count
            page.weight[record] += weight
            page.mass[record] += weight * state.scale[chain]
            # A trace needs no lag.
            until = kind(0.0 if tracing else page.mass[record])
            gain = plan.emphasis[block] / count
            if plan.rule != ADAGRAD:
                gain *= -(plan.eta[chain] / state.scale[chain] if plan.rule == SGD else 1.0)
            if tracing:
                page.gain[step - span[0]] = gain
                page.until[step - span[0]] = page.mass[record]
                page.record[step - span[0]] = record
                page.slope[rows[0] - start_row : rows[1] - start_row] = slope[:count]
            if adagrad:
                _move_adagrad(
                    layout, plan, state, lag, block, rows, slope, until, kind(gain), gradient, touched
                )
            else:
                _move_any(layout, plan, state, lag, block, rows, slope, until, kind(gain))
            _rescale(plan, state, chain)
            step += 1
            if plan.rule == SGD and state.scale[chain] < FOLD:
                break
        page.scale[record] = state.scale[chain]
        _close_record(plan, state, page, sums, lag, record, block)
        if plan.rule == SGD and state.scale[chain] < FOLD:
            page.fold[record] = _fold(plan, state, chain)
        record += 1
        visit += step == layout.visits[visit + 1]
    return step, record


@jit
def score_rows(rows: Any, weights: Any, block: Any, out: Any) -> Any:
    """out[r] = <weights[block[r]], x_r> for each of the C outputs."""
    indptr, indices, values = rows
    last = weights.shape[2] - 1
    for r in range(len(out)):
        for c in range(out.shape[1]):
            w = weights[block[r], c]
            total = w[last]
            for p in range(indptr[r], indptr[r + 1]):
                total += w[indices[p]] * values[p]
            out[r, c] = total
