"""Mixture weights of the candidates, from their recent losses.

Each of a few strategies weighs all candidates by exp(-rate * sum of their losses), where losses fade: over
the last few hundred rows or the last thousands, of the whole stream or of the block alone. The strategies
are weighed by the same rule. Scores are mixed, not chosen: the losses are convex in the score, so a mixture
is at least as good as a draw by its weights; and a mixture of linear models is one linear model.

Losses are taken as negative log likelihoods: log losses as they are, squared errors in units of twice their
own mean, others in units of their mean. So the rule knows no scale of labels.
"""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.auto.kernels.candidate_sgd import losses
from semicyclic.auto.kernels.simd import LANES, dot8
from semicyclic.jit import jit
from semicyclic.method.kernels.losses import decay
from semicyclic.method.loss import LOGISTIC, SOFTMAX, SQUARED
from semicyclic.types import Array

# Strategies: in how many rows a loss fades to a half; plus this share of the rows so far; and the rate.
# All constants were fixed on the synthetic streams of `experiments.regimes`.
WHOLE = (
    (256.0, 0.0, 0.5),
    (1024.0, 0.0, 0.1),
    (4096.0, 0.0, 0.02),
    (1024.0, 0.2, 1.0),
    (1024.0, 0.2, 0.1),
    (1024.0, 0.2, 0.01),
)
OWN = ((512.0, 0.0, 0.5), (64.0, 0.2, 0.5))
STRATEGIES = len(WHOLE) + len(OWN)
# The same for the strategies themselves.
TOP = (1024.0, 0.2, 0.2)
# Weights are computed anew when a visit begins, and after so many rows.
OFTEN = 32
# A score so many times as large as any target is none.
ABSURD = 1e6
TABLE = np.array([*WHOLE, *OWN])
# Strategies are mixed abreast, as candidates are.
assert STRATEGIES == LANES


class MixingState(NamedTuple):
    """What is known of the candidates' losses.

    whole: [strategies of the whole stream, K] faded sums of losses; own: [slots, strategies of a slot, K].
    top: [strategies]. rows: [slots] rows learnt from. gauge: rows learnt from in all; the mean loss of the
        mixture, and its weight; the largest target so far.
    weights: [K, strategies] those in force; shares: [strategies].
    loss: [slots, K + 1] all losses summed, the mixture's last; weight: [slots] of these rows.
    lost: [blocks, 3] of the mixture in each block of the schedule: rows, losses, losses squared.
    early_whole, early_own, early_top, early_mean: the sums and the mean loss as of dawn, where weights are to
        be of then; else empty.
    place: the slot and visit that weights are for, rows since they were computed, and the last dawn.
    """

    whole: Array
    own: Array
    top: Array
    rows: Array
    gauge: Array
    weights: Array
    shares: Array
    loss: Array
    weight: Array
    lost: Array
    early_whole: Array
    early_own: Array
    early_top: Array
    early_mean: Array
    place: Array


class MixingRows(NamedTuple):
    """What a choice is told of rows: when they come, what they are, and for how many each stands."""

    slot: Array
    visit: Array
    clock: Array
    dawn: Array
    target: Array
    weight: Array
    block: Array
    stands: Array


def no_bets(slots: int, blocks: int, candidates: int, *, at_dawn: bool) -> MixingState:
    """Nothing is known yet. at_dawn: weights stay as they are from one dawn to the next."""
    then = int(at_dawn)
    return MixingState(
        np.zeros((len(WHOLE), candidates), np.float32),
        np.zeros((slots, len(OWN), candidates), np.float32),
        np.zeros(STRATEGIES, np.float32),
        np.zeros(slots),
        np.zeros(4),
        np.full((candidates, STRATEGIES), np.float32(1 / candidates), np.float32),
        np.full(STRATEGIES, np.float32(1 / STRATEGIES), np.float32),
        np.zeros((slots, candidates + 1)),
        np.zeros(slots),
        np.zeros((blocks, 3)),
        np.zeros((then * len(WHOLE), candidates), np.float32),
        np.zeros((then * slots, len(OWN), candidates), np.float32),
        np.zeros(then * STRATEGIES, np.float32),
        np.zeros(then),
        np.array([-1, -1, 0, -(2**62)]),
    )


