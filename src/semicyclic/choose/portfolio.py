"""Many candidates from one pass, and the mixture of them that has been best lately.

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
import numpy.typing as npt

from semicyclic.choose.form import KINDS, LANES, Form, Tables
from semicyclic.method.edges import DAY
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.method.schedule import Schedule
from semicyclic.method.zone import from_wall, to_wall

Array = npt.NDArray[Any]

# So many rows are worked on at once.
CHUNK = 4096
# Candidates are worked on in so many parts, on as many threads as there are: the same on every machine.
PARTS = 2
# Columns are made room for in steps.
ROOM = 64
LONG_AGO = -(2**62)
QUESTIONS = ("progressive", "forward")
HELD = ("score", "bet", "auto")
TOLD = (np.int64, np.int64, np.int64, np.int64, np.float32, np.float32, np.int64, np.float64)
# Of the rows beyond each of these, only half as many are asked as before.
SELDOM = (1 << 16, 1 << 18, 1 << 20)
# After so many dawns the forward question is answered by experience; until then, by the progressive one.
FEW, ENOUGH = 4, 8
# A candidate with less weight than this is left out of a model.
LITTLE = 1e-5


class Answers(NamedTuple):
    """What was answered for some rows: scores of candidates [n, K, C] and of the mixture [n, C].

    Where one of the two questions was not asked, its candidates are [0, K, C] and its mixture [0, C].
    """

    first: int
    progressive: Array
    progressive_auto: Array
    forward: Array
    forward_auto: Array


class Arrivals(NamedTuple):
    """Rows as they come: features, targets as the loss wants them, weights, places and times."""

    indptr: Array
    indices: Array
    values: Array
    target: Array
    weight: Array
    fine: Array
    cycle: Array
    clock: Array
    dawn: Array
    block: Array

    @property
    def size(self) -> int:
        return len(self.clock)

    def take(self, part: slice) -> "Arrivals":
        low, high, _ = part.indices(self.size)
        cells = slice(self.indptr[low], self.indptr[high])
        rows = [column[low:high] for column in self[3:]]
        return Arrivals(
            self.indptr[low : high + 1] - self.indptr[low], self.indices[cells], self.values[cells], *rows
        )


def joined(first: Arrivals, second: Arrivals) -> Arrivals:
    """One after the other."""
    indptr = np.r_[first.indptr, second.indptr[1:] + first.indptr[-1]]
    return Arrivals(indptr, *(np.concatenate(pair) for pair in zip(first[1:], second[1:], strict=True)))


class Question(NamedTuple):
    """A mixture; and of the rows asked whose labels are not known yet, what they are and were answered:
    scores of candidates, strategies, the mixture."""

    bets: Any
    told: Any
    score: Array
    bet: Array
    auto: Array

    def after(self, count: int) -> "Question":
        """Without the first rows."""
        told = type(self.told)(*(each[count:].copy() for each in self.told))
        return Question(self.bets, told, *(each[count:].copy() for each in self[2:]))


class Part(NamedTuple):
    """Some kinds of chains, which one thread works on."""

    form: Form
    tables: Tables
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

    form: Form
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
    parts: list[Part] = field(default_factory=list)
    questions: dict[str, Question] = field(default_factory=dict)
    waiting: Arrivals | None = None
    # Where features have their columns, -1 where none was seen yet; marks and intercept come first.
    place: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    used: int = 0
    # The cycle, cell, dawn and block of the last row.
    last: tuple[int, int, int] = (LONG_AGO, LONG_AGO, LONG_AGO)
    block: int = 0

    def __post_init__(self) -> None:
        from semicyclic.choose import abreast, choice

        self.place = np.full(self.width, -1, np.int64)
        self.used = self.form.marks + 1
        outputs = self.loss.outputs
        for form in self.form.split(PARTS):
            tables = form.tables()
            held = self._kept_apart(form)
            self.parts.append(Part(form, tables, abreast.nothing(tables, self.used, outputs, held)))
        count, calendar = self.form.size, self.form.calendar
        for name in QUESTIONS:
            bets = choice.no_bets(calendar.slots, calendar.blocks, count, at_dawn=name == "forward")
            empty = [np.zeros((0, size * outputs), np.float32) for size in (count, choice.STRATEGIES, 1)]
            none = choice.Told(*(np.zeros(0, kind) for kind in TOLD))
            self.questions[name] = Question(bets, none, *empty)

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates, in the order of their scores."""
        return tuple(name for part in self.parts for name in part.form.names)

    def _kept_apart(self, form: Form) -> int:
        """How many groups of read-outs may change between dawn and the rows it answers for."""
        if self.apart or self.delay or not self.form.calendar.once_a_day or self.freeze != "day":
            return form.groups
        return form.shared_groups

    # ----------------------------------------------------------------------- rows come

    def add(self, rows: Rows, clock: Array, ticks: Array | None, target: Array) -> Iterator[Answers]:
        """Rows in the order in which they come, with their targets; what is answered, part by part.

        clock: when they come. ticks: the times that tell their blocks; else they have blocks and cycles.
        """
        arrivals = self._arrivals(rows, clock, ticks, target)
        for start in range(0, len(rows), CHUNK):
            yield self._work(arrivals.take(slice(start, start + CHUNK)))

    def end(self) -> None:
        """No rows will follow: learn from those that wait."""
        from semicyclic.choose import abreast, choice

        if self.waiting is None or self.waiting.size == 0:
            return
        window = self._window(self.waiting)
        plan = self._plan()
        for part in self.parts:
            abreast.learn_rest(part.tables, plan, part.state, window, 0, abreast.work(part.tables, plan[2]))
        for name, question in self.questions.items():
            scores = question.score, question.bet, question.auto
            choice.know_rest(question.bets, plan, tuple(question.told), 0, scores, self._scratch())
            self.questions[name] = question.after(len(question.told.clock))
        self.waiting = self.waiting.take(slice(self.waiting.size, self.waiting.size))

    def _arrivals(self, rows: Rows, clock: Array, ticks: Array | None, target: Array) -> Arrivals:
        calendar = self.form.calendar
        if ticks is not None:
            assert isinstance(calendar.schedule, Schedule)
            (cycle, block), fine = calendar.schedule.place(ticks), calendar.place(ticks)
            zone: str | None = calendar.schedule.zone
        else:
            (cycle, block), zone = rows.place(calendar.schedule), None
            fine = calendar.cell[block]
        weight = np.ones(len(rows), np.float32) if rows.weight is None else rows.weight.astype(np.float32)
        dawn = self.dawns(np.asarray(clock, np.int64), cycle, fine, zone)
        if len(rows):
            self.nights += int((np.diff(dawn, prepend=self.last[2]) != 0).sum())
            self.last = (int(cycle[-1]), int(fine[-1]), int(dawn[-1]))
            self.block = int(block[-1])
        return Arrivals(
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

    def _work(self, new: Arrivals) -> Answers:
        """Answer new rows, and learn from all whose labels are known."""
        from semicyclic.choose import abreast, choice

        held = self.waiting
        old = 0 if held is None else held.size
        rows = new if held is None or old == 0 else joined(held, new)
        window, plan = self._window(rows), self._plan()
        count, outputs = new.size, plan[2]
        if self.brief and self.nights >= ENOUGH:
            self.questions.pop("progressive", None)
        asked = [name in self.questions for name in QUESTIONS]

        place, stands = self._asked(count)
        number = int(place.max(initial=-1)) + 1

        def walk(part: Part) -> tuple[Array, Array, int]:
            size = part.form.size * outputs
            first, second = (np.empty((number if each else 0, size), np.float32) for each in asked)
            work = abreast.work(part.tables, outputs)
            learnt = abreast.walk(
                part.tables, plan, part.state, window, (0, old), self.delay, (place, first, second), work
            )
            return first, second, learnt

        if self.threads > 1:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(walk, self.parts))
        else:
            found = [walk(part) for part in self.parts]
        told = choice.Told(*(each[place >= 0] for each in (*self._told(new), stands)))
        answers = []
        for which, name in enumerate(QUESTIONS):
            question = self.questions.get(name)
            if question is None:
                size = self.form.size, outputs
                answers += [np.zeros((0, *size), np.float32), np.zeros((0, outputs), np.float32)]
                continue
            score = np.concatenate([each[which] for each in found], axis=1)
            bet = np.empty((number, choice.STRATEGIES * outputs), np.float32)
            auto = np.empty((number, outputs), np.float32)
            before = len(question.told.clock)
            both = choice.Told(*(np.concatenate(pair) for pair in zip(question.told, told, strict=True)))
            pairs = zip(question[2:], (score, bet, auto), strict=True)
            full = Question(question.bets, both, *(np.concatenate(pair) for pair in pairs))
            span = (0, before)
            scores = full.score, full.bet, full.auto
            known = choice.choose(full.bets, plan, tuple(both), span, self.delay, scores, self._scratch())
            self.questions[name] = full.after(known)
            answers += [full.score[before:].reshape(number, -1, outputs), full.auto[before:]]
        learnt = found[0][2]
        self.waiting = rows.take(slice(learnt, rows.size))
        first, self.rows = self.rows, self.rows + count
        return Answers(first, *answers)

    def _asked(self, count: int) -> tuple[Array, Array]:
        """The number of each next row's answer, -1 if it is not asked; and for how many rows it stands."""
        number = self.rows + np.arange(count)
        stands = np.ones(count)
        if self.brief:
            for bound in SELDOM:
                stands[number >= bound] *= 2
        asked = number % stands.astype(np.int64) == 0
        return np.where(asked, np.cumsum(asked) - 1, -1), stands

    # --------------------------------------------------------------------- what came of it

    def weights(self, question: str) -> Array:
        """[slots, K] how much each candidate counts in the mixture, by all that is known."""
        from semicyclic.choose.choice import weights_in

        found = np.empty((self.form.calendar.slots, self.form.size))
        for slot, out in enumerate(found):
            weights_in(self.questions[question].bets, slot, self.loss.code, out)
        return found

    @property
    def question(self) -> str:
        """The question by whose answers a model is made."""
        return "forward" if self.nights >= FEW or "progressive" not in self.questions else "progressive"

    def loss_so_far(self) -> float:
        """The mean loss of the mixture over all rows whose labels are known."""
        bets = self.questions[self.question].bets
        total = float(bets.weight.sum())
        return float(bets.loss[:, -1].sum()) / total if total > 0 else float("nan")

    def losses(self) -> tuple[Array, Array]:
        """[slots, K + 1] the mean loss of every candidate and of the mixture in each slot, and the rows."""
        bets = self.questions[self.question].bets
        with np.errstate(invalid="ignore"):
            return bets.loss / bets.weight[:, None], bets.weight

    def model_weights(self) -> Array:
        """[fine, C, width + 1] the mixture as linear models, one for each of the finest blocks."""
        calendar, outputs = self.form.calendar, self.loss.outputs
        weights = self.weights(self.question)
        weights[weights < LITTLE] = 0.0
        weights /= weights.sum(axis=1, keepdims=True)
        found = np.zeros((calendar.size, outputs, self.width + 1), np.float32)
        known = np.flatnonzero(self.place >= 0)
        sound = [
            (_finite(part.state.vectors, (1, 2)), _finite(part.state.frozen, (1, 2))) for part in self.parts
        ]
        for cell in range(calendar.size):
            mixed = self._mixed(cell, weights[calendar.slot[cell]], sound)
            if self.intercept:
                found[cell, :, -1] = mixed[self.form.marks]
                for mark in self.parts[0].tables.mark[cell]:
                    found[cell, :, -1] += mixed[mark]
            found[cell][:, known] = mixed[self.place[known]].T
        return found[calendar.cell]

    def _mixed(self, fine: int, weights: Array, sound: list[tuple[Array, Array]]) -> Array:
        """[D, C] all candidates in one cell, by their weights; one that is not finite says nothing.

        sound: of each part which vectors [V, 8] and read-outs [G, 5, 8] are finite.
        """
        columns, outputs = self.parts[0].state.vectors.shape[1:3]
        total = np.zeros((columns, outputs), np.float32)
        first = 0
        for (form, tables, state), (whole, read) in zip(self.parts, sound, strict=True):
            count = len(form.kinds)
            live = weights[first : first + count * LANES].reshape(count, LANES).astype(np.float32).copy()
            first += live.size
            for number, reading in enumerate(form.readings):
                own = weights[first : first + len(KINDS) * LANES].astype(np.float32)
                first += own.size
                group = tables.group[number, fine]
                if state.seen[group, 1] == 0:
                    live[reading.kind] += own.reshape(len(KINDS), LANES).sum(axis=0)
                    continue
                used = np.flatnonzero((own > 0) & read[group].ravel())
                if len(used):
                    frozen = state.frozen[group].reshape(columns, outputs, -1)
                    total += frozen[..., used] @ own[used]
            for kind in range(count):
                active = tables.active[kind, fine]
                active = active[active >= 0]
                used = np.flatnonzero((live[kind] > 0) & whole[active].all(axis=0))
                for vector, share in zip(active, tables.share[kind, fine], strict=False):
                    if len(used):
                        total += share * (state.vectors[vector][..., used] @ live[kind][used])
        return total

    def unseen(self) -> tuple[int, ...]:
        """The finest blocks of those blocks that had no rows; they have what is common to all."""
        lost = self.questions[self.question].bets.lost
        return tuple(np.flatnonzero(lost[self.form.calendar.block, 0] == 0).tolist())

    def chosen(self, top: int = 3) -> dict[str, Any]:
        """For each slot what the mixture consists of, and what each of it has lost there."""
        names = self.names
        weights = self.weights(self.question)
        loss, rows = self.losses()
        blocks = {}
        for slot, label in enumerate(self.form.calendar.labels):
            seen = rows[slot] > 0
            blocks[label] = {
                "rows": round(float(rows[slot]), 6),
                "loss": float(loss[slot, -1]) if seen else None,
                "candidates": [
                    {
                        "name": names[k],
                        "weight": round(float(weights[slot, k]), 4),
                        "loss": float(loss[slot, k]) if seen else None,
                    }
                    for k in np.argsort(-weights[slot], kind="stable")[:top]
                ],
            }
        return {"by": self.question, "candidates": self.form.size, "blocks": blocks}

    # ------------------------------------------------------------------ kept and restored

    def arrays(self) -> dict[str, Array]:
        """All that it knows, as arrays."""
        found = {
            "place": self.place,
            "counts": np.array([self.rows, self.nights, self.used, self.block, *self.last]),
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
        from semicyclic.choose.abreast import State
        from semicyclic.choose.choice import Bets, Told

        def own(first: str, names: tuple[str, ...]) -> list[Array]:
            return [arrays[f"{first}.{name}"].copy() for name in names]

        self.place = arrays["place"].copy()
        self.rows, self.nights, self.used, self.block, *last = (int(each) for each in arrays["counts"])
        self.last = (last[0], last[1], last[2])
        self.parts = [
            part._replace(state=State(*own(f"part{number}", State._fields)))
            for number, part in enumerate(self.parts)
        ]
        asked = [name for name in QUESTIONS if f"{name}.{HELD[0]}" in arrays]
        self.questions = {
            name: Question(
                Bets(*own(f"{name}.bets", Bets._fields)),
                Told(*own(f"{name}.told", Told._fields)),
                *own(name, HELD),
            )
            for name in asked
        }
        if "waiting.clock" in arrays:
            self.waiting = Arrivals(*own("waiting", Arrivals._fields))

    # -------------------------------------------------------------------------- inside

    def _plan(self) -> tuple[int, float, int]:
        return self.loss.code, self.loss.level, self.loss.outputs

    def _told(self, rows: Arrivals) -> tuple[Array, ...]:
        """What the choice needs to know of rows."""
        slot = self.form.calendar.slot[rows.fine]
        visit = rows.cycle * (self.form.calendar.size + 1) + rows.fine
        return slot, visit, rows.clock, rows.dawn, rows.target, rows.weight, rows.block

    def _scratch(self) -> tuple[Array, ...]:
        from semicyclic.choose.choice import STRATEGIES

        size = self.form.size * self.loss.outputs
        widths = size, size, size, STRATEGIES, 1
        return tuple(np.empty(max(width, STRATEGIES * self.loss.outputs), np.float32) for width in widths)

    def _window(self, rows: Arrivals) -> Any:
        """Rows for the kernels: in columns of their own, with intercept and marks."""
        from semicyclic.choose import abreast

        self._make_room(rows.indices)
        mark = self.parts[0].tables.mark
        starts = rows.indptr + np.arange(rows.size + 1) * (mark.shape[1] + 1)
        columns, values = np.empty(int(starts[-1]), np.uint32), np.empty(int(starts[-1]), np.float32)
        norm = np.empty(rows.size, np.float32)
        cells = rows.indptr, rows.indices, rows.values
        abreast.lay_out(
            cells,
            self.place,
            (rows.fine, mark),
            self.form.marks,
            float(self.intercept),
            (starts, columns, values, norm),
        )
        own = rows.target, rows.weight, norm, rows.fine, rows.cycle, rows.clock, rows.dawn
        return abreast.Window(starts, columns, values, *own)

    def _make_room(self, indices: Array) -> None:
        """Columns for features that come for the first time."""
        from semicyclic.choose import abreast

        fresh = indices[self.place[indices] < 0]
        if len(fresh) == 0:
            return
        new = np.unique(fresh)
        # In the order in which they come: however rows are cut, they get the same columns.
        first = np.full(self.width, len(fresh))
        np.minimum.at(first, fresh, np.arange(len(fresh)))
        new = new[np.argsort(first[new])]
        free = max(min(self.room, self.width + self.form.marks + 1) - self.used, 0)
        self.place[new[:free]] = self.used + np.arange(len(new[:free]))
        self.used += len(new[:free])
        # Where there is no room left, features share columns.
        least = self.form.marks + 1
        self.place[new[free:]] = least + new[free:] % max(self.used - least, 1)
        room = self.parts[0].state.vectors.shape[1]
        if self.used > room:
            more = max(self.used, room + room // 2, ROOM)
            limit = max(min(self.width + self.form.marks + 1, self.room), self.used)
            self.parts = [
                part._replace(state=abreast.widened(part.state, min(more, limit))) for part in self.parts
            ]


def _finite(array: Array, over: tuple[int, ...]) -> Array:
    """Whether all numbers are, over some axes."""
    return np.asarray(np.isfinite(array).all(axis=over))


def targets(labels: Array | None, loss: Loss) -> Array:
    """Labels as the loss wants them, from codes of classes or numbers."""
    if labels is None:
        raise ValueError("these rows have no labels")
    if loss.classes == 2 and loss.outputs == 1:
        return np.asarray(2.0 * labels - 1.0)
    return labels
