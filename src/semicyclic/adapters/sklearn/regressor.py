"""`SemiCyclicRegressor`: scikit-learn regressor with one model per block.

The time of a row is a column of X, so that it reaches `fit` and `predict` through every tool that
passes X on: pipelines, searches, scorers, calibration.
"""

from typing import Any

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from semicyclic.adapters.sklearn.base import SemiCyclicEstimator, loss_of
from semicyclic.adapters.sklearn.validation import row_weights
from semicyclic.method import loss as losses
from semicyclic.method.loss import Loss
from semicyclic.types import Array

REGRESSOR_LOSSES = (
    f"one of {', '.join(map(repr, losses.NUMBER_LOSSES))} "
    "(scikit-learn has squared_error, absolute_error, quantile, huber)"
)


def _check_numeric(y: Array) -> Array:
    """Return labels unchanged. Raise if they are not numbers."""
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y has dtype {y.dtype}: a regressor learns numbers, so convert it")
    return y


class SemiCyclicRegressor(RegressorMixin, SemiCyclicEstimator):  # type: ignore[misc]
    """Linear regressor with one model per block of the day, trained in one pass.

    Labels should be scaled to values around 1, like features, for example by `TransformedTargetRegressor`.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        Loss function, one of `loss.NUMBER_LOSSES`: "squared" estimates the mean, "absolute" the median.
    time_column, block_column, schedule, zone, method, step_size, batch_size, l2, passes : object
        As in `SemiCyclicClassifier`.
    shuffle_within_blocks, average, horizon, missing, fit_intercept, memory, bins, bits : object
        As in `SemiCyclicClassifier`.
    number, category, text, ignore, random_state : object
        As in `SemiCyclicClassifier`.

    Attributes
    ----------
    schedule_, blocks_, coef_, intercept_, models_, matrix_, progressive_loss_ : object
        As in `SemiCyclicClassifier`, with C = 1.
    """

    def __init__(
        self,
        *,
        time_column: str | int | None = None,
        block_column: str | int | None = None,
        schedule: Any = None,
        zone: str | None = None,
        method: str = "auto",
        loss: Any = "squared",
        step_size: Any = "normalized",
        batch_size: int = 4,
        l2: float = 0.0,
        passes: int | str = "auto",
        shuffle_within_blocks: bool = True,
        average: Any = "mean",
        horizon: Any = "7d",
        missing: str = "raise",
        fit_intercept: bool = True,
        memory: str | int = "1GB",
        bins: int = 16,
        bits: int | None = None,
        number: Any = None,
        category: Any = None,
        text: Any = None,
        ignore: Any = None,
        random_state: Any = None,
    ) -> None:
        self.time_column = time_column
        self.block_column = block_column
        self.schedule = schedule
        self.zone = zone
        self.method = method
        self.loss = loss
        self.step_size = step_size
        self.batch_size = batch_size
        self.l2 = l2
        self.passes = passes
        self.shuffle_within_blocks = shuffle_within_blocks
        self.average = average
        self.horizon = horizon
        self.missing = missing
        self.fit_intercept = fit_intercept
        self.memory = memory
        self.bins = bins
        self.bits = bits
        self.number = number
        self.category = category
        self.text = text
        self.ignore = ignore
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> "SemiCyclicRegressor":
        """Fit the models of all blocks.

        X, y, sample_weight, when, blocks: as in `SemiCyclicClassifier.fit`, with numbers as labels.
        """
        with self._all_or_nothing():
            inputs = self._inputs(X, y, when, blocks, first=True)
            weight = None if sample_weight is None else row_weights(inputs, sample_weight)
            self._fit(inputs, _check_numeric(inputs.labels), weight, self._loss_for())
        return self

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> "SemiCyclicRegressor":
        """Train on later rows, like `SemiCyclicClassifier.partial_fit`; parameters as in `fit`."""
        with self._all_or_nothing():
            first = not self.__sklearn_is_fitted__()
            inputs = self._inputs(X, y, when, blocks, first=first)
            weight = None if sample_weight is None else row_weights(inputs, sample_weight)
            self._fit_more(inputs, _check_numeric(inputs.labels), weight, self._loss_for())
        return self

    def predict(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """Predict the value of each row, [n]; parameters as in `fit`."""
        return self._scores(X, when, blocks)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> float:
        """Return R^2, the share of the variance that is explained."""
        return float(r2_score(y, self.predict(X, when=when, blocks=blocks), sample_weight=sample_weight))

    _measure = staticmethod(r2_score)

    def _loss_for(self) -> Loss:
        loss = loss_of(self.loss, REGRESSOR_LOSSES)
        if loss.classes != 0:
            raise ValueError(f"loss={self.loss!r}: choose {REGRESSOR_LOSSES}")
        return loss
