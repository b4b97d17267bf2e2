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

from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.tables import vocabulary
from semicyclic.tables.cleaning import FileName, clean_batch, clean_parts, infer_columns, raise_first_fault
from semicyclic.tables.columns import Schema
from semicyclic.tables.features import FeatureNames, Features, learn_scales
from semicyclic.tables.labels import Labels, learn_labels
from semicyclic.tables.sources import ReadPosition, Source, SourceBatch
from semicyclic.tables.watermark import (
    LONG_AGO,
    LateCounts,
    LatePolicy,
    WaitingRows,
    Watermark,
    concat_waiting,
)
from semicyclic.training.config import CHUNK_ROWS, TrainConfig
from semicyclic.training.learner import ChainLearner, Learner, LoggedAutoLearner
from semicyclic.training.progress_log import ProgressLog
from semicyclic.types import Array

# Features are hashed to at least 2^MIN_HASH_BITS columns, and to COLUMNS_PER_FEATURE times the number of
# features in the first rows. Those are counted with 2^COUNTING_BITS columns, so that collisions are rare.
MIN_HASH_BITS, COLUMNS_PER_FEATURE, COUNTING_BITS = 12, 32, 20
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

    queue: sorted rows of an incomplete chunk. position: position in the input.
    first: earliest time so far, in microseconds. names_known: number of feature names known.
    examples: descriptions of a few refused rows.
    """

    features: Features
    labels: Labels
    watermark: Watermark
    queue: WaitingRows | None = None
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
    """Consecutive rows, and the state of the reader after them.

    closes: True if a cycle ends with this chunk. share: fraction of the input read, if known.
    """

    arrived: ArrivedRows
    after: ReaderState
    closes: bool
    share: float


def open_stream(config: TrainConfig, parts: Sequence[SourceBatch], name: FileName) -> ReaderState:
    """Infer the schema, scales and labels from the first rows, and return the initial state."""
    columns = infer_columns(parts, config.columns, name, config.sample_rows)
    where = f"{name(parts[0].file)}: "
    # Unless faults are skipped, raise at the first one, before labels are checked.
    remedy = None if config.skip_errors else REMEDY
    clean = clean_parts(columns, parts, name, remedy=remedy, rows=config.sample_rows)
    _check_order(config, clean.ticks, where)
    if len(clean.ticks) == 0:
        why = clean.faults[0][1] if clean.faults else f"column {columns.label!r} is empty"
        rows = min(sum(len(part.batch.row) for part in parts), config.sample_rows)
        raise ValueError(f"{where}none of the first {rows:,} rows can be used: {why}")
    try:
        labels = learn_labels(clean.labels, columns.label_kind, config.loss, config.classes)
    except ValueError as error:
        raise ValueError(f"{where}column {columns.label!r}: {error}") from None
    features = hashed_features(config, columns, clean.table, labels.loss.outputs)
    return ReaderState(features, labels, Watermark(config.lateness, config.late))


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


def hashed_features(config: TrainConfig, columns: Schema, table: Any, outputs: int) -> Features:
    """Return features hashed to columns, with scales from the first rows, `table`.

    The hash size follows from the number of features in these rows, within the memory budget.
    outputs: scores per row.
    """
    scales = learn_scales(table, columns, bins=config.bins)
    if config.bits is not None:
        return Features(columns, scales, config.bits)
    counting = Features(columns, scales, COUNTING_BITS)
    names = FeatureNames.of(counting)
    counting.encode(table, names)
    count = int(names.seen.sum())
    bits = max(MIN_HASH_BITS, (COLUMNS_PER_FEATURE * count).bit_length())
    return Features(columns, scales, min(config.budget(outputs).bits, bits))


def expected_features(config: TrainConfig, features: Features, outputs: int) -> int:
    """Return the number of features to expect, which may be less than that of columns.

    outputs: scores per row.
    """
    if features.bits is None or config.bits is not None:
        return features.width
    if features.bits == config.budget(outputs).bits:
        # There may be more features than the memory budget has columns for.
        return features.width // 2
    return features.width // COLUMNS_PER_FEATURE


def new_logged_learner(
    config: TrainConfig, features: Features, loss: Loss
) -> ChainLearner | LoggedAutoLearner:
    """Return an untrained learner for rows with these features, with a log of visits for `what-if`."""
    return config.logged_learner(features.width, expected_features(config, features, loss.outputs), loss)


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
            check_waiting(self.config, self.state.labels.loss, self.state)
            yield from self._cut(part.batch.share)

    def rest(self) -> Chunk | None:
        """Return the last chunk, at the end of the input: all waiting rows."""
        watermark, released = self.state.watermark.end()
        parts = [part for part in (self.state.queue, released) if part is not None and len(part)]
        if not parts:
            return None
        queue = concat_waiting(parts)
        self.state = replace(self.state, watermark=watermark, queue=queue)
        return self._chunk(len(queue), closes=False, share=1.0)

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
        cycle, block = self.config.schedule.place(clean.ticks)
        rows = WaitingRows(clean.table, clean.ticks, clean.ticks, codes, cycle, block)
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

    # ------------------------------------------------------------------ chunks

    def _cut(self, share: float) -> Iterator[Chunk]:
        """Yield all complete chunks of the queue: those followed by other rows."""
        queue = self.state.queue
        if queue is None or len(queue) == 0:
            return
        first = 0
        *ends, _ = chunk_ends(queue.cycle)
        for end, closes in ends:
            yield self._chunk(end - first, closes=closes, share=share)
            first = end

    def _chunk(self, count: int, *, closes: bool, share: float) -> Chunk:
        """Remove the first `count` rows from the queue, and encode them."""
        queue = self.state.queue
        assert queue is not None
        waiting = queue.take(slice(0, count))
        cells = self.state.features.encode(waiting.table, self.names)
        rows = Rows(cells, waiting.label, block=waiting.block, cycle=waiting.cycle)
        arrived = ArrivedRows(rows, waiting.ticks, waiting.key, waiting.table)
        rest = queue.take(slice(count, len(queue)))
        self.state = replace(self.state, queue=rest, names_known=len(self.names.names))
        return Chunk(arrived, self.state, closes, share)


def chunk_ends(cycle: Array) -> Iterator[tuple[int, bool]]:
    """Yield the ends of chunks, and whether a cycle ends there; later rows may continue the last one.

    A chunk ends with its cycle, or after CHUNK_ROWS rows of it.
    """
    # The cycle of a late row may be an earlier one, which does not begin anew.
    begins = np.diff(np.maximum.accumulate(cycle)) > 0
    done = 0
    for end in [*(np.flatnonzero(begins) + 1).tolist(), len(cycle)]:
        while end - done > CHUNK_ROWS:
            done += CHUNK_ROWS
            yield done, False
        yield end, end < len(cycle)
        done = end


def learn_in_chunks(learner: Learner, rows: Rows, clock: Array, ticks: Array | None) -> None:
    """Train on rows in memory, cut like those of a file: sums then round in the same places.

    rows: with blocks and cycles, or with blocks only.
    """
    progress, first = ProgressLog(), 0
    cycle = np.zeros(len(rows), np.int64) if rows.cycle is None else rows.cycle
    for end, _ in chunk_ends(cycle):
        # Rows without cycles are numbered from the first of each call.
        times = clock[first:end] if rows.cycle is not None else clock[: end - first]
        learner.learn(rows[first:end], times, None if ticks is None else ticks[first:end])
        progress.rows(end, learner.mean_loss, len(rows))
        first = end


def check_waiting(config: TrainConfig, loss: Loss, state: ReaderState, rows: int = 0, size: int = 0) -> None:
    """Raise if the waiting rows need more bytes than the memory budget allows.

    rows, size: number and bytes of those that wait for their labels, in addition to those of the reader.
    """
    waiting = [part for part in (state.queue, state.watermark.buffered) if part is not None]
    rows += sum(map(len, waiting))
    size += sum(part.table.nbytes + 48 * len(part) for part in waiting)
    limit = config.budget(loss.outputs).waiting
    if size > limit:
        raise ValueError(
            f"{rows:,} rows wait for late ones or for their labels and need more than {limit / 1e6:,.1f} MB, "
            "their share of memory=: choose a shorter lateness= or label_delay=, or more memory="
        )


def open_reader(
    config: TrainConfig, inputs: Source, report_progress: Callable[[str], None]
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
        features = exact_features(config, inputs, state.features, state.labels.loss.outputs)
        state = replace(state, features=features)
    return state, chain(first, parts)


def exact_features(config: TrainConfig, inputs: Source, hashed: Features, outputs: int) -> Features:
    """Return the features of a pass over all rows, which replace those `hashed` from the first rows.

    Each feature gets its own column, unless that needs more columns than memory allows: then features are
    hashed. Rows with faults are ignored here; the second pass reports or counts them.
    """
    if not inputs.can_reread:
        raise ValueError(
            "first_pass=True reads the input twice: it cannot be standard input, nor be followed"
        )
    tables = (
        clean_batch(hashed.columns, part, inputs.name(part.file)).table
        for part in inputs.parts(ReadPosition())
    )
    return vocabulary.exact_features(
        hashed.columns,
        tables,
        bins=config.bins,
        max_columns=min(1 << config.budget(outputs).bits, vocabulary.MAX_FEATURES),
        bits=hashed.bits or COUNTING_BITS,
    )
