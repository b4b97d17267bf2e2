"""A linear model fitted to all rows at once, as one more candidate where all rows are in memory.

One pass over few rows, or over features of very different scale, stays behind a model that is fitted to
convergence. Therefore that model is fitted too, by scikit-learn, with the hour and the weekday as features.
Its share in the estimator's model is chosen by walk-forward evaluation: at some freeze times it is fitted to
the rows before and scores the rows after, and the share is the one that, together with the scores of the
automatic choice, would have given these rows the least loss. A mixture of linear models is one linear model.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from semicyclic.auto.portfolio import Portfolio
from semicyclic.method.loss import LOGISTIC, SOFTMAX, SQUARED, Loss
from semicyclic.method.rows import Rows
from semicyclic.training.progress_log import logger
from semicyclic.types import Array

# The model is fitted to at most this many rows, and nonzero cells times scores per row; beyond, one pass
# suffices, and this model would need minutes.
MAX_ROWS, MAX_CELLS = 500_000, 20_000_000
# It is first evaluated after this many rows, and fitted again when there are that many times as many.
FIRST_ROWS, GROWTH = 20, 1.2
# Shares that are tried.
SHARES = np.linspace(0.0, 1.0, 21)
# Rows are held as a dense matrix if at least this share of their cells is not zero.
MIN_DENSE = 0.25
# Columns of a sparse matrix are scaled if the root mean square of their nonzero values is outside.
USUAL_SIZES = 0.05, 20.0
# Inverse strength of the L2 penalty, for standardized features; scikit-learn's default.
PENALTY = 1.0
MAX_ITERATIONS = 1000


class WalkForward(NamedTuple):
    """Scores of the automatic choice for rows that its models had not been trained on.

    number: [n] numbers of the rows. frozen_at: [n] when the models that predict them were frozen.
    score: [n, C]. represents: [n] number of rows that each represents.
    """

    number: Array
    frozen_at: Array
    score: Array
    represents: Array


@dataclass(frozen=True, eq=False)
class BatchModel:
    """A linear model fitted to all rows at once. share: its share in the estimator's model, 0 to 1.

    weights: [finest blocks, C, width + 1].
    """

    weights: Array
    share: float


def fit_batch(rows: Rows, fine: Array, portfolio: Portfolio, auto: WalkForward) -> BatchModel | None:
    """Return the model and its share; None for other losses, and if there are too few or too many rows.

    rows: in order of time, with targets as labels. fine: the finest block of each.
    """
    loss, count = portfolio.loss, len(rows)
    bounds = _refits(portfolio, auto, count)
    has_one = loss.code in (LOGISTIC, SQUARED) or (loss.code == SOFTMAX and loss.classes > 2)
    too_large = count > MAX_ROWS or len(rows.values) * loss.outputs > MAX_CELLS
    if not has_one or too_large or not bounds:
        return None
    data = BatchData.of(rows, fine, portfolio, loss)
    fit = BatchFit(data)
    score = np.full((count, loss.outputs), np.nan)
    for first, end in zip(bounds, [*bounds[1:], count], strict=True):
        logger.info("fit: a linear model of the first %s rows at once", f"{first:,}")
        if fit.to_first(first):
            score[first:end] = fit.score(first, end)
    scored = np.isfinite(score[auto.number]).all(axis=1)
    if not scored.any():
        return None
    logger.info("fit: a linear model of all %s rows at once", f"{count:,}")
    if not fit.to_first(count):
        return None
    share = _best_share(data, auto, score, scored)
    return BatchModel(fit.weights(portfolio), share)


def _refits(portfolio: Portfolio, auto: WalkForward, count: int) -> list[int]:
    """Return the row numbers before which the model is fitted for evaluation."""
    frozen = portfolio.exported_protocol == "forward"
    changes = auto.number[1:][np.diff(auto.frozen_at) != 0] if frozen else np.arange(count)
    bounds: list[int] = []
    for number in changes.tolist():
        if number >= (GROWTH * bounds[-1] if bounds else FIRST_ROWS):
            bounds.append(int(number))
    return bounds


def _best_share(data: "BatchData", auto: WalkForward, score: Array, scored: Array) -> float:
    """Return the share with the least loss."""
    number = auto.number[scored]
    one, other = auto.score[scored].astype(np.float64), score[number]
    weight = auto.represents[scored] * (1.0 if data.weight is None else data.weight[number])
    if weight.sum() == 0.0:
        return 0.0

    def mean_loss(share: float) -> float:
        mixed = (1.0 - share) * one + share * other
        each = data.loss.value(mixed if data.loss.outputs > 1 else mixed[:, 0], data.target[number])
        return float(np.average(each, weights=weight))

    return float(min(SHARES, key=mean_loss))


@dataclass(frozen=True, eq=False)
class BatchData:
    """Rows for scikit-learn: features, indicators of hour and weekday, targets and weights.

    features: [n, width] dense or CSR. marks: [n, M] CSR. target: as the loss takes it; label: as
    scikit-learn does.
    """

    features: Any
    marks: Any
    target: Array
    label: Array
    weight: Array | None
    loss: Loss
    intercept: bool

    @staticmethod
    def of(rows: Rows, fine: Array, portfolio: Portfolio, loss: Loss) -> "BatchData":
        """Return rows in this form."""
        assert rows.labels is not None
        count = len(rows)
        cells = (rows.values.astype(np.float64), rows.indices, rows.indptr)
        features = sparse.csr_matrix(cells, shape=(count, rows.width))
        if features.nnz >= MIN_DENSE * count * rows.width:
            features = features.toarray()
        candidates = portfolio.candidate_set
        width = candidates.marks if rows.intercept and candidates.calendar.size > 1 else 0
        mark = portfolio.parts[0].tables.mark[fine] if width else np.zeros((count, 0), np.int64)
        indptr = np.arange(count + 1) * mark.shape[1]
        marks = sparse.csr_matrix((np.ones(mark.size), mark.ravel(), indptr), shape=(count, width))
        label = np.asarray(rows.labels)
        target = np.where(label > 0, 1.0, -1.0) if loss.code == LOGISTIC else label
        return BatchData(features, marks, target, label, rows.weight, loss, rows.intercept)


@dataclass
class BatchFit:
    """The model as fitted last, and the mean and scale by which it standardizes features."""

    data: BatchData
    model: Any = field(init=False)
    mean: Array = field(init=False)
    scale: Array = field(init=False)

    def __post_init__(self) -> None:
        intercept = self.data.intercept
        if self.data.loss.code == SQUARED:
            self.model = Ridge(1.0 / PENALTY, fit_intercept=intercept)
        else:
            self.model = LogisticRegression(
                C=PENALTY, fit_intercept=intercept, max_iter=MAX_ITERATIONS, warm_start=True
            )

    def to_first(self, count: int) -> bool:
        """Fit the model to the first rows. Return False if they lack a class."""
        data = self.data
        label = data.label[:count]
        if data.loss.code != SQUARED and len(np.unique(label)) < max(data.loss.classes, 2):
            return False
        self._standardize(data.features[:count])
        weight = None if data.weight is None else data.weight[:count]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(self._cells(slice(0, count)), label, weight)
        return True

    def score(self, first: int, end: int) -> Array:
        """[end - first, C] scores of rows."""
        cells = self._cells(slice(first, end))
        return np.asarray(cells @ self._coefficients().T + np.ravel(self.model.intercept_))

    def weights(self, portfolio: Portfolio) -> Array:
        """Return the weights on features as they are, [finest blocks, C, width + 1]."""
        calendar, mark = portfolio.candidate_set.calendar, portfolio.parts[0].tables.mark
        width = len(self.scale)
        coefficients = self._coefficients()
        features = coefficients[:, :width] / self.scale
        shift = np.ravel(self.model.intercept_) - features @ self.mean
        weights = np.zeros((calendar.size, len(features), width + 1))
        weights[:, :, :-1], weights[:, :, -1] = features, shift
        if self.data.marks.shape[1]:
            weights[:, :, -1] += coefficients[:, width:][:, mark].sum(axis=2).T
        return weights[calendar.fine]

    def _coefficients(self) -> Array:
        return np.atleast_2d(self.model.coef_)

    def _standardize(self, features: Any) -> None:
        """Learn the mean and scale of each column; a sparse one keeps its zeros."""
        if not sparse.issparse(features):
            center = 1.0 if self.data.intercept else 0.0
            self.mean = center * features.mean(axis=0)
            scale = np.sqrt(np.square(features - self.mean).mean(axis=0))
            self.scale = np.where(scale > 0.0, scale, 1.0)
            return
        self.mean = np.zeros(features.shape[1])
        squares = np.bincount(features.indices, features.data**2, features.shape[1])
        count = np.bincount(features.indices, features.data != 0, features.shape[1])
        size = np.sqrt(squares / np.maximum(count, 1.0))
        usual = (size >= USUAL_SIZES[0]) & (size <= USUAL_SIZES[1])
        self.scale = np.where(usual | (size == 0.0), 1.0, size)

    def _cells(self, rows: slice) -> Any:
        """Return standardized features and marks."""
        features, marks = self.data.features[rows], self.data.marks[rows]
        if sparse.issparse(features):
            scaled = features @ sparse.diags(1.0 / self.scale)
            return sparse.hstack([scaled, marks], format="csr")
        return np.hstack([(features - self.mean) / self.scale, marks.toarray()])
