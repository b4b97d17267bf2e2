"""`SemiCyclicClassifier` and `SemiCyclicRegressor`: scikit-learn estimators with one model per block.

The time of a row is a column of X, so that it reaches fit and prediction through every tool that
passes X on: pipelines, searches, scorers, calibration.
"""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from semicyclic.adapters.sklearn.base import SemiCyclicEstimator, loss_of
from semicyclic.adapters.sklearn.validation import features_of, times_or_blocks
from semicyclic.method import loss as losses
from semicyclic.method.batches import distinct, encode_labels
from semicyclic.method.loss import Loss
from semicyclic.types import Array

CLASSES = "'logistic' (which scikit-learn calls log_loss) or 'hinge'"
NUMBERS = "'squared', 'absolute' or 'quantile(0.9)' (scikit-learn's squared_error, absolute_error, quantile)"


def _has_chances(estimator: Any) -> bool:
    fitted = vars(estimator).get("_fitted")
    loss = loss_of(estimator.loss, CLASSES) if fitted is None else fitted.run.loss
    if loss == losses.hinge:
        raise AttributeError("loss='hinge' has no probabilities: use loss='logistic'")
    return True


def _numbers(y: Array) -> Array:
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y holds {y.dtype}: a regressor learns numbers")
    return y


class SemiCyclicClassifier(ClassifierMixin, SemiCyclicEstimator):  # type: ignore[misc]
    """A linear classifier for every block of the day, from one pass over the rows.

    Parameters
    ----------
    time_column : str or int, default=None
        The column of X with the time of each row, by name or position: datetimes of pandas, Polars or
        NumPy, or epoch seconds in float64 or int64. It is taken off before the features are used.
    block_column : str or int, default=None
        Instead of a time, the column with the block of each row: numbers from 0 on, or names.
    schedule : Schedule, str or int, default=None
        How time is cut into blocks: "daily:6", "weekly:7", "daily:06:00,13:30,22:00", or a
        `semicyclic.Schedule`; with blocks, their number or a list of their names. Unless given, six blocks
        a day, or as many as there are numbers or names.
    zone : str, default=None
        The time zone of the schedule, where that is a text, and of times that name none. Unless given, that
        of a schedule, or the one that the times name, or UTC.
    method : {"auto", "hedged", "pluralistic", "separate", "residual", "consensus"}, default="auto"
        Hundreds of candidates in one pass, mixed in each block by what they lost lately (auto; it goes
        by time, and step_size, batch_size, average, passes and shuffle_within_blocks are for the others).
        One chain with a mean for each block (pluralistic), a chain for each block (separate), a shared
        chain and a difference for each block (residual), one model for all (consensus); or both of the
        first two, hedged in each block.
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Of three classes and more, logistic is the cross-entropy of all of them.
    step_size : "adaptive", float or Step, default="adaptive"
        Steps per coordinate that shrink as gradients add up; a number for constant steps; or a rule
        of `semicyclic.step`. Adaptive steps want features around 1.
    batch_size : int, default=4
        Rows a step.
    passes : int, default=1
        How often `fit` goes through the rows.
    shuffle_within_blocks : bool, default=True
        Whether `fit` shuffles the rows of each block among themselves, for a model that is to last: the
        guarantee wants rows of one block in random order. Blocks come in their order either way.
    average : {"mean", "tail", "last"} or int, default="mean"
        What is read out: the mean of all iterates, of the last half of the cycles or of so many of them,
        or the last iterate.
    missing : {"raise", "consensus"}, default="raise"
        What to do when the time of a row to predict is not known (NaN, NaT, or a data frame without the
        column): refuse, or answer by the mean of the blocks' models.
    fit_intercept : bool, default=True
    class_weight : dict, "balanced" or None, default=None
    random_state : int, RandomState or None, default=None
        For shuffling.

    Attributes
    ----------
    classes_ : the classes. blocks_ : what the blocks are called. schedule_ : the schedule, or their number.
    coef_, intercept_ : weights [m, C, d] and [m, C]; C is 1 for two classes.
    models_ : the model of each block, by itself.
    matrix_ : every model on every block's rows, of a sample of those learnt from last.
    progressive_loss_ : the mean loss of each block's rows, each scored before it was learnt from.

    Examples
    --------
    >>> from semicyclic import SemiCyclicClassifier
    >>> model = SemiCyclicClassifier(time_column="when", schedule="daily:6", zone="Europe/Paris")
    >>> model.fit(X, y).predict_proba(X_new)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        time_column: str | int | None = None,
        block_column: str | int | None = None,
        schedule: Any = None,
        zone: str | None = None,
        method: str = "auto",
        loss: Any = "logistic",
        step_size: Any = "adaptive",
        batch_size: int = 4,
        passes: int = 1,
        shuffle_within_blocks: bool = True,
        average: Any = "mean",
        missing: str = "raise",
        fit_intercept: bool = True,
        class_weight: Any = None,
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
        self.passes = passes
        self.shuffle_within_blocks = shuffle_within_blocks
        self.average = average
        self.missing = missing
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> "SemiCyclicClassifier":
        """Learn from rows in order of time, whatever order they are given in.

        when, blocks: the time or block of each row, where no column of X tells it. Rows of which only the
            blocks are known are taken in the order given; a cycle ends where the number of the block falls.
        """
        with self._all_or_nothing():
            X, y, where = features_of(self, X, y, times_or_blocks(when, blocks), reset=True)
            self.classes_ = distinct(y)
            check_classification_targets(self.classes_)
            code = self._codes(y)
            weight = self._weight(X, code, sample_weight)
            self._learn_all(self._fit_rows(X, code, weight, where, self._loss_for()))
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        when: Any = None,
        blocks: Any = None,
    ) -> "SemiCyclicClassifier":
        """Go on with rows that follow those before, in order of time, in chunks of any size.

        All chunks together are learnt from as one `fit` of one unshuffled pass would, if they begin by
        partial_fit: a `fit` before them has ended with a step on whatever rows were left over.

        classes: all classes there will be, at the first call.
        """
        with self._all_or_nothing():
            first = not self.__sklearn_is_fitted__()
            X, y, where = features_of(self, X, y, times_or_blocks(when, blocks), reset=first)
            check_classification_targets(y)
            if first:
                if classes is None:
                    raise ValueError("classes must be passed on the first call to partial_fit.")
                self.classes_ = np.unique(classes)
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(f"classes= are not those of the first call: {self.classes_.tolist()}")
            if isinstance(self.class_weight, str):
                raise ValueError(
                    "class_weight='balanced' needs all rows at once: for partial_fit give a dictionary"
                )
            code = self._codes(y)
            weight = self._weight(X, code, sample_weight)
            self._learn_more(self._fit_rows(X, code, weight, where, self._loss_for()))
        return self

    def decision_function(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """The score of each row: above 0 for the second class, or one for each of several classes."""
        return self._scores(X, when, blocks)

    def predict(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """The class of each row."""
        return self._answers(self._scores(X, when, blocks))

    @available_if(_has_chances)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """[n, C] the probability of each class."""
        score = self._scores(X, when, blocks)
        chance = self._get().run.loss.link(score)
        return chance if chance.ndim == 2 else np.stack([1.0 - chance, chance], axis=1)

    @available_if(_has_chances)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """[n, C] the logarithm of the probability of each class."""
        return np.asarray(np.log(self.predict_proba(X, when=when, blocks=blocks)))

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> float:
        """The share of rows whose class is right."""
        return float(
            accuracy_score(y, self.predict(X, when=when, blocks=blocks), sample_weight=sample_weight)
        )

    _measure = staticmethod(accuracy_score)

    def _answers(self, score: Array) -> Array:
        code = (score > 0).astype(np.int64) if score.ndim == 1 else score.argmax(axis=1)
        return np.asarray(self.classes_[code])

    def _codes(self, labels: Any) -> Array:
        return encode_labels(labels, self.classes_)

    def _class_names(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def _loss_for(self) -> Loss:
        count = len(self.classes_)
        if count < 2:
            raise ValueError("there is one class only in y: a classifier needs at least two classes")
        loss = loss_of(self.loss, CLASSES)
        if loss.classes != 2:
            raise ValueError(f"loss={self.loss!r}: choose {CLASSES}")
        if count == 2:
            return loss
        if loss != losses.logistic:
            raise ValueError(f"loss={self.loss!r} is for two classes, y has {count}: use loss='logistic'")
        return losses.softmax(count)

    def _weight(self, X: Any, code: Array, sample_weight: Any) -> Array | None:
        if sample_weight is None and self.class_weight is None:
            return None
        weight = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        if self.class_weight is not None:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[code])
            weight = weight * by_class[code].astype(weight.dtype)
        return np.asarray(weight)


class SemiCyclicRegressor(RegressorMixin, SemiCyclicEstimator):  # type: ignore[misc]
    """A linear regression for every block of the day, from one pass over the rows.

    Takes the parameters of `SemiCyclicClassifier`, but no class_weight, and
    loss : {"squared", "absolute", "quantile(0.9)"} or Loss, default="squared"
        What is learnt is the mean, the median, or a quantile.

    Labels should be scaled as features are, around 1: TransformedTargetRegressor does it.
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
        step_size: Any = "adaptive",
        batch_size: int = 4,
        passes: int = 1,
        shuffle_within_blocks: bool = True,
        average: Any = "mean",
        missing: str = "raise",
        fit_intercept: bool = True,
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
        self.passes = passes
        self.shuffle_within_blocks = shuffle_within_blocks
        self.average = average
        self.missing = missing
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> "SemiCyclicRegressor":
        """Learn from rows in order of time, whatever order they are given in.

        when, blocks: the time or block of each row, where no column of X tells it. Rows of which only the
            blocks are known are taken in the order given; a cycle ends where the number of the block falls.
        """
        with self._all_or_nothing():
            X, y, where = features_of(self, X, y, times_or_blocks(when, blocks), reset=True)
            self._learn_all(
                self._fit_rows(X, _numbers(y), self._weight(X, sample_weight), where, self._loss_for())
            )
        return self

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> "SemiCyclicRegressor":
        """Go on with rows that follow those before, in order of time, in chunks of any size.

        All chunks together are learnt from as one `fit` of one unshuffled pass would, if they begin by
        partial_fit: a `fit` before them has ended with a step on whatever rows were left over.
        """
        with self._all_or_nothing():
            first = not self.__sklearn_is_fitted__()
            X, y, where = features_of(self, X, y, times_or_blocks(when, blocks), reset=first)
            self._learn_more(
                self._fit_rows(X, _numbers(y), self._weight(X, sample_weight), where, self._loss_for())
            )
        return self

    def predict(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """The answer for each row."""
        return self._scores(X, when, blocks)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> float:
        """R^2, the share of the variance that is explained."""
        return float(r2_score(y, self.predict(X, when=when, blocks=blocks), sample_weight=sample_weight))

    _measure = staticmethod(r2_score)

    def _loss_for(self) -> Loss:
        loss = loss_of(self.loss, NUMBERS)
        if loss.classes != 0:
            raise ValueError(f"loss={self.loss!r}: choose {NUMBERS}")
        return loss

    def _weight(self, X: Any, sample_weight: Any) -> Array | None:
        if sample_weight is None:
            return None
        return np.asarray(_check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True))
