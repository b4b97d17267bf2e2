"""Step sizes: how far a chain moves along a gradient.

`radius` is B, the norm of the best solution w* to compete with; `lipschitz` is G, a bound on the gradient's
norm (1 in the paper; for a linear model the loss's own constant times max ||x||, the constant column of the
intercept and the weights of rows included). Online gradient descent with a constant step eta has, for any
sequence z_1..z_T and any ||w|| <= B, the regret

    sum_t f(w_t, z_t) - f(w, z_t)  <=  B^2 / (2 eta) + eta T G^2 / 2,

which at eta = B / (G sqrt(T)) is B G sqrt(T), and at the paper's eta = B / (G sqrt(2 T)) is 1.06 B G sqrt(T).
For G = 1 the paper states sqrt(2 B^2 T) (eq. 16) and 2 B sqrt(T) (eq. 22), and for a separate chain, with its
own T/m steps S_i, sum_{t in S_i} f(w^i_t, z_t) - f(w, z_t) <= 2 B sqrt(T/m) (eq. 23, where its second sum
should also be over S_i). All of these hold; they are not tight.
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt

SGD, DUAL, ADAGRAD = range(3)
# The rate of AdaGrad that commands and estimators use. Of six rates from .05 to 2 it was the one whose log
# loss was within 5 % of the best on small and on large data, for features around 1.
RATE = 0.2


@dataclass(frozen=True)
class Step:
    """A rule for step sizes.

    rule: SGD (one step size throughout), DUAL (dual averaging) or ADAGRAD (per coordinate).
    size: the step size itself if horizon is 0; for DUAL, B / (G sqrt(2)), to be divided by sqrt(t + 1); for
        ADAGRAD, its rate.
    horizon: if not 0, the step size is size / sqrt(horizon * T): 2 for the paper's, 1 for the tight one.
    total: T, if the caller knows it and the rows do not show it (a stream). Every chain, separate
        ones included, then takes this T.
    box: AdaGrad's bound on every |w_j|.
    """

    rule: int
    size: float
    horizon: float = 0.0
    total: int | None = None
    box: float = inf

    def __post_init__(self) -> None:
        if not (isfinite(self.size) and self.size > 0):
            raise ValueError(f"step size {self.size!r}: must be positive and finite, such as 0.5")
        if not self.box > 0:
            raise ValueError(f"box={self.box!r}: the bound on each weight must be positive")
        if self.total is not None and self.total < 1:
            raise ValueError(f"total={self.total!r}: the number of steps must be at least 1")

    def eta(self, steps: float | None) -> float:
        """The step size of a chain that will make `steps` steps."""
        if self.horizon == 0.0:
            return self.size
        steps = self.total if self.total is not None else steps
        if steps is None:
            raise ValueError(
                "this step size depends on the number of steps, which is unknown for a stream: "
                "give it as total=, or use step.dual_averaging(), which needs none"
            )
        return self.size / sqrt(self.horizon * max(steps, 1))


def constant(size: float) -> Step:
    """The same step throughout; regret B^2 / (2 eta) + eta T G^2 / 2."""
    return Step(SGD, size)


def paper(radius: float = 1.0, *, lipschitz: float = 1.0, total: int | None = None) -> Step:
    """B / (G sqrt(2 T)), as in Theorem 3; T is the chain's own number of steps, or `total`."""
    return Step(SGD, radius / lipschitz, horizon=2.0, total=total)


def tight(radius: float = 1.0, *, lipschitz: float = 1.0, total: int | None = None) -> Step:
    """B / (G sqrt(T)), the best constant step: regret B G sqrt(T)."""
    return Step(SGD, radius / lipschitz, horizon=1.0, total=total)


def dual_averaging(radius: float = 1.0, *, lipschitz: float = 1.0) -> Step:
    """w_{t+1} = -B / (G sqrt(2 (t+1))) times the sum of gradients: no T needed.

    Regret at most sqrt(2) G B sqrt(T) for every T, without projection. Starts from zero.
    """
    return Step(DUAL, radius / lipschitz / sqrt(2.0))


def adagrad(rate: float = 0.5, *, box: float = inf) -> Step:
    """Per-coordinate steps rate / sqrt(sum of squared gradients so far).

    With a box |w_j| <= D (`box`) the regret to any w in the box is at most (2 D^2 / rate + rate) sum_j
    sqrt(sum_t g_tj^2), least at rate = sqrt(2) D, and Theorem 3 holds for the means of blocks, with that
    regret over T in the place of sqrt(2 B^2 / T). Without a box it is a useful method with no guarantee
    claimed.
    """
    return Step(ADAGRAD, rate, box=box)


def of(step_size: "float | Step") -> Step:
    """Return a step rule; a number is a constant step."""
    return step_size if isinstance(step_size, Step) else constant(float(step_size))
