"""Reader: from files to chunks of sparse rows, in order of time.

What is learnt is a function of the rows alone: however files are cut into batches, a chunk ends with
its cycle, or after CHUNK rows of it. All that is known at a chunk's end is one value, `ReaderState`, from
which reading goes on: so a checkpoint is that value and the run's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.rows import Rows
from semicyclic.tables.cleaning import clean_batch, concat_clean_rows, first_rows, raise_first_fault
from semicyclic.tables.columns import CleanRows, Schema, infer_schema
from semicyclic.tables.features import FeatureNames, Features, learn_scales
from semicyclic.tables.labels import Labels, learn_labels
from semicyclic.tables.sources import ReadPosition, SourceBatch, Sources
from semicyclic.tables.vocabulary import Vocabulary
from semicyclic.tables.watermark import (
    LONG_AGO,
    LateCounts,
    LatePolicy,
    WaitingRows,
    Watermark,
    concat_waiting,
)
from semicyclic.training.config import CHUNK, TrainConfig
from semicyclic.types import Array

Named = Callable[[int], str]
# Columns are hashed to at least 2^LEAST, and to ROOM times as many as the first rows have features, of
# which no two shall share one of 2^WIDE.
LEAST, ROOM, WIDE = 12, 32, 20
# Where labels are late, rows are scored by a model no older than this many rows and a visit.
SOON = 2048
# So many late rows at the start, and the file is in no order.
MOST_LATE = 0.5
REMEDY = "or leave such rows out with --on-error skip"
# How many refused rows are shown to people.
EXAMPLES = 3


class RowCounts(NamedTuple):
    """Rows so far: read; without a label; refused; and local times that were shifted."""

    read: int = 0
    unlabelled: int = 0
    refused: int = 0
    shifted: int = 0


NOTHING, START = RowCounts(), ReadPosition()


@dataclass(frozen=True)
class ReaderState:
    """All that reading knows between two chunks.

    queue: rows in order that wait to be learnt from; the first `scored` of them were scored.
    named: how many features' names were known.
    """

    features: Features
    labels: Labels
    order: Watermark
    queue: WaitingRows | None = None
    scored: int = 0
    counts: RowCounts = NOTHING
    mark: ReadPosition = START
    first: int = -LONG_AGO
    named: int = 0
    # Rows refused, of which a few are shown.
    examples: tuple[str, ...] = ()

    @property
    def columns(self) -> Schema:
        return self.features.columns

    @property
    def late(self) -> LateCounts:
        return self.order.late


class ArrivedRows(NamedTuple):
    """Rows with the times that tell their blocks, when they came, and their cells as they were read."""

    rows: Rows
    ticks: Array
    clock: Array
    table: Any


class Chunk(NamedTuple):
    """Rows to learn from; those that arrived before these were due, to be scored; and what follows.

    closes: whether a cycle ends here. share: how much was read, where that is known.
    """

    rows: ArrivedRows | None
    arrived: ArrivedRows | None
    after: ReaderState
    closes: bool
    ends: int
    share: float


def open_stream(job: TrainConfig, parts: Sequence[SourceBatch], name: Named) -> ReaderState:
    """What the stream's first rows tell: columns, scales, labels."""
    sample = first_rows(parts, job.start)
    if sample is None:
        raise ValueError(f"{name(0)}: there are no rows to learn from")
    where = f"{name(parts[0].file)}: "
    try:
        columns = infer_schema(sample, job.wish)
    except ValueError as error:
        raise ValueError(where + str(error)) from None
    tidy = _tidy_start(job, columns, parts, name)
    _check_order(job, tidy.ticks, where)
    if len(tidy.ticks) == 0:
        why = tidy.faults[0][1] if tidy.faults else f"column {columns.label!r} is empty"
        raise ValueError(f"{where}none of the first {sample.num_rows:,} rows can be used: {why}")
    try:
        labels = learn_labels(tidy.labels, columns.label_kind, job.loss, job.classes)
    except ValueError as error:
        raise ValueError(f"{where}column {columns.label!r}: {error}") from None
    scales = learn_scales(tidy.table, columns, bins=job.bins)
    features = Features(columns, scales, _bits(job, labels, Features(columns, scales, WIDE), tidy.table))
    return ReaderState(features, labels, Watermark(job.lateness, job.late))


