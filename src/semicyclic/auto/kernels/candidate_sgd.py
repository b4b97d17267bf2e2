"""SGD of all candidates in parallel, with delayed labels.

A row is predicted on arrival, from the labels known by then. A label is known strictly after its row's
arrival time plus the delay, never at that very instant. Chains are trained on rows one by one, in order of
arrival.

The lanes of one column are contiguous in memory, so one cell of a row is one SIMD multiply-add for eight
candidates.
"""

from typing import Any

import numpy as np

from semicyclic.auto.candidate_state import READ_OUTS, STEPS, CandidateState, RowWindow
from semicyclic.auto.candidates import (
    ADAGRAD_RATES,
    CYCLE,
    FADING,
    HALF_LIFE_CYCLES,
    MEAN,
    STEP_SHARES,
)
from semicyclic.auto.kernels.simd import LANES, dot8, move8
from semicyclic.jit import jit
from semicyclic.method.kernels.losses import slopes, softmax_slopes
from semicyclic.method.loss import SOFTMAX

assert len(STEP_SHARES) == len(ADAGRAD_RATES) == STEPS
# Added to AdaGrad's sums of squares to avoid 0 / 0; negligible next to any square that is not zero.
TINY = 1e-30
# A score is invalid if it exceeds 1 plus the largest target by this factor.
MAX_SCORE_RATIO = 1e6


@jit
def lay_out(cells: Any, place: Any, marks: Any, intercept: Any, value: Any, out: Any) -> Any:
    """Write each row's cells, its intercept and its marks (slot and weekday indicators) to `out`.

    cells: features in CSR form. place: [width] column of each feature. marks: (finest block of each row,
    columns of the marks of each finest block). intercept, value: column and value of the intercept.
    out: (starts, columns, values, squared norms); starts are given.
    """
    indptr, indices, values = cells
    fine, mark = marks
    starts, columns, out_values, norm = out
    for row in range(len(norm)):
        at = starts[row]
        total = value
        for p in range(indptr[row], indptr[row + 1]):
            columns[at] = place[indices[p]]
            out_values[at] = values[p]
            total += values[p] * values[p]
            at += 1
        columns[at] = intercept
        out_values[at] = value
        for k in range(mark.shape[1]):
            columns[at + 1 + k] = mark[fine[row], k]
            out_values[at + 1 + k] = 1.0
        norm[row] = max(total, 1e-6)


@jit
def score_kinds(tables: Any, vectors: Any, outputs: Any, fine: Any, cells: Any, out: Any) -> Any:
    """Set out[(kind * 8 + q) * C + c] to the score of one row under every chain's weights in `vectors`.

    cells: (columns, values, first, last, first mark): all cells, and the range of this row.
    """
    active, share, marked, bare = tables.active, tables.share, tables.marked, tables.bare
    columns, values, first, last, plain = cells
    flat = vectors.ravel()
    stride = outputs * LANES
    a_vector = vectors.shape[1] * stride
    part = np.empty(LANES, np.float32)
    for kind in range(len(active)):
        begin, end = plain - 1 if bare[kind] else first, last if marked[kind] else plain
        for c in range(outputs):
            for q in range(LANES):
                out[(kind * LANES + q) * outputs + c] = np.float32(0.0)
            for a in range(active.shape[2]):
                vector = active[kind, fine, a]
                if vector < 0:
                    break
                base = vector * a_vector + c * LANES
                dot8(flat, -1, base, stride, columns, values, begin, end, part)
                times = share[kind, fine, a]
                for q in range(LANES):
                    out[(kind * LANES + q) * outputs + c] += times * part[q]


@jit
def score_readings(
    tables: Any, readings: Any, outputs: Any, fine: Any, cells: Any, live: Any, out: Any
) -> Any:
    """Set out[((reading * 3 + read-out) * 8 + q) * C + c] to the score of one row under every read-out.

    readings: (frozen, seen), the current ones or those of the last freeze time. live: scores of the chains,
        used for groups without a closed visit.
    """
    of, group, marked, bare = tables.of, tables.group, tables.marked, tables.bare
    columns, values, first, last, plain = cells
    frozen, seen = readings
    flat = frozen.ravel()
    a_score = READ_OUTS * LANES
    stride = outputs * a_score
    a_group = frozen.shape[1] * stride
    part = np.empty(LANES, np.float32)
    for reading in range(len(of)):
        group_index = group[reading, fine]
        begin = plain - 1 if bare[of[reading]] else first
        end = last if marked[of[reading]] else plain
        cycles = seen[group_index, 1]
        for read_out in range(READ_OUTS):
            to = (reading * READ_OUTS + read_out) * LANES
            for c in range(outputs):
                if cycles > 0:
                    base = group_index * a_group + c * a_score + read_out * LANES
                    dot8(flat, -1, base, stride, columns, values, begin, end, part)
                else:
                    for q in range(LANES):
                        part[q] = live[(of[reading] * LANES + q) * outputs + c]
                for q in range(LANES):
                    out[(to + q) * outputs + c] = part[q]


