"""Reader: from files to chunks of sparse rows, in order of time.

The trained model depends on the rows alone: however files are cut into batches, a chunk ends with its cycle,
or after CHUNK_ROWS rows of it. `ReaderState` holds everything the reader knows at the end of a chunk, and
reading can resume from it. A checkpoint therefore consists of that state and the state of the run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.rows import Rows
from semicyclic.schedule.label_delay import arrived_before_label, known_before
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
from semicyclic.training.config import CHUNK_ROWS, TrainConfig
from semicyclic.types import Array

# A function from the number of a file to its name.
FileName = Callable[[int], str]
# Features are hashed to at least 2^MIN_HASH_BITS columns, and to COLUMNS_PER_FEATURE times the number of
# features in the first rows. Those are counted with 2^COUNTING_BITS columns, so that collisions are rare.
MIN_HASH_BITS, COLUMNS_PER_FEATURE, COUNTING_BITS = 12, 32, 20
# Maximum rows per chunk with delayed labels: rows are scored by a model that lags at most this many rows, and
# at most one visit.
DELAYED_CHUNK_ROWS = 2048
# If a larger share of the first rows is late, the file is considered unsorted.
MAX_LATE_SHARE = 0.5
REMEDY = "or skip such rows with on_error='skip'"
# Maximum number of refused rows that are shown as examples.
MAX_EXAMPLES = 3


class RowCounts(NamedTuple):
    """Rows so far: read, without a label, refused; and local times shifted because they do not exist."""

    read: int = 0
    unlabelled: int = 0
    refused: int = 0
    shifted: int = 0


NO_ROWS, INPUT_START = RowCounts(), ReadPosition()


@dataclass(frozen=True)
class ReaderState:
    """State of the reader between two chunks.

    queue: sorted rows that wait for training; the first `scored` of them have been scored.
    position: position in the input. first: earliest time so far, in microseconds.
    names_known: number of feature names known. examples: descriptions of a few refused rows.
    """

    features: Features
    labels: Labels
    watermark: Watermark
    queue: WaitingRows | None = None
    scored: int = 0
    counts: RowCounts = NO_ROWS
    position: ReadPosition = INPUT_START
    first: int = -LONG_AGO
    names_known: int = 0
    examples: tuple[str, ...] = ()

    @property
    def columns(self) -> Schema:
        return self.features.columns

    @property
    def late(self) -> LateCounts:
        return self.watermark.late


class ArrivedRows(NamedTuple):
    """Encoded rows.

    ticks: times that determine the blocks, in microseconds.
    clock: arrival times in microseconds; they differ from `ticks` only for late rows that are kept.
    table: feature cells as read.
    """

    rows: Rows
    ticks: Array
    clock: Array
    table: Any


class Chunk(NamedTuple):
    """Rows for one training step of the run, and the state of the reader after them.

    rows: rows to train on. arrived: with delayed labels, rows to score first, because they arrived before the
    labels of `rows` were known. closes: True if a cycle ends with this chunk. ends: time of the last row, in
    microseconds. share: fraction of the input read, if known.
    """

    rows: ArrivedRows | None
    arrived: ArrivedRows | None
    after: ReaderState
    closes: bool
    ends: int
    share: float


def open_stream(config: TrainConfig, parts: Sequence[SourceBatch], name: FileName) -> ReaderState:
    """Infer the schema, scales and labels from the first rows, and return the initial state."""
    sample = first_rows(parts, config.sample_rows)
    if sample is None:
        raise ValueError(f"{name(0)}: the input has no rows to train on")
    where = f"{name(parts[0].file)}: "
    try:
        columns = infer_schema(sample, config.columns)
    except ValueError as error:
        raise ValueError(where + str(error)) from None
    clean = _clean_start(config, columns, parts, name)
    _check_order(config, clean.ticks, where)
    if len(clean.ticks) == 0:
        why = clean.faults[0][1] if clean.faults else f"column {columns.label!r} is empty"
        raise ValueError(f"{where}none of the first {sample.num_rows:,} rows can be used: {why}")
    try:
        labels = learn_labels(clean.labels, columns.label_kind, config.loss, config.classes)
    except ValueError as error:
        raise ValueError(f"{where}column {columns.label!r}: {error}") from None
    scales = learn_scales(clean.table, columns, bins=config.bins)
    counting = Features(columns, scales, COUNTING_BITS)
    features = Features(columns, scales, _hash_bits(config, labels, counting, clean.table))
    return ReaderState(features, labels, Watermark(config.lateness, config.late))


def _clean_start(
    config: TrainConfig, columns: Schema, parts: Sequence[SourceBatch], name: FileName
) -> CleanRows:
    """Clean the first rows. Unless faults are skipped, raise at the first one, before labels are checked."""
    cleaned, left = [], config.sample_rows
    for part in parts:
        if left > 0:
            cleaned.append(clean_batch(columns, part, name(part.file), left))
            left -= len(part.batch.row)
            if not config.skip_errors:
                raise_first_fault(cleaned[-1], name(part.file), REMEDY)
    return concat_clean_rows(cleaned)


def _check_order(config: TrainConfig, ticks: Array, where: str) -> None:
    """Raise if the first rows are unsorted: nearly all rows of such a file would be dropped as late."""
    behind = np.maximum.accumulate(ticks) - ticks if len(ticks) else ticks
    late = float((behind > config.lateness).mean()) if len(ticks) else 0.0
    if late > MAX_LATE_SHARE and config.late is not LatePolicy.KEEP:
        hours = int(behind.max()) // 3_600_000_000 + 1
        enough = f"{hours}h" if hours < 48 else f"{hours // 24 + 1}d"
        raise ValueError(
            f"{where}its rows are not in the order of time: {late:.0%} of the first are older than one "
            f"before them: give lateness='{enough}' or more, which sorts them, or late='keep'"
        )


def _hash_bits(config: TrainConfig, labels: Labels, counting: Features, table: Any) -> int:
    """Choose the hash size from the number of features in the first rows, within the memory budget."""
    max_bits = config.budget(labels.loss.outputs).bits
    if config.bits is not None:
        return config.bits
    names = FeatureNames.of(counting)
    counting.encode(table, names)
    count = int(names.seen.sum())
    return min(max_bits, max(MIN_HASH_BITS, (COLUMNS_PER_FEATURE * count).bit_length()))


@dataclass
class Reader:
    """Reads chunks from a `ReaderState` on. Updates `state` and adds new feature names to `names`."""

    config: TrainConfig
    name: FileName
    state: ReaderState
    names: FeatureNames

    def chunks(self, parts: Iterable[SourceBatch]) -> Iterator[Chunk]:
        """Yield all complete chunks, each with the state after it."""
        # The queue of a checkpoint may already contain complete chunks.
        yield from self._cut(0.0)
        for part in parts:
            watermark, rows = self._take_in(part)
            queued = self.state.queue
            queue = rows if queued is None else concat_waiting([queued, rows])
            self.state = replace(self.state, watermark=watermark, queue=queue, position=part.position)
            self._check_size()
            yield from self._cut(part.batch.share)

    def rest(self) -> Chunk | None:
        """Return the last chunk, at the end of the input: all waiting rows whose labels are known."""
        watermark, released = self.state.watermark.end()
        parts = [part for part in (self.state.queue, released) if part is not None and len(part)]
        if not parts:
            return None
        self.state = replace(self.state, watermark=watermark, queue=concat_waiting(parts))
        due = self._count_due(concat_waiting(parts), ended=True)
        return self._chunk(due, closes=False, share=1.0)

    def rows_to_score(self) -> ArrivedRows | None:
        """With delayed labels, return the rows that have arrived but have not been scored yet."""
        queue, scored = self.state.queue, self.state.scored
        if queue is None or scored >= len(queue) or not self.config.label_delay:
            return None
        return self._encode(queue.take(slice(scored, len(queue))))

    # ------------------------------------------------------------------ arriving rows

    def _take_in(self, part: SourceBatch) -> tuple[Watermark, WaitingRows]:
        """Clean and count the rows of a batch, and sort them by the watermark."""
        batch, reading, name = part.batch, self.state, self.name(part.file)
        clean = clean_batch(reading.columns, part, name)
        codes, unknown = reading.labels.codes(clean.labels)
        if unknown.any():
            clean.faults.extend(reading.labels.new_classes(clean.labels, clean.row, unknown))
            clean.faults.sort()
        if not self.config.skip_errors:
            raise_first_fault(clean, name, REMEDY)
        rows = WaitingRows(clean.table, clean.ticks, clean.ticks, codes)
        if unknown.any():
            rows = rows.take(np.flatnonzero(~unknown))
        previous = reading.counts
        counts = RowCounts(
            previous.read + len(batch.row) + len(batch.faults),
            previous.unlabelled + clean.missing,
            previous.refused + len(clean.faults),
            previous.shifted + clean.shifted,
        )
        shown = [f"{name}, row {number:,}: {fault}" for number, fault in clean.faults]
        first = min(reading.first, int(rows.ticks.min())) if len(rows) else reading.first
        examples = (*reading.examples, *shown[: MAX_EXAMPLES - len(reading.examples)])
        self.state = replace(reading, counts=counts, first=first, examples=examples)
        return reading.watermark.add(rows)

    def _check_size(self) -> None:
        """Raise if the waiting rows need more bytes than the memory budget allows."""
        limit = self.config.budget(self.state.labels.loss.outputs).waiting
        waiting = [part for part in (self.state.queue, self.state.watermark.buffered) if part is not None]
        size = sum(part.table.nbytes + 48 * len(part) for part in waiting)
        if size > limit:
            raise ValueError(
                f"{sum(map(len, waiting)):,} rows wait for late ones or for their labels, more than a "
                "quarter of memory=: choose a shorter lateness= or label_delay=, or more memory="
            )

    # ------------------------------------------------------------------ chunks

    def _count_due(self, queue: WaitingRows, *, ended: bool = False) -> int:
        """Return the number of rows whose labels are known, so that they can be trained on."""
        if self.config.label_delay == 0:
            return len(queue)
        newest = self.state.watermark.newest
        clock = newest if ended else newest - self.config.lateness
        return int(known_before(queue.key, np.array(clock), self.config.label_delay))

    def _cut(self, share: float) -> Iterator[Chunk]:
        """Yield all complete chunks of the queue: those followed by rows that are due."""
        queue = self.state.queue
        if queue is None:
            return
        due = self._count_due(queue)
        cycle, block = self.config.schedule.place(queue.ticks[:due])
        peak = np.maximum.accumulate(cycle) if due else cycle
        begins = np.diff(peak) > 0
        cuts = begins | (np.diff(block) != 0) if self.config.label_delay else begins
        done = 0
        size = min(CHUNK_ROWS, DELAYED_CHUNK_ROWS) if self.config.label_delay else CHUNK_ROWS
        for end in [*(np.flatnonzero(cuts) + 1).tolist(), due]:
            while end - done > size:
                yield self._chunk(size, closes=False, share=share)
                done += size
            if end < due:
                yield self._chunk(end - done, closes=bool(begins[end - 1]), share=share)
                done = end

    def _chunk(self, count: int, *, closes: bool, share: float) -> Chunk:
        """Remove the first `count` rows from the queue for training, with the rows to score before them."""
        queue, scored = self.state.queue, self.state.scored
        assert queue is not None
        due_rows = queue.take(slice(0, count))
        arrived = None
        if self.config.label_delay:
            # Rows that arrived before the last of these labels was known; without labels, before the newest.
            if count:
                until = arrived_before_label(queue.key, count - 1, self.config.label_delay)
            else:
                until = int(np.searchsorted(queue.key, self.state.watermark.newest, side="left"))
            if until > scored:
                arrived = self._encode(queue.take(slice(scored, until)))
                scored = until
        rows = self._encode(due_rows) if count else None
        self.state = replace(
            self.state,
            queue=queue.take(slice(count, len(queue))),
            scored=max(scored - count, 0),
            names_known=len(self.names.names),
        )
        ends = int(due_rows.ticks[-1]) if count else self.state.watermark.newest
        return Chunk(rows, arrived, self.state, closes, ends, share)

    def _encode(self, waiting: WaitingRows) -> ArrivedRows:
        cells = self.state.features.encode(waiting.table, self.names)
        cycle, block = self.config.schedule.place(waiting.ticks)
        rows = Rows(cells, waiting.label, block=block, cycle=cycle)
        return ArrivedRows(rows, waiting.ticks, waiting.key, waiting.table)


def open_reader(
    config: TrainConfig, inputs: Sources, report_progress: Callable[[str], None]
) -> tuple[ReaderState, Iterator[SourceBatch]]:
    """Return the initial state, inferred from the first rows, and an iterator of all batches."""
    report_progress("reading the first rows")
    first: list[SourceBatch] = []
    rows = 0
    parts = inputs.parts(ReadPosition())
    for part in parts:
        first.append(part)
        rows += part.batch.table.num_rows
        if rows >= config.sample_rows:
            break
    state = open_stream(config, first, inputs.name)
    if config.first_pass:
        report_progress("first pass")
        state = exact_features(config, inputs, state)
    return state, chain(first, parts)


def exact_features(config: TrainConfig, inputs: Sources, opened: ReaderState) -> ReaderState:
    """Replace the features inferred from the first rows by those of a pass over all rows.

    Each feature gets its own column, unless that needs more columns than memory allows: then features are
    hashed. Rows with faults are ignored here; the second pass reports or counts them.
    """
    if inputs.follow or None in inputs.files:
        raise ValueError(
            "first_pass=True reads the input twice: it cannot be standard input, nor be followed"
        )
    vocabulary = Vocabulary(opened.columns)
    for part in inputs.parts(ReadPosition()):
        vocabulary.add(clean_batch(opened.columns, part, inputs.name(part.file)).table)
    scales = vocabulary.scales(config.bins)
    features = vocabulary.features(scales)
    max_columns = 1 << config.budget(opened.labels.loss.outputs).bits
    if features is None or features.width > max_columns:
        features = Features(opened.columns, scales, opened.features.bits)
    return replace(opened, features=features)
