"""Mixture weights of the candidates, from their recent losses.

Each of eight strategies weights all candidates by exp(-rate * sum of their losses), where older losses decay
exponentially. Half-lives range from a few hundred to thousands of rows, and sums run over the entire stream
or over one slot. The strategies are weighted by the same rule. Scores are averaged, not selected: the losses
are convex in the score, so the mixture is at least as good as a candidate drawn by its weights; and a mixture
of linear models is one linear model.

The rates of some strategies are divided by the design effect of dependent rows; see `design_effect`.

Losses are scaled to negative log-likelihoods: log losses as they are, squared and Huber losses divided by
twice their mean, others divided by their mean. This makes the weights independent of the scale of the labels.
"""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.auto.kernels.candidate_sgd import losses, overwrite, zero_invalid_scores
from semicyclic.auto.kernels.design_effect import (
    FIRST_DESIGN_EFFECT,
    add_to_unit,
    close_unit,
    design_effect,
)
from semicyclic.auto.kernels.simd import LANES, dot8
from semicyclic.jit import jit
from semicyclic.method.kernels.losses import decay
from semicyclic.method.loss import HUBER, LOGISTIC, SOFTMAX, SQUARED
from semicyclic.types import Array

# Strategies: the half-life of losses in rows, the share of the rows so far to add to it, the rate, and
# whether the rate is divided by the design effect. All constants were tuned on the synthetic streams of
# `datasets.regimes`.
STREAM_STRATEGIES = (
    (4096.0, 1.0, 1.0, True),
    (1024.0, 0.0, 0.1, False),
    (1024.0, 0.2, 1.0, True),
    (1024.0, 0.2, 1.0, False),
    (1024.0, 0.2, 0.3, True),
    (1024.0, 0.2, 0.1, True),
)
SLOT_STRATEGIES = ((512.0, 0.0, 0.5, False), (64.0, 0.2, 0.5, False))
STRATEGIES = len(STREAM_STRATEGIES) + len(SLOT_STRATEGIES)
# The same numbers for the weights of the strategies.
META_STRATEGY = (1024.0, 0.2, 1.0, True)
# A candidate takes part once there are this many rows for each of its blocks.
MIN_ROWS_PER_BLOCK = 30
# Weights are recomputed when a visit begins and after this many rows.
REWEIGHT_EVERY_ROWS = 32
NEVER = -(2**62)
STRATEGY_TABLE = np.array([*STREAM_STRATEGIES, *SLOT_STRATEGIES])
# `dot8` computes the scores of all strategies at once, one per lane.
assert STRATEGIES == LANES


class MixingState(NamedTuple):
    """Losses of the K candidates so far, and the resulting mixture weights.

    stream_losses: [stream strategies, K] decayed sums of losses over the entire stream, relative to those of
        the mixture. slot_losses: [slots, slot strategies, K] the same within each slot.
    strategy_losses: [strategies] decayed sums of the losses of the strategies, also relative.
    rows: [slots] number of rows recorded, each counted as many times as it represents rows.
    rows_needed: [K] the number of rows from which each candidate takes part.
    totals: [4] rows in all slots; decayed mean loss of the mixture, and its total weight; largest absolute
        target so far.
    unit: [4, strategies] sums over the rows of the last freeze time. units: [8, strategies] sums over the
        units before. See `add_to_unit` and `close_unit`.
    weights: [K, strategies] current weights of candidates. shares: [strategies] those of strategies.
    loss: [slots, K + 1] weighted sums of losses, with the mixture last. weight: [slots] weight of these rows.
    block_losses: [blocks, 3] of the mixture, by block of the schedule: sums of weights, of weighted losses
        and of weighted squared losses.
    early_*: `stream_losses`, `slot_losses`, `strategy_losses`, the first two `totals` and the design effect
        at the last freeze time, in the walk-forward protocol; empty in the progressive one.
    position: [5] slot and visit for which weights were computed, rows since then, last freeze time, freeze
        time of the last row recorded.
    """

    stream_losses: Array
    slot_losses: Array
    strategy_losses: Array
    rows: Array
    rows_needed: Array
    totals: Array
    unit: Array
    units: Array
    weights: Array
    shares: Array
    loss: Array
    weight: Array
    block_losses: Array
    early_stream_losses: Array
    early_slot_losses: Array
    early_strategy_losses: Array
    early_totals: Array
    position: Array


