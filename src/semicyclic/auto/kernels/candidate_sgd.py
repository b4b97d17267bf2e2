"""SGD of all candidates in parallel, with labels that arrive late.

Rows are predicted when they come, by what is known then: a label is known after its row's time and the
delay have passed, never at that very instant. Rows are learnt from one by one, in the same order.

The lanes of one column lie side by side, so a cell of a row is one multiply-add for eight candidates.
"""

from typing import Any

import numpy as np

from semicyclic.auto.candidate_state import FRESH, KINDS, STEPS, CandidateState, RowWindow
from semicyclic.auto.candidates import CYCLE, FADING, HALF_LIFE, LAST, MEAN, RATES, SHARES, TAIL
from semicyclic.auto.kernels.simd import LANES, dot8, move8
from semicyclic.jit import jit
from semicyclic.method.kernels.losses import slopes, softmax_slopes
from semicyclic.method.loss import SOFTMAX

assert len(SHARES) == len(RATES) == STEPS
# Keeps 0 / 0 at 0, and is lost beside any other square.
TINY = 1e-30


@jit
def lay_out(cells: Any, place: Any, marks: Any, intercept: Any, value: Any, out: Any) -> Any:
    """Rows with their cells in columns of their own, then the intercept, then the marks of their place."""
    indptr, indices, values = cells
    fine, mark = marks
    starts, columns, held, norm = out
    for row in range(len(norm)):
        at = starts[row]
        total = value
        for p in range(indptr[row], indptr[row + 1]):
            columns[at] = place[indices[p]]
            held[at] = values[p]
            total += values[p] * values[p]
            at += 1
        columns[at] = intercept
        held[at] = value
        for k in range(mark.shape[1]):
            columns[at + 1 + k] = mark[fine[row], k]
            held[at + 1 + k] = 1.0
        norm[row] = max(total, 1e-6)


@jit
def score_kinds(tables: Any, vectors: Any, outputs: Any, fine: Any, cells: Any, out: Any) -> Any:
    """out[(kind * 8 + q) * C + c] = the score of a row by every chain as it stands.

    cells: the row's columns and values, where they begin and end, and where its marks begin.
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
                dot8(flat, base, stride, columns, values, begin, end, part)
                times = share[kind, fine, a]
                for q in range(LANES):
                    out[(kind * LANES + q) * outputs + c] += times * part[q]


@jit
def score_readings(
    tables: Any, readings: Any, outputs: Any, fine: Any, cells: Any, live: Any, out: Any
) -> Any:
    """out[((reading * 5 + kind) * 8 + q) * C + c]; where nothing was read yet, what is live.

    readings: (frozen, seen, early, seen early): groups that have an earlier state answer by that.
    """
    of, group, marked, bare = tables.of, tables.group, tables.marked, tables.bare
    columns, values, first, last, plain = cells
    frozen, seen, early, seen_early = readings
    now, before = frozen.ravel(), early.ravel()
    a_score = KINDS * LANES
    stride = outputs * a_score
    a_group = frozen.shape[1] * stride
    part = np.empty(LANES, np.float32)
    for reading in range(len(of)):
        own = group[reading, fine]
        begin = plain - 1 if bare[of[reading]] else first
        end = last if marked[of[reading]] else plain
        flat, cycles = (before, seen_early[own, 1]) if own < len(early) else (now, seen[own, 1])
        for kind in range(KINDS):
            to = (reading * KINDS + kind) * LANES
            for c in range(outputs):
                if cycles > 0:
                    base = own * a_group + c * a_score + kind * LANES
                    dot8(flat, base, stride, columns, values, begin, end, part)
                else:
                    for q in range(LANES):
                        part[q] = live[(of[reading] * LANES + q) * outputs + c]
                for q in range(LANES):
                    out[(to + q) * outputs + c] = part[q]


@jit
def step_kinds(
    tables: Any, state: CandidateState, outputs: Any, fine: Any, cells: Any, slope: Any, eta: Any
) -> Any:
    """Every chain takes a step along its slope. eta: the constant lanes' steps before their share."""
    active, share, marked, bare = tables.active, tables.share, tables.marked, tables.bare
    columns, values, first, last, plain = cells
    vectors, squares, lag = state.vectors.ravel(), state.squares.ravel(), state.lag.ravel()
    mass = np.float32(state.mass[0])
    stride = outputs * STEPS
    width = state.vectors.shape[1] * stride
    move, rates = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    rates[0] = TINY
    for q in range(STEPS):
        rates[STEPS + q] = RATES[q]
    for kind in range(len(active)):
        begin = plain - 1 if bare[kind] else first
        own = columns, values, begin, last if marked[kind] else plain
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
                    move[q] = -np.float32(SHARES[q]) * eta / energy * times * slope[from_slope]
                    move[STEPS + q] = times * slope[from_slope + STEPS * outputs]
                beside = vector * width + c * STEPS
                places = 2 * beside, beside, 2 * (kind * width + c * STEPS), stride
                move8(vectors, squares, lag, places, own, move, rates, mass * times)


