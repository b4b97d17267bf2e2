"""The log of a run, and the models read out of it.

A log keeps a run's records within a budget of memory. When they outgrow it, the older half of
its cycles is dropped; of those only each block's mean and last iterate remain.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.average import Mean, Picks, Table, block_lasts, block_means, merge, own_models
from semicyclic.method.frames import Frames, frames_of
from semicyclic.method.record import ByColumn, Layout, Page, Plan, Running
from semicyclic.method.step import ADAGRAD
from semicyclic.method.tally import Tally, first_tally, tally_on

Array = npt.NDArray[Any]

# How many entries the table of what each change adds to each model may have.
SHARES = 1 << 24
# Below this many cells threads cost more than they save.
MANY = 1 << 16
# A table is held by its frames where it is so many times larger.
LEAN = 4


@dataclass
class Past:
    """What remains of dropped records: each block's mean, weight, last iterate and losses.

    last: of hedged chains, each one's times its probability by then.
    order: which of the `count` records dropped was each block's last; -1 where it had none.
    tally: what a certificate needs to know.
    """

    mean: Array
    last: Array
    weight: Array
    cycle: Array
    loss: Array
    rows: Array
    order: Array
    count: int
    tally: Tally


@dataclass
class Kept:
    """A page in the log: its records' places, and for a trace the rows it goes with."""

    page: Page
    cycle: Array
    block: Array
    layout: Layout | None = None
    steps: tuple[int, int] = (0, 0)
    turned: dict[tuple[int, int], ByColumn] = field(default_factory=dict)
    # A table's means and ends as frames, once they were needed: to be written, or to save memory.
    film: Frames | None = None

    def nbytes(self) -> int:
        """What keeping this page costs, the rows of a trace by row and by column included."""
        if self.is_lean:
            return self.page.nbytes() + self.filmed().nbytes
        if self.layout is None:
            return self.page.nbytes()
        return self.page.nbytes() + int(trace_bytes(self.layout, *self.steps))

    @property
    def is_lean(self) -> bool:
        """Whether a table is held by its frames alone."""
        return self.film is not None and not self.page.is_table

    @property
    def is_table(self) -> bool:
        return self.page.is_table or self.is_lean

    def filmed(self) -> Frames:
        """Means and ends in turn, as frames: a column that did not move is not held again."""
        if self.film is None:
            both = np.stack([self.page.mean, self.page.after], axis=1)
            self.film = frames_of(both.reshape(-1, *both.shape[2:]))
        return self.film

    def table(self) -> tuple[Array, Array]:
        """The mean and the end of every record."""
        if not self.is_lean:
            return self.page.mean, self.page.after
        film = self.filmed()
        both = film.table().reshape(-1, 2, *film.shape[1:])
        return both[:, 0], both[:, 1]

    def lean(self) -> "Kept":
        """The same table by its frames alone, where that is much smaller."""
        if not self.page.is_table or self.filmed().nbytes > self.page.nbytes() // LEAN:
            return self
        none = self.page.mean[:0]
        return replace(self, page=self.page._replace(mean=none, after=none))

    def by_column(self, width: int, intercept: bool) -> ByColumn:
        """The rows by column, found once for all runs on the same packed rows."""
        if self.steps not in self.turned:
            from semicyclic.method.replay import turn

            self.turned[self.steps] = ByColumn(*turn(self.layout, self.steps, width, intercept))
        return self.turned[self.steps]


def trace_bytes(layout: Layout, first: int, last: int | Array) -> Array:
    """What the rows of steps first..last-1 take, by row and by column."""
    begin, end = layout.steps[first], layout.steps[last]
    item = layout.values.itemsize
    a_cell = layout.columns.itemsize + item + 4 + item
    a_row = 8 + 4 + 4 + item
    return np.asarray((layout.starts[end] - layout.starts[begin]) * a_cell + (end - begin) * a_row)


