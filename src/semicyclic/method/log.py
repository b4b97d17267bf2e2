"""`Log`: the records of a run within a memory budget, and weighted sums over them."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method import kernels
from semicyclic.method.arrays import BY_EXPERT, Plan, Records
from semicyclic.method.average import (
    Mean,
    RecordTable,
    RecordWeights,
    block_lasts,
    block_means,
    merge,
    own_models,
)
from semicyclic.method.loss_stats import LossStats, add_losses, no_losses
from semicyclic.schedule.schedule import Located
from semicyclic.types import Array

# The most entries of the table [records, active vectors, models] that holds the weights of changes: models
# are read out in portions that fit.
WEIGHTS = 1 << 23
# Below this many additions threads cost more than they save.
MANY = 1 << 20
# The most iterates of a model that are added up in single precision.
MOST = 512
# The number of models added at once is padded to a multiple of this, so that additions vectorize.
LANES = 8


class DroppedRecords(NamedTuple):
    """Summary of dropped records, by slot: mean, last iterate and weight; by block: cycle and losses.

    last: for hedged experts, each one's iterate times its probability at that time.
    order: [m] the number of the block's last dropped record among all `records`; -1 if it has none.
    """

    mean: Array
    last: Array
    weight: Array
    cycle: Array
    loss: Array
    rows: Array
    order: Array
    records: int
    tally: LossStats


@dataclass
class Log:
    """The records of a run in order, oldest first, within `budget` bytes.

    start: the vectors before the first record. past: the summary of records that were dropped.
    """

    plan: Plan
    start: Array
    budget: int
    experts: int = 1
    pages: list[Records] = field(default_factory=list)
    size: int = 0
    past: DroppedRecords | None = None

    @property
    def blocks(self) -> int:
        return len(self.plan.chain) // self.experts

    def append(self, page: Records) -> None:
        """Add a page of records; drop old cycles if the budget is exceeded."""
        self.pages.append(page)
        self.size += page.nbytes
        if len(self.pages) > 1 and self.size > self.budget:
            self._drop()

    def copy(self) -> "Log":
        return replace(self, pages=[*self.pages])

    def column(self, name: str) -> Array:
        """One field of every record, such as `loss`; for fields by expert, records first."""
        empty = np.zeros((0, self.experts) if name in BY_EXPERT else 0)
        return np.concatenate([empty, *(getattr(page, name) for page in self.pages)])

    def places(self) -> Located:
        """Cycle and block of every record."""
        none = np.zeros(0, np.int64)
        cycle = np.concatenate([none, *(page.cycle for page in self.pages)])
        return Located(cycle, np.concatenate([none, *(page.block for page in self.pages)]))

    def table(self) -> RecordTable:
        """Cycle, slot, weight and expert of every record: what read-outs are computed from."""
        cycle, block = self.places()
        expert = np.tile(np.arange(self.experts), len(cycle))
        slot = np.repeat(block, self.experts) + self.blocks * expert
        weight, probability = self.column("weight").ravel(), self.column("probability").ravel()
        return RecordTable(np.repeat(cycle, self.experts), slot, weight, probability, expert)

    def tally(self) -> LossStats:
        """Loss statistics by block over all steps so far, for certificates."""
        before = no_losses(self.blocks) if self.past is None else self.past.tally
        columns = (self.column(name) for name in ("steps", "step_loss", "most", "spread"))
        return add_losses(before, self.places().block, *columns)

    def losses(self) -> tuple[Array, Array]:
        """[m] sums of the progressive losses of each block's rows, and the weights of the rows."""
        block = self.places().block
        loss, rows = (np.bincount(block, self.column(name), self.blocks) for name in ("loss", "rows"))
        return (loss, rows) if self.past is None else (loss + self.past.loss, rows + self.past.rows)

    # ------------------------------------------------------------------------------------------ read-outs

    def combine(self, picks: RecordWeights, models: int) -> Array:
        """[models, d+1, C] the weighted sums of records given by `picks`."""
        _, width, outputs = self.start.shape
        changes = sum(page.changes.size for page in self.pages)
        # Adding whole iterates is about twice as fast per number as adding scattered changes.
        if len(picks.record) * width * outputs < 2 * changes * _pad(models):
            return self._walk(picks, models)
        return self._sweep(picks, models)

    def _walk(self, picks: RecordWeights, models: int) -> Array:

        # In single precision, sums of very many iterates would lose digits.
        kind = np.float64 if len(picks.record) > MOST * models else self.start.dtype
        out = np.zeros((models, *self.start.shape[1:]), kind)
        vectors = self.start.copy()
        for page, own in self._by_page(picks):
            kernels.readout.walk(self.plan, page, own, vectors, out)
        return out.astype(self.start.dtype, copy=False)

    def _sweep(self, picks: RecordWeights, models: int) -> Array:

        dtype, (vectors, width, outputs) = self.start.dtype, self.start.shape
        records, active = len(self.places().cycle) * self.experts, self.plan.active.shape[1]
        out = np.zeros((outputs, width, _pad(models)), dtype)
        tiles = (width - 1 >> kernels.readout.TILE_BITS) + 1
        portion = max(WEIGHTS // max(records * active, 1) // LANES, 1) * LANES
        for low in range(0, models, portion):
            count = min(portion, out.shape[2] - low)
            own = (picks.model >= low) & (picks.model < low + count)
            part = RecordWeights(*(column[own] for column in picks))
            part = part._replace(model=part.model - low)
            carry = np.zeros((vectors, count))
            for page, mine in reversed(self._by_page(part)):
                later = np.zeros((page.weight.size, active, count), dtype)
                needed = np.zeros(page.weight.size, np.bool_)
                kernels.readout.look_back(self.plan, page, mine, carry, later, needed)
                job = partial(kernels.readout.sweep, self.plan, page, mine, (later, needed), out, low)
                _in_parallel(job, tiles, page.changes.size * count)
            if self.start.any():
                out[:, :, low : low + count] += np.einsum("vjc,vq->cjq", self.start, carry).astype(dtype)
        return out.transpose(2, 1, 0)[:models]

    def _by_page(self, picks: RecordWeights) -> list[tuple[Records, tuple[Array, ...]]]:
        """Iterate over pages with the weights of their records, in the form that kernels expect."""
        by_page: list[tuple[Records, tuple[Array, ...]]] = []
        begin = 0
        for page in self.pages:
            end = begin + page.weight.size
            first = np.searchsorted(picks.record, np.arange(begin, end + 1))
            entries = slice(first[0], first[-1])
            by_page.append(
                (page, (first - first[0], picks.model[entries], picks.mean[entries], picks.last[entries]))
            )
            begin = end
        return by_page

    # ------------------------------------------------------------------------------------------ the budget

    def _drop(self) -> None:
        """Drop the pages of the older half of the cycles: at least one page, never the last."""
        cycles = np.unique(self.places().cycle)
        boundary = cycles[len(cycles) // 2]
        older = [bool(page.cycle.max(initial=boundary - 1) < boundary) for page in self.pages]
        count = older.index(False) if False in older else len(older)
        self.fold(min(max(count, 1), len(older) - 1))

    def fold(self, count: int) -> None:
        """Merge the oldest `count` pages into `past`, keeping the mean and last iterate of each slot."""

        old = replace(self, pages=self.pages[:count], past=None)
        table, slots = old.table(), len(self.plan.chain)
        member = own_models(slots)
        means, lasts = block_means(table, member), block_lasts(table, member)
        lasts = lasts._replace(model=lasts.model + slots)
        both = RecordWeights(*(np.concatenate(pair) for pair in zip(means, lasts, strict=True)))
        order = np.argsort(both.record, kind="stable")
        sums = old.combine(RecordWeights(*(column[order] for column in both)), 2 * slots)
        cycle, block = old.places()
        latest = np.full(self.blocks, np.iinfo(np.int64).min)
        np.maximum.at(latest, block, cycle)
        order = np.full(self.blocks, -1)
        np.maximum.at(order, block, np.arange(len(block)))
        loss, rows = old.losses()
        weight = np.bincount(table.slot, table.weight, slots)
        tally = replace(old, past=self.past).tally()
        new = DroppedRecords(sums[:slots], sums[slots:], weight, latest, loss, rows, order, len(block), tally)
        self.past = new if self.past is None else _join(self.past, new)
        start = self.start.copy()
        for page, nothing in old._by_page(RecordWeights(*(column[:0] for column in means))):
            kernels.readout.walk(self.plan, page, nothing, start, start[:0])
        self.start = start
        self.pages = self.pages[count:]
        self.size = sum(page.nbytes for page in self.pages)


def _pad(models: int) -> int:
    return -(-models // LANES) * LANES


def _in_parallel(job: Any, tiles: int, additions: int) -> None:
    """Run `job` on all tiles, in ranges for as many threads as there are cores.

    Tiles do not overlap, so the result has the same bits for any number of threads.
    """
    cores = min(os.cpu_count() or 1, tiles)
    if cores == 1 or additions < MANY:
        job((0, tiles))
        return
    bounds = np.unique(np.linspace(0, tiles, 4 * cores + 1).astype(np.int64))
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(job, pairwise(bounds.tolist())))


def _join(a: DroppedRecords, b: DroppedRecords) -> DroppedRecords:
    """Merge two summaries in order: means by weight; the later iterate is the last."""
    slots = range(len(a.weight))
    pairs = [merge(Mean(a.mean[i], a.weight[i]), Mean(b.mean[i], b.weight[i])) for i in slots]
    later = b.order >= 0
    by_slot = np.tile(later, len(a.weight) // len(later))
    return DroppedRecords(
        np.stack([mean.value for mean in pairs]).astype(a.mean.dtype),
        np.where(by_slot[:, None, None], b.last, a.last),
        a.weight + b.weight,
        np.maximum(a.cycle, b.cycle),
        a.loss + b.loss,
        a.rows + b.rows,
        np.where(later, a.records + b.order, a.order),
        a.records + b.records,
        b.tally,
    )
