"""Hedging between chains, per block: Prod (Section 6, SPEC E) and AdaHedge (SPEC K2).

At a step in block i every chain has its iterate, w^0_t the one chain's and w^1_t the block's own,
say. A hedge puts a probability p^e on each, known before z_t is seen:

    in force        u_t = w^e_t with probability p^e, or (derandomised, by Jensen never worse
                    for a convex loss) the mixture sum_e p^e w^e_t
    then            every chain's loss on z_t is seen, and the probabilities move

The chains never depend on the probabilities. Both rules are written here beside the paper;
`settle` is the same, compiled.
"""

from dataclasses import dataclass
from math import inf, isfinite, log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.bets import ADAHEDGE, FAINT, HUGE, PROD, Bets

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class AdaHedge:
    """AdaHedge (de Rooij et al. 2014): no rate to tune, no bound on losses needed.

    coin: a generator; then one expert is drawn at every step (needed without convexity).
        Otherwise the mixture is in force.
    """

    coin: np.random.Generator | None = None

    def __post_init__(self) -> None:
        _check_coin(self.coin)

    def first(self, experts: int, blocks: int = 1) -> Bets:
        """The bets before the first step."""
        return _first(ADAHEDGE, np.zeros((blocks, experts)), np.zeros(blocks), np.full(blocks, inf))

    def shares(self, losses: npt.ArrayLike) -> Array:
        """[T, E] the probabilities before each step, given every expert's losses [T, E]."""
        table = _losses(losses)
        return _play(self.first(table.shape[1]), table)


@dataclass(frozen=True)
class Prod:
    """Prod, as Theorem 4 has it: expert 0, the single chain, has a fixed weight.

    q = 1 - delta stays, q^e starts at delta / N and is multiplied by 1 + nu (l^0 - l^e) at each
    of the T_i steps in its block, where |l^0 - l^e| <= 2 M and

        nu = sqrt(ln(N M T_i) / T_i) / (2 M),     delta = nu, or nu M where M < 1.

    bound: M. Differences beyond 2 M are clipped and counted. Where it is not given, training
        takes G B, which holds if all chains are projected (`radius=`).
    lipschitz: G, where rows come in parts and their largest norm is not known beforehand.
    steps: T_i, one for all blocks or one for each, where the rows do not tell: a stream, or a run
        that will go on. The guarantee is for that many steps.
    rate: nu, if it is to be another one.
    coin: a generator; then one expert is drawn at every step, w^e iff the uniform falls into
        its share, those of 1..N first. Otherwise the mixture is in force.
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

    def first(self, experts: int, steps: npt.ArrayLike, *, bound: float | None = None) -> Bets:
        """The bets before the first step of blocks with so many `steps` each.

        bound: M as it follows from what is projected, where the rule itself states none.
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
        """nu and delta of one block, their conditions checked (SPEC E3)."""
        if T == 0 or N == 0:
            return 0.0, 0.5  # never used: see check_rates
        nu = self.rate
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
        """[T, 1 + N] the probabilities before each step, given every expert's losses [T, 1 + N]."""
        table = _losses(losses)
        bets = self.first(table.shape[1], self.steps or len(table))
        shares = _play(bets, table)
        check_factors(bets)
        return shares


def prod_rate(T: float, M: float, N: int = 1) -> float:
    """nu = sqrt(ln(N M T) / T) / (2 M)."""
    return sqrt(log(N * M * T) / T) / (2 * M)


def steps_needed(M: float, N: int = 1) -> int:
    """The least T with N M T > 1 and nu <= 1/(4M), that is T >= 4 ln(N M T), from there on."""
    T = max(int(1 / (N * M)) + 1, 4)  # T - 4 ln(N M T) grows from T = 4 on
    while 4 * log(N * M * T) > T:
        T += 1
    return T


def _check_coin(coin: object) -> None:
    if coin is not None and not isinstance(coin, np.random.Generator):
        raise TypeError(f"coin={coin!r}: give a generator, such as numpy.random.default_rng(7)")


def check_rates(bets: Bets, steps: Array) -> None:
    """Prod's rate is for a number of steps told beforehand: a block told to have none has no rate."""
    if bets.rule != PROD or bets.share.shape[1] == 1:
        return
    lost = np.flatnonzero((steps > 0) & (bets.rate == 0))
    if len(lost):
        raise ValueError(
            f"Prod was not told of steps in block {lost[0]}, which has some: say how many there will be with "
            "Prod(steps=...), or use AdaHedge()"
        )


