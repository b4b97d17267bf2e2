"""What classifier and regressor share: rows in, a run, answers out."""

import warnings
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_X_y, validate_data

from semicyclic.adapters.sklearn.fitted import Fitted, check_average, sample_of
from semicyclic.adapters.sklearn.order import order_of, spreads
from semicyclic.adapters.sklearn.places import UNKNOWN, Calendar, Placed, Where, calendar_of, check_known
from semicyclic.adapters.sklearn.tables import as_table, is_frame, position, take
from semicyclic.method import loss as losses
from semicyclic.method import step as steps
from semicyclic.method import train
from semicyclic.method.evaluate import Matrix, matrix
from semicyclic.method.learn import go_on
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.pack import nothing, pack
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.step import Step

Array = npt.NDArray[Any]

METHODS = {
    "pluralistic": train.pluralistic,
    "separate": train.separate,
    "residual": train.residual,
    "hedged": train.hedged,
    "consensus": train.consensus,
}
# AdaGrad's rate: of six from .05 to 2 within 5 % of the best wherever a block has a thousand rows.
RATE = 0.2
# Features and labels beyond this are not learnt within a thousand steps of that rate.
LARGE = 30.0
DTYPES = (np.float64, np.float32)
UNLABELLED = object()
# What read-outs of single cycles may keep.
RECORDS = 2 * 2**30


