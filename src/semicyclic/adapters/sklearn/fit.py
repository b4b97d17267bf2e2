"""Fitting: train a learner on rows, in one call or incrementally."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from semicyclic.adapters.sklearn.batch_model import BatchModel, WalkForward, fit_batch
from semicyclic.adapters.sklearn.data_warnings import empty_blocks, likely_mistakes, warn_each
from semicyclic.adapters.sklearn.fitted import Fitted, sample_of
from semicyclic.adapters.sklearn.frame_encoding import FrameEncoding, label_scaling
from semicyclic.adapters.sklearn.row_order import order_of
from semicyclic.adapters.sklearn.row_times import BlockLocator, RowTimes, check_known, locator_of
from semicyclic.adapters.sklearn.settings import config_of, fixed_settings
from semicyclic.adapters.sklearn.validation import Inputs
from semicyclic.auto.buffer import targets
from semicyclic.auto.portfolio import PortfolioScores
from semicyclic.method import train
from semicyclic.method.batches import pack
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows, count_features, with_fields
from semicyclic.tables.labels import Labels
from semicyclic.training.config import TrainConfig
from semicyclic.training.learner import AUTO, AutoLearner, ChainLearner, Learner
from semicyclic.training.reader import expected_features, learn_in_chunks
from semicyclic.types import Array

# Maximum pages of visit records; beyond it, the records are dropped if no read-out needs them.
MAX_RECORD_PAGES = 64
# Rows per cycle if rows have neither times nor blocks.
ROWS_PER_CYCLE = 32


class LabelledInputs(NamedTuple):
    """Validated arguments of `fit` or `partial_fit`, with labels as codes or numbers.

    loss: the loss to train with. weight: [n], or None.
    """

    inputs: Inputs
    labels: Array
    weight: Array | None
    loss: Loss


def fit_all(estimator: Any, given: LabelledInputs, rng: np.random.Generator | None) -> Fitted:
    """Train on all rows in one or more passes.

    With a generator, a chain shuffles rows within blocks, and "auto" rows that have no times or blocks.
    """
    when, blocks = given.inputs.when, given.inputs.blocks
    locator = locator_of(when, blocks, estimator.schedule, estimator.zone)
    config = config_of(estimator, locator, given.loss, given.inputs.column)
    located = _locate(locator, given.inputs)
    frame = _learn_encoding(given, config, located.ticks, exact=estimator.bits is None)
    rows = _rows_of(estimator, given, frame, located)
    labels = label_scaling(rows.labels, located.ticks, given.loss, config, frame)
    warn_each(_likely_mistakes(estimator, rows, given.inputs, frame))
    passes = 1 if estimator.passes == AUTO else int(estimator.passes)
    if estimator.method == AUTO and passes != 1:
        raise ValueError(
            f"passes={passes}: method='auto' takes 'auto' or 1: set one of them or another method"
        )
    learner = _untrained(config, rows, given.loss, frame)
    scaled = _with_targets(rows, labels)
    if estimator.method == AUTO and rng is not None and when is None and blocks is None:
        # Their order says nothing, and may be that of the labels.
        scaled = scaled[rng.permutation(len(scaled))]
    if isinstance(learner, EstimatorAuto) and estimator.passes == AUTO:
        learner.learn_all(*_sort_by_time(scaled, located.ticks))
    elif estimator.method == AUTO or _learns_in_order(config, passes, rng):
        learn_in_chunks(learner, *_sort_by_time(scaled, located.ticks))
        learner.end()
    else:
        learner = _train_in_passes(config, scaled, located.ticks, passes, rng)
    fitted = Fitted(learner, locator, fixed_settings(estimator), sample_of(rows), frame, labels)
    weights = np.bincount(located.block, rows.weight, locator.blocks)
    warn_each(empty_blocks(locator, located.ticks, weights))
    return fitted.count(rows, located.ticks)


def fit_more(estimator: Any, given: LabelledInputs, fitted: Fitted | None) -> Fitted:
    """Continue training on later rows, and return what is fitted then; `fitted` is not modified."""
    when, blocks = given.inputs.when, given.inputs.blocks
    if fitted is None and blocks is not None and estimator.schedule is None:
        raise ValueError(
            "schedule=None: partial_fit with blocks needs all blocks in advance: set schedule=m, their "
            "number, or a list of their names"
        )
    if fitted is not None:
        _check_unchanged(fitted.settings, fixed_settings(estimator))
        locator = fitted.locator
    else:
        locator = locator_of(when, blocks, estimator.schedule, estimator.zone)
    located = _locate(locator, given.inputs)
    if located.ticks is not None and fitted is not None and located.ticks.min() < fitted.latest:
        raise ValueError(
            "some rows are earlier than the last row of the previous call: partial_fit goes by time, so "
            "pass rows in order (local times without a zone repeat when clocks are set back)"
        )
    if fitted is None:
        config = config_of(estimator, locator, given.loss, given.inputs.column)
        # Later rows may have features that these lack, so features are hashed.
        frame = _learn_encoding(given, config, located.ticks, exact=False)
        rows = _rows_of(estimator, given, frame, located)
        labels = label_scaling(rows.labels, located.ticks, given.loss, config, frame)
        warn_each(_likely_mistakes(estimator, rows, given.inputs, frame))
        learner = _untrained(config, rows, given.loss, frame)
        fitted = Fitted(learner, locator, fixed_settings(estimator), sample_of(rows), frame, labels)
    else:
        rows = _rows_of(estimator, given, fitted.frame, located)
        learner = fitted.learner.without_records(MAX_RECORD_PAGES).copy()
        fitted = replace(fitted, learner=learner, sample=sample_of(rows))
    scaled = _with_targets(rows, fitted.labels)
    learn_in_chunks(learner, *_sort_by_time(scaled, located.ticks))
    return fitted.count(rows, located.ticks)


@dataclass
class EstimatorAuto(AutoLearner):
    """The automatic choice for rows that may have no times, cycles or blocks.

    dtype: type of the weights. batch: a model fitted to all rows at once, and its share, if there is one.
    scores: the scores of rows by the mixtures of both protocols, if they are collected.
    """

    dtype: Any
    batch: BatchModel | None = None
    scores: list[PortfolioScores] | None = None

    def learn_all(self, rows: Rows, clock: Array, ticks: Array | None) -> None:
        """Train on sorted rows in one pass, and fit a model to all of them at once."""
        self.scores = []
        learn_in_chunks(self, rows, clock, ticks)
        self.end()
        calendar = self.portfolio.candidate_set.calendar
        if ticks is None:
            _, block = rows.place(calendar.schedule)
            fine = calendar.first_of(block)
        else:
            fine = calendar.place(ticks)
        forward = self.portfolio.exported_protocol == "forward"
        auto = WalkForward(
            np.concatenate([each.number for each in self.scores]),
            np.concatenate([each.frozen_at for each in self.scores]),
            np.concatenate([each.forward_auto if forward else each.progressive_auto for each in self.scores]),
            np.concatenate([each.represents for each in self.scores]),
        )
        self.scores = None
        self.batch = fit_batch(rows, fine, self.portfolio, auto)

    def learn(self, rows: Rows, clock: Array, ticks: Array | None) -> None:
        """Train on sorted rows. clock: their times, or numbers from 0 if they have none."""
        portfolio = self.portfolio
        schedule = portfolio.candidate_set.calendar.schedule
        if rows.cycle is None:
            clock = clock + portfolio.rows
            if schedule.blocks == 1:
                # Without times or blocks, a cycle is a number of rows; candidates are evaluated at its end.
                rows = rows.with_blocks(np.zeros(len(rows), np.int64), clock // ROWS_PER_CYCLE)
            else:
                # A cycle ends where the block number decreases, not where a call ends.
                cycle, block = rows.place(schedule)
                if portfolio.rows:
                    cycle = cycle + portfolio.last.cycle + int(block[0] < portfolio.last.block)
                rows = rows.with_blocks(block, cycle)
        self.batch = None
        target = targets(rows.labels, self.loss)
        for scores in self.portfolio.add(rows, clock, ticks, target):
            if self.scores is not None:
                # Scores of the single candidates would need much memory.
                none = np.zeros((0, 0, 0), np.float32)
                self.scores.append(scores._replace(progressive=none, forward=none))

    def model(self) -> Pluralistic:
        """Return the mixture of candidates, with the model fitted to all rows at once."""
        mixture = super().model()
        about = {"read_out": AUTO, "rows": self.portfolio.rows, "chosen": self.choice()}
        weights = mixture.weights
        if self.batch is not None:
            share = self.batch.share
            weights = (1.0 - share) * weights + share * self.batch.weights
            about["batch_share"] = share
        return replace(mixture, held=weights.astype(self.dtype), provenance=about)


class LocatedRows(NamedTuple):
    """Cycle (None without times), block and time (or None) of each row to train on."""

    cycle: Array | None
    block: Array
    ticks: Array | None


def _locate(locator: BlockLocator, inputs: Inputs) -> LocatedRows:
    """Return the blocks of rows to train on. Raise if one is unknown."""
    when, blocks = inputs.when, inputs.blocks
    if when is None and blocks is None:
        if locator.blocks > 1:
            raise ValueError(
                "the rows have neither time nor block, but earlier rows had: give when= or blocks="
            )
        return LocatedRows(None, np.zeros(inputs.rows, np.int64), None)
    (cycle, block), ticks = locator.place(when, blocks, inputs.rows)
    check_known(block, locator, when, blocks)
    return LocatedRows(cycle, block, ticks)


def _learn_encoding(
    given: LabelledInputs, config: TrainConfig, ticks: Array | None, *, exact: bool
) -> FrameEncoding | None:
    """Return the encoding of a frame, None for an array."""
    if not hasattr(given.inputs.features, "column_names"):
        return None
    when = given.inputs.when
    times = when if isinstance(when, RowTimes) else None
    return FrameEncoding.learn(config, given.inputs.features, times, ticks, exact=exact)


def _rows_of(
    estimator: Any, given: LabelledInputs, frame: FrameEncoding | None, located: LocatedRows
) -> Rows:
    """Return rows with labels, weights, blocks and cycles."""
    features = given.inputs.features if frame is None else frame.encode(given.inputs.features)
    rows = Rows(
        features,
        given.labels,
        weight=given.weight,
        intercept=estimator.fit_intercept,
        dtype=features.dtype,
    )
    return rows.with_blocks(located.block, located.cycle)


def _with_targets(rows: Rows, labels: Labels) -> Rows:
    """Return rows with training targets as labels: class codes, or numbers, standardized for frames."""
    is_standard = labels.mean == 0.0 and labels.scale == 1.0
    assert rows.labels is not None
    return (
        rows if labels.classes or is_standard else with_fields(rows, labels=labels.standardize(rows.labels))
    )


def _untrained(config: TrainConfig, rows: Rows, loss: Loss, frame: FrameEncoding | None) -> Learner:
    """Return an untrained learner for rows like these."""
    if config.method == AUTO:
        if frame is None:
            features = count_features(rows)
        else:
            features = expected_features(config, frame.encoding.features, loss.outputs)
        portfolio = config.portfolio(rows.width, features, loss, intercept=rows.intercept)
        return EstimatorAuto(portfolio, rows.values.dtype)
    return config.chain_learner(rows.width, loss, intercept=rows.intercept, dtype=rows.values.dtype)


def _learns_in_order(config: TrainConfig, passes: int, rng: np.random.Generator | None) -> bool:
    """Return whether a chain takes the rows once, in order, with steps that do not depend on their number."""
    return rng is None and passes == 1 and (config.step.horizon == 0.0 or config.step.total is not None)


def _train_in_passes(
    config: TrainConfig, rows: Rows, ticks: Array | None, passes: int, rng: np.random.Generator | None
) -> ChainLearner:
    """Return a chain trained on all rows, in several passes or shuffled within blocks."""
    assert config.loss is not None
    order = order_of(ticks, rows.place(config.schedule), passes=passes, rng=rng)
    codes = tuple(range(config.loss.classes)) or None
    packed = pack(
        rows,
        config.schedule,
        loss=config.loss,
        batch_size=config.batch_size,
        classes=codes,
        order=order,
        normalize=config.step.normalized,
    )
    run = getattr(train, config.method)(packed, **config.chain_settings(config.loss.outputs))
    return ChainLearner(run, config.read_out)


def _sort_by_time(rows: Rows, ticks: Array | None) -> tuple[Rows, Array, Array | None]:
    """Return the arguments of `learn`: rows by time, arrival times or numbers, and times, if any."""
    if ticks is None:
        return rows, np.arange(len(rows)), None
    if (np.diff(ticks) < 0).any():
        order = np.argsort(ticks, kind="stable")
        rows, ticks = rows[order], ticks[order]
    return rows, ticks, ticks


def _likely_mistakes(
    estimator: Any, rows: Rows, inputs: Inputs, frame: FrameEncoding | None
) -> Iterator[str]:
    located = inputs.when is not None or inputs.blocks is not None
    ignored = None if frame is None else frame.ignored
    return likely_mistakes(estimator, rows, located=located, ignored=ignored)


def _check_unchanged(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise if a setting changed since the first `partial_fit` or `fit`."""
    for name, new in now.items():
        old = before[name]
        if old is not new and old != new:
            raise ValueError(
                f"{name} was {old!r} when this stream began and is {new!r} now: set it back, or start again "
                "with fit"
            )