def _tidy_start(job: TrainConfig, columns: Schema, parts: Sequence[SourceBatch], name: Named) -> CleanRows:
    """The first rows made tidy; what is wrong with one is told before anything is said of the labels."""
    held, left = [], job.start
    for part in parts:
        if left > 0:
            held.append(clean_batch(columns, part, name(part.file), left))
            left -= len(part.batch.row)
            if not job.skip:
                raise_first_fault(held[-1], name(part.file), REMEDY)
    return concat_clean_rows(held)


def _check_order(job: TrainConfig, ticks: Array, where: str) -> None:
    """A file in no order at all would lose nearly all of its rows as late."""
    behind = np.maximum.accumulate(ticks) - ticks if len(ticks) else ticks
    late = float((behind > job.lateness).mean()) if len(ticks) else 0.0
    if late > MOST_LATE and job.late is not LatePolicy.KEEP:
        hours = int(behind.max()) // 3_600_000_000 + 1
        enough = f"{hours}h" if hours < 48 else f"{hours // 24 + 1}d"
        raise ValueError(
            f"{where}its rows are not in the order of time: {late:.0%} of the first are older than one "
            f"before them: say --lateness {enough} or more, which puts them in order, or --late keep"
        )


def _bits(job: TrainConfig, labels: Labels, wide: Features, table: Any) -> int:
    """Room for many times the features of the first rows, as far as memory goes."""
    most = job.budget(labels.loss.outputs).bits
    if job.bits is not None:
        return job.bits
    seen = FeatureNames.of(wide)
    wide.encode(table, seen)
    found = int(seen.seen.sum())
    return min(most, max(LEAST, (ROOM * found).bit_length()))


@dataclass
class Reader:
    """Reads on from a `ReaderState`; what it knows of names grows with it."""

    job: TrainConfig
    name: Named
    reading: ReaderState
    names: FeatureNames

    def chunks(self, parts: Iterable[SourceBatch]) -> Iterator[Chunk]:
        """Chunk after chunk, each with what is known after it."""
        # A checkpoint may have been made when the queue held more whole chunks than one.
        yield from self._cut(0.0)
        for part in parts:
            order, rows = self._take_in(part)
            held = self.reading.queue
            queue = rows if held is None else concat_waiting([held, rows])
            self.reading = replace(self.reading, order=order, queue=queue, mark=part.mark)
            self._check_size()
            yield from self._cut(part.batch.share)

    def rest(self) -> Chunk | None:
        """What is left to learn when the stream ends: all that was held back and is due."""
        order, held = self.reading.order.end()
        parts = [part for part in (self.reading.queue, held) if part is not None and len(part)]
        if not parts:
            return None
        self.reading = replace(self.reading, order=order, queue=concat_waiting(parts))
        due = self._due(concat_waiting(parts), ended=True)
        return self._chunk(due, closes=False, share=1.0)

    def rows_to_score(self) -> ArrivedRows | None:
        """Rows that have arrived and that no model was asked about yet, where labels are late."""
        queue, scored = self.reading.queue, self.reading.scored
        if queue is None or scored >= len(queue) or not self.job.label_delay:
            return None
        return self._rows(queue.take(slice(scored, len(queue))))

    # ------------------------------------------------------------------ rows as they come

    def _take_in(self, part: SourceBatch) -> tuple[Watermark, WaitingRows]:
        """Make rows tidy, count them, and put them in order."""
        batch, reading, name = part.batch, self.reading, self.name(part.file)
        tidy = clean_batch(reading.columns, part, name)
        codes, unknown = reading.labels.codes(tidy.labels)
        if unknown.any():
            tidy.faults.extend(reading.labels.new_classes(tidy.labels, tidy.row, unknown))
            tidy.faults.sort()
        if not self.job.skip:
            raise_first_fault(tidy, name, REMEDY)
        rows = WaitingRows(tidy.table, tidy.ticks, tidy.ticks, codes)
        if unknown.any():
            rows = rows.take(np.flatnonzero(~unknown))
        before = reading.counts
        counts = RowCounts(
            before.read + len(batch.row) + len(batch.faults),
            before.unlabelled + tidy.missing,
            before.refused + len(tidy.faults),
            before.shifted + tidy.shifted,
        )
        shown = [f"{name}, row {number:,}: {what}" for number, what in tidy.faults]
        first = min(reading.first, int(rows.ticks.min())) if len(rows) else reading.first
        examples = (*reading.examples, *shown[: EXAMPLES - len(reading.examples)])
        self.reading = replace(reading, counts=counts, first=first, examples=examples)
        return reading.order.add(rows)

    def _check_size(self) -> None:
        limit = self.job.budget(self.reading.labels.loss.outputs).waiting
        waiting = [part for part in (self.reading.queue, self.reading.order.held) if part is not None]
        size = sum(part.table.nbytes + 48 * len(part) for part in waiting)
        if size > limit:
            raise ValueError(
                f"{sum(map(len, waiting)):,} rows wait for late ones or for their labels, more than a "
                "quarter of --memory: choose a shorter --lateness or --label-delay, or more --memory"
            )

    # ------------------------------------------------------------------ cut into chunks

    def _due(self, queue: WaitingRows, *, ended: bool = False) -> int:
        """How many rows may be learnt from by now: those whose labels have come."""
        if self.job.label_delay == 0:
            return len(queue)
        newest = self.reading.order.newest
        clock = newest if ended else newest - self.job.lateness
        return int(np.searchsorted(queue.key, clock - self.job.label_delay, side="right"))

    def _cut(self, share: float) -> Iterator[Chunk]:
        """All chunks that are whole: what follows them is there already."""
        queue = self.reading.queue
        if queue is None:
            return
        due = self._due(queue)
        cycle, block = self.job.schedule.place(queue.ticks[:due])
        peak = np.maximum.accumulate(cycle) if due else cycle
        begins = np.diff(peak) > 0
        cuts = begins | (np.diff(block) != 0) if self.job.label_delay else begins
        done = 0
        size = min(CHUNK, SOON) if self.job.label_delay else CHUNK
        for end in [*(np.flatnonzero(cuts) + 1).tolist(), due]:
            while end - done > size:
                yield self._chunk(size, closes=False, share=share)
                done += size
            if end < due:
                yield self._chunk(end - done, closes=bool(begins[end - 1]), share=share)
                done = end

    def _chunk(self, count: int, *, closes: bool, share: float) -> Chunk:
        """The first rows of the queue, to be learnt from; and the rows that came before they were due."""
        queue, scored = self.reading.queue, self.reading.scored
        assert queue is not None
        own = queue.take(slice(0, count))
        arrived = None
        if self.job.label_delay:
            # Nobody knew the last of these labels before this time.
            due = int(own.key[-1]) + self.job.label_delay if count else self.reading.order.newest
            until = int(np.searchsorted(queue.key, due, side="left"))
            if until > scored:
                arrived = self._rows(queue.take(slice(scored, until)))
                scored = until
        rows = self._rows(own) if count else None
        self.reading = replace(
            self.reading,
            queue=queue.take(slice(count, len(queue))),
            scored=max(scored - count, 0),
            named=len(self.names.names),
        )
        ends = int(own.ticks[-1]) if count else self.reading.order.newest
        return Chunk(rows, arrived, self.reading, closes, ends, share)

    def _rows(self, held: WaitingRows) -> ArrivedRows:
        cells = self.reading.features.encode(held.table, self.names)
        cycle, block = self.job.schedule.place(held.ticks)
        rows = Rows(cells, held.label, block=block, cycle=cycle)
        return ArrivedRows(rows, held.ticks, held.key, held.table)


