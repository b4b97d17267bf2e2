"""Hedging between experts in every block: Prod (Section 6) and AdaHedge (de Rooij et al. 2014).

The experts are chains. In the paper there are two: expert 0 is w_t, the single chain through all blocks
(eq. 2), and expert 1 is w^i_t, the block's own chain (eq. 9). At a step t in block i:

    before z_t     p^e = q^e_t / sum_e' q^e'_t, of the block's weights q; the paper's p_t is p^1
    model          u_t = w^e_t with probability p^e; or the mixture sum_e p^e w^e_t, its expectation, which by
                   Jensen's inequality is never worse for a convex loss, and needs no coin
    after z_t      q^e_{t+1} = q^e_t (1 + nu (f(w_t, z_t) - f(w^e_t, z_t))) in block i; other blocks stay
    read-out       u~^i = (1 / |S_i|) sum_{t in S_i} u_t                                              (eq. 21)

As the paper states it (G = 1), Lemma 1: in block i, with T_i = |S_i| steps, the expected regret of u_t to w_t
is at most 2, and to w^i_t at most 2 B sqrt(T_i ln(B T_i)). Theorem 4 follows. In block i, add the regret of
its own chain (eq. 23; see `step`), divide by T_i, take expectations (E f(u_t, z_t) = F_i(u_t), as u_t has not
seen z_t), and use Jensen's inequality for the mean:

    E F_i(u~^i) <= F_i(w*^i) + 4 sqrt(B^2 ln(B T/m) / (T/m))

Over all blocks, add the regret 2 to w_t of every block, 2 m in all, and that of the single chain (eq. 22),
and divide by T:

    E F~(u~^1..u~^m) <= F(w*) + 2 m / T + 2 sqrt(B^2 / T) <= F(w*) + 4 sqrt(B^2 / T)

where the last step needs m <= B sqrt(T), that is m <= B^2 K n. The proof gives 4 B for 2 B in Lemma 1, and
with the step `tight` (4 sqrt(ln(B T/m)) + 1) sqrt(B^2 / (T/m)) in the first bound. It needs losses that
differ by at most 2 B, which projection of both chains ensures; B >= 1 for the regret 2; and T_i >= 4 ln(B
T_i), so that nu <= 1/(4 B). `theory.bounds` has every bound with its corrected constant.

AdaHedge needs none of these conditions. Its regret to every expert is O(R sqrt(T_i)) for losses in a range R,
so it gives the first bound, without the logarithm, but not the constant regret to w_t of the second.

The chains never depend on the probabilities. Both rules are written once, below, as plain functions: the
compiled loops of training call them compiled, and the strategy for Flower as they are.
"""

from dataclasses import dataclass
from math import copysign, exp, inf, isfinite, log, log1p, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.jit import jit_together
from semicyclic.types import Array

PROD, ADAHEDGE = range(2)
# Sums that would overflow stop here.
HUGE = 1e300
# A probability below this counts as 0: a mean cannot be taken with weights that underflow.
FAINT = 1e-20


class HedgeState(NamedTuple):
    """The state of a hedge over E experts in each of m blocks.

    share: [m, E] p^e, the probabilities of the next step.
    accumulator: [m, E] Prod's ln q^e; or AdaHedge's cumulative losses L^e, less the smallest.
    mixability_gap: [m] AdaHedge's Delta. rate, limit: [m] Prod's nu, and 2 M, at which differences of losses
        are clipped (infinite if they are not).
    total_loss: [m, E] each expert's own losses, each before the update of its step, summed over steps.
    steps: [m] number of steps.
    clipped, refused: [m] how many differences were clipped, and how many factors were not positive.
    """

    rule: int
    share: Array
    accumulator: Array
    mixability_gap: Array
    rate: Array
    limit: Array
    total_loss: Array
    steps: Array
    clipped: Array
    refused: Array

    def copy(self) -> "HedgeState":
        return HedgeState(self.rule, *(array.copy() for array in self[1:]))


# ------------------------------------------------------------------- the two rules, as kernels compile them