@jit
def unit(code: Any, mean: Any) -> Any:
    """What a loss is divided by to be a negative log likelihood."""
    if code in (LOGISTIC, SOFTMAX) or mean <= 0.0:
        return 1.0
    return 2.0 * mean if code == SQUARED else mean


@jit
def weigh(sums: Any, rate: Any, spare: Any, out: Any) -> Any:
    """out = exp(-rate * sums), made to sum to one. `spare` is room for as many numbers."""
    least, times = sums[0], np.float32(-rate)
    for k in range(len(sums)):
        least = min(least, sums[k])
    for k in range(len(sums)):
        spare[k] = decay(times * (sums[k] - least))
    total = np.float32(0.0)
    for k in range(len(sums)):
        total += spare[k]
    for k in range(len(sums)):
        out[k] = spare[k] / total


@jit
def weigh_all(bets: MixingState, slot: Any, code: Any) -> Any:
    """Compute the weights in force in a slot anew."""
    at_dawn = len(bets.early_top) > 0
    scale = unit(code, bets.early_mean[0] if at_dawn else bets.gauge[1])
    spare = np.empty(len(bets.weights), np.float32)
    whole = bets.early_whole if at_dawn else bets.whole
    own = bets.early_own if at_dawn else bets.own
    for s in range(len(TABLE)):
        sums = whole[s] if s < len(whole) else own[slot, s - len(whole)]
        weigh(sums, TABLE[s, 2] / scale, spare, bets.weights[:, s])
    weigh(bets.early_top if at_dawn else bets.top, TOP[2] / scale, spare, bets.shares)
    bets.place[0] = slot
    bets.place[2] = 0


@jit
def fade(half_life: Any, share: Any, rows: Any, count: Any) -> Any:
    """By how much losses fade with so many rows."""
    return 2.0 ** (-count / (half_life + share * rows))


@jit
def fade_and_add(sums: Any, keep: Any, weight: Any, value: Any, mixed: Any) -> Any:
    """Fade sums, and add what each candidate lost more than the mixture."""
    for k in range(len(value)):
        sums[k] = keep * sums[k] + weight * (value[k] - mixed)


@jit
def learn_losses(
    bets: MixingState, slot: Any, value: Any, bet: Any, mixed: Any, weight: Any, stands: Any
) -> Any:
    """The label of a row is known: value [K] and bet [strategies] are its losses, and that of the mixture.

    stands: for how many rows it was asked. Sums are of differences to the mixture: so single precision does,
    however long the stream.
    """
    whole, own = bets.whole, bets.own
    times = weight * np.float32(stands)
    for s in range(len(whole)):
        keep = np.float32(fade(TABLE[s, 0], TABLE[s, 1], bets.gauge[0], stands))
        fade_and_add(whole[s], keep, times, value, mixed)
    for s in range(own.shape[1]):
        at = len(whole) + s
        keep = np.float32(fade(TABLE[at, 0], TABLE[at, 1], bets.rows[slot], stands))
        fade_and_add(own[slot, s], keep, times, value, mixed)
    keep = np.float32(fade(TOP[0], TOP[1], bets.gauge[0], stands))
    fade_and_add(bets.top, keep, times, bet, mixed)
    bets.gauge[0] += stands
    bets.rows[slot] += stands
    bets.gauge[2] = keep * bets.gauge[2] + times
    if bets.gauge[2] > 0.0:
        bets.gauge[1] += times / bets.gauge[2] * (mixed - bets.gauge[1])
    bets.place[2] += 1
    count = len(value)
    for k in range(count):
        bets.loss[slot, k] += weight * value[k]
    bets.loss[slot, count] += weight * mixed
    bets.weight[slot] += weight


@jit
def mix(bets: MixingState, score: Any, outputs: Any, numbers: Any, spare: Any, bet: Any, auto: Any) -> Any:
    """bet[s * C + c] = the score of each strategy, auto[c] = that of all. numbers: 0 to K-1."""
    weights, shares = bets.weights.ravel(), bets.shares
    own, part = spare
    for c in range(outputs):
        for k in range(len(numbers)):
            own[k] = score[k * outputs + c]
        dot8(weights, 0, STRATEGIES, numbers, own, 0, len(numbers), part)
        auto[c] = np.float32(0.0)
        for s in range(STRATEGIES):
            bet[s * outputs + c] = part[s]
            auto[c] += shares[s] * part[s]


