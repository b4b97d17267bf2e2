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
# The rate of normalized steps and of AdaGrad that commands and estimators use. Of six rates from .05 to 2 it
# was the one whose log loss was within 5 % of the best on small and on large data, for features around 1.
RATE = 0.2


@dataclass(frozen=True)
class Step:
    """A rule for step sizes; made by the functions below.

    Parameters
    ----------
    rule : {SGD, DUAL, ADAGRAD}
        One step size throughout, dual averaging, or AdaGrad's per-coordinate steps.
    size : float
        The step size itself if `horizon` is 0; for DUAL, B / (G sqrt(2)), to be divided by sqrt(t + 1); for
        ADAGRAD, its rate.
    horizon : float
        If not 0, the step size is size / sqrt(horizon * T): 2 for the paper's, 1 for the tight one.
    total : int, optional
        T, if the caller knows it and the rows do not show it (a stream). Every chain, separate ones included,
        then takes this T.
    box : float
        AdaGrad's bound on every |w_j|.
    normalized : bool
        Whether features are divided by the scale of their column first.

    Raises
    ------
    ValueError
        If a number is not positive.
    """

    rule: int
    size: float
    horizon: float = 0.0
    total: int | None = None
    box: float = inf
    normalized: bool = False

    def __post_init__(self) -> None:
        if not (isfinite(self.size) and self.size > 0):
            raise ValueError(f"step size {self.size!r}: must be positive and finite, such as 0.5")
        if not self.box > 0:
            raise ValueError(f"box={self.box!r}: the bound on each weight must be positive")
        if self.total is not None and self.total < 1:
            raise ValueError(f"total={self.total!r}: the number of steps must be at least 1")

    def __repr__(self) -> str:
        box = f", box={self.box:g}" if isfinite(self.box) else ""
        if self.normalized:
            return f"step.normalized({self.size:g})"
        if self.rule == ADAGRAD:
            return f"step.adagrad({self.size:g}{box})"
        if self.rule == DUAL:
            return f"step.dual_averaging({self.size * sqrt(2.0):g})"
        if self.horizon == 0.0:
            return f"step.constant({self.size:g})"
        name = {1.0: "tight", 2.0: "paper"}.get(self.horizon, "Step")
        total = "" if self.total is None else f", total={self.total}"
        return f"step.{name}({self.size:g}{total})"

    def eta(self, steps: float | None) -> float:
        """Return the step size of a chain that will make `steps` steps; None if their number is unknown."""
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
    """The same step size throughout; the regret is at most B^2 / (2 eta) + eta T G^2 / 2.

    Parameters
    ----------
    size : float
        eta.

    Returns
    -------
    Step
    """
    return Step(SGD, size)


def paper(radius: float = 1.0, *, lipschitz: float = 1.0, total: int | None = None) -> Step:
    """The step size of Theorem 3, B / (G sqrt(2 T)).

    Parameters
    ----------
    radius : float
        B, the norm of the solutions to compete with.
    lipschitz : float
        G, a bound on the norm of a gradient.
    total : int, optional
        T; by default the chain's own number of steps.

    Returns
    -------
    Step
    """
    return Step(SGD, radius / lipschitz, horizon=2.0, total=total)


def tight(radius: float = 1.0, *, lipschitz: float = 1.0, total: int | None = None) -> Step:
    """The best constant step size, B / (G sqrt(T)): regret B G sqrt(T).

    Parameters
    ----------
    radius, lipschitz, total
        As in `paper`.

    Returns
    -------
    Step
    """
    return Step(SGD, radius / lipschitz, horizon=1.0, total=total)


def dual_averaging(radius: float = 1.0, *, lipschitz: float = 1.0) -> Step:
    """Dual averaging: w_{t+1} is -B / (G sqrt(2 (t+1))) times the sum of gradients. It needs no T.

    The regret is at most sqrt(2) G B sqrt(T) for every T, without projection. The chain starts from zero.

    Parameters
    ----------
    radius, lipschitz
        As in `paper`.

    Returns
    -------
    Step
    """
    return Step(DUAL, radius / lipschitz / sqrt(2.0))


def adagrad(rate: float = 0.5, *, box: float = inf) -> Step:
    """AdaGrad: per-coordinate steps rate / sqrt(sum of squared gradients so far).

    With a box |w_j| <= D the regret to any w in the box is at most (2 D^2 / rate + rate) sum_j
    sqrt(sum_t g_tj^2), least at rate = sqrt(2) D, and Theorem 3 holds for the means of blocks, with that
    regret over T in the place of sqrt(2 B^2 / T). Without a box, no guarantee is claimed.

    Parameters
    ----------
    rate : float
        Step size of a coordinate at its first gradient of size 1.
    box : float
        D, the bound on every |w_j|; unbounded by default.

    Returns
    -------
    Step
    """
    return Step(ADAGRAD, rate, box=box)


def normalized(rate: float = RATE) -> Step:
    """AdaGrad for features of any scale: each is divided by its column's root mean square so far.

    Multiplying a column by a constant changes nothing but the column's weights, which are divided by it. Only
    nonzero values count, so zeros may be left out. No guarantee is claimed (docs/math.md#normalized-steps).

    Parameters
    ----------
    rate : float
        Step size of a coordinate at its first gradient, for features of root mean square 1.

    Returns
    -------
    Step
    """
    return Step(ADAGRAD, rate, normalized=True)


def of(step_size: "float | Step") -> Step:
    """Return a step rule; a number is a constant step size.

    Parameters
    ----------
    step_size : float or Step

    Returns
    -------
    Step
    """
    return step_size if isinstance(step_size, Step) else constant(float(step_size))
