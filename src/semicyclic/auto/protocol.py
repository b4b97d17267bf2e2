"""Evaluation protocols (progressive, walk-forward): the mixture's predictions for rows as they arrive."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.auto import kernels
from semicyclic.auto.calendar import HOUR
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.label_delay import known_before
from semicyclic.types import Array

# Of the fields of `kernels.mixing.MixingRows`.
ROW_DTYPES = (np.int64, np.int64, np.int64, np.int64, np.float32, np.float32, np.int64, np.float64)


class LossPlan(NamedTuple):
    """The loss in the form that the kernels take: its code and level, and the number of scores per row."""

    code: int
    level: float
    outputs: int


class EvaluationProtocol(NamedTuple):
    """State of the mixture under one protocol, and the scored rows whose labels are not known yet.

    mixing: the `MixingState`. pending: the scored rows without known labels, as `MixingRows`.
    score, strategy_score, auto: [rows, ...] their scores by the candidates, the strategies and the mixture.
    """

    mixing: Any
    pending: Any
    score: Array
    strategy_score: Array
    auto: Array

    def predict(
        self, plan: LossPlan, delay: int, rows: Any, score: Array
    ) -> tuple["EvaluationProtocol", Array, Array]:
        """Predict new rows from the candidates' scores, and record the losses of labels that become known.

        delay: of labels, in microseconds. rows: the new `MixingRows`. score: [rows, K * C] of the candidates.
        Returns the new state, the candidates' scores with invalid ones set to 0, and the mixture's scores.
        """

        number, outputs = len(score), plan.outputs
        pending = len(self.pending.clock)
        strategy_score = np.empty((number, kernels.mixing.STRATEGIES * outputs), np.float32)
        new = score, strategy_score, np.empty((number, outputs), np.float32)
        full = EvaluationProtocol(
            self.mixing,
            kernels.mixing.MixingRows(
                *(np.concatenate(pair) for pair in zip(self.pending, rows, strict=True))
            ),
            *(np.concatenate(pair) for pair in zip(self[2:], new, strict=True)),
        )
        known = tuple(
            known_before(full.pending.clock, until, delay) for until in (rows.clock, rows.frozen_at)
        )
        recorded = kernels.mixing.choose(
            full.mixing, plan, tuple(full.pending), (0, pending, 0), known, full[2:], full._scratch()
        )
        # `choose` has set invalid scores to 0, so return its copy of the scores.
        return full._drop_first(recorded), full.score[pending:], full.auto[pending:]

    def end(self, plan: LossPlan) -> "EvaluationProtocol":
        """Record the losses of all remaining rows at the end of the stream."""

        count, none = len(self.pending.clock), np.zeros(0, np.int64)
        kernels.mixing.choose(
            self.mixing, plan, tuple(self.pending), (0, count, count), (none, none), self[2:], self._scratch()
        )
        return self._drop_first(count)

    def _drop_first(self, count: int) -> "EvaluationProtocol":
        """Return the protocol without its first `count` pending rows."""
        rows = type(self.pending)(*(column[count:].copy() for column in self.pending))
        return EvaluationProtocol(self.mixing, rows, *(scores[count:].copy() for scores in self[2:]))

    def _scratch(self) -> tuple[Array, ...]:
        """Return scratch arrays: slopes, losses, repeated target; losses of strategies and of the mixture."""
        strategies = self.strategy_score.shape[1]
        size = self.score.shape[1]
        return tuple(np.empty(max(width, strategies), np.float32) for width in (size, size, size, 1, 1))


def new_protocol(
    slots: int, blocks: int, candidate_blocks: Array, outputs: int, *, walk_forward: bool
) -> EvaluationProtocol:
    """Return a protocol without any rows.

    candidate_blocks: [K] number of blocks that each candidate distinguishes.
    walk_forward: weights use only losses known at the freeze time.
    """

    state = kernels.mixing.new_mixing_state(slots, blocks, candidate_blocks, walk_forward=walk_forward)
    rows = kernels.mixing.MixingRows(*(np.zeros(0, dtype) for dtype in ROW_DTYPES))
    widths = len(candidate_blocks), kernels.mixing.STRATEGIES, 1
    return EvaluationProtocol(state, rows, *(np.zeros((0, width * outputs), np.float32) for width in widths))


def freeze_walls(wall: Array, first: int, horizon: int) -> Array:
    """Return the wall times at which the models that predict rows at some wall times were frozen.

    Models are frozen at midnight and used for `horizon` days, at first for less: see `freeze_units`. If the
    horizon is more than a day, those of day `first` are used for hours, so that short streams are judged too.
    """
    day = wall // DAY
    frozen = freeze_units(day, first, horizon) * DAY
    if horizon == 1:
        return frozen
    hour = freeze_units(wall // HOUR, 24 * first, 24)
    return np.where(day == first, hour * HOUR, frozen)


def freeze_units(unit: Array, first: int, horizon: int) -> Array:
    """Return the day, cycle or hour at whose beginning the models that predict each one's rows were frozen.

    Models are used for `horizon` of these units; at first, when less than three horizons have passed since
    unit `first`, for a third of the units before, but at least for one.
    """
    bounds = [0]
    while (used := max(bounds[-1] // 3, 1)) < horizon:
        bounds.append(bounds[-1] + used)
    age, starts = unit - first, np.array(bounds)
    early = starts[np.searchsorted(starts, age, side="right") - 1]
    late = starts[-1] + (age - starts[-1]) // horizon * horizon
    return np.where(age < 0, unit, first + np.where(age < starts[-1], early, late))
