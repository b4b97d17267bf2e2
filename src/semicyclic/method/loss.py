"""Losses as values: value, slope, link and Lipschitz constant.

The paper's f(w, (x, y)) = loss(h_w(x), y) is convex and 1-Lipschitz in w (Section 2). Here h_w(x) = <w, x> is
a linear score s, and a loss is a convex function of (s, y). (With softmax there are C scores, w is a matrix
[C, d+1], and norms are over all its entries.) `slope` is its derivative in s, so that the gradient of f in w
is slope * x; at a kink (hinge at margin exactly 1, absolute and quantile at 0) it is 0, which is a
subgradient. The Lipschitz constant G of f in w is `lipschitz` times max ||x||. The squared loss has none,
unless scores are bounded: guarantees that need G do not hold for it.

`link` maps a score to a prediction: a probability, probabilities, or the score itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from semicyclic.types import Array

Function = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Loss:
    """A loss: a convex function of score and target.

    Parameters
    ----------
    name : str
        As in model files and on the command line; see `by_name`.
    value, slope : callable
        The loss and its derivative in the score, as functions of arrays (score, target).
    link : callable
        Maps scores to predictions: a probability, probabilities of classes, or the score itself.
    lipschitz : float
        Bound on |slope|; infinite if there is none.
    classes : int
        Number of classes: 2 for logistic and hinge (targets -1 and +1, one score), C for softmax (targets
        0..C-1, C scores), 0 for regression.
    code, level : int, float
        Select the formula in compiled kernels.
    """

    name: str
    value: Function
    slope: Function
    link: Callable[[Array], Array]
    lipschitz: float
    classes: int
    code: int
    level: float = 0.0

    @property
    def outputs(self) -> int:
        """Number of scores per row."""
        return self.classes if self.code == SOFTMAX else 1

    @property
    def label_power(self) -> int:
        """The power of the scale of the labels by which the loss grows: 2 for squared errors, else 1.

        Of the Huber loss, if its threshold is scaled with the labels.
        """
        return 2 if self.code in (SQUARED, HUBER) else 1

    def scaled(self, factor: float) -> "Loss":
        """Return the loss for labels multiplied by `factor`: the Huber loss gets another threshold."""
        return huber(self.level * factor) if self.code == HUBER else self

    def __repr__(self) -> str:
        return f"loss.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name."""
        return by_name, (self.name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loss) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


LOGISTIC, HINGE, SQUARED, ABSOLUTE, QUANTILE, SOFTMAX, HUBER = range(7)


def sigmoid(score: Array) -> Array:
    """Return 1 / (1 + exp(-score)), without overflow on either side.

    Parameters
    ----------
    score : array

    Returns
    -------
    array
    """
    small = np.exp(-np.abs(score))
    return np.asarray(np.where(score >= 0, 1.0, small) / (1.0 + small))


def _identity(score: Array) -> Array:
    return score


logistic = Loss(
    "logistic",
    value=lambda s, y: np.logaddexp(0.0, -s * y),
    slope=lambda s, y: -y * sigmoid(-s * y),
    link=sigmoid,
    lipschitz=1.0,
    classes=2,
    code=LOGISTIC,
)

hinge = Loss(
    "hinge",
    value=lambda s, y: np.maximum(0.0, 1.0 - s * y),
    slope=lambda s, y: np.where(s * y < 1.0, -y, 0.0),
    link=_identity,
    lipschitz=1.0,
    classes=2,
    code=HINGE,
)

squared = Loss(
    "squared",
    value=lambda s, y: 0.5 * (s - y) ** 2,
    slope=lambda s, y: s - y,
    link=_identity,
    lipschitz=float("inf"),
    classes=0,
    code=SQUARED,
)

absolute = Loss(
    "absolute",
    value=lambda s, y: np.abs(s - y),
    slope=lambda s, y: np.sign(s - y),
    link=_identity,
    lipschitz=1.0,
    classes=0,
    code=ABSOLUTE,
)