@dataclass
class Log:
    """The records of a run in order, oldest first, within `budget` bytes.

    start, squares: the vectors, and AdaGrad's sums, as they were before the first record kept.
    experts: how many chains are hedged; each has its own pages, one after another.
    running: each block's mean over the whole run, where it is kept.
    tables: whether records are always tables, and running means always kept.
    """

    plan: Plan
    start: Array
    squares: Array
    budget: int
    experts: int = 1
    pages: list[Kept] = field(default_factory=list)
    size: int = 0
    past: Past | None = None
    running: Running | None = None
    tables: bool = False

    def append(self, kept: list[Kept]) -> None:
        """Keep a page of every expert, and drop old cycles if that is too much."""
        self.pages += kept
        self.size += sum(page.nbytes() for page in kept)
        if self.tables and self.size > self.budget:
            self.pages = [page.lean() for page in self.pages]
            self.size = sum(page.nbytes() for page in self.pages)
        if len(self.pages) > self.experts and self.size > self.budget:
            self._drop()

    def copy(self) -> "Log":
        running = None if self.running is None else Running(*(each.copy() for each in self.running))
        return replace(self, pages=[*self.pages], running=running)

    def column(self, name: str) -> Array:
        """A number of every record kept, such as its `loss`."""
        return np.concatenate([getattr(kept.page, name) for kept in self.pages] or [np.zeros(0)])

    def table(self) -> Table:
        """Cycle, block and weight of every record kept, and what it has to do with a hedge."""
        none = [np.zeros(0, np.int64)]
        slot = np.concatenate([*none, *(kept.block for kept in self.pages)])
        return Table(
            np.concatenate([*none, *(kept.cycle for kept in self.pages)]),
            slot,
            self.column("weight"),
            self.column("force"),
            slot // (len(self.plan.chain) // self.experts),
        )

    def tally(self) -> Tally:
        """By block, what a certificate needs to know of all steps so far."""
        slots = len(self.plan.chain)
        before = first_tally(slots) if self.past is None else self.past.tally
        columns = (self.column(name) for name in ("steps", "step_loss", "most", "spread"))
        return tally_on(before, self.table().block, *columns)

    def combine(self, picks: Picks, models: int) -> Array:
        """[models, d+1, C] the weighted sums of records that `picks` describes."""
        if self.pages and not self.pages[0].is_table:
            return self._replay(picks, models)[0]
        from semicyclic.method.replay import combine_table

        out = np.zeros((models, *self.start.shape[1:]))
        begin = 0
        for kept in self.pages:
            inside = (picks.record >= begin) & (picks.record < begin + len(kept.cycle))
            part = Picks(*(column[inside] for column in picks))
            if inside.any():
                mean, after = (np.ascontiguousarray(each) for each in kept.table())
                combine_table(mean, after, part._replace(record=part.record - begin), out)
            begin += len(kept.cycle)
        return out.astype(self.start.dtype)

    def _replay(self, picks: Picks, models: int, *, ends: bool = False) -> tuple[Array, Array, Array]:
        """Rebuild sums from a trace; also, where asked for, the vectors and squares at its end."""
        order = np.argsort(picks.record, kind="stable")
        record, model = picks.record[order], picks.model[order]
        weight = self.column("weight")[record]
        per_step = np.divide(picks.mean[order], weight, out=np.zeros(len(weight)), where=weight > 0)
        held = per_step * self.column("mass")[record] + picks.last[order] * self.column("scale")[record]
        first = np.searchsorted(record, np.arange(sum(len(kept.cycle) for kept in self.pages) + 1))
        out = np.zeros((self.start.shape[2], self.start.shape[1], models), self.start.dtype)
        # Models in portions, so that the table of what each change adds to each stays small.
        portion = max(SHARES // (max(len(first), 1) * self.plan.active.shape[1]), 16)
        for low in range(0, models, portion):
            high = min(low + portion, models)
            state = self._replay_models((first, model, held, per_step), (low, high), out, ends)
        return out.transpose(2, 1, 0), *state

    def _replay_models(
        self, picks: Any, models: tuple[int, int], out: Array, ends: bool
    ) -> tuple[Array, Array]:
        from semicyclic.method.replay import (
            DEED,
            DEED_DOUBLE,
            LANES,
            look_ahead,
            replay,
            replay_pushes,
            row_deeds,
        )

        plan, kind = self.plan, self.start.dtype
        first, model, held, per_step = picks
        ahead = np.zeros((len(self.start), models[1] - models[0]))
        jobs = []
        end = len(first) - 1
        for kept in reversed(self.pages):
            begin = end - len(kept.cycle)
            own = slice(first[begin], first[end])
            mine = first[begin : end + 1] - first[begin], model[own], held[own], per_step[own]
            share = np.zeros((len(kept.cycle), plan.active.shape[1], ahead.shape[1]), kind)
            tail = np.empty(len(kept.cycle))
            beyond = ahead.copy()
            head = look_ahead(plan, kept.block, kept.page.fold, mine[:3], models, ahead, share, tail)
            jobs.append((kept, mine, (share, tail, head, beyond, *models)))
            end = begin
        if self.start.any():
            out[:, :, models[0] : models[1]] += np.einsum("vjc,vq->cjq", self.start, ahead).astype(kind)
        vectors, squares = self.start.copy(), self.squares.copy()
        for kept, mine, weights in reversed(jobs):
            adaptive = bool((plan.rule[plan.chain[kept.block[:1]]] == ADAGRAD).any())
            # Where pushes count in proportion, no column needs to know its vectors.
            plain = not adaptive and not ends
            columns = kept.by_column(self.start.shape[1], plan.intercept > 0)
            deeds = np.empty(len(columns.step), DEED if kind == np.float32 else DEED_DOUBLE)
            until = kept.page.until.astype(kind)
            gain = kept.page.gain.astype(kind)
            records = kept.block, kept.page.fold, kept.page.record, until, gain
            least = 0
            if plain:
                # A record walked through costs about what 64 models cost to add a push to,
                # and a column has no more pushes than cells or records.
                count = models[1] - models[0]
                least = int(columns.first[-1]) + 1
                if count > 64:
                    least = 1 + 64 * len(kept.cycle) // count
                pushed = np.zeros((len(kept.cycle), -(-count // LANES) * LANES), kind)
                factors = plan.coefficient[kept.block]
                pushed[:, :count] = np.einsum("ra,raq->rq", factors, weights[0])
                norm = (plan.coefficient**2).sum(axis=1)[kept.block]
                lags = (mine[3] * np.repeat(norm, np.diff(mine[0]))).astype(kind)
                lagging = mine[0], mine[1], lags, *models
            for output in range(len(out)):
                row_deeds(kept.page, columns.step, output, adaptive, deeds)
                held = vectors[:, :, output], squares[:, :, output]
                if plain:
                    job = partial(
                        replay_pushes, columns, deeds, records[2:4], pushed, lagging, least - 1, out[output]
                    )
                    _in_parallel(columns.first, job)
                if least <= columns.first[-1]:
                    job = partial(
                        replay, plan, columns, deeds, records, held, mine, weights, least, out[output]
                    )
                    _in_parallel(columns.first, job)
        return vectors, squares

    def _drop(self) -> None:
        """Drop the pages of the older half of the cycles."""
        cycles = np.unique(np.concatenate([kept.cycle for kept in self.pages]))
        boundary = cycles[len(cycles) // 2]
        # The experts' pages of the same steps are dropped together.
        firsts = self.pages[:: self.experts]
        older = [kept.cycle.max(initial=boundary - 1) < boundary for kept in firsts]
        count = min(max(older.index(False) if False in older else len(older), 1), len(firsts) - 1)
        self.fold(count * self.experts)

    def fold(self, count: int) -> None:
        """Fold the oldest pages into the past: of their records each block's mean and last iterate remain."""
        old = replace(self, pages=self.pages[:count], past=None, running=None)
        table, blocks = old.table(), len(self.plan.chain)
        member = own_models(blocks)
        means, lasts = block_means(table, member), block_lasts(table, member)
        lasts = lasts._replace(model=lasts.model + blocks)
        both = Picks(*(np.concatenate(pair) for pair in zip(means, lasts, strict=True)))
        if self.pages[0].is_table:
            found = old.combine(both, 2 * blocks)
        else:
            found, self.start, self.squares = old._replay(both, 2 * blocks, ends=True)
        latest = np.full(blocks, np.iinfo(np.int64).min)
        np.maximum.at(latest, table.block, table.cycle)
        order = np.full(blocks, -1)
        np.maximum.at(order, table.block, np.arange(len(table.block)))
        new = Past(
            mean=found[:blocks],
            last=found[blocks:],
            weight=np.bincount(table.block, table.weight, blocks),
            cycle=latest,
            loss=np.bincount(table.block, old.column("loss"), blocks),
            rows=np.bincount(table.block, old.column("rows"), blocks),
            order=order,
            count=len(table.block),
            tally=self.past.tally if self.past is not None else first_tally(blocks),
        )
        new.tally = replace(old, past=new).tally()
        self.past = new if self.past is None else _join(self.past, new)
        self.pages = self.pages[count:]
        self.size = sum(kept.nbytes() for kept in self.pages)


def _in_parallel(first: Array, job: Callable[[tuple[int, int]], object]) -> None:
    """Do a job for all columns, in as many ranges as there are cores.

    Columns do not touch each other, so the result has the same bits for any number.
    """
    cores = os.cpu_count() or 1
    width = len(first) - 1
    cuts = np.searchsorted(first, np.linspace(0, first[-1], 4 * cores + 1)[1:-1]).tolist()
    bounds = [0, *cuts, width]
    spans = [(low, high) for low, high in pairwise(bounds) if low < high]
    if cores == 1 or first[-1] < MANY:
        for span in spans:
            job(span)
        return
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(job, spans))


def _join(a: Past, b: Past) -> Past:
    """Two pasts in a row: means merge by weight, the later iterate is the last."""
    pairs = [merge(Mean(a.mean[i], a.weight[i]), Mean(b.mean[i], b.weight[i])) for i in range(len(a.weight))]
    later = b.order >= 0
    return Past(
        np.stack([mean.value for mean in pairs]).astype(a.mean.dtype),
        np.where(later[:, None, None], b.last, a.last),
        a.weight + b.weight,
        np.maximum(a.cycle, b.cycle),
        a.loss + b.loss,
        a.rows + b.rows,
        np.where(later, a.count + b.order, a.order),
        a.count + b.count,
        b.tally,
    )
