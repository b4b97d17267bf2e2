"""`CycleSplit`: cross-validation that trains on earlier cycles and tests on later ones."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator

from semicyclic import specs
from semicyclic.adapters.sklearn.data_frames import absent, as_table, position, take
from semicyclic.adapters.sklearn.row_times import TimesOrBlocks, calendar_of
from semicyclic.schedule.timestamps import to_microseconds
from semicyclic.types import Array


class CycleSplit(BaseCrossValidator):  # type: ignore[misc]
    """Walk forward by whole cycles: test on some of the last ones, train on all that came before.

    Parameters
    ----------
    n_splits : int, default=5
        How many splits; together they test on the last n_splits * test_cycles cycles.
    time_column : str or int, default=None
        The column of X with the time of each row. Without it, the cycle of each row is given as `groups`.
    schedule : Schedule or str, default=None
        What a cycle is: "daily:6", "weekly:7" or a `semicyclic.Schedule`; a day unless given.
    zone : str, default=None
        The time zone of the schedule, where that is a text, and of times that name none.
    test_cycles : int, default=1
        How many cycles each split is tested on.
    gap : int, str or timedelta, default=0
        For labels that become known later: so many cycles, or all rows within so long ("6h") before the
        first row tested, are left out of training.
    max_train_cycles : int, default=None
        Train on so many cycles at most.

    Rows may come in any order.
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        time_column: str | int | None = None,
        schedule: Any = None,
        zone: str | None = None,
        test_cycles: int = 1,
        gap: int | str | timedelta = 0,
        max_train_cycles: int | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.time_column = time_column
        self.schedule = schedule
        self.zone = zone
        self.test_cycles = test_cycles
        self.gap = gap
        self.max_train_cycles = max_train_cycles

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: ARG002
        """How many splits there are."""
        return int(self.n_splits)

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:  # noqa: ARG002
        """The rows to train and to test on, by number, earliest split first."""
        for name in ("n_splits", "test_cycles", "max_train_cycles"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or value != int(value) or value < 1):
                raise ValueError(f"{name}={value!r}: must be a whole number, at least 1")
        cycle, ticks = self._cycles(X, groups)
        there = np.unique(cycle)
        tested = self.n_splits * self.test_cycles
        if tested >= len(there):
            raise ValueError(
                f"n_splits={self.n_splits} of {self.test_cycles} cycle(s) need at least {tested + 1} cycles: "
                f"there are {len(there)}"
            )
        for first in range(len(there) - tested, len(there), self.test_cycles):
            own = there[first : first + self.test_cycles]
            test = np.flatnonzero((cycle >= own[0]) & (cycle <= own[-1]))
            train = self._before(cycle, ticks, int(own[0]), test)
            if len(train) == 0:
                raise ValueError(f"gap={self.gap!r} leaves nothing to train on before cycle {own[0]}")
            yield train, test

    def _before(self, cycle: Array, ticks: Array | None, first: int, test: Array) -> Array:
        """The rows that may be trained on before a cycle is tested on."""
        held = cycle < first
        # To NumPy a length of time is a whole number too.
        number = isinstance(self.gap, int | np.integer) and not isinstance(self.gap, bool | np.timedelta64)
        gap: Any = self.gap
        if number and gap >= 0:
            held &= cycle < first - gap
        else:
            length = _length(gap)
            if ticks is None:
                raise ValueError(f"gap={self.gap!r}: with groups= a gap is a number of cycles")
            held &= ticks <= ticks[test].min() - length
        if self.max_train_cycles is not None:
            held &= cycle >= np.unique(cycle[held])[-self.max_train_cycles :].min(initial=first)
        return np.flatnonzero(held)

    def _cycles(self, X: Any, groups: Any) -> tuple[Array, Array | None]:
        """The cycle of each row and, with times, these in microseconds."""
        if self.time_column is None:
            if groups is None:
                raise ValueError(
                    "nothing tells the cycle of a row: name the column of X by time_column=, or give the "
                    "cycles as groups="
                )
            return _cycle_numbers(groups, len(X) if not hasattr(X, "shape") else X.shape[0]), None
        if groups is not None:
            raise ValueError("give either time_column= or groups=, not both")
        table = as_table(X)
        at = position(table, self.time_column)
        if at is None:
            raise ValueError(f"X has no column {self.time_column!r}")
        where = TimesOrBlocks(True, take(table, at).column)
        calendar = calendar_of(where, self.schedule, self.zone)
        placed = calendar.place(where, table.shape[0])
        assert placed.cycle is not None
        if (placed.block < 0).any():
            raise ValueError(f"row {int((placed.block < 0).argmax())} has no time: leave it out")
        return placed.cycle, placed.ticks


def _length(gap: Any) -> int:
    """A length of time in microseconds."""
    if isinstance(gap, np.timedelta64):
        gap = gap.astype("timedelta64[us]").item()
    if isinstance(gap, str):
        return specs.parse_duration("gap", gap)
    if not isinstance(gap, timedelta) or gap < timedelta(0):
        raise ValueError(f"gap={gap!r}: give a number of cycles, or a length such as '6h', 0 or more")
    return to_microseconds(gap)


def _cycle_numbers(groups: Any, rows: int) -> Array:
    """Cycles as whole numbers: as they are, or the ranks of whatever they are."""
    cycles = np.asarray(groups)
    if cycles.shape != (rows,):
        raise ValueError(f"groups has shape {cycles.shape}: X has {rows} rows, give the cycle of each")
    if cycles.dtype.kind in "iu":
        return cycles
    if absent(cycles).any():
        raise ValueError(f"row {int(absent(cycles).argmax())} has no cycle in groups: leave it out")
    return np.asarray(np.unique(cycles, return_inverse=True)[1])
