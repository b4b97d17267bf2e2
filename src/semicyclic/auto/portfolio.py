"""`Portfolio`: all candidates trained in one pass, and their mixture weighted by recent losses.

Every row is predicted on arrival under two evaluation protocols. Progressive: by the candidates as trained on
all labels known so far. Forward (walk-forward): by the candidates as of the row's freeze time, that is when
the models that predict it were last updated: the last local midnight, or the beginning of the visit. The
progressive protocol matches a service that trains while it predicts; the walk-forward protocol matches models
that are deployed and stay unchanged for a day. Each protocol has its own mixture.

    rows in order of arrival -> window (rows without known labels, and new rows)
        -> walk: trains chains and read-outs, and computes their scores -> choose: mixes the scores
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from semicyclic.auto import kernels
from semicyclic.auto.buffer import RowBuffer, concat_buffers
from semicyclic.auto.candidate_state import CandidateState, RowWindow, new_candidate_state, widen, workspace
from semicyclic.auto.candidates import CandidateSet, CandidateTables
from semicyclic.auto.column_map import ColumnMap
from semicyclic.auto.protocol import EvaluationProtocol, LossPlan, freeze_units, freeze_walls, new_protocol
from semicyclic.method.column_scale import ColumnScale
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows, rows_from_arrays, rows_to_arrays
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.label_delay import known_before
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import from_wall, to_wall
from semicyclic.types import Array

# Rows per call of the kernels.
CHUNK_ROWS = 4096
# Candidates are split into a fixed number of parts, whatever the number of threads: results are the same on
# every machine.
PARTS = 2
# Minimum number of columns to allocate when weight arrays grow.
MIN_ALLOCATED_COLUMNS = 64
LONG_AGO = -(2**62)
PROTOCOLS = ("progressive", "forward")
# The array fields of `EvaluationProtocol`.
SCORE_FIELDS = ("score", "strategy_score", "auto")
# With `subsample`, the share of rows that are scored halves at each of these row numbers.
SUBSAMPLING_ROWS = (1 << 16, 1 << 18, 1 << 20)
# After this many freeze times, the model's mixture is that of the walk-forward protocol, before that of the
# progressive one.
MIN_FREEZES_FOR_FORWARD = 4
# After this many freeze times, a `subsample` portfolio stops the progressive protocol.
MAX_FREEZES_FOR_PROGRESSIVE = 8


class PortfolioScores(NamedTuple):
    """Predictions for consecutive rows: scores of the candidates [n, K, C] and of the mixture [n, C].

    If a protocol was skipped, the scores of its candidates are [0, K, C] and of its mixture [0, C].
    first: number of the first row in the stream. number: [n] numbers of the rows. represents: [n] the number
        of rows that each represents. frozen_at: [n] freeze times.
    """

    first: int
    number: Array
    represents: Array
    frozen_at: Array
    progressive: Array
    progressive_auto: Array
    forward: Array
    forward_auto: Array


class LastRow(NamedTuple):
    """Cycle, finest block, freeze time and block of the last row."""

    cycle: int = LONG_AGO
    fine: int = LONG_AGO
    frozen_at: int = LONG_AGO
    block: int = 0


class PortfolioPart(NamedTuple):
    """A subset of the candidates and its state, processed by one thread."""

    candidate_set: CandidateSet
    tables: CandidateTables
    state: Any


@dataclass
class Portfolio:
    """All candidates in training, with their mixtures.

    candidate_set: the candidates. loss: the loss; targets use its encoding. width: number of features.
    delay: time from a row's arrival until its label is known, in microseconds.
    freeze: "day" (models are frozen at local midnight) or "visit" (when a visit begins).
    horizon: with freeze "day", the number of days that a model is used for; see `freeze_walls`.
    subsample: score as few rows as possible: the progressive protocol only until the walk-forward one has
        enough freeze times, and in a long stream only every second, fourth, eighth row.
    max_columns: maximum number of columns; beyond it, features share columns.
    threads: number of threads. rows: number of rows so far. freezes: number of freeze times so far.
    first_day: local day of the first row, or without a time zone its cycle.
    parts: the candidates, split. protocols: the active protocols by name.
    waiting: rows whose labels are not known yet. columns: columns of the features.
    scale: of each feature, by which its values are divided: candidates are trained on normalized features.
    last: the last row.
    """

    candidate_set: CandidateSet
    loss: Loss
    width: int
    intercept: bool = True
    delay: int = 0
    freeze: str = "day"
    horizon: int = 1
    subsample: bool = False
    max_columns: int = 1 << 30
    threads: int = field(default_factory=lambda: min(PARTS, os.cpu_count() or 1))
    rows: int = 0
    freezes: int = 0
    first_day: int = LONG_AGO
    parts: list[PortfolioPart] = field(default_factory=list)
    protocols: dict[str, EvaluationProtocol] = field(default_factory=dict)
    waiting: RowBuffer | None = None
    columns: ColumnMap = field(init=False)
    scale: ColumnScale = field(init=False)
    last: LastRow = LastRow()  # noqa: RUF009

    def __post_init__(self) -> None:

        # The intercept, the marks and at least one column for features.
        self.max_columns = max(self.max_columns, self.candidate_set.marks + 2)
        self.columns = ColumnMap(self.width, self.candidate_set.marks + 1, self.max_columns)
        self.scale = ColumnScale.empty(self.width)
        outputs, calendar = self.loss.outputs, self.candidate_set.calendar
        for candidate_set in self.candidate_set.split(PARTS):
            tables = candidate_set.tables()
            state = new_candidate_state(tables, self.columns.used, outputs)
            self.parts.append(PortfolioPart(candidate_set, tables, state))
        blocks = np.concatenate([part.candidate_set.blocks for part in self.parts])
        sizes = calendar.slots, calendar.blocks, blocks, outputs
        self.protocols = {name: new_protocol(*sizes, walk_forward=name == "forward") for name in PROTOCOLS}

    @property
    def trained(self) -> int:
        """Number of rows trained on."""
        return int(self.parts[0].state.position[2])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates, in the order of their scores."""
        return tuple(name for part in self.parts for name in part.candidate_set.names)

    # ------------------------------------------------------------------------ training

    def add(self, rows: Rows, clock: Array, ticks: Array | None, target: Array) -> Iterator[PortfolioScores]:
        """Predict rows and train on those with known labels; yield the predictions chunk by chunk.

        rows, target: in order of arrival. clock: arrival times in microseconds since 1970 UTC.
        ticks: times that determine the blocks, in the same unit; if None, `rows` have blocks and cycles.
        """
        arrivals = self._to_buffer(rows, clock, ticks, target)
        for start in range(0, len(rows), CHUNK_ROWS):
            yield self._process(arrivals.take(slice(start, start + CHUNK_ROWS)))

    def end(self) -> None:
        """Train on all rows still waiting for their labels, at the end of the stream."""
        if self.waiting is None or self.waiting.size == 0:
            return
        window = self._window(self.waiting, self.waiting.take(slice(0, 0)))
        plan = self._plan()
        count, none = self.waiting.size, np.zeros(0, np.int64)
        for part in self.parts:
            self._walk(part, window, (0, count, count), none)
            if part.state.position[0] >= 0:
                kernels.candidate_sgd.close_visit(part.tables, part.state, plan.outputs)
        self.protocols = {name: protocol.end(plan) for name, protocol in self.protocols.items()}
        self.waiting = self.waiting.take(slice(self.waiting.size, self.waiting.size))

    def _walk(
        self, part: PortfolioPart, window: RowWindow, span: tuple[int, int, int], place: Array
    ) -> tuple[Array, Array, int]:
        """Predict and train with the candidates of a part; see `kernels.candidate_sgd.walk`.

        place: index of each new row among those that are scored, -1 if it is not one of them.
        Returns the scores of both protocols, and the number of rows trained on.
        """
        plan, scored = self._plan(), int(place.max(initial=-1)) + 1
        size = part.candidate_set.size * plan.outputs
        progressive, forward = (
            np.empty((scored if name in self.protocols else 0, size), np.float32) for name in PROTOCOLS
        )
        work, out = workspace(part.tables, plan.outputs), (place, progressive, forward)
        trained = kernels.candidate_sgd.walk(part.tables, plan, part.state, window, span, out, work)
        return progressive, forward, trained

    def _to_buffer(self, rows: Rows, clock: Array, ticks: Array | None, target: Array) -> RowBuffer:
        """Return rows as a buffer, with blocks and freeze times; update the counts of the stream."""
        calendar, zone = self.candidate_set.calendar, None
        cycle, block = rows.place(calendar.schedule)
        if ticks is None:
            fine = calendar.first_of(block)
        else:
            assert isinstance(calendar.schedule, Schedule)
            fine, zone = calendar.place(ticks), calendar.schedule.zone
        frozen_at = self.freeze_times(np.asarray(clock, np.int64), cycle, fine, zone)
        if len(rows):
            self.freezes += int((np.diff(frozen_at, prepend=self.last.frozen_at) != 0).sum())
            if self.first_day == LONG_AGO:
                self.first_day = int(self._days(clock, cycle, zone)[0])
            self.last = LastRow(int(cycle[-1]), int(fine[-1]), int(frozen_at[-1]), int(block[-1]))
        normalized = self.scale.normalize(rows)
        return RowBuffer(
            rows.with_blocks(block, cycle),
            np.asarray(target, np.float32),
            np.asarray(fine, np.int64),
            np.asarray(clock, np.int64),
            frozen_at,
            normalized.values,
        )

    def freeze_times(self, clock: Array, cycle: Array, fine: Array, zone: str | None) -> Array:
        """Return each row's freeze time in microseconds since 1970 UTC.

        A freeze time is when the models that predict a row in the walk-forward protocol were last updated.
        With freeze "day" it is a local midnight in `zone`, or without a zone the beginning of a cycle; with
        "visit" it is the beginning of the row's visit.
        """
        if self.freeze == "day":
            day = self._days(clock, cycle, zone)
            start = int(day[0]) if self.first_day == LONG_AGO and len(day) else self.first_day
            if zone is not None:
                frozen = freeze_walls(to_wall(zone, clock), start, self.horizon)
                return from_wall(zone, frozen, ambiguous="earlier", missing="shift").ticks
            frozen = freeze_units(day, start, self.horizon)
            previous = freeze_units(np.array([self.last.cycle]), start, self.horizon)
            changed = np.diff(frozen, prepend=previous) != 0
        else:
            changed = np.diff(cycle, prepend=self.last.cycle) != 0
            changed |= np.diff(fine, prepend=self.last.fine) != 0
        # The row at which each row's models were frozen; it may precede these rows.
        first = np.maximum.accumulate(np.where(changed, np.arange(len(clock)), -1))
        return np.where(first >= 0, clock[np.maximum(first, 0)], self.last.frozen_at)

    @staticmethod
    def _days(clock: Array, cycle: Array, zone: str | None) -> Array:
        """Return the local day of each row, or without a zone its cycle."""
        return cycle if zone is None else to_wall(zone, clock) // DAY

    def _process(self, new: RowBuffer) -> PortfolioScores:
        """Predict new rows, and train on all rows whose labels are known."""
        waiting = self.waiting
        old = 0 if waiting is None else waiting.size
        rows = new if waiting is None or not old else concat_buffers(waiting, new)
        window, plan = self._window(rows, new), self._plan()
        count, outputs = new.size, plan.outputs
        if self.subsample and self.freezes >= MAX_FREEZES_FOR_PROGRESSIVE:
            self.protocols.pop("progressive", None)
        place, represents = self._rows_to_score(count)

        def walk(part: PortfolioPart) -> tuple[Array, Array, int]:
            return self._walk(part, window, (0, old, 0), place)

        with ThreadPoolExecutor(self.threads) as pool:
            walked = list(pool.map(walk, self.parts))
        mixing_rows = self._mixing_rows(new, represents, place >= 0)
        predictions = []
        for index, name in enumerate(PROTOCOLS):
            score = np.concatenate([scores[index] for scores in walked], axis=1)
            auto = np.zeros((0, outputs), np.float32)
            if name in self.protocols:
                protocol = self.protocols[name]
                self.protocols[name], score, auto = protocol.predict(plan, self.delay, mixing_rows, score)
            predictions += [score.reshape(len(score), self.candidate_set.size, outputs), auto]
        # All parts have trained on the same rows.
        (_, _, trained), *_ = walked
        self.waiting = rows.take(slice(trained, rows.size))
        first, self.rows = self.rows, self.rows + count
        number = first + np.flatnonzero(place >= 0)
        return PortfolioScores(first, number, mixing_rows.represents, mixing_rows.frozen_at, *predictions)

    def _rows_to_score(self, count: int) -> tuple[Array, Array]:
        """Return the index of each next row among those to score, or -1, and how many rows it represents."""
        number = self.rows + np.arange(count)
        represents = np.ones(count)
        if self.subsample:
            for bound in SUBSAMPLING_ROWS:
                represents[number >= bound] *= 2
        scored = number % represents.astype(np.int64) == 0
        return np.where(scored, np.cumsum(scored) - 1, -1), represents

    @property
    def exported_protocol(self) -> str:
        """Name of the protocol whose mixture weights are exported."""
        if self.freezes >= MIN_FREEZES_FOR_FORWARD or "progressive" not in self.protocols:
            return "forward"
        return "progressive"

    # --------------------------------------------------------------------- checkpoints

    def arrays(self) -> dict[str, Array]:
        """Return the complete state as named arrays, for a checkpoint."""
        arrays = {
            "column_of": self.columns.column_of,
            "scale.mean_square": self.scale.mean_square,
            "scale.count": self.scale.count,
            "counts": np.array([self.rows, self.freezes, self.first_day, self.columns.used, *self.last]),
        }
        for number, part in enumerate(self.parts):
            arrays |= {f"part{number}.{name}": array for name, array in part.state._asdict().items()}
        for name, (state, rows, *scores) in self.protocols.items():
            arrays |= {f"{name}.mixing.{key}": array for key, array in state._asdict().items()}
            arrays |= {f"{name}.pending.{key}": array for key, array in rows._asdict().items()}
            arrays |= {f"{name}.{key}": array for key, array in zip(SCORE_FIELDS, scores, strict=True)}
        if self.waiting is not None:
            rows, *columns = self.waiting
            arrays |= rows_to_arrays(rows, "waiting.")
            names = RowBuffer._fields[1:]
            arrays |= {f"waiting.{name}": array for name, array in zip(names, columns, strict=True)}
        return arrays

    def restore(self, arrays: dict[str, Array]) -> None:
        """Resume from the `arrays` of a portfolio with the same parameters."""

        def copies(prefix: str, names: tuple[str, ...]) -> list[Array]:
            return [arrays[f"{prefix}.{name}"].copy() for name in names]

        self.rows, self.freezes, self.first_day, used, *last = (int(count) for count in arrays["counts"])
        self.columns.used, self.columns.column_of = used, arrays["column_of"].copy()
        self.last = LastRow(*last)
        self.scale = ColumnScale(*copies("scale", ("mean_square", "count")))
        self.parts = [
            part._replace(state=CandidateState(*copies(f"part{number}", CandidateState._fields)))
            for number, part in enumerate(self.parts)
        ]
        active = [name for name in PROTOCOLS if f"{name}.{SCORE_FIELDS[0]}" in arrays]
        self.protocols = {
            name: EvaluationProtocol(
                kernels.mixing.MixingState(*copies(f"{name}.mixing", kernels.mixing.MixingState._fields)),
                kernels.mixing.MixingRows(*copies(f"{name}.pending", kernels.mixing.MixingRows._fields)),
                *copies(name, SCORE_FIELDS),
            )
            for name in active
        }
        if "waiting.clock" in arrays:
            rows = rows_from_arrays(arrays, "waiting.", width=self.width, intercept=self.intercept)
            self.waiting = RowBuffer(rows, *copies("waiting", RowBuffer._fields[1:]))

    # ------------------------------------------------------------------ kernel inputs

    def _plan(self) -> LossPlan:
        """Return the loss in the form that the kernels take."""
        return LossPlan(self.loss.code, self.loss.level, self.loss.outputs)

    def _mixing_rows(self, rows: RowBuffer, represents: Array, scored: Array) -> Any:
        """Return the rows that are scored as the mixture needs them."""
        slot = self.candidate_set.calendar.slot[rows.fine]
        cycle, block = rows.rows.cycle, rows.rows.block
        assert cycle is not None
        assert block is not None
        visit = cycle * self.candidate_set.calendar.slots + slot
        columns = slot, visit, rows.clock, rows.frozen_at, rows.target, rows.weight, block, represents
        return kernels.mixing.MixingRows(*(column[scored] for column in columns))

    def _window(self, rows: RowBuffer, new: RowBuffer) -> Any:
        """Return rows laid out for the kernels, with features mapped to columns, intercept and marks.

        new: the last of the rows, which are to be predicted.
        """
        indptr, indices = rows.rows.indptr, rows.rows.indices.astype(np.uint32, copy=False)
        self._widen(indices)
        mark = self.parts[0].tables.mark
        starts = indptr + np.arange(rows.size + 1) * (mark.shape[1] + 1)
        columns, values = np.empty(int(starts[-1]), np.uint32), np.empty(int(starts[-1]), np.float32)
        norm = np.empty(rows.size, np.float32)
        cells = indptr, indices, rows.normalized.astype(np.float32, copy=False)
        kernels.candidate_sgd.lay_out(
            cells,
            self.columns.column_of,
            (rows.fine, mark),
            self.candidate_set.marks,
            float(self.intercept),
            (starts, columns, values, norm),
        )
        assert rows.rows.cycle is not None
        per_row = rows.target, rows.weight, norm, rows.fine, rows.rows.cycle, rows.frozen_at
        known = [known_before(rows.clock, until, self.delay) for until in (new.clock, new.frozen_at)]
        return RowWindow(starts, columns, values, *per_row, *known)

    def _widen(self, indices: Array) -> None:
        """Give these features columns; grow the weight arrays if needed, with some to spare."""
        self.columns.take_in(indices)
        allocated, used = self.parts[0].state.vectors.shape[1], self.columns.used
        if used > allocated:
            larger = max(used, allocated + allocated // 2, MIN_ALLOCATED_COLUMNS)
            count = min(larger, self.columns.max_columns)
            self.parts = [part._replace(state=widen(part.state, count)) for part in self.parts]
