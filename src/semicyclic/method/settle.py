"""Compiled: what a hedge learns from a step's losses, as `hedge` defines it."""

from typing import Any

import numpy as np

from semicyclic.method.bets import FAINT, HUGE, PROD, Bets
from semicyclic.method.jit import jit


@jit
def settle(bets: Bets, block: Any, losses: Any) -> Any:
    """Move the probabilities of a block by what every expert has lost."""
    fine = True
    bets.steps[block] += 1
    for e in range(len(losses)):
        bets.lost[block, e] += losses[e]
        fine &= np.isfinite(losses[e])
    if len(losses) == 1 or not fine:
        return
    if bets.rule == PROD:
        _prod(bets, block, losses)
    else:
        _adahedge(bets, block, losses)


@jit
def _prod(bets: Bets, block: Any, losses: Any) -> Any:
    stake = bets.stake[block]
    limit = bets.limit[block]
    top = stake[0]
    for e in range(1, len(losses)):
        difference = losses[0] - losses[e]
        if abs(difference) > limit:
            bets.clipped[block] += 1
            difference = limit if difference > 0 else -limit
        gain = bets.rate[block] * difference
        if gain > -1.0:
            stake[e] += np.log1p(gain)
        else:
            bets.refused[block] += 1
        top = max(top, stake[e])
    share = bets.share[block]
    total = 0.0
    for e in range(len(losses)):
        share[e] = np.exp(stake[e] - top)
        total += share[e]
    for e in range(len(losses)):
        share[e] /= total


@jit
def _adahedge(bets: Bets, block: Any, losses: Any) -> Any:
    L = bets.stake[block]
    share = bets.share[block]
    gap = bets.gap[block]
    count = len(L)
    per_nat = gap / np.log(count)
    low = losses[0]
    top = share[0]
    for e in range(1, count):
        low = min(low, losses[e])
        top = max(top, share[e])
    # The leader's weight is 1 before all are divided by their sum: 1 / top is that sum.
    before = per_nat * np.log(top * count)
    expected = 0.0
    least = np.inf
    for e in range(count):
        more = min(losses[e] - low, HUGE)
        expected += share[e] * more
        L[e] = min(L[e] + more, HUGE)
        least = min(least, L[e])
    for e in range(count):
        L[e] -= least
    after = least
    if gap > 0.0:
        after -= per_nat * np.log(_weigh(gap, L, share) / count)
    gap = min(gap + max(0.0, expected - (after - before)), HUGE)
    bets.gap[block] = gap
    total = _weigh(gap, L, share)
    for e in range(count):
        share[e] /= total


@jit
def _weigh(gap: Any, L: Any, share: Any) -> Any:
    """share = exp(-eta L), with eta = ln N / Delta; at Delta = 0 the leaders, alike. Their sum."""
    eta = np.log(len(L)) / gap
    total = 0.0
    for e in range(len(L)):
        if L[e] == 0.0:
            share[e] = 1.0
        else:
            share[e] = np.exp(-eta * L[e]) if np.isfinite(eta) else 0.0
        total += share[e]
    return total


@jit
def play(bets: Bets, losses: Any, shares: Any) -> Any:
    """The probabilities before each step of a whole table of losses, all in block 0."""
    for t in range(len(losses)):
        shares[t] = bets.share[0]
        settle(bets, 0, losses[t])


@jit
def in_play(bets: Bets, block: Any, toss: Any, held: Any) -> Any:
    """What counts of each expert at a step: its probability, or all or nothing by a coin."""
    for e in range(len(held)):
        held[e] = bets.share[block, e] if bets.share[block, e] >= FAINT else 0.0
    if toss < 0.0:
        return
    reached = 0.0
    pick = 0
    for e in range(1, len(held)):
        reached += held[e]
        if pick == 0 and toss < reached:
            pick = e
    for e in range(len(held)):
        held[e] = 1.0 if e == pick else 0.0
