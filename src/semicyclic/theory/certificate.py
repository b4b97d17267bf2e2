"""Certificates without a hold-out set: risk bounds from a run's progressive losses.

Every row was scored before the chain was trained on it, so these losses are an honest sample, and
by convexity the mean model is no worse than they are on average. With probability 1 - delta

    F~(w~) <= (1/T) sum_t f(w_t, z_t) + a sqrt(ln(1/delta) / (2 T)),

and the same for a block over its own steps. For looks at any time, the second term is
replaced by an empirical Bernstein boundary that holds for all T at once (Howard, Ramdas, McAuliffe
and Sekhon 2021, Theorem 4 with the stitched boundary of their Theorem 1). It also knows the spread
of the losses, so with minibatches it is usually far tighter.
"""

from dataclasses import dataclass
from math import isfinite, log, sqrt

import numpy as np

from semicyclic.method.run import Run
from semicyclic.types import Array

# The stitched boundary: epochs of intrinsic time that double, error spent like k^-1.4.
DOUBLING, POWER, ZETA = 2.0, 1.4, 3.1055472779775815


@dataclass(frozen=True, eq=False)
class Certificate:
    """Upper bounds on the risk of a run's mean model, and the conditions under which they hold.

    Parameters
    ----------
    mean, bound : float
        Over all steps: the progressive loss, and an upper bound on the risk sum_i alpha_i F_i(w~^i), where
        alpha_i is block i's share of the steps.
    block_mean, block_bound : arrays of shape [m]
        The same for each block; all of them hold simultaneously.
    steps : int
        T.
    span, delta, candidates, any_time
        As given to `certificate`.
    projected : bool
        Whether all iterates were projected onto a ball.
    """

    mean: float
    bound: float
    block_mean: Array
    block_bound: Array
    steps: int
    span: float
    delta: float
    candidates: int
    any_time: bool
    projected: bool

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions under which the bounds hold, in sentences."""
        when = (
            "it may be looked at after any step, and as often as one likes"
            if self.any_time
            else "the number of steps in each block was fixed beforehand, and this is the only look"
        )
        chosen = (
            f"the run was chosen among {self.candidates} candidates, no more"
            if self.candidates > 1
            else "the run was not chosen among several by these losses"
        )
        ball = "iterates were projected" if self.projected else "nothing was projected: this is your claim"
        return (
            f"every loss, of these and future rows, lies in [0, {self.span:g}] ({ball})",
            "rows of a block are independent draws of one distribution that does not drift",
            "the model is the run's mean(); the loss is convex",
            when,
            chosen,
            f"the bound fails with probability at most {self.delta:g}; so do the blocks' bounds together",
        )

    def __str__(self) -> str:
        bound_type = "any-time, empirical Bernstein" if self.any_time else "fixed number of steps, Hoeffding"
        lines = [
            f"risk of mean() at most {self.bound:.4f}: progressive loss {self.mean:.4f} over {self.steps:,} "
            f"steps + {self.bound - self.mean:.4f} ({bound_type})"
        ]
        for block, (mean, bound) in enumerate(zip(self.block_mean, self.block_bound, strict=True)):
            seen = (
                f"at most {bound:.4f} (progressive loss {mean:.4f})" if isfinite(bound) else "never visited"
            )
            lines.append(f"  block {block}: {seen}")
        return "\n".join([*lines, "if", *(f"  - {each}" for each in self.conditions)])


def certificate(
    run: Run, *, span: float, delta: float = 0.05, candidates: int = 1, any_time: bool = False
) -> Certificate:
    """Bound the risk of `run.mean()` from its progressive losses alone (docs/math.md#certificates).

    Parameters
    ----------
    run : Run
        A run on unweighted rows with a convex loss. Rows must be independent draws from their block's
        distribution, which must not drift.
    span : float
        a: every loss lies in [0, a]. That needs projection (`radius=`) or clipped scores. For the logistic
        loss, radius B and rows of norm at most R it is ln(1 + exp(B R)).
    delta : float
        Probability of failure. Bounds of all blocks hold simultaneously, with ln(m / delta).
    candidates : int
        N, if this run was chosen as the best of N by progressive loss: the bounds use ln(N / delta).
    any_time : bool
        Use a confidence sequence, valid at every number of steps. Otherwise |S_i| must be fixed beforehand.

    Returns
    -------
    Certificate
    """
    if not (isfinite(span) and span > 0):
        raise ValueError(f"span={span!r}: must be the length of an interval that holds all losses")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r}: the probability of failing lies between 0 and 1")
    if not isinstance(candidates, int | np.integer) or candidates < 1:
        raise ValueError(f"candidates={candidates!r}: must be a whole number, at least 1")
    if run.is_view or run.member.models != run.blocks:
        raise ValueError("only a run with a model for each of its own blocks has a certificate")
    count, sums, most, spreads = run.log.tally()
    if run.weighted:
        raise ValueError("rows with weights have no certificate: the guarantee is for steps that count alike")
    if most.max() > span:
        raise ValueError(
            f"a step had a loss of {most.max():.4g}, beyond span={span:g}: state a larger span, "
            "or train with radius= so that losses are bounded"
        )
    if count.sum() == 0:
        raise ValueError("this run has no steps: there are no losses to certify")
    odds = delta / candidates
    margin = _stitched_boundary if any_time else _hoeffding
    whole = float(sums.sum() / count.sum())
    seen = count > 0
    block_mean, block_bound = np.full(run.blocks, np.nan), np.full(run.blocks, np.nan)
    block_mean[seen] = sums[seen] / count[seen]
    for block in np.flatnonzero(seen):
        extra = margin(count[block], spreads[block], span, odds / run.blocks)
        block_bound[block] = block_mean[block] + extra
    plan = run.log.plan
    return Certificate(
        mean=whole,
        bound=whole + margin(float(count.sum()), float(spreads.sum()), span, odds),
        block_mean=block_mean,
        block_bound=block_bound,
        steps=int(count.sum()),
        span=span,
        delta=delta,
        candidates=candidates,
        any_time=any_time,
        projected=bool((np.isfinite(plan.radius) | np.isfinite(plan.box)).all()),
    )


def _hoeffding(steps: float, spread: float, span: float, delta: float) -> float:  # noqa: ARG001
    """a sqrt(ln(1/delta) / (2 T))."""
    return span * sqrt(log(1 / delta) / (2 * steps))


def _stitched_boundary(steps: float, spread: float, span: float, delta: float) -> float:
    """The stitched boundary at intrinsic time `spread`, per step; scores in units of a.

    u(v) = sqrt(k1^2 v l + k2^2 l^2) + k2 l with l = s ln(log_2(2 v)) + ln(zeta(s) / delta), v >= 1.
    """
    v = max(spread / span**2, 1.0)
    k1 = (DOUBLING**0.25 + DOUBLING**-0.25) / sqrt(2)
    k2 = (sqrt(DOUBLING) + 1) / 2
    level = POWER * log(log(DOUBLING * v) / log(DOUBLING)) + log(ZETA / delta)
    return span * (sqrt(k1**2 * v * level + k2**2 * level**2) + k2 * level) / steps