class MixingRows(NamedTuple):
    """Scored rows, without features, one array entry per row.

    slot, visit, block: slot, number of the visit to the slot, block of the schedule. clock: arrival time.
    frozen_at: freeze time, that is when the models that predict the row in the walk-forward protocol were
        last updated. Both times in microseconds.
    target, weight: encoded label and weight.
    represents: number of stream rows that a scored row represents, more than 1 if rows are subsampled.
    """

    slot: Array
    visit: Array
    clock: Array
    frozen_at: Array
    target: Array
    weight: Array
    block: Array
    represents: Array


def new_mixing_state(slots: int, blocks: int, candidate_blocks: Array, *, walk_forward: bool) -> MixingState:
    """Return the state before any label is known, with equal weights.

    candidate_blocks: [K] number of blocks that each candidate distinguishes.
    walk_forward: weights use only the losses known at the last freeze time.
    """
    early, candidates = int(walk_forward), len(candidate_blocks)
    needed = np.where(candidate_blocks > 1, MIN_ROWS_PER_BLOCK * candidate_blocks, 0)
    return MixingState(
        np.zeros((len(STREAM_STRATEGIES), candidates), np.float32),
        np.zeros((slots, len(SLOT_STRATEGIES), candidates), np.float32),
        np.zeros(STRATEGIES, np.float32),
        np.zeros(slots),
        needed.astype(np.float64),
        np.zeros(4),
        np.zeros((4, STRATEGIES)),
        np.zeros((8, STRATEGIES)),
        np.full((candidates, STRATEGIES), np.float32(1 / candidates), np.float32),
        np.full(STRATEGIES, np.float32(1 / STRATEGIES), np.float32),
        np.zeros((slots, candidates + 1)),
        np.zeros(slots),
        np.zeros((blocks, 3)),
        np.zeros((early * len(STREAM_STRATEGIES), candidates), np.float32),
        np.zeros((early * slots, len(SLOT_STRATEGIES), candidates), np.float32),
        np.zeros(early * STRATEGIES, np.float32),
        np.array([0.0, 0.0, FIRST_DESIGN_EFFECT] * early),
        np.array([-1, NEVER, 0, NEVER, NEVER]),
    )


@jit
def unit(code: Any, mean: Any) -> Any:
    """Return the divisor that scales a loss to a negative log-likelihood. mean: the mixture's mean loss."""
    if code in (LOGISTIC, SOFTMAX) or mean <= 0.0:
        return 1.0
    return 2.0 * mean if code in (SQUARED, HUBER) else mean


@jit
def rate_of(strategy: Any, scale: Any, effect: Any) -> Any:
    """Return the rate of a strategy. scale: divisor of losses. effect: the design effect."""
    divisor = effect if strategy[3] > 0.0 else 1.0
    return strategy[2] / (scale * divisor)


@jit
def weigh(sums: Any, rate: Any, rows: Any, needed: Any, spare: Any, out: Any) -> Any:
    """Set out = exp(-rate * sums), normalized to sum to one, and 0 where more than `rows` rows are needed.

    spare: scratch of the same length.
    """
    smallest, times = np.float32(np.inf), np.float32(-rate)
    for k in range(len(sums)):
        if needed[k] <= rows:
            smallest = min(smallest, sums[k])
    for k in range(len(sums)):
        spare[k] = decay(times * (sums[k] - smallest)) if needed[k] <= rows else np.float32(0.0)
    total = np.float32(0.0)
    for k in range(len(sums)):
        total += spare[k]
    for k in range(len(sums)):
        out[k] = spare[k] / total


@jit
def weigh_all(state: MixingState, slot: Any, code: Any) -> Any:
    """Recompute the current weights for a slot."""
    walk_forward = len(state.early_strategy_losses) > 0
    scale = unit(code, state.early_totals[1] if walk_forward else state.totals[1])
    spare = np.empty(len(state.weights), np.float32)
    stream_sums = state.early_stream_losses if walk_forward else state.stream_losses
    slot_sums = state.early_slot_losses if walk_forward else state.slot_losses
    rows = state.early_totals[0] if walk_forward else state.totals[0]
    effect = state.early_totals[2] if walk_forward else design_effect(state.units)
    none = np.zeros(len(state.shares))
    for s in range(len(STRATEGY_TABLE)):
        sums = stream_sums[s] if s < len(stream_sums) else slot_sums[slot, s - len(stream_sums)]
        rate = rate_of(STRATEGY_TABLE[s], scale, effect)
        weigh(sums, rate, rows, state.rows_needed, spare, state.weights[:, s])
    weigh(
        state.early_strategy_losses if walk_forward else state.strategy_losses,
        rate_of(META_STRATEGY, scale, effect),
        rows,
        none,
        spare,
        state.shares,
    )
    state.position[0] = slot
    state.position[2] = 0