def check_factors(bets: Bets) -> None:
    """A factor 1 + nu (l0 - l1) of zero or less would end Prod's weights: refuse it."""
    if bets.refused.any():
        block = int(bets.refused.argmax())
        raise ValueError(
            f"Prod's factor 1 + nu (l0 - l1) was zero or less {int(bets.refused[block])} time(s) in block "
            f"{block}: losses differ more than its rate allows. State bound=M, which clips them at 2 M, "
            "project all chains (radius=), or use AdaHedge()"
        )


def learn_losses(bets: Bets, block: int, losses: Array) -> None:
    """After a step in a block: move its probabilities by what every expert has lost."""
    bets.lost[block] += losses
    bets.steps[block] += 1
    if losses.shape == (1,) or not np.isfinite(losses).all():
        return
    if bets.rule == PROD:
        _prod(bets, block, losses)
    else:
        _adahedge(bets, block, losses)


def _prod(bets: Bets, block: int, losses: Array) -> None:
    """q^e <- q^e (1 + nu (l^0 - l^e)), in logs; expert 0 keeps its weight."""
    difference = losses[0] - losses[1:]
    limit = bets.limit[block]
    bets.clipped[block] += (np.abs(difference) > limit).sum()
    gain = bets.rate[block] * np.clip(difference, -limit, limit)
    fine = gain > -1.0
    bets.refused[block] += (~fine).sum()
    bets.stake[block, 1:] += np.log1p(np.where(fine, gain, 0.0))
    weight = np.exp(bets.stake[block] - bets.stake[block].max())
    bets.share[block] = weight / weight.sum()


def _adahedge(bets: Bets, block: int, losses: Array) -> None:
    """Delta += <p, l> - (M(eta, L + l) - M(eta, L)), L += l; all relative to the least.

    Losses count only by their differences, so L is kept with its least entry 0: it neither
    overflows nor loses digits, however long the run.
    """
    L, gap = bets.stake[block], float(bets.gap[block])
    more = np.minimum(losses - losses.min(), HUGE)
    expected = float(bets.share[block] @ more)
    before = _mix(gap, L)
    L = np.minimum(L + more, HUGE)
    least = float(L.min())
    L = L - least
    gap = min(gap + max(0.0, expected - (least + _mix(gap, L) - before)), HUGE)
    bets.stake[block], bets.gap[block] = L, gap
    weight = _weights(gap, L)
    bets.share[block] = weight / weight.sum()


def _weights(gap: float, L: Array) -> Array:
    """exp(-eta L) with eta = ln N / Delta; at Delta = 0 the leaders, alike."""
    with np.errstate(over="ignore", divide="ignore"):
        eta = np.log(len(L)) / np.float64(gap)
        return np.asarray(np.exp(-eta * L) if np.isfinite(eta) else L == 0, dtype=float)


def _mix(gap: float, L: Array) -> float:
    """M(eta, L) = -(1/eta) ln mean exp(-eta L), where the least of L is 0."""
    return -gap / log(len(L)) * log(_weights(gap, L).mean())


def in_play(bets: Bets, block: int, toss: float | None) -> Array:
    """[E] what counts of each expert at a step: its probability, or all or nothing by a coin.

    A coin picks e >= 1 where its uniform falls into e's share, counted from 1 on; else 0.
    """
    share = np.where(bets.share[block] >= FAINT, bets.share[block], 0.0)
    if toss is None:
        return share
    reached = np.cumsum(share[1:])
    pick = int((toss < reached).argmax()) + 1 if (toss < reached).any() else 0
    return np.asarray(np.arange(len(share)) == pick, dtype=float)


def _first(rule: int, stake: Array, rate: Array, limit: Array) -> Bets:
    blocks, experts = stake.shape
    weight = np.exp(stake - stake.max(axis=1, keepdims=True))
    counts = [np.zeros(blocks, np.int64) for _ in range(3)]
    share = weight / weight.sum(axis=1, keepdims=True)
    return Bets(rule, share, stake, np.zeros(blocks), rate, limit, np.zeros((blocks, experts)), *counts)


def _losses(losses: npt.ArrayLike) -> Array:
    table = np.asarray(losses, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"losses have shape {table.shape}: they must be [steps, experts]")
    if not np.isfinite(table).all():
        raise ValueError("losses hold values that are not finite")
    return table


def _play(bets: Bets, losses: Array) -> Array:
    from semicyclic.method.settle import play

    shares = np.empty_like(losses)
    play(bets, losses, shares)
    return shares
