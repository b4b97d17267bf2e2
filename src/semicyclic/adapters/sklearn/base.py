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
from semicyclic.adapters.sklearn.fitted import Fitted
from semicyclic.adapters.sklearn.row_times import MISSING, check_known
from semicyclic.adapters.sklearn.settings import read_out_of, step_of
from semicyclic.adapters.sklearn.validation import UNLABELLED, column_of, features_of, names_without
from semicyclic.method import loss as losses
from semicyclic.method.batches import check_batch_size
from semicyclic.method.evaluate import Matrix, matrix
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows, with_fields
from semicyclic.method.train import METHODS
from semicyclic.schedule.numbered import Numbered
from semicyclic.training.learner import AUTO
from semicyclic.types import Array


class SemiCyclicEstimator(BaseEstimator):  # type: ignore[misc]
    """Shared parts of `SemiCyclicClassifier` and `SemiCyclicRegressor`."""

    # --------------------------------------------------------------------- training

    def _check_settings(self) -> None:
        """Raise if a parameter of the estimator is invalid."""
        known = (AUTO, *METHODS)
        if not isinstance(self.method, str) or self.method not in known:
            raise ValueError(f"method={self.method!r}: choose one of {', '.join(known)}")
        if self.missing not in ("raise", "consensus"):
            raise ValueError(f"missing={self.missing!r}: choose 'raise' or 'consensus'")
        if self.time_column is not None and self.block_column is not None:
            raise ValueError("give either time_column= or block_column=, not both")
        is_int = isinstance(self.passes, int | np.integer) and not isinstance(self.passes, bool)
        if not is_int or self.passes < 1:
            raise ValueError(f"passes={self.passes!r}: must be an integer, at least 1")
        # Whatever the method uses of these.
        check_batch_size(self.batch_size)
        read_out_of(self.average)
        step_of(self.step_size)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Check the settings, and restore the estimator if training fails."""
        before = dict(vars(self))
        try:
            self._check_settings()
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _rows(self, X: Any, y: Any, weight: Any) -> Rows:
        return Rows(X, y, weight=weight, intercept=self.fit_intercept, dtype=X.dtype)

    def _learn_all(self, rows: Rows, loss: Loss, when: Any, blocks: Any) -> None:
        rng = None
        if self.shuffle_within_blocks:
            rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        self._keep(learn_all(self, rows, loss, when, blocks, rng))

    def _learn_more(self, rows: Rows, loss: Loss, when: Any, blocks: Any) -> None:
        self._keep(learn_more(self, rows, loss, when, blocks, vars(self).get("_fitted")))

    def _keep(self, fitted: Fitted) -> None:
        self._fitted = fitted
        self.schedule_ = fitted.locator.schedule
        self.blocks_ = np.asarray(fitted.locator.labels)

    # ------------------------------------------------------------------ results

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in vars(self)

    def _get_fitted(self) -> Fitted:
        """Return what was fitted. Raise `NotFittedError` if there is none."""
        if "_fitted" not in vars(self):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                "arguments before using this estimator."
            )
        fitted: Fitted = self._fitted
        return fitted

    def _scores(self, X: Any, when: Any, blocks: Any) -> Array:
        """Return the score <w^i, x> of each row x, where i is its block."""
        fitted = self._get_fitted()
        rows = self._rows_to_score(fitted, X, UNLABELLED, None, when, blocks)
        assert rows.block is not None
        return fitted.scoring_model.score(rows, block=rows.block)

    def _rows_to_score(self, fitted: Fitted, X: Any, y: Any, weight: Any, when: Any, blocks: Any) -> Rows:
        """Return rows in the given order with their blocks; a missing block is m, the number of blocks."""
        features, labels, when, blocks = features_of(self, X, y, when, blocks, reset=False)
        n, locator = features.shape[0], fitted.locator
        if when is None and blocks is None:
            if locator.blocks > 1 and self.missing != "consensus":
                raise ValueError(
                    f"the model has {locator.blocks} blocks, and the rows have no time or block: give the "
                    "column of X, when= or blocks=, or set missing='consensus'"
                )
            placed = np.full(n, MISSING)
        else:
            (_, placed), _ = locator.place(when, blocks, n)
            # With one block, the time is not needed.
            lenient = self.missing == "consensus" or locator.blocks == 1
            check_known(placed, locator, when, blocks, lenient=lenient)
        consensus = 0 if locator.blocks == 1 else locator.blocks
        block = np.where(placed == MISSING, consensus, placed)
        intercept = fitted.settings["fit_intercept"]
        return Rows(features, labels, block=block, weight=weight, intercept=intercept, dtype=features.dtype)

    def to_model(self) -> Pluralistic:
        """Return the models of all blocks as one model, for `semicyclic.save` and serving.

        Returns
        -------
        Pluralistic
        """
        fitted = self._get_fitted()
        model = fitted.model
        about = {
            **model.provenance,
            "estimator": type(self).__name__,
            "columns": [str(name) for name in self.get_feature_names_out()],
        }
        if fitted.locator.names:
            about["blocks"] = [str(name) for name in fitted.locator.names]
        return replace(model, classes=self._class_names(), provenance=about)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of `coef_`: those of X without the time or block column.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of all columns of X, if it was fitted without names.

        Returns
        -------
        ndarray of str

        Raises
        ------
        ValueError
            If the number of names differs from the number of columns of X at fit.
        """
        if not hasattr(self, "n_features_in_"):
            self._get_fitted()
        known = getattr(self, "feature_names_in_", input_features)
        if known is None:
            known = [f"x{number}" for number in range(self.n_features_in_)]
        if len(known) != self.n_features_in_:
            raise ValueError(f"input_features has {len(known)} names, X had {self.n_features_in_} columns")
        return np.asarray(names_without(known, column_of(self)), dtype=object)

    @property
    def models_(self) -> tuple[Pluralistic, ...]:
        """One single-block model per block."""
        model = self.to_model()
        return tuple(
            replace(model, held=model.block_weights(block)[None], schedule=Numbered(1), fallback=())
            for block in range(model.blocks)
        )

    @property
    def coef_(self) -> Array:
        """Weights of every block, shape [m, C, d]."""
        return self._get_fitted().model.weights[:, :, :-1]

    @property
    def intercept_(self) -> Array:
        """Intercepts of every block, shape [m, C]."""
        return self._get_fitted().model.weights[:, :, -1]

    @property
    def progressive_loss_(self) -> Array:
        """Mean loss of each block's rows, each scored before it was trained on, shape [m]."""
        return self._get_fitted().ended.losses().mean

    @property
    def matrix_(self) -> Matrix:
        """Scores of every block's model on every block's rows, from a sample of the last rows trained on."""
        return self._get_fitted().matrix

    def score_matrix(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> Matrix:
        """Score every block's model on every block's rows, by accuracy, or by error for a regressor.

        The diagonal has the scores of every block's model on its own rows.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the time or block column if the estimator was fitted with one.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        when : array-like of shape (n_samples,), default=None
            Times of the rows, if X has no time column.
        blocks : array-like of shape (n_samples,) or scalar, default=None
            Blocks of the rows, if X has no block column.

        Returns
        -------
        Matrix
            Scores of shape [m, m].

        Raises
        ------
        ValueError
            If the block of a row is missing.
        """
        fitted = self._get_fitted()
        rows = self._rows_to_score(fitted, X, y, sample_weight, when, blocks)
        assert rows.block is not None
        if rows.block.max() >= fitted.locator.blocks:
            raise ValueError(
                "score_matrix needs the block of every row: leave out rows without a time or block"
            )
        return matrix(fitted.model, with_fields(rows, labels=self._codes(rows.labels)))

    def score_by_block(
        self, X: Any, y: Any, sample_weight: Any = None, *, when: Any = None, blocks: Any = None
    ) -> dict[Any, float]:
        """Score each block's model on that block's rows.

        Parameters
        ----------
        X, y, sample_weight, when, blocks
            As in `score_matrix`.

        Returns
        -------
        dict
            The score of every block that has rows, by block label. Rows without a block are scored by the
            consensus model, under the key "consensus".
        """
        fitted = self._get_fitted()
        rows = self._rows_to_score(fitted, X, y, sample_weight, when, blocks)
        assert rows.block is not None
        assert rows.labels is not None
        predicted = self._to_predictions(fitted.scoring_model.score(rows, block=rows.block))
        labels = [*fitted.locator.labels, "consensus"]
        scores = {}
        for block in np.unique(rows.block).tolist():
            inside = rows.block == block
            weight = None if rows.weight is None else rows.weight[inside]
            score = self._measure(rows.labels[inside], predicted[inside], sample_weight=weight)
            scores[labels[block]] = float(score)
        return scores

    # A regressor uses labels and scores as they are; the classifier overrides these to map classes.

    def _to_predictions(self, score: Array) -> Array:
        return score

    def _codes(self, labels: Any) -> Any:
        return labels

    def _class_names(self) -> tuple[Any, ...]:
        return ()


def loss_of(loss: Any, choices: str) -> Loss:
    """Return a loss, given itself or its name. choices: valid names, for the error message."""
    if isinstance(loss, Loss):
        return loss
    try:
        return losses.by_name(str(loss))
    except ValueError:
        raise ValueError(f"loss={loss!r}: choose {choices}") from None