@jit
def tame(score: Any, most: Any) -> Any:
    """A score that is no number, or absurd, says nothing. most: the largest target so far."""
    limit = np.float32(ABSURD * (1.0 + most))
    for k in range(len(score)):
        if not abs(score[k]) < limit:
            score[k] = np.float32(0.0)


@jit
def choose(bets: MixingState, plan: Any, rows: Any, span: Any, delay: Any, scores: Any, work: Any) -> Any:
    """Mix the scores of rows from span[1] on, and learn losses of rows from span[0] on as labels are known.

    rows: as `Told` has them. scores: (all [rows, K * C], strategies
    [rows, S * C], mixed [rows, C]), those before span[1] as they were when predicted. Returns how many rows
    are learnt from.
    """
    code, _, outputs = plan
    slot, visit, clock, dawn, target, weight, block, stands = rows
    score, bet, auto = scores
    at_dawn = len(bets.early_top) > 0
    count = len(bets.weights)
    numbers = np.arange(count).astype(np.uint32)
    spare = np.empty(count, np.float32), np.empty(STRATEGIES, np.float32)
    learnt = span[0]
    for row in range(span[1], len(clock)):
        if at_dawn and dawn[row] != bets.place[3]:
            while learnt < row and clock[learnt] + delay < dawn[row]:
                know(bets, plan, (slot, target, weight, block, stands), scores, learnt, work)
                learnt += 1
            bets.early_whole[:] = bets.whole
            bets.early_own[:] = bets.own
            bets.early_top[:] = bets.top
            bets.early_mean[0] = bets.gauge[1]
            bets.place[3] = dawn[row]
        while learnt < row and clock[learnt] + delay < clock[row]:
            know(bets, plan, (slot, target, weight, block, stands), scores, learnt, work)
            learnt += 1
        often = not at_dawn and bets.place[2] >= OFTEN
        if visit[row] != bets.place[1] or slot[row] != bets.place[0] or often:
            weigh_all(bets, slot[row], code)
            bets.place[1] = visit[row]
        tame(score[row], bets.gauge[3])
        mix(bets, score[row], outputs, numbers, spare, bet[row], auto[row])
    return learnt


@jit
def know(bets: MixingState, plan: Any, rows: Any, scores: Any, row: Any, work: Any) -> Any:
    """The label of a row is known now."""
    code, level, outputs = plan
    slot, target, weight, block, stands = rows
    score, bet, auto = scores
    slope, value, repeated, bet_value, auto_value = work
    if weight[row] == 0.0:
        return
    count = score.shape[1] // outputs
    bets.gauge[3] = max(bets.gauge[3], abs(target[row]))
    losses(code, level, outputs, score[row], target[row], slope, value, repeated)
    losses(code, level, outputs, bet[row], target[row], slope, bet_value, repeated)
    losses(code, level, outputs, auto[row], target[row], slope, auto_value, repeated)
    learn_losses(
        bets, slot[row], value[:count], bet_value[:STRATEGIES], auto_value[0], weight[row], stands[row]
    )
    lost = np.float64(auto_value[0])
    bets.lost[block[row], 0] += weight[row]
    bets.lost[block[row], 1] += weight[row] * lost
    bets.lost[block[row], 2] += weight[row] * lost * lost


@jit
def know_rest(bets: MixingState, plan: Any, rows: Any, first: Any, scores: Any, work: Any) -> Any:
    """The labels of all rows that wait, when none will follow."""
    slot, _, clock, _, target, weight, block, stands = rows
    for row in range(first, len(clock)):
        know(bets, plan, (slot, target, weight, block, stands), scores, row, work)


@jit
def weights_in(bets: MixingState, slot: Any, code: Any, out: Any) -> Any:
    """out[k] = the weight of every candidate in a slot, by all that is known."""
    scale = unit(code, bets.gauge[1])
    spare, weights = np.empty(len(out), np.float32), np.empty(len(out), np.float32)
    shares, few = np.empty(STRATEGIES, np.float32), np.empty(STRATEGIES, np.float32)
    weigh(bets.top, TOP[2] / scale, few, shares)
    out[:] = 0.0
    for s in range(STRATEGIES):
        sums = bets.whole[s] if s < len(bets.whole) else bets.own[slot, s - len(bets.whole)]
        weigh(sums, TABLE[s, 2] / scale, spare, weights)
        for k in range(len(out)):
            out[k] += shares[s] * weights[k]