def open_reader(
    job: TrainConfig, inputs: Sources, tell: Callable[[str], None]
) -> tuple[ReaderState, Iterator[SourceBatch]]:
    """What enough parts tell of the columns; and all parts, these included."""
    tell("reading the first rows")
    held: list[SourceBatch] = []
    rows = 0
    parts = inputs.parts(ReadPosition())
    for part in parts:
        held.append(part)
        rows += part.batch.table.num_rows
        if rows >= job.start:
            break
    found = open_stream(job, held, inputs.name)
    if job.first_pass:
        tell("first pass")
        found = exact_features(job, inputs, found)
    return found, chain(held, parts)


def exact_features(job: TrainConfig, inputs: Sources, opened: ReaderState) -> ReaderState:
    """What `opened` knows of the first rows, known of all of them.

    Rows with faults are passed over: the second pass names or counts them. Features that would need
    more columns than memory allows are hashed after all.
    """
    if inputs.follow or None in inputs.files:
        raise ValueError("--first-pass reads the input twice: it cannot be standard input, nor be followed")
    seen = Vocabulary(opened.columns)
    for part in inputs.parts(ReadPosition()):
        seen.add(clean_batch(opened.columns, part, inputs.name(part.file)).table)
    scales = seen.scales(job.bins)
    features = seen.features(scales)
    most = 1 << job.budget(opened.labels.loss.outputs).bits
    if features is None or features.width > most:
        features = Features(opened.columns, scales, opened.features.bits)
    return replace(opened, features=features)