@jit
def step_kinds(
    tables: Any, state: CandidateState, outputs: Any, fine: Any, cells: Any, slope: Any, eta: Any
) -> Any:
    """Take one SGD step with every chain. eta: step size of the constant lanes, before their share of it."""
    active, share, marked, bare = tables.active, tables.share, tables.marked, tables.bare
    columns, values, first, last, plain = cells
    vectors, squares, lag = state.vectors.ravel(), state.squares.ravel(), state.lag.ravel()
    mass = np.float32(state.mass[0])
    stride = outputs * STEPS
    width = state.vectors.shape[1] * stride
    move, rates = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    rates[0] = TINY
    for q in range(STEPS):
        rates[STEPS + q] = ADAGRAD_RATES[q]
    for kind in range(len(active)):
        begin = plain - 1 if bare[kind] else first
        kind_cells = columns, values, begin, last if marked[kind] else plain
        energy = np.float32(0.0)
        for a in range(active.shape[2]):
            energy += share[kind, fine, a] * share[kind, fine, a]
        for c in range(outputs):
            for a in range(active.shape[2]):
                vector = active[kind, fine, a]
                if vector < 0:
                    break
                times = share[kind, fine, a]
                for q in range(STEPS):
                    from_slope = (kind * LANES + q) * outputs + c
                    move[q] = -np.float32(STEP_SHARES[q]) * eta / energy * times * slope[from_slope]
                    move[STEPS + q] = times * slope[from_slope + STEPS * outputs]
                in_squares = vector * width + c * STEPS
                offsets = 2 * in_squares, in_squares, 2 * (kind * width + c * STEPS), stride
                move8(vectors, squares, lag, offsets, kind_cells, move, rates, mass * times)


@jit
def close_visit(tables: Any, state: CandidateState, outputs: Any) -> Any:
    """Close the open visit: add its mean iterate to the read-outs of its groups."""
    active, share, of, group = tables.active, tables.share, tables.of, tables.group
    fine, cycle, mass = state.position[0], state.position[1], state.mass[0]
    vectors, lag, total_weight, seen = state.vectors, state.lag, state.total_weight, state.seen
    width = vectors.shape[1]
    end = np.empty(LANES, np.float32)
    part = np.empty(READ_OUTS, np.float32)
    for reading in range(len(of)):
        index, kind = group[reading, fine], of[reading]
        frozen = state.frozen[index]
        # A late row may belong to an earlier cycle: it is counted in the latest one.
        if seen[index, 1] == 0 or cycle > seen[index, 0]:
            if seen[index, 1] > 0:
                total_weight[index, FADING] *= 2.0 ** (-(cycle - seen[index, 0]) / HALF_LIFE_CYCLES)
            total_weight[index, CYCLE] = 0.0
            seen[index, 0] = cycle
            seen[index, 1] += 1
        for which in range(READ_OUTS):
            total_weight[index, which] += mass
            part[which] = mass / total_weight[index, which]
        for j in range(width):
            for c in range(outputs):
                for q in range(LANES):
                    end[q] = np.float32(0.0)
                for a in range(active.shape[2]):
                    vector = active[kind, fine, a]
                    if vector < 0:
                        break
                    times = share[kind, fine, a]
                    for q in range(LANES):
                        end[q] += times * vectors[vector, j, c, q]
                for q in range(LANES):
                    mean = end[q] - lag[kind, j, c, q] / np.float32(mass)
                    frozen[j, c, MEAN, q] += part[MEAN] * (mean - frozen[j, c, MEAN, q])
                    frozen[j, c, FADING, q] += part[FADING] * (mean - frozen[j, c, FADING, q])
                    frozen[j, c, CYCLE, q] += part[CYCLE] * (mean - frozen[j, c, CYCLE, q])
    for at in range(lag.size):
        lag.flat[at] = np.float32(0.0)
    state.position[0] = -1
    state.mass[0] = 0.0


@jit
def learn_row(
    tables: Any, plan: Any, state: CandidateState, window: RowWindow, row: Any, known: Any, work: Any
) -> Any:
    """Train all chains on one row. known: `work` already holds its scores under all chains."""
    code, level, outputs = plan
    live, slope, value, repeated = work
    fine = window.fine[row]
    if state.position[0] >= 0 and (state.position[0] != fine or state.position[1] != window.cycle[row]):
        close_visit(tables, state, outputs)
    weight = window.weight[row]
    state.position[2] += 1
    if weight == 0.0:
        return
    state.position[0], state.position[1] = fine, window.cycle[row]
    state.mass[0] += weight
    state.mass[1] += 1.0
    state.mass[2] += (window.norm[row] - state.mass[2]) / state.mass[1]
    cells = cells_of(window, tables, row)
    if not known:
        score_kinds(tables, state.vectors, outputs, fine, cells, live)
    losses(code, level, outputs, live, window.target[row], slope, value, repeated)
    for k in range(len(live)):
        slope[k] *= weight
    eta = np.float32(1.0 / max(state.mass[2], window.norm[row]))
    step_kinds(tables, state, outputs, fine, cells, slope, eta)


