"""Watermark: sorts a stream of rows by time and handles rows that arrive late.

The watermark is the newest time so far minus `lateness`. A row older than the watermark is late. All others
come out sorted by time, rows of equal time in order of arrival, however the stream was cut into parts. A late
row is dropped, or kept at the position that the stream has reached, or ends the run.
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
    """Rows on their way: tidy features, times, labels.

    key: the time by which they are sorted: their own, or for late rows that are used, the stream's.
    """

    table: Any
    ticks: Array
    key: Array
    label: Array

    def __len__(self) -> int:
        return len(self.ticks)

    def arrays(self) -> dict[str, Array]:
        """All that is known of a row beside its features, by name."""
        return {name: column for name, column in vars(self).items() if name != "table"}

    def take(self, rows: Array | slice) -> "WaitingRows":
        """Some of the rows, by number or as a slice."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            table = self.table.slice(start, max(stop - start, 0))
        else:
            table = self.table.take(pa.array(rows))
        return WaitingRows(table, **{name: column[rows] for name, column in self.arrays().items()})


def concat_waiting(parts: list[WaitingRows]) -> WaitingRows:
    """Rows one part after another."""
    if len(parts) == 1:
        return parts[0]
    each = [part.arrays() for part in parts]
    columns = {name: np.concatenate([arrays[name] for arrays in each]) for name in each[0]}
    return WaitingRows(pa.concat_tables([part.table for part in parts]), **columns)


class LatePolicy(StrEnum):
    """What to do with a late row."""

    DROP = "drop"
    KEEP = "keep"
    STOP = "stop"


@dataclass(frozen=True)
class LateCounts:
    """How many late rows were dropped or kept, and by how much the latest was late, in microseconds."""

    dropped: int = 0
    kept: int = 0
    worst: int = 0


@dataclass(frozen=True)
class Watermark:
    """The watermark: newest is the latest time so far; held are rows that may have to wait."""

    lateness: int = 0
    policy: LatePolicy = LatePolicy.DROP
    newest: int = LONG_AGO
    held: WaitingRows | None = None
    late: LateCounts = LateCounts()

    def add(self, rows: WaitingRows) -> tuple["Watermark", WaitingRows]:
        """Take in rows as they come; give out those that nothing can come before any more."""
        if len(rows) == 0:
            return self, rows
        peak = np.maximum.accumulate(np.r_[self.newest, rows.ticks])
        before, newest = peak[:-1], int(peak[-1])
        behind = before - rows.ticks
        is_late = behind > self.lateness
        late = self.late
        if is_late.any():
            worst = max(late.worst, int(behind[is_late].max()))
            count = int(is_late.sum())
            if self.policy is LatePolicy.STOP:
                raise ValueError(_late_row(rows.ticks, before, int(is_late.argmax())))
            if self.policy is LatePolicy.KEEP:
                late = LateCounts(late.dropped, late.kept + count, worst)
                rows = replace(rows, key=np.where(is_late, before - self.lateness, rows.key))
            else:
                late = LateCounts(late.dropped + count, late.kept, worst)
                rows = rows.take(np.flatnonzero(~is_late))
        whole = rows if self.held is None else concat_waiting([self.held, rows])
        if (np.diff(whole.key) < 0).any():
            whole = whole.take(np.argsort(whole.key, kind="stable"))
        # Whatever comes now is at least as new as the mark; of the same time, it comes after.
        ready = int(np.searchsorted(whole.key, newest - self.lateness, side="right"))
        held = whole.take(slice(ready, len(whole))) if ready < len(whole) else None
        return replace(self, newest=newest, held=held, late=late), whole.take(slice(0, ready))

    def end(self) -> tuple["Watermark", WaitingRows | None]:
        """Give out all that was held back: nothing more will come."""
        return replace(self, held=None), self.held


def _late_row(ticks: Array, before: Array, row: int) -> str:
    """The error message about a late row."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    late, newest = (epoch + timedelta(microseconds=int(each[row])) for each in (ticks, before))
    return (
        f"a row of {late:%Y-%m-%d %H:%M:%S} UTC comes after one of {newest:%Y-%m-%d %H:%M:%S} UTC: "
        "give a longer --lateness to sort such rows, or --late drop or keep"
    )
