"""Base class of the classifier and the regressor."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state

from semicyclic.adapters.sklearn.fit import LabelledInputs, fit_all, fit_more
from semicyclic.adapters.sklearn.fitted import Fitted
from semicyclic.adapters.sklearn.row_times import MISSING, check_known
from semicyclic.adapters.sklearn.settings import check_features, read_out_of
from semicyclic.adapters.sklearn.validation import UNLABELLED, Inputs, column_of, inputs_of, names_without
from semicyclic.method import loss as losses
from semicyclic.method.batches import check_batch_size
from semicyclic.method.evaluate import Matrix, matrix
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.plan import check_l2
from semicyclic.method.rows import Rows, with_fields
from semicyclic.method.train import METHODS
from semicyclic.schedule.numbered import Numbered
from semicyclic.specs import parse_step
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
        if self.passes != AUTO and (not is_int or self.passes < 1):
            raise ValueError(f"passes={self.passes!r}: must be 'auto' or an integer, at least 1")
        # Whatever the method uses of these.
        check_batch_size(self.batch_size)
        read_out_of(self.average)
        parse_step("step_size", self.step_size)
        check_l2(self.l2)
        check_features(self)

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

    def _inputs(self, X: Any, y: Any, when: Any, blocks: Any, *, first: bool) -> Inputs:
        """Validate the arguments of `fit` or `partial_fit`. first: nothing was fitted before."""
        return inputs_of(self, X, y, when, blocks, reset=first)

    def _fit(self, inputs: Inputs, labels: Array, weight: Array | None, loss: Loss) -> None:
        rng = None
        if self.shuffle_within_blocks:
            rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        self._keep(fit_all(self, LabelledInputs(inputs, labels, weight, loss), rng))

    def _fit_more(self, inputs: Inputs, labels: Array, weight: Array | None, loss: Loss) -> None:
        self._keep(fit_more(self, LabelledInputs(inputs, labels, weight, loss), vars(self).get("_fitted")))

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
        rows, _ = self._rows_to_score(fitted, X, UNLABELLED, None, when, blocks)
        return fitted.scoring_weights.score(rows)

    def _rows_to_score(
        self, fitted: Fitted, X: Any, y: Any, weight: Any, when: Any, blocks: Any
    ) -> tuple[Rows, Array]:
        """Return rows in the given order, with blocks of `Fitted.scoring_weights`, and their own blocks."""
        inputs, locator = inputs_of(self, X, y, when, blocks, reset=False), fitted.locator
        when, blocks = inputs.when, inputs.blocks
        if when is None and blocks is None:
            if locator.blocks > 1 and self.missing != "consensus":
                raise ValueError(
                    f"the model has {locator.blocks} blocks, and the rows have no time or block: give the "
                    "column of X, when= or blocks=, or set missing='consensus'"
                )
            placed, ticks = np.full(inputs.rows, MISSING), None
        else:
            (_, placed), ticks = locator.place(when, blocks, inputs.rows)
            # With one block, the time is not needed.
            lenient = self.missing == "consensus" or locator.blocks == 1
            check_known(placed, locator, when, blocks, lenient=lenient)
        features = inputs.features if fitted.frame is None else fitted.frame.encode(inputs.features)
        rows = Rows(
            features,
            inputs.labels,
            block=fitted.place(placed, ticks),
            weight=weight,
            intercept=fitted.settings["fit_intercept"],
            dtype=features.dtype,
        )
        return rows, placed

    def to_model(self) -> Pluralistic:
        """Return the models of all blocks as one model, for `semicyclic.save` and serving.

        Returns
        -------
        Pluralistic
        """
        fitted = self._get_fitted()
        model = fitted.model
        about = {**model.provenance, "estimator": type(self).__name__}
        if fitted.frame is None:
            about["columns"] = [str(name) for name in self.get_feature_names_out()]
        if fitted.locator.names:
            about["blocks"] = [str(name) for name in fitted.locator.names]
        return replace(model, classes=self._class_names(), provenance=about)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of `coef_`.

        For a data frame these are the features made of its columns; for an array, its columns without that of
        the time or block.

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
        fitted = vars(self).get("_fitted")
        if fitted is not None and fitted.frame is not None:
            return np.asarray(fitted.frame.feature_names())
        known = getattr(self, "feature_names_in_", input_features)
        if known is None:
            known = [f"x{number}" for number in range(self.n_features_in_)]
        if len(known) != self.n_features_in_:
            raise ValueError(f"input_features has {len(known)} names, X had {self.n_features_in_} columns")
        return np.asarray(names_without(known, column_of(self)), dtype=object)

    @property
    def models_(self) -> tuple[Pluralistic, ...]:
        """One single-block model per block."""
        model = replace(self._get_fitted().block_model, classes=self._class_names())
        return tuple(
            replace(model, held=model.block_weights(block)[None], schedule=Numbered(1), fallback=())
            for block in range(model.blocks)
        )

    @property
    def coef_(self) -> Array:
        """Weights of every block, shape [m, C, d]."""
        return self._get_fitted().block_model.weights[:, :, :-1]

    @property
    def intercept_(self) -> Array:
        """Intercepts of every block, shape [m, C]."""
        return self._get_fitted().block_model.weights[:, :, -1]

    @property
    def progressive_loss_(self) -> Array:
        """Mean loss of each block's rows, each scored before it was trained on, shape [m]."""
        fitted = self._get_fitted()
        return fitted.ended.losses().mean * fitted.labels.loss_scale()

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
        rows, block = self._rows_to_score(fitted, X, y, sample_weight, when, blocks)
        if block.min() < 0:
            raise ValueError(
                "score_matrix needs the block of every row: leave out rows without a time or block"
            )
        codes = self._codes(rows.labels)
        return matrix(fitted.block_model, with_fields(rows.with_blocks(block), labels=codes))

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
        rows, placed = self._rows_to_score(fitted, X, y, sample_weight, when, blocks)
        assert rows.labels is not None
        predicted = self._to_predictions(fitted.scoring_weights.score(rows))
        scores = {}
        for block in [*np.unique(placed[placed >= 0]).tolist(), MISSING]:
            inside = placed == block
            if inside.any():
                weight = None if rows.weight is None else rows.weight[inside]
                score = self._measure(rows.labels[inside], predicted[inside], sample_weight=weight)
                label = "consensus" if block == MISSING else fitted.locator.labels[block]
                scores[label] = float(score)
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
