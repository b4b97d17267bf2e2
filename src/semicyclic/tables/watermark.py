"""Watermark: sorts a stream of rows by time and handles rows that arrive late.

The watermark is the newest time so far minus `lateness`. A row older than the watermark is late. All other
rows are returned sorted by time, rows of equal time in order of arrival. The result does not depend on how
the stream was split into batches. A late row is dropped, or kept at the time of the watermark, or ends the
run.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from semicyclic.types import Array

LONG_AGO = -(2**62)


@dataclass(frozen=True, eq=False)
class WaitingRows:
    """Rows that wait for the watermark: clean features, times and labels.

    ticks: times in microseconds since 1970 UTC. key: the time to sort by: `ticks`, or for a late row that is
    kept, the watermark when it arrived. cycle, block: where `ticks` falls in the schedule.
    """

    table: Any
    ticks: Array
    key: Array
    label: Array
    cycle: Array
    block: Array

    def __len__(self) -> int:
        return len(self.ticks)

    def arrays(self) -> dict[str, Array]:
        """Return all fields except the feature table, by name."""
        return {name: column for name, column in vars(self).items() if name != "table"}

    def take(self, rows: Array | slice) -> "WaitingRows":
        """Select rows by index array or slice."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            table = self.table.slice(start, max(stop - start, 0))
        else:
            table = self.table.take(pa.array(rows))
        return WaitingRows(table, **{name: column[rows] for name, column in self.arrays().items()})


def concat_waiting(parts: list[WaitingRows]) -> WaitingRows:
    """Concatenate waiting rows."""
    if len(parts) == 1:
        return parts[0]
    fields = [part.arrays() for part in parts]
    columns = {name: np.concatenate([arrays[name] for arrays in fields]) for name in fields[0]}
    return WaitingRows(pa.concat_tables([part.table for part in parts]), **columns)


class LatePolicy(StrEnum):
    """Policy for late rows: drop them, keep them, or stop with an error."""

    DROP = "drop"
    KEEP = "keep"
    STOP = "stop"


@dataclass(frozen=True)
class LateCounts:
    """Numbers of late rows dropped and kept, and the largest delay (`worst`) in microseconds."""

    dropped: int = 0
    kept: int = 0
    worst: int = 0


@dataclass(frozen=True)
class Watermark:
    """State of the watermark.

    lateness: allowed delay in microseconds. newest: the latest time so far. buffered: rows newer than the
    watermark, which wait for it to pass. late: counts of late rows.
    """

    lateness: int = 0
    policy: LatePolicy = LatePolicy.DROP
    newest: int = LONG_AGO
    buffered: WaitingRows | None = None
    late: LateCounts = LateCounts()

    def add(self, rows: WaitingRows) -> tuple["Watermark", WaitingRows]:
        """Add rows in order of arrival; return the new state and the rows that the watermark has passed."""
        if len(rows) == 0:
            return self, rows
        peak = np.maximum.accumulate(np.r_[self.newest, rows.ticks])
        before, newest = peak[:-1], int(peak[-1])
        delay = before - rows.ticks
        is_late = delay > self.lateness
        late = self.late
        if is_late.any():
            worst = max(late.worst, int(delay[is_late].max()))
            count = int(is_late.sum())
            if self.policy is LatePolicy.STOP:
                raise ValueError(_late_row_message(rows.ticks, before, int(is_late.argmax())))
            if self.policy is LatePolicy.KEEP:
                late = LateCounts(late.dropped, late.kept + count, worst)
                rows = replace(rows, key=np.where(is_late, before - self.lateness, rows.key))
            else:
                late = LateCounts(late.dropped + count, late.kept, worst)
                rows = rows.take(np.flatnonzero(~is_late))
        waiting = rows if self.buffered is None else concat_waiting([self.buffered, rows])
        if (np.diff(waiting.key) < 0).any():
            waiting = waiting.take(np.argsort(waiting.key, kind="stable"))
        # Later rows that are not late are at least as new as the watermark; at equal times they sort after.
        ready = int(np.searchsorted(waiting.key, newest - self.lateness, side="right"))
        buffered = waiting.take(slice(ready, len(waiting))) if ready < len(waiting) else None
        return replace(self, newest=newest, buffered=buffered, late=late), waiting.take(slice(0, ready))

    def end(self) -> tuple["Watermark", WaitingRows | None]:
        """Return the state and the rows still held, at the end of the stream."""
        return replace(self, buffered=None), self.buffered


def _late_row_message(ticks: Array, before: Array, row: int) -> str:
    """Return the error message for a late row."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    late, newest = (epoch + timedelta(microseconds=int(times[row])) for times in (ticks, before))
    return (
        f"a row of {late:%Y-%m-%d %H:%M:%S} UTC comes after one of {newest:%Y-%m-%d %H:%M:%S} UTC: "
        "give a longer lateness= to sort such rows, or late='drop' or late='keep'"
    )