@jit
def close_visit(tables: Any, state: CandidateState, outputs: Any) -> Any:
    """Add the mean over the open visit to the read-outs of its groups."""
    active, share, of, group = tables.active, tables.share, tables.of, tables.group
    fine, cycle, mass = state.open[0], state.open[1], state.mass[0]
    vectors, lag, held, seen = state.vectors, state.lag, state.held, state.seen
    width = vectors.shape[1]
    end = np.empty(LANES, np.float32)
    part = np.empty(5, np.float32)
    for reading in range(len(of)):
        own, kind = group[reading, fine], of[reading]
        frozen, fresh = state.frozen[own], state.fresh[own]
        # A row that is late may be of a cycle before: it counts as one of the latest.
        if seen[own, 1] == 0 or cycle > seen[own, 0]:
            if seen[own, 1] > 0:
                held[own, FADING] *= 2.0 ** (-(cycle - seen[own, 0]) / HALF_LIFE)
            held[own, CYCLE] = 0.0
            seen[own, 0] = cycle
            seen[own, 1] += 1
            count = seen[own, 1]
            if count > 1 and count & (count - 1) == 0:
                # From the last power of two on: what is fresh becomes the tail.
                frozen[:, :, TAIL, :] = fresh
                held[own, TAIL] = held[own, FRESH]
                held[own, FRESH] = 0.0
        for which in range(5):
            held[own, which] += mass
            part[which] = mass / held[own, which]
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
                    frozen[j, c, TAIL, q] += part[TAIL] * (mean - frozen[j, c, TAIL, q])
                    frozen[j, c, FADING, q] += part[FADING] * (mean - frozen[j, c, FADING, q])
                    frozen[j, c, CYCLE, q] += part[CYCLE] * (mean - frozen[j, c, CYCLE, q])
                    frozen[j, c, LAST, q] = end[q]
                    fresh[j, c, q] += part[FRESH] * (mean - fresh[j, c, q])
    lag[:] = np.float32(0.0)
    state.open[0] = -1
    state.mass[0] = 0.0


@jit
def learn_row(
    tables: Any, plan: Any, state: CandidateState, window: RowWindow, row: Any, known: Any, work: Any
) -> Any:
    """All chains learn from one row. known: whether its scores by all chains stand in `work` already."""
    code, level, outputs = plan
    live, slope, value, repeated = work
    fine = window.fine[row]
    if state.open[0] >= 0 and (state.open[0] != fine or state.open[1] != window.cycle[row]):
        close_visit(tables, state, outputs)
    weight = window.weight[row]
    state.open[2] += 1
    if weight == 0.0:
        return
    state.open[0], state.open[1] = fine, window.cycle[row]
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
    """Slope [K * C] and value [K] of every candidate's score of one row."""
    count = len(score) // outputs
    for k in range(count):
        repeated[k] = target
    if code == SOFTMAX:
        shape = (count, outputs)
        softmax_slopes(score.reshape(shape), repeated, slope[: len(score)].reshape(shape), value)
    else:
        slopes(code, level, count, score, 0, repeated, 0, slope, 0, value)


@jit
def cells_of(window: RowWindow, tables: Any, row: Any) -> Any:
    """A row's cells; the last ones are its marks."""
    first, last = window.starts[row], window.starts[row + 1]
    return window.columns, window.values, first, last, last - tables.mark.shape[1]


@jit
def walk(
    tables: Any,
    plan: Any,
    state: CandidateState,
    window: RowWindow,
    span: Any,
    delay: Any,
    asked: Any,
    work: Any,
) -> Any:
    """Predict the rows from span[1] on, and learn from those from span[0] on when their labels are known.

    asked: (place, progressive, forward): where the answers for each of the rows go, -1 if it is not asked;
    and room for them, each [rows asked, K * C], or [0, K * C] where that question is not asked. Returns how
    many rows of the window were learnt from.
    """
    outputs = plan[2]
    chains = len(tables.active) * LANES * outputs
    place, progressive, forward = asked
    early, early_seen = state.early_frozen, state.early_seen
    apart = len(early)
    none, none_seen = early[:0], early_seen[:0]
    live = work[0]
    learnt, ready = span[0], -1
    for row in range(span[1], len(window.clock)):
        if window.dawn[row] != state.open[3]:
            while learnt < row and window.clock[learnt] + delay < window.dawn[row]:
                learn_row(tables, plan, state, window, learnt, learnt == ready, work)
                learnt += 1
            if state.open[0] >= 0:
                close_visit(tables, state, outputs)
            state.early[:] = state.vectors
            early[:] = state.frozen[:apart]
            early_seen[:] = state.seen[:apart]
            state.open[3] = window.dawn[row]
        while learnt < row and window.clock[learnt] + delay < window.clock[row]:
            learn_row(tables, plan, state, window, learnt, learnt == ready, work)
            learnt += 1
        fine = window.fine[row]
        if fine != state.open[4] or window.cycle[row] != state.open[5]:
            # Read-outs are brought up to date when a visit begins. A visit may be closed at any time.
            if state.open[0] >= 0:
                close_visit(tables, state, outputs)
            state.open[4], state.open[5] = fine, window.cycle[row]
        to = place[row - span[1]]
        if to < 0:
            continue
        cells = cells_of(window, tables, row)
        if len(progressive) > 0:
            score_kinds(tables, state.vectors, outputs, fine, cells, live)
            ready = row if learnt == row else -1
            progressive[to, :chains] = live
            readings = state.frozen, state.seen, none, none_seen
            score_readings(tables, readings, outputs, fine, cells, live, progressive[to, chains:])
        if len(forward) > 0:
            then = forward[to]
            score_kinds(tables, state.early, outputs, fine, cells, then[:chains])
            readings = state.frozen, state.seen, early, early_seen
            score_readings(tables, readings, outputs, fine, cells, then[:chains], then[chains:])
    return learnt


@jit
def learn_rest(
    tables: Any, plan: Any, state: CandidateState, window: RowWindow, first: Any, work: Any
) -> Any:
    """Learn from the rows that wait, when none will follow."""
    for row in range(first, len(window.clock)):
        learn_row(tables, plan, state, window, row, False, work)
    if state.open[0] >= 0:
        close_visit(tables, state, plan[2])