def quantile(level: float) -> Loss:
    """The pinball loss, whose expectation is least at the `level` quantile of the label.

    Parameters
    ----------
    level : float
        Between 0 and 1.

    Returns
    -------
    Loss
    """
    level = float(level)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level={level!r}: a quantile lies strictly between 0 and 1, such as 0.9")
    return Loss(
        f"quantile({level!r})",
        value=lambda s, y: np.where(y >= s, level * (y - s), (1.0 - level) * (s - y)),
        slope=lambda s, y: np.where(y > s, -level, np.where(y < s, 1.0 - level, 0.0)),
        link=_identity,
        lipschitz=max(level, 1.0 - level),
        classes=0,
        code=QUANTILE,
        level=level,
    )


def huber(threshold: float) -> Loss:
    """The Huber loss: half the squared error up to a threshold, linear beyond, so that outliers weigh less.

    Parameters
    ----------
    threshold : float
        Error at which it becomes linear, in the units of the labels; `semicyclic train` standardizes labels,
        so there in standard deviations of the first labels.

    Returns
    -------
    Loss
    """
    threshold = float(threshold)
    if not 0.0 < threshold < float("inf"):
        raise ValueError(f"threshold={threshold!r}: must be positive and finite, such as 1.35")

    def value(score: Array, target: Array) -> Array:
        inner = np.clip(score - target, -threshold, threshold)
        return np.asarray(inner * (score - target - 0.5 * inner))

    return Loss(
        f"huber({threshold!r})",
        value=value,
        slope=lambda s, y: np.clip(s - y, -threshold, threshold),
        link=_identity,
        lipschitz=threshold,
        classes=0,
        code=HUBER,
        level=threshold,
    )


def softmax(classes: int) -> Loss:
    """Cross-entropy of C scores; for two classes, the logistic loss of the difference of the scores.

    Parameters
    ----------
    classes : int
        C, at least 2.

    Returns
    -------
    Loss
    """
    if classes != int(classes) or classes < 2:
        raise ValueError(f"softmax needs at least two classes, not {classes!r}")

    def value(score: Array, target: Array) -> Array:
        top = score.max(axis=-1, keepdims=True)
        total = np.log(np.exp(score - top).sum(axis=-1)) + top[..., 0]
        target_score = np.take_along_axis(score, target.astype(np.int64)[..., None], axis=-1)[..., 0]
        return np.asarray(total - target_score)

    def slope(score: Array, target: Array) -> Array:
        return link(score) - np.eye(classes)[target.astype(np.int64)]

    def link(score: Array) -> Array:
        odds = np.exp(score - score.max(axis=-1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=-1, keepdims=True))

    # The slope is p - e_y, whose norm is below sqrt(2).
    return Loss(f"softmax({classes})", value, slope, link, 2.0**0.5, classes=classes, code=SOFTMAX)


def by_name(name: str) -> Loss:
    """Return the loss with this name, as written in model files and on the command line.

    Parameters
    ----------
    name : str
        One of `CLASS_LOSSES` or `NUMBER_LOSSES`, with any parameter.

    Returns
    -------
    Loss

    Raises
    ------
    ValueError
        If there is no such loss.
    """
    plain = {each.name: each for each in (logistic, hinge, squared, absolute)}
    if name in plain:
        return plain[name]
    family, _, argument = name.removesuffix(")").partition("(")
    if family in FAMILIES and argument:
        make, number = FAMILIES[family]
        try:
            return make(number(argument))
        except ValueError as error:
            raise ValueError(f"loss {name!r}: {error}") from None
    raise ValueError(f"unknown loss {name!r}: choose one of {', '.join((*CLASS_LOSSES, *NUMBER_LOSSES))}")


# Losses with a parameter: the function that makes them, and the type of the parameter.
FAMILIES: dict[str, tuple[Callable[[Any], Loss], Callable[[str], Any]]] = {
    "quantile": (quantile, float),
    "softmax": (softmax, int),
    "huber": (huber, float),
}
# Names of the losses for classes and for numbers, with examples of parameters.
CLASS_LOSSES = ("logistic", "hinge", "softmax(3)")
NUMBER_LOSSES = ("squared", "absolute", "quantile(0.9)", "huber(1.35)")
