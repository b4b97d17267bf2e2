"""`SemiCyclicClassifier`: scikit-learn classifier with one model per block.

The time of a row is a column of X, so that it reaches `fit` and `predict` through every tool that
passes X on: pipelines, searches, scorers, calibration.
"""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from semicyclic.adapters.sklearn.base import SemiCyclicEstimator, loss_of
from semicyclic.adapters.sklearn.validation import Inputs, row_weights
from semicyclic.method import loss as losses
from semicyclic.method.batches import distinct, encode_labels
from semicyclic.method.loss import Loss
from semicyclic.types import Array

CLASSIFIER_LOSSES = "'logistic' (which scikit-learn calls log_loss) or 'hinge'"


def _has_probabilities(estimator: Any) -> bool:
    """Return True. Raise `AttributeError` if the loss has no probabilities."""
    fitted = vars(estimator).get("_fitted")
    loss = loss_of(estimator.loss, CLASSIFIER_LOSSES) if fitted is None else fitted.model.loss
    if loss == losses.hinge:
        raise AttributeError("loss='hinge' has no probabilities: use loss='logistic'")
    return True


class SemiCyclicClassifier(ClassifierMixin, SemiCyclicEstimator):  # type: ignore[misc]
    """Linear classifier with one model per block of the day, trained in one pass.

    Parameters
    ----------
    time_column : str or int, default=None
        Column of X with the time of each row, by name or position: datetimes of pandas, Polars or NumPy, or
        epoch seconds in float64 or int64. The column is removed from the features.
    block_column : str or int, default=None
        Column of X with the block of each row, instead of a time: numbers from 0, or names.
    schedule : Schedule, str, int or list, default=None
        Division of time into blocks: "daily:6", "weekly:7", "daily:06:00,13:30,22:00", or a
        `semicyclic.Schedule`. With blocks instead of times: their number, or a list of their names. If None,
        six blocks a day, or all blocks that occur.
    zone : str, default=None
        Time zone of a schedule given as a string, and of times without a time zone. If None, the zone of the
        `Schedule`, else the zone of the times, else UTC.
    method : {"auto", "hedged", "pluralistic", "separate", "residual", "consensus"}, default="auto"
        - "auto": hundreds of candidates trained in one pass by time, and mixed in each block by their recent
          loss. It ignores `step_size`, `batch_size`, `l2` and `average`.
        - "pluralistic": one chain, with a separate average for each block.
        - "separate": one chain per block.
        - "residual": a shared chain, and a difference for each block.
        - "consensus": one model for all blocks.
        - "hedged": "pluralistic" and "separate", hedged in each block.
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Loss function. With three or more classes, "logistic" is the cross-entropy of all classes.
    step_size : "normalized", "adaptive", float or Step, default="normalized"
        "normalized" for AdaGrad steps per coordinate, for features of any scale; "adaptive" for AdaGrad on
        the features as they are, which should be around 1; a number for constant steps; or a rule of
        `semicyclic.step`.
    batch_size : int, default=4
        Rows per step.
    l2 : float, default=0.0
        Strength of the penalty l2 / 2 ||w||^2 on the mean loss, without the intercept. With adaptive and
        normalized steps, a step shrinks the columns that its rows have.
    passes : int or "auto", default="auto"
        Number of passes of `fit` over the rows. With method "auto", 1 is for candidates trained in one pass
        only; "auto" is for one more candidate, a linear model with the hour and the weekday as features that
        is fitted to all rows at once, if there are up to 500,000 rows, and 20 million nonzero values times
        scores per row. Its share in the model is chosen by walk-forward evaluation; `partial_fit` ends it.
        With other methods, "auto" is one pass.
    shuffle_within_blocks : bool, default=True
        Whether `fit` shuffles rows within each block, for a model used after training: its guarantee assumes
        rows of a block in random order. The order of blocks does not change. "auto" goes by time; it shuffles
        rows that have neither times nor blocks.
    average : str or int, default="mean"
        Read-out, as on the command line: "mean" of all iterates, mean of the last 5 cycles ("tail:5", or the
        integer 5), "last" iterate, and the others of `semicyclic.specs.READ_OUTS`.
    horizon : str or timedelta, default="7d"
        How long the model will serve before it is fitted again, in whole days. "auto" evaluates its
        candidates by models that have served for up to as long; other methods ignore it.
    missing : {"raise", "consensus"}, default="raise"
        Handling of rows to predict without a time or block (NaN, NaT, or a data frame without the column):
        raise an error, or predict by the mean of the blocks' models, weighted by their rows.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes. "balanced" is not available in `partial_fit`.
    memory : str or int, default="1GB"
        Memory budget for candidates and visits; also limits the number of columns.
    bins : int, default=16
        Of data frames: quantile bins per number column, in addition to its scaled value; 1 for none.
    bits : int, default=None
        Of data frames: hash the features to 2^bits columns. If None, `fit` gives each feature its own column,
        and `partial_fit` chooses the hash size from its first rows.
    number, category, text, ignore : list of str, default=None
        Of data frames: names of columns whose type is not to be inferred, by type; `ignore` are left out.
    random_state : int, RandomState or None, default=None
        Seed for shuffling.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    schedule_ : Schedule or Numbered
        Schedule of the blocks, or their number.
    blocks_ : ndarray of shape (m,)
        Labels of the blocks.
    coef_ : ndarray of shape (m, C, d)
        Weights of every block; C is 1 for two classes, else the number of classes.
    intercept_ : ndarray of shape (m, C)
        Intercepts of every block.
    models_ : tuple of Pluralistic
        One single-block model per block.
    matrix_ : Matrix
        Scores of every block's model on every block's rows, from a sample of the last rows trained on.
    progressive_loss_ : ndarray of shape (m,)
        Mean loss of each block's rows, each scored before it was trained on; with "auto", by the mixture.

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
        step_size: Any = "normalized",
        batch_size: int = 4,
        l2: float = 0.0,
        passes: int | str = "auto",
        shuffle_within_blocks: bool = True,
        average: Any = "mean",
        horizon: Any = "7d",
        missing: str = "raise",
        fit_intercept: bool = True,
        class_weight: Any = None,
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
        self.class_weight = class_weight
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
    ) -> "SemiCyclicClassifier":
        """Fit the models of all blocks.

        Rows with times may be in any order: they are sorted first. Rows with blocks only are used in the
        given order, and a cycle ends where the block number decreases.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Features, with the time or block column if one is set.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        when, blocks : array-like of shape (n_samples,), default=None
            Time or block of each row, if X has no column for it.

        Returns
        -------
        SemiCyclicClassifier
        """
        with self._all_or_nothing():
            inputs = self._inputs(X, y, when, blocks, first=True)
            self.classes_ = distinct(inputs.labels)
            check_classification_targets(self.classes_)
            code = self._codes(inputs.labels)
            self._fit(inputs, code, self._weight(inputs, code, sample_weight), self._loss_for())
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
        """Continue training on later rows, in chunks of any size; other parameters as in `fit`.

        If the first call is `partial_fit`, all chunks together give the same model as one `fit` on all rows
        in one unshuffled pass. A preceding `fit` differs: it ends with a step on an incomplete minibatch.

        Parameters
        ----------
        classes : array-like, default=None
            All classes that can occur; required at the first call.
        """
        with self._all_or_nothing():
            first = not self.__sklearn_is_fitted__()
            inputs = self._inputs(X, y, when, blocks, first=first)
            check_classification_targets(inputs.labels)
            if first:
                if classes is None:
                    raise ValueError("classes must be passed on the first call to partial_fit.")
                self.classes_ = np.unique(classes)
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(f"classes= are not those of the first call: give {self.classes_.tolist()}")
            if isinstance(self.class_weight, str):
                raise ValueError(
                    "class_weight='balanced' needs all rows at once: for partial_fit give a dictionary"
                )
            code = self._codes(inputs.labels)
            self._fit_more(inputs, code, self._weight(inputs, code, sample_weight), self._loss_for())
        return self

    def decision_function(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """Return scores: [n], positive for the second of two classes; or [n, C], one per class."""
        return self._scores(X, when, blocks)

    def predict(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """Predict the class of each row, [n]; parameters as in `fit`."""
        return self._to_predictions(self._scores(X, when, blocks))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """Predict the probability of each class, [n, C]."""
        score = self._scores(X, when, blocks)
        probability = self._get_fitted().model.loss.link(score)
        return probability if probability.ndim == 2 else np.stack([1.0 - probability, probability], axis=1)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any, *, when: Any = None, blocks: Any = None) -> Array:
        """Predict the logarithm of the probability of each class, [n, C]."""
        return np.asarray(np.log(self.predict_proba(X, when=when, blocks=blocks)))

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> float:
        """Return the accuracy of the predicted classes."""
        return float(
            accuracy_score(y, self.predict(X, when=when, blocks=blocks), sample_weight=sample_weight)
        )

    _measure = staticmethod(accuracy_score)

    def _to_predictions(self, score: Array) -> Array:
        code = (score > 0).astype(np.int64) if score.ndim == 1 else score.argmax(axis=1)
        return np.asarray(self.classes_[code])

    def _codes(self, labels: Any) -> Array:
        return encode_labels(labels, self.classes_)

    def _class_names(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def _loss_for(self) -> Loss:
        count = len(self.classes_)
        if count < 2:
            raise ValueError("y has only one class: a classifier needs at least two classes")
        loss = loss_of(self.loss, CLASSIFIER_LOSSES)
        if loss.classes != 2:
            raise ValueError(f"loss={self.loss!r}: choose {CLASSIFIER_LOSSES}")
        if count == 2:
            return loss
        if loss != losses.logistic:
            raise ValueError(f"loss={self.loss!r} is for two classes, y has {count}: use loss='logistic'")
        return losses.softmax(count)

    def _weight(self, inputs: Inputs, code: Array, sample_weight: Any) -> Array | None:
        if sample_weight is None and self.class_weight is None:
            return None
        weight = row_weights(inputs, sample_weight)
        if self.class_weight is not None:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[code])
            weight = weight * by_class[code].astype(weight.dtype)
        return np.asarray(weight)