def prod(hedge_state: HedgeState, block: int, losses: Array) -> None:
    """Prod: q^e <- q^e (1 + nu (l^0 - l^e)) for e >= 1, kept as ln q^e; q^0 stays. p = q / sum q."""
    log_q, share, limit = hedge_state.accumulator[block], hedge_state.share[block], hedge_state.limit[block]
    top = log_q[0]
    for e in range(1, len(losses)):
        difference = losses[0] - losses[e]
        if abs(difference) > limit:
            hedge_state.clipped[block] += 1
            difference = copysign(limit, difference)
        gain = hedge_state.rate[block] * difference
        if gain > -1.0:
            log_q[e] += log1p(gain)
        else:
            hedge_state.refused[block] += 1
        top = max(top, log_q[e])
    total = 0.0
    for e in range(len(losses)):
        share[e] = exp(log_q[e] - top)
        total += share[e]
    for e in range(len(losses)):
        share[e] /= total


def adahedge(hedge_state: HedgeState, block: int, losses: Array) -> None:
    """AdaHedge over E experts with losses l and cumulative losses L.

    p^e is proportional to exp(-eta L^e) with the rate eta = ln E / Delta, after

        Delta <- Delta + max(0, <p, l> - (mix(eta, L + l) - mix(eta, L))),    L <- L + l,
        mix(eta, L) = min L - (1/eta) ln mean_e exp(-eta (L^e - min L)),      mix(inf, L) = min L.

    Only differences of losses count, so L is kept with its smallest entry 0: it neither overflows nor loses
    digits, however long the run.
    """
    L, share, gap = (
        hedge_state.accumulator[block],
        hedge_state.share[block],
        float(hedge_state.mixability_gap[block]),
    )
    low = losses[0]
    for e in range(1, len(losses)):
        low = min(low, losses[e])
    before = mix(gap, L)
    expected, least = 0.0, inf
    for e in range(len(losses)):
        more = min(losses[e] - low, HUGE)
        expected += share[e] * more
        L[e] = min(L[e] + more, HUGE)
        least = min(least, L[e])
    for e in range(len(losses)):
        L[e] -= least
    after = least + mix(gap, L)
    gap = min(gap + max(0.0, expected - (after - before)), HUGE)
    hedge_state.mixability_gap[block] = gap
    total = 0.0
    for e in range(len(losses)):
        share[e] = potential(gap, L[e], len(losses))
        total += share[e]
    for e in range(len(losses)):
        share[e] /= total


def mix(gap: float, L: Array) -> float:
    """The mix loss -(1/eta) ln mean_e exp(-eta L^e), where min L = 0; 0 at Delta = 0, where eta = inf."""
    if gap == 0.0:
        return 0.0
    total = 0.0
    for e in range(len(L)):
        total += potential(gap, L[e], len(L))
    return -gap / log(len(L)) * log(total / len(L))


def potential(gap: float, loss: float, experts: int) -> float:
    """exp(-eta L) with eta = ln E / Delta: 1 for a leader, whose L is 0; at Delta = 0, 0 for the others."""
    if loss == 0.0:
        return 1.0
    return exp(-log(experts) / gap * loss) if gap > 0.0 else 0.0


def learn_losses(hedge_state: HedgeState, block: int, losses: Array) -> None:
    """After a step in a block: update its probabilities, given every expert's loss.

    A loss that is not finite is counted, so that the run can report it, but does not move the probabilities.
    """
    finite = True
    hedge_state.steps[block] += 1
    for e in range(len(losses)):
        hedge_state.total_loss[block, e] += losses[e]
        finite = finite and isfinite(losses[e])
    if len(losses) == 1 or not finite:
        return
    if hedge_state.rule == PROD:
        prod(hedge_state, block, losses)
    else:
        adahedge(hedge_state, block, losses)


def in_play(hedge_state: HedgeState, block: int, toss: float, held: Array) -> None:
    """Fill `held` [E] with the weight of each expert in u_t: its probability, or 0 and 1 by a coin.

    toss: a uniform number. [0, 1) is divided into intervals of length p^1..p^N; the rest is expert 0's. A
        negative number stands for no coin.
    """
    for e in range(len(held)):
        held[e] = hedge_state.share[block, e] if hedge_state.share[block, e] >= FAINT else 0.0
    if toss < 0.0:
        return
    reached, pick = 0.0, 0
    for e in range(1, len(held)):
        reached += held[e]
        if pick == 0 and toss < reached:
            pick = e
    for e in range(len(held)):
        held[e] = 1.0 if e == pick else 0.0