@jit
def fading_factor(half_life: Any, share: Any, rows: Any, count: Any) -> Any:
    """Return the factor by which older losses decay after `count` more rows.

    half_life: in rows. share: share of the `rows` so far that is added to the half-life.
    """
    return 2.0 ** (-count / (half_life + share * rows))


@jit
def fade_and_add(sums: Any, keep: Any, weight: Any, value: Any, mixed: Any) -> Any:
    """Decay the sums by `keep`, then add each loss in excess of the mixture's, times `weight`."""
    for k in range(len(value)):
        sums[k] = keep * sums[k] + weight * (value[k] - mixed)


@jit
def set_aside(value: Any, mixed: Any, needed: Any, rows: Any) -> Any:
    """Set the losses of candidates that do not take part yet to that of the mixture."""
    for k in range(len(value)):
        if needed[k] > rows:
            value[k] = mixed


@jit
def add_losses(
    state: MixingState, slot: Any, value: Any, strategy_value: Any, mixed: Any, weight: Any, represents: Any
) -> Any:
    """Add the losses of one row to all sums.

    value: [K] losses of candidates. strategy_value: [strategies] losses of strategies.
    mixed: loss of the mixture.
    represents: number of rows that this one represents. The sums hold differences to the mixture's loss, so
    single precision suffices however long the stream is.
    """
    stream_sums, slot_sums = state.stream_losses, state.slot_losses
    times = weight * np.float32(represents)
    count = len(value)
    for k in range(count):
        state.loss[slot, k] += weight * value[k]
    state.loss[slot, count] += weight * mixed
    state.weight[slot] += weight
    set_aside(value, mixed, state.rows_needed, state.totals[0])
    for s in range(len(stream_sums)):
        half_life, share = STRATEGY_TABLE[s, 0], STRATEGY_TABLE[s, 1]
        keep = np.float32(fading_factor(half_life, share, state.totals[0], represents))
        fade_and_add(stream_sums[s], keep, times, value, mixed)
    for s in range(slot_sums.shape[1]):
        strategy = len(stream_sums) + s
        half_life, share = STRATEGY_TABLE[strategy, 0], STRATEGY_TABLE[strategy, 1]
        keep = np.float32(fading_factor(half_life, share, state.rows[slot], represents))
        fade_and_add(slot_sums[slot, s], keep, times, value, mixed)
    keep = np.float32(fading_factor(META_STRATEGY[0], META_STRATEGY[1], state.totals[0], represents))
    fade_and_add(state.strategy_losses, keep, times, strategy_value, mixed)
    state.totals[0] += represents
    state.rows[slot] += represents
    state.totals[2] = keep * state.totals[2] + times
    if state.totals[2] > 0.0:
        state.totals[1] += times / state.totals[2] * (mixed - state.totals[1])
    state.position[2] += 1


@jit
def mix(
    state: MixingState, score: Any, outputs: Any, numbers: Any, spare: Any, strategy_score: Any, auto: Any
) -> Any:
    """Mix the candidates' scores of one row.

    Sets strategy_score[s * C + c] to the score of strategy s, and auto[c] to that of the mixture.
    numbers: [K] 0 to K - 1, the column indices for `dot8`. spare: scratch of K and of STRATEGIES numbers.
    """
    weights, shares = state.weights.ravel(), state.shares
    output_scores, part = spare
    for c in range(outputs):
        for k in range(len(numbers)):
            output_scores[k] = score[k * outputs + c]
        dot8(weights, -1, 0, STRATEGIES, numbers, output_scores, 0, len(numbers), part)
        auto[c] = np.float32(0.0)
        for s in range(STRATEGIES):
            strategy_score[s * outputs + c] = part[s]
            auto[c] += shares[s] * part[s]