class SemiCyclic(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share."""

    def _check_settings(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method={self.method!r}: choose one of {', '.join(METHODS)}")
        if self.missing not in ("raise", "consensus"):
            raise ValueError(f"missing={self.missing!r}: choose 'raise' or 'consensus'")
        if self.time_column is not None and self.block_column is not None:
            raise ValueError("give either time_column= or block_column=, not both")
        if isinstance(self.passes, bool) or self.passes != int(self.passes) or self.passes < 1:
            raise ValueError(f"passes={self.passes!r}: must be a whole number, at least 1")
        check_average(self.average)

    # ---------------------------------------------------------------- what comes in

    @property
    def _column(self) -> Any:
        return self.block_column if self.time_column is None else self.time_column

    def _told(self, when: Any, blocks: Any) -> Where | None:
        """What a call says of where its rows happened."""
        if when is not None and blocks is not None:
            raise ValueError("give either when= or blocks=, not both")
        if self._column is not None and (when is not None or blocks is not None):
            name = "when" if blocks is None else "blocks"
            raise ValueError(f"column {self._column!r} of X tells where rows happened: leave out {name}=")
        if when is not None:
            return Where(True, when)
        return None if blocks is None else Where(False, blocks)

    def _features(self, X: Any, y: Any, where: Where | None, *, reset: bool) -> tuple[Any, Any, Where | None]:
        """The features of a table, its labels (or None), and where its rows happened."""
        checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": DTYPES}
        labelled = y is not UNLABELLED
        if labelled:
            checks["y_numeric"] = not isinstance(self, ClassifierMixin)
        if self._column is None:
            if labelled:
                return *validate_data(self, X, y, reset=reset, **checks), where
            return validate_data(self, X, reset=reset, **checks), None, where
        table = as_table(X)
        at = position(table, self._column)
        if not reset and not isinstance(self._column, str) and table.shape[1] == self.n_features_in_ - 1:
            at = None
        if at is None:
            if reset:
                raise ValueError(f"X has no column {self._column!r} to tell where its rows happened")
            self._check_rest(table)
            rest = table
        else:
            validate_data(self, table, reset=reset, skip_check_array=True)
            if table.shape[1] == 1:
                raise ValueError(f"X has column {self._column!r} alone: there is nothing to learn from")
            rest, column = take(table, at)
            where = Where(self.time_column is not None, column)
        if labelled:
            return *check_X_y(rest, y, estimator=self, **checks), where
        return check_array(rest, estimator=self, **checks), None, where

    def _check_rest(self, table: Any) -> None:
        """A table that lacks the column must have all the others."""
        if table.shape[1] != self.n_features_in_ - 1:
            raise ValueError(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input, column {self._column!r} among them"
            )
        known = getattr(self, "feature_names_in_", None)
        if known is not None and is_frame(table):
            expected = [name for name in known.tolist() if name != self._column]
            if isinstance(self._column, str) and list(table.columns) != expected:
                raise ValueError(f"X has columns {list(table.columns)}: those at fit were {expected}")

    def _placed(self, where: Where | None, calendar: Calendar, rows: int) -> Placed:
        """Where rows to learn from happened; all of it must be known."""
        if where is None:
            if calendar.blocks > 1:
                raise ValueError(
                    "these rows have neither time nor block, and those before had: give when= or blocks="
                )
            return Placed(np.zeros(rows, np.int64))
        placed = calendar.place(where, rows)
        check_known(placed, calendar, where)
        return placed

    # --------------------------------------------------------------------- learning

    def _start(self, X: Any, calendar: Calendar, loss: Loss, classes: tuple[Any, ...]) -> Run:
        """A run that has learnt nothing yet."""
        empty = nothing(
            X.shape[1],
            calendar.schedule,
            loss=loss,
            batch_size=self.batch_size,
            classes=classes,
            intercept=self.fit_intercept,
            dtype=X.dtype,
        )
        return METHODS[self.method](empty, **self._how())

    def _how(self) -> dict[str, Any]:
        how: dict[str, Any] = {"step_size": _step(self.step_size)}
        return how if self.average in ("mean", "last") else {**how, "memory": RECORDS}

    def _learn_all(self, X: Any, y: Array, weight: Array | None, where: Where | None, loss: Loss) -> None:
        """One or more passes over rows that are all there."""
        calendar = calendar_of(where, self.schedule, self.zone)
        if where is None and self.method != "consensus":
            warnings.warn(
                f"{type(self).__name__} was told of neither times nor blocks, so it learns one model for "
                "all hours: name the column of X by time_column= or block_column=, or give when= or blocks=",
                stacklevel=3,
            )
        placed = self._placed(where, calendar, X.shape[0])
        rows = _rows(X, y, weight, placed, intercept=self.fit_intercept)
        if isinstance(self.step_size, str):
            self._check_scales(sample_of(rows))
        cycle, block = rows.place(calendar.schedule)
        rows.cycle = cycle
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        order = order_of(
            placed.ticks, (cycle, block), passes=self.passes, rng=rng if self.shuffle_within_blocks else None
        )
        classes = tuple(range(loss.classes)) or None
        packed = pack(
            rows, calendar.schedule, loss=loss, batch_size=self.batch_size, classes=classes, order=order
        )
        run = METHODS[self.method](packed, **self._how())
        unseen = np.flatnonzero(np.bincount(block, minlength=calendar.blocks) == 0)
        if len(unseen):
            some = ", ".join(str(calendar.labels[block]) for block in unseen[:6].tolist())
            warnings.warn(
                f"{len(unseen)} of {calendar.blocks} blocks have no rows "
                f"({some}{', ...' * (len(unseen) > 6)}): they answer by the consensus of the others"
                + ("" if placed.ticks is None else f". Times run {_reach(placed.ticks)}"),
                stacklevel=3,
            )
        self._keep(run, calendar, rows, -inf if placed.ticks is None else placed.ticks.max())

    def _learn_more(self, X: Any, y: Array, weight: Array | None, where: Where | None, loss: Loss) -> None:
        """Go on with rows that follow those before."""
        fitted: Fitted | None = vars(self).get("_fitted")
        if fitted is None:
            if where is not None and not where.timed and self.schedule is None:
                raise ValueError(
                    "the first rows do not tell how many blocks there will be: say schedule=m, their number"
                )
            calendar, latest = calendar_of(where, self.schedule, self.zone), -inf
            run = self._start(X, calendar, loss, tuple(range(loss.classes)))
        else:
            calendar, latest, run = fitted.calendar, fitted.latest, fitted.run
        placed = self._placed(where, calendar, X.shape[0])
        rows = _rows(X, y, weight, placed, intercept=self.fit_intercept)
        if placed.ticks is not None:
            if placed.ticks.min() < latest:
                raise ValueError(
                    "these rows begin before the rows of the last call end: partial_fit goes by time"
                )
            latest = placed.ticks.max()
            if (np.diff(placed.ticks) < 0).any():
                rows = rows[np.argsort(placed.ticks, kind="stable")]
        from semicyclic.method import kernels

        run = go_on(run, rows, kernels, batch_size=run.batch_size, ended=False)
        self._keep(run, calendar, rows, latest)

    def _check_scales(self, rows: Rows) -> None:
        """Say so where steps of the default size would take too long to reach the weights."""
        spread = spreads(rows)
        if spread.max() > LARGE:
            column = self.get_feature_names_out()[int(spread.argmax())]
            warnings.warn(
                f"column {column!r} has values around {spread.max():,.0f}: steps are sized for features "
                "around 1. Scale them first, as by StandardScaler in a ColumnTransformer that passes the "
                "time through",
                stacklevel=4,
            )
        assert rows.labels is not None
        size = 0.0 if isinstance(self, ClassifierMixin) else float(np.sqrt(np.mean(np.square(rows.labels))))
        if size > LARGE:
            warnings.warn(
                f"y has values around {size:,.0f}: steps are sized for labels around 1. Scale them, as "
                "TransformedTargetRegressor(regressor=..., transformer=StandardScaler()) does",
                stacklevel=4,
            )

    def _keep(self, run: Run, calendar: Calendar, rows: Rows, latest: Any) -> None:
        self._fitted = Fitted(run, calendar, self.average, latest=latest, sample=sample_of(rows))
        self.schedule_ = calendar.schedule
        self.blocks_ = np.asarray(calendar.labels)

    # ------------------------------------------------------------------ what comes out

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in vars(self)

    def _get(self) -> Fitted:
        if "_fitted" not in vars(self):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                "arguments before using this estimator."
            )
        fitted: Fitted = self._fitted
        return fitted

    def _scores(self, X: Any, when: Any, blocks: Any) -> Array:
        """<w^i, x> of each row, with the block i it belongs to."""
        fitted = self._get()
        rows = self._to_score(fitted, X, None, None, when, blocks)
        assert rows.block is not None
        return fitted.answering.score(rows, block=rows.block)

    def _to_score(self, fitted: Fitted, X: Any, y: Any, weight: Any, when: Any, blocks: Any) -> Rows:
        """Rows in the order given, each with its block; those of no known block have number m."""
        features, labels, where = self._features(
            X, UNLABELLED if y is None else y, self._told(when, blocks), reset=False
        )
        n, calendar = features.shape[0], fitted.calendar
        if calendar.blocks == 1:
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
            if self.missing != "consensus":
                check_known(placed, calendar, where)
            block = np.where(placed.block == UNKNOWN, calendar.blocks, placed.block)
        return Rows(
            features, labels, block=block, weight=weight, intercept=self.fit_intercept, dtype=features.dtype
        )

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

    def _class_names(self) -> tuple[Any, ...]:
        return ()

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the columns of `coef_`: those of X without the time or block."""
        known = getattr(self, "feature_names_in_", input_features)
        if known is None:
            known = [f"x{number}" for number in range(self.n_features_in_)]
        names = list(known)
        column = self._column
        if column is not None:
            del names[names.index(column) if isinstance(column, str) else column]
        return np.asarray(names, dtype=object)

    @property
    def models_(self) -> tuple[Pluralistic, ...]:
        """The model of every block, each by itself."""
        whole = self.to_model()
        return tuple(
            replace(whole, held=whole.block_weights(block)[None], schedule=1, fallback=())
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
        """Every block's model on every block's rows: m x m; its diagonal is the score by block."""
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

    # What the two differ in.

    def _answers(self, score: Array) -> Array:
        raise NotImplementedError

    def _codes(self, labels: Any) -> Any:
        return labels


def _step(step_size: Any) -> Any:
    """A rule for steps; a text is the name of one."""
    if isinstance(step_size, str):
        if step_size != "adaptive":
            raise ValueError(f"step_size={step_size!r}: write 'adaptive', a number, or a rule of sc.step")
        return steps.adagrad(RATE)
    if not isinstance(step_size, Step) and not isinstance(step_size, int | float | np.number):
        raise ValueError(f"step_size={step_size!r}: write 'adaptive', a number, or a rule of sc.step")
    return step_size


def _reach(ticks: Array) -> str:
    first, last = (
        ticks[[int(ticks.argmin()), int(ticks.argmax())]].astype("datetime64[us]").astype("datetime64[s]")
    )
    return f"from {first} to {last} UTC"


def loss_of(loss: Any) -> Loss:
    return loss if isinstance(loss, Loss) else losses.by_name(str(loss))


def _rows(X: Any, y: Array, weight: Array | None, placed: Placed, *, intercept: bool) -> Rows:
    where = {"block": placed.block, "cycle": placed.cycle}
    return Rows(X, y, weight=weight, intercept=intercept, dtype=X.dtype, **where)  # type: ignore[arg-type]
