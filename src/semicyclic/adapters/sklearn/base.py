"""Base class of the classifier and the regressor."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state

from semicyclic.adapters.sklearn.fit import learn_all, learn_more
from semicyclic.adapters.sklearn.fit_settings import AUTO, FitRows, FitSettings
from semicyclic.adapters.sklearn.fitted_run import FittedRun, check_average
from semicyclic.adapters.sklearn.row_times import MISSING, TimesOrBlocks, check_known
from semicyclic.adapters.sklearn.validation import UNLABELLED, column_of, features_of, others, times_or_blocks
from semicyclic.method import loss as losses
from semicyclic.method.evaluate import Matrix, matrix
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.method.train import METHODS
from semicyclic.schedule.numbered import Numbered
from semicyclic.types import Array


class SemiCyclicEstimator(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share."""

    # --------------------------------------------------------------------- learning

    def _check_settings(self) -> None:
        known = (AUTO, *METHODS)
        if not isinstance(self.method, str) or self.method not in known:
            raise ValueError(f"method={self.method!r}: choose one of {', '.join(known)}")
        if self.missing not in ("raise", "consensus"):
            raise ValueError(f"missing={self.missing!r}: choose 'raise' or 'consensus'")
        if self.time_column is not None and self.block_column is not None:
            raise ValueError("give either time_column= or block_column=, not both")
        whole = isinstance(self.passes, int | np.integer) and not isinstance(self.passes, bool)
        if not whole or self.passes < 1:
            raise ValueError(f"passes={self.passes!r}: must be a whole number, at least 1")
        check_average(self.average)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave the estimator as it was if learning fails."""
        before = dict(vars(self))
        try:
            self._check_settings()
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _how(self) -> FitSettings:
        return FitSettings(*(getattr(self, name) for name in FitSettings._fields))

    def _fit_rows(
        self, X: Any, y: Array, weight: Array | None, where: TimesOrBlocks | None, loss: Loss
    ) -> FitRows:
        return FitRows(X, y, weight, where, self.get_feature_names_out(), loss)

    def _learn_all(self, given: FitRows) -> None:
        rng = None
        if self.shuffle_within_blocks:
            rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        self._keep(learn_all(self._how(), given, passes=int(self.passes), rng=rng))

    def _learn_more(self, given: FitRows) -> None:
        self._keep(learn_more(self._how(), given, vars(self).get("_fitted")))

    def _keep(self, fitted: FittedRun) -> None:
        self._fitted = fitted
        self.schedule_ = fitted.calendar.schedule
        self.blocks_ = np.asarray(fitted.calendar.labels)

    # ------------------------------------------------------------------ what comes out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in vars(self)

    def _get(self) -> FittedRun:
        if "_fitted" not in vars(self):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                "arguments before using this estimator."
            )
        fitted: FittedRun = self._fitted
        return fitted

    def _scores(self, X: Any, when: Any, blocks: Any) -> Array:
        """<w^i, x> of each row, with the block i it belongs to."""
        fitted = self._get()
        rows = self._to_score(fitted, X, UNLABELLED, None, when, blocks)
        assert rows.block is not None
        return fitted.answering.score(rows, block=rows.block)

    def _to_score(self, fitted: FittedRun, X: Any, y: Any, weight: Any, when: Any, blocks: Any) -> Rows:
        """Rows in the order given, each with its block; those of no known block have number m."""
        features, labels, where = features_of(self, X, y, times_or_blocks(when, blocks), reset=False)
        n, calendar = features.shape[0], fitted.calendar
        if where is None and calendar.blocks == 1:
            block = np.zeros(n, np.int64)
        elif where is None:
            if self.missing != "consensus":
                raise ValueError(
                    f"there are {calendar.blocks} blocks, and nothing tells the block of these rows: give "
                    "the column of X, when= or blocks=; or make the estimator with missing='consensus'"
                )
            block = np.full(n, calendar.blocks)
        else:
            placed = calendar.place(where, n)
            # With one block nobody need know when it was.
            lenient = self.missing == "consensus" or calendar.blocks == 1
            check_known(placed, calendar, where, lenient=lenient)
            spare = 0 if calendar.blocks == 1 else calendar.blocks
            block = np.where(placed.block == MISSING, spare, placed.block)
        told_rows = {"block": block, "weight": weight, "intercept": fitted.how.fit_intercept}
        return Rows(features, labels, dtype=features.dtype, **told_rows)

    def to_model(self) -> Pluralistic:
        """The models of all blocks as one `Pluralistic`, for `sc.save` and serving."""
        fitted = self._get()
        model = fitted.model
        about = {
            **model.provenance,
            "estimator": type(self).__name__,
            "columns": [str(name) for name in self.get_feature_names_out()],
        }
        if fitted.calendar.names:
            about["blocks"] = [str(name) for name in fitted.calendar.names]
        return replace(model, classes=self._class_names(), provenance=about)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the columns of `coef_`: those of X without the time or block."""
        if not hasattr(self, "n_features_in_"):
            self._get()
        known = getattr(self, "feature_names_in_", input_features)
        if known is None:
            known = [f"x{number}" for number in range(self.n_features_in_)]
        if len(known) != self.n_features_in_:
            raise ValueError(f"input_features has {len(known)} names, X had {self.n_features_in_} columns")
        return np.asarray(others(known, column_of(self)), dtype=object)

    @property
    def models_(self) -> tuple[Pluralistic, ...]:
        """The model of every block, each by itself."""
        whole = self.to_model()
        return tuple(
            replace(whole, held=whole.block_weights(block)[None], schedule=Numbered(1), fallback=())
            for block in range(whole.blocks)
        )

    @property
    def coef_(self) -> Array:
        """[m, C, d] the weights of every block."""
        return self._get().model.weights[:, :, :-1]

    @property
    def intercept_(self) -> Array:
        """[m, C] the intercept of every block."""
        return self._get().model.weights[:, :, -1]

    @property
    def progressive_loss_(self) -> Array:
        """[m] the mean loss of each block's rows, each scored before it was learnt from."""
        return self._get().run_by_now.progressive()

    @property
    def matrix_(self) -> Matrix:
        """Every block's model on every block's rows, of a sample of the rows learnt from last."""
        return self._get().matrix

    def score_matrix(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> Matrix:
        """Every block's model on every block's rows, m x m: accuracy, or for numbers the error.

        The diagonal is every block's own model on its own rows.
        """
        fitted = self._get()
        rows = self._to_score(fitted, X, y, sample_weight, when, blocks)
        assert rows.block is not None
        if rows.block.max() >= fitted.calendar.blocks:
            raise ValueError("a matrix needs to know the block of every row")
        rows.labels = self._codes(rows.labels)
        return matrix(fitted.model, rows)

    def score_by_block(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> dict[Any, float]:
        """The score of every block that has rows, each by its own model."""
        fitted = self._get()
        rows = self._to_score(fitted, X, y, sample_weight, when, blocks)
        assert rows.block is not None
        assert rows.labels is not None
        found = self._answers(fitted.answering.score(rows, block=rows.block))
        labels = [*fitted.calendar.labels, "consensus"]
        out = {}
        for block in np.unique(rows.block).tolist():
            own = rows.block == block
            weight = None if rows.weight is None else rows.weight[own]
            out[labels[block]] = float(self._measure(rows.labels[own], found[own], sample_weight=weight))
        return out

    # Numbers are learnt and answered as they are; a classifier has classes for them.

    def _answers(self, score: Array) -> Array:
        return score

    def _codes(self, labels: Any) -> Any:
        return labels

    def _class_names(self) -> tuple[Any, ...]:
        return ()


def loss_of(loss: Any, choices: str) -> Loss:
    """A loss, or the one that calls itself so."""
    if isinstance(loss, Loss):
        return loss
    try:
        return losses.by_name(str(loss))
    except ValueError:
        raise ValueError(f"loss={loss!r}: choose {choices}") from None