@jit
def choose(state: MixingState, plan: Any, rows: Any, span: Any, known: Any, scores: Any, work: Any) -> Any:
    """Mix the scores of the rows from span[1] on, and record losses from span[0] on as labels become known.

    rows: the fields of `MixingRows`. At least the losses of the rows before span[2] are recorded: of all rows
        at the end of the stream.
    known: number of rows whose labels are known when a row from span[1] on arrives, and at its freeze time.
    scores: (candidates [rows, K * C], strategies [rows, S * C], mixture [rows, C]); before span[1] they are
        inputs, as predicted earlier; from there on, strategies and mixture are outputs.
    Returns the number of rows whose losses are recorded, counted from the first.
    """
    code, _, outputs = plan
    slot, visit, _, frozen_at, target, weight, block, represents = rows
    score, strategy_score, auto = scores
    walk_forward = len(state.early_strategy_losses) > 0
    count = len(state.weights)
    numbers = np.arange(count).astype(np.uint32)
    spare = np.empty(count, np.float32), np.empty(STRATEGIES, np.float32)
    known_now, known_frozen = known
    columns = slot, frozen_at, target, weight, block, represents
    recorded = span[0]
    for row in range(span[1], len(slot)):
        if walk_forward and frozen_at[row] != state.position[3]:
            while recorded < known_frozen[row - span[1]]:
                record_losses(state, plan, columns, scores, recorded, work)
                recorded += 1
            overwrite(state.early_stream_losses, state.stream_losses)
            overwrite(state.early_slot_losses, state.slot_losses)
            overwrite(state.early_strategy_losses, state.strategy_losses)
            state.early_totals[0], state.early_totals[1] = state.totals[0], state.totals[1]
            state.early_totals[2] = design_effect(state.units)
            state.position[3] = frozen_at[row]
            state.position[1] = NEVER
        while recorded < known_now[row - span[1]]:
            record_losses(state, plan, columns, scores, recorded, work)
            recorded += 1
        outdated = not walk_forward and state.position[2] >= REWEIGHT_EVERY_ROWS
        if visit[row] != state.position[1] or slot[row] != state.position[0] or outdated:
            weigh_all(state, slot[row], code)
            state.position[1] = visit[row]
        zero_invalid_scores(score[row], state.totals[3])
        mix(state, score[row], outputs, numbers, spare, strategy_score[row], auto[row])
    while recorded < span[2]:
        record_losses(state, plan, columns, scores, recorded, work)
        recorded += 1
    return recorded


@jit
def record_losses(state: MixingState, plan: Any, rows: Any, scores: Any, row: Any, work: Any) -> Any:
    """Compute and record the losses of one row whose label has become known."""
    code, level, outputs = plan
    slot, frozen_at, target, weight, block, represents = rows
    score, strategy_score, auto = scores
    slope, value, repeated, strategy_value, auto_value = work
    if weight[row] == 0.0:
        return
    count = score.shape[1] // outputs
    state.totals[3] = max(state.totals[3], abs(target[row]))
    losses(code, level, outputs, score[row], target[row], slope, value, repeated)
    losses(code, level, outputs, strategy_score[row], target[row], slope, strategy_value, repeated)
    losses(code, level, outputs, auto[row], target[row], slope, auto_value, repeated)
    if frozen_at[row] != state.position[4]:
        close_unit(state.unit, state.units)
        state.position[4] = frozen_at[row]
    add_to_unit(state.unit, strategy_value, auto_value[0], weight[row], represents[row])
    add_losses(
        state,
        slot[row],
        value[:count],
        strategy_value[:STRATEGIES],
        auto_value[0],
        weight[row],
        represents[row],
    )
    mixture_loss = np.float64(auto_value[0])
    state.block_losses[block[row], 0] += weight[row]
    state.block_losses[block[row], 1] += weight[row] * mixture_loss
    state.block_losses[block[row], 2] += weight[row] * mixture_loss * mixture_loss


@jit
def weights_in(state: MixingState, slot: Any, code: Any, out: Any) -> Any:
    """Set out[k] to the weight of candidate k in a slot, from all losses recorded so far."""
    scale = unit(code, state.totals[1])
    spare, weights = np.empty(len(out), np.float32), np.empty(len(out), np.float32)
    shares, spare_shares = np.empty(STRATEGIES, np.float32), np.empty(STRATEGIES, np.float32)
    rows, none, effect = state.totals[0], np.zeros(STRATEGIES), design_effect(state.units)
    weigh(state.strategy_losses, rate_of(META_STRATEGY, scale, effect), rows, none, spare_shares, shares)
    for k in range(len(out)):
        out[k] = 0.0
    for s in range(STRATEGIES):
        sums = (
            state.stream_losses[s]
            if s < len(state.stream_losses)
            else state.slot_losses[slot, s - len(state.stream_losses)]
        )
        weigh(sums, rate_of(STRATEGY_TABLE[s], scale, effect), rows, state.rows_needed, spare, weights)
        for k in range(len(out)):
            out[k] += shares[s] * weights[k]
