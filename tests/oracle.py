"""The definitions, written once and naively: every iterate of every step is kept.

Nothing here is shared with the package: dense rows, one vector at a time, float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass
class Problem:
    """A stream and all that a run needs, without the package's own types."""

    X: Array
    target: Array
    cycle: Array
    block: Array
    batch_size: int
    loss: str
    level: float = 0.5
    classes: int = 1
    table: Array = field(default_factory=lambda: np.ones((1, 1)))  # [m, M] coefficients
    chain: Sequence[int] = (0,)  # [m] the chain a block moves
    rule: str = "sgd"
    eta: Sequence[float] = (0.5,)  # per chain
    radius: float = inf
    box: float = inf
    emphasis: Sequence[float] = ()
    weight: Array | None = None
    intercept: bool = True


@dataclass
class Step:
    """One step: the weights in force before and after it, and what it saw."""

    cycle: int
    block: int
    before: Array
    after: Array
    weight: float
    losses: list[float]


def steps_of(problem: Problem) -> list[list[int]]:
    """Row numbers of each step: runs of equal (cycle, block), cut into minibatches."""
    steps: list[list[int]] = []
    for row in range(len(problem.X)):
        here = problem.cycle[row], problem.block[row]
        if steps and len(steps[-1]) < problem.batch_size:
            last = steps[-1][-1]
            if (problem.cycle[last], problem.block[last]) == here:
                steps[-1].append(row)
                continue
        steps.append([row])
    return steps


def loss_and_slope(problem: Problem, score: Array, y: float) -> tuple[float, Array, float]:
    """Value, slope [C], and the distance from the nearest kink."""
    s = float(score[0])
    if problem.loss == "softmax":
        p = np.exp(score - score.max())
        p /= p.sum()
        slope = p.copy()
        slope[int(y)] -= 1
        return -float(np.log(p[int(y)])), slope, inf
    if problem.loss == "logistic":
        return float(np.logaddexp(0, -y * s)), np.array([-y / (1 + np.exp(y * s))]), inf
    if problem.loss == "hinge":
        room = 1 - y * s
        return max(0.0, room), np.array([-y if room > 0 else 0.0]), abs(room)
    miss = s - y
    if problem.loss == "squared":
        return miss**2 / 2, np.array([miss]), inf
    if problem.loss == "absolute":
        return abs(miss), np.array([np.sign(miss)]), abs(miss)
    over, under = 1 - problem.level, -problem.level
    slope_at = over if miss > 0 else under if miss < 0 else 0.0
    return (over * miss if miss > 0 else under * miss), np.array([slope_at]), abs(miss)


def run(problem: Problem, start: Array | None = None) -> tuple[list[Step], float]:
    """Every step of the chain, and how near any row came to a kink."""
    n, d = problem.X.shape
    X = np.hstack([problem.X, np.full((n, 1), float(problem.intercept))])
    m, vectors = problem.table.shape
    chains = max(problem.chain) + 1
    V = np.zeros((vectors, problem.classes, d + 1))
    if start is not None:
        V[:] = start
    squares = np.zeros_like(V)
    count = [0] * chains
    emphasis = problem.emphasis or [1.0] * m
    weight = np.ones(n) if problem.weight is None else problem.weight
    mine = [
        {j for b in range(m) if problem.chain[b] == c for j in range(vectors) if problem.table[b, j]}
        for c in range(chains)
    ]

    def in_force(block: int) -> Array:
        chain = problem.chain[block]
        w = sum(problem.table[block, j] * V[j] for j in range(vectors))
        if problem.rule == "dual":
            w = w * dual_scale(chain)
        return np.asarray(w)

    def dual_scale(chain: int) -> float:
        scale = problem.eta[chain] / np.sqrt(count[chain] + 1)
        size = scale * np.sqrt(sum((V[j] ** 2).sum() for j in mine[chain]))
        return float(scale * min(1.0, problem.radius / size) if size > 0 else scale)

    done, kink = [], inf
    for rows in steps_of(problem):
        block = int(problem.block[rows[0]])
        chain = problem.chain[block]
        w = in_force(block)
        gradient = np.zeros_like(w)
        losses = []
        for r in rows:
            value, slope, near = loss_and_slope(problem, w @ X[r], problem.target[r])
            losses.append(weight[r] * value)
            gradient += weight[r] * np.outer(slope, X[r]) / len(rows)
            kink = min(kink, near)
        gradient *= emphasis[block]
        for j in range(vectors):
            g = problem.table[block, j] * gradient
            if problem.rule == "adagrad":
                squares[j] += g**2
                # A first gradient that all but cancels has no direction to speak of.
                felt = [r for r in rows if weight[r] > 0]
                touched = np.broadcast_to((X[felt] != 0).any(axis=0), g.shape)
                if problem.table[block, j]:
                    kink = min(kink, float(np.sqrt(squares[j][touched]).min(initial=inf)))
                move = np.where(g == 0, 0, g / np.sqrt(np.where(squares[j] == 0, 1, squares[j])))
                if problem.table[block, j]:
                    V[j] = np.clip(V[j] - problem.eta[chain] * move, -problem.box, problem.box)
            elif problem.rule == "dual":
                V[j] -= g
            else:
                V[j] -= problem.eta[chain] * g
        count[chain] += 1
        if problem.rule == "sgd":
            size = np.sqrt(sum((V[j] ** 2).sum() for j in mine[chain]))
            if size > problem.radius:
                for j in mine[chain]:
                    V[j] *= problem.radius / size
        after = in_force(block)
        mean_weight = float(np.mean([weight[r] for r in rows]))
        done.append(Step(int(problem.cycle[rows[0]]), block, w, after, mean_weight, losses))
    return done, kink


