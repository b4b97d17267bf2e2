"""Rows in the order of time, as far as they may come late.

A row is late if it is older than the newest one before it by more than `lateness`. All others come
out sorted by time, those of the same time as they came: the same whatever parts the stream was cut
into. A late row is refused; or used as it comes, at the place that the stream has reached.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from semicyclic.types import Array

LONG_AGO = -(2**62)


@dataclass(frozen=True, eq=False)
class Held:
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

    def take(self, rows: Array | slice) -> "Held":
        """Some of the rows, by number or as a slice."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            table = self.table.slice(start, max(stop - start, 0))
        else:
            table = self.table.take(pa.array(rows))
        return Held(table, **{name: column[rows] for name, column in self.arrays().items()})


def joined(parts: list[Held]) -> Held:
    """Rows one part after another."""
    if len(parts) == 1:
        return parts[0]
    each = [part.arrays() for part in parts]
    columns = {name: np.concatenate([arrays[name] for arrays in each]) for name in each[0]}
    return Held(pa.concat_tables([part.table for part in parts]), **columns)


@dataclass(frozen=True)
class Late:
    """How many rows came late and were refused or used, and by how much the latest."""

    refused: int = 0
    used: int = 0
    worst: int = 0


@dataclass(frozen=True)
class Order:
    """The watermark: newest is the latest time so far; held are rows that may have to wait."""

    lateness: int = 0
    use_late: bool = False
    newest: int = LONG_AGO
    held: Held | None = None
    late: Late = Late()

    def add(self, rows: Held) -> tuple["Order", Held]:
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
            if self.use_late:
                late = Late(late.refused, late.used + count, worst)
                rows = replace(rows, key=np.where(is_late, before - self.lateness, rows.key))
            else:
                late = Late(late.refused + count, late.used, worst)
                rows = rows.take(np.flatnonzero(~is_late))
        whole = rows if self.held is None else joined([self.held, rows])
        if (np.diff(whole.key) < 0).any():
            whole = whole.take(np.argsort(whole.key, kind="stable"))
        # Whatever comes now is at least as new as the mark; of the same time, it comes after.
        ready = int(np.searchsorted(whole.key, newest - self.lateness, side="right"))
        held = whole.take(slice(ready, len(whole))) if ready < len(whole) else None
        return replace(self, newest=newest, held=held, late=late), whole.take(slice(0, ready))

    def end(self) -> tuple["Order", Held | None]:
        """Give out all that was held back: nothing more will come."""
        return replace(self, held=None), self.held