@jit
def losses(
    code: Any, level: Any, outputs: Any, score: Any, target: Any, slope: Any, value: Any, repeated: Any
) -> Any:
    """Set value [K] and slope [K * C] to the losses of all candidates on one row, and their derivatives."""
    count = len(score) // outputs
    for k in range(count):
        repeated[k] = target
    if code == SOFTMAX:
        shape = (count, outputs)
        softmax_slopes(score.reshape(shape), repeated, slope[: len(score)].reshape(shape), value)
    else:
        slopes(code, level, count, score, 0, repeated, 0, slope, 0, value)


@jit
def zero_invalid_scores(score: Any, largest_target: Any) -> Any:
    """Set scores to 0 that are NaN, infinite, or far beyond the largest absolute target so far."""
    limit = np.float32(MAX_SCORE_RATIO * (1.0 + largest_target))
    for k in range(len(score)):
        if not abs(score[k]) < limit:
            score[k] = np.float32(0.0)


@jit
def cells_of(window: RowWindow, tables: Any, row: Any) -> Any:
    """Return (columns, values, first, last, first mark) of a row; its marks are the last cells."""
    first, last = window.starts[row], window.starts[row + 1]
    return window.columns, window.values, first, last, last - tables.mark.shape[1]


@jit
def overwrite(array: Any, source: Any) -> Any:
    """Copy all numbers of an array. The same as a slice assignment takes two seconds to compile."""
    for at in range(array.size):
        array.flat[at] = source.flat[at]


@jit
def walk(
    tables: Any,
    plan: Any,
    state: CandidateState,
    window: RowWindow,
    span: Any,
    scored: Any,
    work: Any,
) -> Any:
    """Predict the rows from span[1] on, and train on those from span[0] on when their labels are known.

    At each freeze time (a new value of `frozen_at`), the weights are copied to `state.early`. The
    walk-forward protocol predicts from this copy, the progressive one from the current weights.

    span: first row that is not trained on; first new row; and how many rows to train on even if their labels
        are not known, all of them at the end of the stream.
    scored: (place, progressive, forward): index of each new row's predictions, -1 if it is not scored; and
        output arrays for the two protocols, [scored rows, K * C], or [0, K * C] to skip a protocol.
    Returns the number of rows of the window that were trained on.
    """
    outputs = plan.outputs
    chains = len(tables.active) * LANES * outputs
    place, progressive, forward = scored
    live = work[0]
    trained, ready = span[0], -1
    for row in range(span[1], len(window.weight)):
        if window.frozen_at[row] != state.position[3]:
            while trained < window.known_frozen[row - span[1]]:
                learn_row(tables, plan, state, window, trained, trained == ready, work)
                trained += 1
            if state.position[0] >= 0:
                close_visit(tables, state, outputs)
            overwrite(state.early, state.vectors)
            overwrite(state.early_frozen, state.frozen)
            overwrite(state.early_seen, state.seen)
            state.position[3] = window.frozen_at[row]
        while trained < window.known[row - span[1]]:
            learn_row(tables, plan, state, window, trained, trained == ready, work)
            trained += 1
        fine = window.fine[row]
        if fine != state.position[4] or window.cycle[row] != state.position[5]:
            # Read-outs are updated when a visit begins. A visit may be closed at any time.
            if state.position[0] >= 0:
                close_visit(tables, state, outputs)
            state.position[4], state.position[5] = fine, window.cycle[row]
        to = place[row - span[1]]
        if to < 0:
            continue
        cells = cells_of(window, tables, row)
        if len(progressive) > 0:
            score_kinds(tables, state.vectors, outputs, fine, cells, live)
            ready = row if trained == row else -1
            for k in range(chains):
                progressive[to, k] = live[k]
            readings = state.frozen, state.seen
            score_readings(tables, readings, outputs, fine, cells, live, progressive[to, chains:])
        if len(forward) > 0:
            out = forward[to]
            score_kinds(tables, state.early, outputs, fine, cells, out[:chains])
            readings = state.early_frozen, state.early_seen
            score_readings(tables, readings, outputs, fine, cells, out[:chains], out[chains:])
    while trained < span[2]:
        learn_row(tables, plan, state, window, trained, trained == ready, work)
        trained += 1
    return trained