def play(hedge_state: HedgeState, losses: Array, shares: Array) -> None:
    """The probabilities before each step of a table of losses [T, E], all in block 0."""
    for t in range(len(losses)):
        for e in range(losses.shape[1]):
            shares[t, e] = hedge_state.share[0, e]
        learn_losses(hedge_state, 0, losses[t])


# What kernels compile.
RULES = (potential, mix, prod, adahedge, learn_losses, in_play, play)


# ------------------------------------------------------------------------- the two rules, as users see them


@dataclass(frozen=True)
class AdaHedge:
    """AdaHedge: no rate to tune, no bound on losses needed.

    Parameters
    ----------
    coin : numpy.random.Generator, optional
        Draw one expert at every step (needed for losses that are not convex). By default the model is the
        mixture of all.
    """

    coin: np.random.Generator | None = None

    def __post_init__(self) -> None:
        _check_coin(self.coin)

    def first(self, experts: int, blocks: int = 1) -> HedgeState:
        """Return the state before the first step, of `experts` experts in each of `blocks` blocks."""
        return _first(ADAHEDGE, np.zeros((blocks, experts)), np.zeros(blocks), np.full(blocks, inf))

    def shares(self, losses: npt.ArrayLike) -> Array:
        """Return the probabilities [T, E] before each step, given the experts' `losses` [T, E]."""
        table = _losses(losses)
        return _play(self.first(table.shape[1]), table)


@dataclass(frozen=True)
class Prod:
    """Prod, as in Theorem 4: the weight of expert 0, the single chain, stays fixed.

    q^0 = 1 - delta stays. The weight q^e of each of the N others starts at delta / N and is multiplied by
    1 + nu (l^0 - l^e) at each of the T_i steps in its block, where |l^0 - l^e| <= 2 M and

        nu = sqrt(ln(N M T_i) / T_i) / (2 M),     delta = nu, or nu M if M < 1; at most 1/2.

    The paper has N = 1, M = B and T_i = T/m. Theorem 4 writes q = 1 - eta and q^i_1 = eta and does not define
    eta: its proof needs eta = nu, here delta. It also needs M >= 1; for a smaller M, delta = nu M keeps the
    regret to expert 0 at a constant times M.

    Parameters
    ----------
    bound : float, optional
        M. Differences beyond 2 M are clipped and counted: Lemma 1 then holds for the clipped losses. If all
        chains are projected (`radius=`), it is G B by default: two points of a ball of radius B are at most
        2 B apart, so their losses differ by at most 2 G B, and nothing needs to be clipped.
    lipschitz : float, optional
        G, if rows arrive in parts, so that their largest norm is not known beforehand.
    steps : int or sequence of int, optional
        T_i, one for all blocks or one for each, if the rows do not show it: a stream, or a run that will be
        extended. The guarantee is for that many steps.
    rate : float, optional
        nu, to choose another one.
    coin : numpy.random.Generator, optional
        Draw one expert at every step (see `in_play`). By default the model is the mixture of all.
    """

    bound: float | None = None
    lipschitz: float | None = None
    steps: int | tuple[int, ...] | None = None
    rate: float | None = None
    coin: np.random.Generator | None = None

    def __post_init__(self) -> None:
        for name in ("bound", "lipschitz", "rate"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0):
                raise ValueError(f"{name}={value!r}: must be positive and finite")
        _check_coin(self.coin)
        for each in (self.steps or ()) if isinstance(self.steps, tuple) else (self.steps,):
            if each is not None and (each != int(each) or each < 1):
                raise ValueError(f"steps={self.steps!r}: a block has a whole number of steps, at least 1")

    def first(self, experts: int, steps: npt.ArrayLike, *, bound: float | None = None) -> HedgeState:
        """Return the state before the first step, of `experts` experts in blocks with `steps` steps each.

        bound: M, if it follows from a projection and the rule itself states none.
        """
        counts = np.atleast_1d(np.asarray(steps))
        stated = self.bound if self.bound is not None else bound
        rates, deltas = zip(
            *(self._rate(experts - 1, int(T), stated, i) for i, T in enumerate(counts)), strict=True
        )
        delta = np.array(deltas)[:, None]
        stake = np.log(
            np.hstack([1 - delta, np.broadcast_to(delta / max(experts - 1, 1), (len(delta), experts - 1))])
        )
        limit = inf if self.bound is None else 2 * self.bound
        return _first(PROD, stake, np.array(rates), np.full(len(counts), limit))

    def _rate(self, N: int, T: int, M: float | None, block: int) -> tuple[float, float]:
        """nu and delta of one block, their conditions checked."""
        nu = self.rate
        if N == 0 or (nu is None and T == 0):
            return 0.0, 0.5  # there is nothing to hedge, or no rate: see check_rates
        if nu is None:
            if M is None:
                raise ValueError(
                    "Prod needs to know how far losses differ: give bound=M with |l0 - l1| <= 2 M, or rate="
                )
            need = steps_needed(M, N)
            if need > T:
                raise ValueError(
                    f"block {block} has {T} steps, and Prod with M={M:.4g} needs at least {need}: "
                    "use smaller minibatches or AdaHedge(), which has no such condition"
                )
            nu = prod_rate(T, M, N)
        elif M is not None and nu > 1 / (4 * M):
            raise ValueError(f"rate={nu!r}: with M={M:.4g} it must be at most 1/(4M) = {1 / (4 * M):.4g}")
        return nu, min(nu * min(M or 1.0, 1.0), 0.5)

    def shares(self, losses: npt.ArrayLike) -> Array:
        """Return the probabilities [T, 1 + N] before each step, given the experts' `losses` [T, 1 + N]."""
        table = _losses(losses)
        hedge_state = self.first(table.shape[1], self.steps or len(table))
        shares = _play(hedge_state, table)
        check_factors(hedge_state)
        return shares


