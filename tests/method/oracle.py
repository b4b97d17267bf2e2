"""What tests compare with: `method.chain` on a whole problem, and textbook hedges."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from semicyclic.method.basis import Basis
from semicyclic.method.chain import Examples, Iterate, mean_iterate, minibatches, run_chain
from semicyclic.method.loss import Loss
from semicyclic.method.step import ADAGRAD, Step
from semicyclic.types import Array

mean_of = mean_iterate


@dataclass
class Problem:
    """A stream and all that a run needs."""

    X: Array
    target: Array
    cycle: Array
    block: Array
    batch_size: int
    loss: Loss
    basis: Basis
    step: Step
    radius: float = inf
    l2: float = 0.0
    block_weights: Sequence[float] | None = None
    weight: Array | None = None
    intercept: bool = True


def run(problem: Problem, start: Array | None = None) -> tuple[list[Iterate], float]:
    """Every step of the chain by its definition, and how near any row came to a kink."""
    n = len(problem.X)
    X = np.hstack([problem.X, np.full((n, 1), float(problem.intercept))])
    weight = np.ones(n) if problem.weight is None else problem.weight
    examples = Examples(X, problem.target, weight, problem.cycle, problem.block)
    steps = run_chain(
        examples,
        basis=problem.basis,
        loss=problem.loss,
        step=problem.step,
        batch_size=problem.batch_size,
        radius=problem.radius,
        l2=problem.l2,
        block_weights=problem.block_weights,
        start=start,
    )
    return steps, _nearest_kink(problem, examples, steps)


def steps_of(problem: Problem) -> list[list[int]]:
    """The row numbers of each step."""
    return minibatches(problem.cycle, problem.block, problem.batch_size)


def _nearest_kink(problem: Problem, examples: Examples, steps: list[Iterate]) -> float:
    """How near a score came to where its loss has no slope; or, for AdaGrad, a gradient to zero."""
    kink = inf
    squares = np.zeros((problem.basis.vectors, *steps[0].before.shape))
    for rows, step in zip(steps_of(problem), steps, strict=True):
        score = (examples.X[rows] @ step.before.T)[:, 0]
        if problem.loss.name == "hinge":
            kink = min(kink, np.abs(1 - examples.target[rows] * score).min())
        elif problem.loss.name.startswith(("absolute", "quantile")):
            kink = min(kink, np.abs(examples.target[rows] - score).min())
        if problem.step.rule == ADAGRAD:
            felt = [r for r in rows if examples.weight[r] > 0]
            touched = np.broadcast_to((examples.X[felt] != 0).any(axis=0), step.gradient.shape)
            for j, factor in problem.basis.terms(step.block):
                squares[j] += (factor * step.gradient) ** 2
                kink = min(kink, float(np.sqrt(squares[j][touched]).min(initial=inf)))
    return float(kink)


@dataclass
class Stakes:
    """A hedge in one block, straight from the textbook; nothing is shared with `method.hedge`."""

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
