"""`Portfolio`: all candidates trained in one pass, and the mixture of them with the least recent loss.

Two questions are asked of every row when it comes. Progressive: what do all candidates answer now, with
everything known? Forward: what would they answer as they stood at dawn, the last local midnight (or the
beginning of the visit)? The first is for those who learn while they serve; the second for models that are
put to use and stay as they are for a day. Each question has its own mixture.

    rows, as they come -> window (rows whose labels are not known yet, and new ones)
        -> walk: all chains, read-outs and their scores -> choose: mixtures
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from semicyclic.auto import kernels
from semicyclic.auto.buffer import RowBuffer, concat_buffers
from semicyclic.auto.candidate_state import CandidateState, RowWindow, no_candidates, widen, workspace
from semicyclic.auto.candidates import CandidateSet, CandidateTables
from semicyclic.auto.column_map import ColumnMap
from semicyclic.auto.protocol import EvaluationProtocol, Plan, new_protocol
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import from_wall, to_wall
from semicyclic.types import Array

# So many rows are worked on at once.
CHUNK = 4096
# Candidates are worked on in so many parts, on as many threads as there are: the same on every machine.
PARTS = 2
# Columns are made room for in steps.
ROOM = 64
LONG_AGO = -(2**62)
QUESTIONS = ("progressive", "forward")
HELD = ("score", "bet", "auto")
# Of the rows beyond each of these, only half as many are asked as before.
SELDOM = (1 << 16, 1 << 18, 1 << 20)
# After so many dawns the forward question is answered by experience; until then, by the progressive one.
FEW, ENOUGH = 4, 8


class PortfolioScores(NamedTuple):
    """What was answered for some rows: scores of candidates [n, K, C] and of the mixture [n, C].

    Where one of the two questions was not asked, its candidates are [0, K, C] and its mixture [0, C].
    """

    first: int
    progressive: Array
    progressive_auto: Array
    forward: Array
    forward_auto: Array


class PortfolioPart(NamedTuple):
    """Some kinds of chains, which one thread works on."""

    form: CandidateSet
    tables: CandidateTables
    state: Any


@dataclass
class Portfolio:
    """All candidates at work.

    form: what is tried. loss: what is minimised; targets come as it wants them. width: columns of rows.
    delay: how long after its row a label is known, in microseconds. freeze: "day" or "visit".
    brief: questions are asked as seldom as experience allows: the progressive one only until the forward one
        can be answered, and of a long stream every second, fourth, eighth row.
    apart: whether rows of a block may come back within a day (late rows, for instance).
    room: how many columns there may be; beyond, features share them.
    """

    form: CandidateSet
    loss: Loss
    width: int
    intercept: bool = True
    delay: int = 0
    freeze: str = "day"
    brief: bool = False
    apart: bool = False
    room: int = 1 << 30
    threads: int = field(default_factory=lambda: min(PARTS, os.cpu_count() or 1))
    rows: int = 0
    nights: int = 0
    parts: list[PortfolioPart] = field(default_factory=list)
    questions: dict[str, EvaluationProtocol] = field(default_factory=dict)
    waiting: RowBuffer | None = None
    columns: ColumnMap = field(init=False)
    # The cycle, finest block and dawn of the last row, and its block.
    last: tuple[int, int, int] = (LONG_AGO, LONG_AGO, LONG_AGO)
    block: int = 0

    def __post_init__(self) -> None:

        self.columns = ColumnMap(self.width, self.form.marks + 1, self.room)
        outputs, calendar = self.loss.outputs, self.form.calendar
        for form in self.form.split(PARTS):
            tables = form.tables()
            held = self._kept_apart(form)
            self.parts.append(
                PortfolioPart(form, tables, no_candidates(tables, self.columns.used, outputs, held))
            )
        sizes = calendar.slots, calendar.blocks, self.form.size, outputs
        self.questions = {name: new_protocol(*sizes, at_dawn=name == "forward") for name in QUESTIONS}

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates, in the order of their scores."""
        return tuple(name for part in self.parts for name in part.form.names)

    def _kept_apart(self, form: CandidateSet) -> int:
        """How many groups of read-outs may change between dawn and the rows it answers for."""
        if self.apart or self.delay or not self.form.calendar.once_a_day or self.freeze != "day":
            return form.groups
        return form.shared_groups

    # ----------------------------------------------------------------------- rows come

    def add(self, rows: Rows, clock: Array, ticks: Array | None, target: Array) -> Iterator[PortfolioScores]:
        """Rows in the order in which they come, with their targets; what is answered, part by part.

        clock: when they come. ticks: the times that tell their blocks; else they have blocks and cycles.
        """
        arrivals = self._arrivals(rows, clock, ticks, target)
        for start in range(0, len(rows), CHUNK):
            yield self._work(arrivals.take(slice(start, start + CHUNK)))

    def end(self) -> None:
        """No rows will follow: learn from those that wait."""

        if self.waiting is None or self.waiting.size == 0:
            return
        window = self._window(self.waiting)
        plan = self._plan()
        for part in self.parts:
            kernels.candidate_sgd.learn_rest(
                part.tables, plan, part.state, window, 0, workspace(part.tables, plan[2])
            )
        self.questions = {name: question.end(plan) for name, question in self.questions.items()}
        self.waiting = self.waiting.take(slice(self.waiting.size, self.waiting.size))

    def _arrivals(self, rows: Rows, clock: Array, ticks: Array | None, target: Array) -> RowBuffer:
        calendar = self.form.calendar
        if ticks is not None:
            assert isinstance(calendar.schedule, Schedule)
            (cycle, block), fine = calendar.schedule.place(ticks), calendar.place(ticks)
            zone: str | None = calendar.schedule.zone
        else:
            (cycle, block), zone = rows.place(calendar.schedule), None
            fine = calendar.fine[block]
        weight = np.ones(len(rows), np.float32) if rows.weight is None else rows.weight.astype(np.float32)
        dawn = self.dawns(np.asarray(clock, np.int64), cycle, fine, zone)
        if len(rows):
            self.nights += int((np.diff(dawn, prepend=self.last[2]) != 0).sum())
            self.last = (int(cycle[-1]), int(fine[-1]), int(dawn[-1]))
            self.block = int(block[-1])
        return RowBuffer(
            rows.indptr,
            rows.indices.astype(np.uint32, copy=False),
            rows.values.astype(np.float32, copy=False),
            np.asarray(target, np.float32),
            weight,
            np.asarray(fine, np.int64),
            np.asarray(cycle, np.int64),
            np.asarray(clock, np.int64),
            dawn,
            np.asarray(block, np.int64),
        )

    def dawns(self, clock: Array, cycle: Array, fine: Array, zone: str | None) -> Array:
        """When the models that answer each row were frozen."""
        if self.freeze == "day" and zone is not None:
            midnight = to_wall(zone, clock) // DAY * DAY
            return from_wall(zone, midnight, ambiguous="earlier", missing="shift").ticks
        # When the cycle or the visit of a row began, which may be before these rows.
        places = [cycle] if self.freeze == "day" else [cycle, fine]
        changed = np.zeros(len(clock), bool)
        for place, held in zip(places, self.last, strict=False):
            changed |= np.diff(place, prepend=held) != 0
        first = np.maximum.accumulate(np.where(changed, np.arange(len(clock)), -1))
        return np.where(first >= 0, clock[np.maximum(first, 0)], self.last[2])

    def _work(self, new: RowBuffer) -> PortfolioScores:
        """Answer new rows, and learn from all whose labels are known."""

        held = self.waiting
        old = 0 if held is None else held.size
        rows = new if held is None or old == 0 else concat_buffers(held, new)
        window, plan = self._window(rows), self._plan()
        count, outputs = new.size, plan[2]
        if self.brief and self.nights >= ENOUGH:
            self.questions.pop("progressive", None)
        asked = [name in self.questions for name in QUESTIONS]
        place, stands = self._rows_to_score(count)
        number = int(place.max(initial=-1)) + 1

        def walk(part: PortfolioPart) -> tuple[Array, Array, int]:
            size = part.form.size * outputs
            first, second = (np.empty((number if each else 0, size), np.float32) for each in asked)
            work = workspace(part.tables, outputs)
            learnt = kernels.candidate_sgd.walk(
                part.tables, plan, part.state, window, (0, old), self.delay, (place, first, second), work
            )
            return first, second, learnt

        if self.threads > 1:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(walk, self.parts))
        else:
            found = [walk(part) for part in self.parts]
        told = kernels.mixing.MixingRows(*(each[place >= 0] for each in (*self._mixing_rows(new), stands)))
        answers = []
        for which, name in enumerate(QUESTIONS):
            score = np.concatenate([each[which] for each in found], axis=1)
            auto = np.zeros((0, outputs), np.float32)
            if name in self.questions:
                self.questions[name], score, auto = self.questions[name].ask(plan, self.delay, told, score)
            answers += [score.reshape(len(score), self.form.size, outputs), auto]
        learnt = found[0][2]
        self.waiting = rows.take(slice(learnt, rows.size))
        first, self.rows = self.rows, self.rows + count
        return PortfolioScores(first, *answers)

    def _rows_to_score(self, count: int) -> tuple[Array, Array]:
        """The number of each next row's answer, -1 if it is not asked; and for how many rows it stands."""
        number = self.rows + np.arange(count)
        stands = np.ones(count)
        if self.brief:
            for bound in SELDOM:
                stands[number >= bound] *= 2
        asked = number % stands.astype(np.int64) == 0
        return np.where(asked, np.cumsum(asked) - 1, -1), stands

    @property
    def question(self) -> str:
        """The question by whose answers a model is made."""
        return "forward" if self.nights >= FEW or "progressive" not in self.questions else "progressive"

    # ------------------------------------------------------------------ kept and restored

    def arrays(self) -> dict[str, Array]:
        """All that it knows, as arrays."""
        found = {
            "place": self.columns.place,
            "counts": np.array([self.rows, self.nights, self.columns.used, self.block, *self.last]),
        }
        for number, part in enumerate(self.parts):
            found |= {f"part{number}.{name}": array for name, array in part.state._asdict().items()}
        for name, (bets, told, *held) in self.questions.items():
            found |= {f"{name}.bets.{each}": array for each, array in bets._asdict().items()}
            found |= {f"{name}.told.{each}": array for each, array in told._asdict().items()}
            found |= {f"{name}.{each}": array for each, array in zip(HELD, held, strict=True)}
        if self.waiting is not None:
            found |= {f"waiting.{name}": array for name, array in self.waiting._asdict().items()}
        return found

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from where another portfolio, told the same, has been."""

        def own(first: str, names: tuple[str, ...]) -> list[Array]:
            return [arrays[f"{first}.{name}"].copy() for name in names]

        self.rows, self.nights, used, self.block, *last = (int(each) for each in arrays["counts"])
        self.columns.used, self.columns.place = used, arrays["place"].copy()
        self.last = (last[0], last[1], last[2])
        self.parts = [
            part._replace(state=CandidateState(*own(f"part{number}", CandidateState._fields)))
            for number, part in enumerate(self.parts)
        ]
        asked = [name for name in QUESTIONS if f"{name}.{HELD[0]}" in arrays]
        self.questions = {
            name: EvaluationProtocol(
                kernels.mixing.MixingState(*own(f"{name}.bets", kernels.mixing.MixingState._fields)),
                kernels.mixing.MixingRows(*own(f"{name}.told", kernels.mixing.MixingRows._fields)),
                *own(name, HELD),
            )
            for name in asked
        }
        if "waiting.clock" in arrays:
            self.waiting = RowBuffer(*own("waiting", RowBuffer._fields))

    # -------------------------------------------------------------------------- inside

    def _plan(self) -> Plan:
        return self.loss.code, self.loss.level, self.loss.outputs

    def _mixing_rows(self, rows: RowBuffer) -> tuple[Array, ...]:
        """What the choice needs to know of rows."""
        slot = self.form.calendar.slot[rows.fine]
        visit = rows.cycle * (self.form.calendar.size + 1) + rows.fine
        return slot, visit, rows.clock, rows.dawn, rows.target, rows.weight, rows.block

    def _window(self, rows: RowBuffer) -> Any:
        """Rows for the kernels: in columns of their own, with intercept and marks."""

        self.columns.take_in(rows.indices)
        self._widen()
        mark = self.parts[0].tables.mark
        starts = rows.indptr + np.arange(rows.size + 1) * (mark.shape[1] + 1)
        columns, values = np.empty(int(starts[-1]), np.uint32), np.empty(int(starts[-1]), np.float32)
        norm = np.empty(rows.size, np.float32)
        cells = rows.indptr, rows.indices, rows.values
        kernels.candidate_sgd.lay_out(
            cells,
            self.columns.place,
            (rows.fine, mark),
            self.form.marks,
            float(self.intercept),
            (starts, columns, values, norm),
        )
        own = rows.target, rows.weight, norm, rows.fine, rows.cycle, rows.clock, rows.dawn
        return RowWindow(starts, columns, values, *own)

    def _widen(self) -> None:
        """Room for all columns in use, and for some to come."""

        room, used = self.parts[0].state.vectors.shape[1], self.columns.used
        if used > room:
            more = min(max(used, room + room // 2, ROOM), self.columns.most)
            self.parts = [part._replace(state=widen(part.state, more)) for part in self.parts]