def prod_rate(T: float, M: float, N: int = 1) -> float:
    """nu = sqrt(ln(N M T) / T) / (2 M)."""
    return sqrt(log(N * M * T) / T) / (2 * M)


def steps_needed(M: float, N: int = 1) -> int:
    """A T from which on N M T > 1 and nu <= 1/(4M), that is T >= 4 ln(N M T): the least of 4 or more."""
    T = max(int(1 / (N * M)) + 1, 4)  # T - 4 ln(N M T) grows from T = 4 on
    while 4 * log(N * M * T) > T:
        T += 1
    return T


def _check_coin(coin: object) -> None:
    if coin is not None and not isinstance(coin, np.random.Generator):
        raise TypeError(f"coin={coin!r}: give a generator, such as numpy.random.default_rng(7)")


def check_rates(hedge_state: HedgeState, steps: Array) -> None:
    """Raise if a block has steps but no rate, which follows from a number of steps stated beforehand."""
    if hedge_state.rule != PROD or hedge_state.share.shape[1] == 1:
        return
    lost = np.flatnonzero((steps > 0) & (hedge_state.rate == 0))
    if len(lost):
        raise ValueError(
            f"Prod has no number of steps for block {lost[0]}, which has some: state it with "
            "Prod(steps=...), or use AdaHedge()"
        )


def check_factors(hedge_state: HedgeState) -> None:
    """Raise if a factor 1 + nu (l0 - l1) was zero or less, which has no logarithm; it was left out."""
    if hedge_state.refused.any():
        block = int(hedge_state.refused.argmax())
        raise ValueError(
            f"Prod's factor 1 + nu (l0 - l1) was zero or less {int(hedge_state.refused[block])} time(s) in "
            f"block {block}: losses differ more than its rate allows. State bound=M, which clips them at 2 M,"
            " project all chains (radius=), or use AdaHedge()"
        )


def _first(rule: int, stake: Array, rate: Array, limit: Array) -> HedgeState:
    blocks, experts = stake.shape
    weight = np.exp(stake - stake.max(axis=1, keepdims=True))
    counts = [np.zeros(blocks, np.int64) for _ in range(3)]
    share = weight / weight.sum(axis=1, keepdims=True)
    return HedgeState(rule, share, stake, np.zeros(blocks), rate, limit, np.zeros((blocks, experts)), *counts)


def _losses(losses: npt.ArrayLike) -> Array:
    table = np.asarray(losses, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"losses have shape {table.shape}: they must be [steps, experts]")
    if not np.isfinite(table).all():
        raise ValueError("losses hold values that are not finite")
    return table


def _play(hedge_state: HedgeState, losses: Array) -> Array:

    shares = np.empty_like(losses)
    *_, compiled = jit_together(RULES)
    compiled(hedge_state, losses, shares)
    return shares