def mean_of(steps: Sequence[Step], weight: Callable[[Step], float] = lambda _: 1.0) -> Array:
    """The weighted mean of the iterates before their updates."""
    total = sum(weight(s) * s.weight for s in steps)
    return np.asarray(sum(weight(s) * s.weight * s.before for s in steps) / total)


# ------------------------------------------------------------------------------ hedging


@dataclass
class Stakes:
    """A hedge in one block, straight from its definition."""

    experts: int
    rate: float | None = None  # Prod's nu; None for AdaHedge
    start: float = 0.0  # Prod's delta
    limit: float = inf  # Prod's 2M

    def __post_init__(self) -> None:
        n = max(self.experts - 1, 1)
        self.q = [1 - self.start] + [self.start / n] * (self.experts - 1)
        self.L = np.zeros(self.experts)
        self.gap = 0.0

    def share(self) -> Array:
        if self.rate is not None:
            return np.array(self.q) / sum(self.q)
        if self.gap == 0 or self.experts == 1:
            leads = self.L.min() == self.L
            return np.asarray(leads / leads.sum())
        weight = np.exp(-self._eta() * (self.L - self.L.min()))
        return np.asarray(weight / weight.sum())

    def _eta(self) -> float:
        return float(np.log(self.experts) / self.gap) if self.gap else inf

    def _mix(self, L: Array) -> float:
        if self.gap == 0 or self.experts == 1:
            return float(L.min())
        eta = self._eta()
        return float(L.min() - np.log(np.mean(np.exp(-eta * (L - L.min())))) / eta)

    def see(self, losses: Sequence[float]) -> None:
        if self.rate is not None:
            for e in range(1, self.experts):
                difference = min(max(losses[0] - losses[e], -self.limit), self.limit)
                self.q[e] *= 1 + self.rate * difference
            return
        new = self.L + np.asarray(losses)
        self.gap += max(0.0, float(self.share() @ np.asarray(losses)) - (self._mix(new) - self._mix(self.L)))
        self.L = new


def hedged(chains: Sequence[list[Step]], stakes: dict[int, Stakes], toss: Array | None) -> list[Step]:
    """What is in force at each step of several chains that ran alone: the chains never know p."""
    done = []
    for t, taken in enumerate(zip(*chains, strict=True)):
        block = taken[0].block
        share = stakes[block].share()
        if toss is not None:
            pick = next((e for e in range(1, len(share)) if toss[t] < share[1 : e + 1].sum()), 0)
            share = (np.arange(len(share)) == pick).astype(float)
        stakes[block].see([float(np.mean(step.losses)) for step in taken])
        next_share = stakes[block].share()
        done.append(
            Step(
                taken[0].cycle,
                block,
                np.asarray(sum(p * step.before for p, step in zip(share, taken, strict=True))),
                np.asarray(sum(p * step.after for p, step in zip(next_share, taken, strict=True))),
                taken[0].weight,
                list(np.asarray(share @ np.array([step.losses for step in taken]))),
            )
        )
    return done
