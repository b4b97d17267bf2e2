"""`CycleSplit`: cross-validation that trains on earlier cycles and tests on later ones."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator

from semicyclic import specs
from semicyclic.adapters.sklearn.data_frames import absent, as_table, position
from semicyclic.adapters.sklearn.frame_encoding import is_frame, to_arrow
from semicyclic.adapters.sklearn.row_times import locator_of, time_values
from semicyclic.schedule.timestamps import to_microseconds
from semicyclic.types import Array


class CycleSplit(BaseCrossValidator):  # type: ignore[misc]
    """Walk-forward cross-validation by cycles: train on earlier cycles, test on later ones.

    Rows may be in any order.

    Parameters
    ----------
    n_splits : int, default=5
        Number of splits. Together they test on the last n_splits * test_cycles cycles.
    time_column : str or int, default=None
        Column of X with the time of each row, by name or position. If None, pass the cycle of each row as
        `groups`.
    schedule : Schedule or str, default=None
        Schedule that defines a cycle: "daily:6", "weekly:7" or a `semicyclic.Schedule`. If None, a cycle is a
        day.
    zone : str, default=None
        Time zone of a schedule given as a string, and of times without a time zone.
    test_cycles : int, default=1
        Number of cycles in each test set.
    gap : int, str or timedelta, default=0
        Gap between training and test rows, for labels that become known later: a number of cycles, or a
        duration such as "6h" before the first test row.
    max_train_cycles : int, default=None
        Maximum number of cycles in each training set. If None, all earlier cycles are used.
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
        """Return the number of splits.

        Parameters
        ----------
        X, y, groups : object
            Ignored.

        Returns
        -------
        int
        """
        return int(self.n_splits)

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Array, Array]]:  # noqa: ARG002
        """Yield the training and test rows of every split, earliest split first.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, with the time column if `time_column` is set.
        y : object
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            Cycle of each row, if `time_column` is None.

        Yields
        ------
        train, test : ndarray of int
            Row numbers.

        Raises
        ------
        ValueError
            If a parameter is invalid, a row has no time or cycle, or there are too few cycles.
        """
        for name in ("n_splits", "test_cycles", "max_train_cycles"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or value != int(value) or value < 1):
                raise ValueError(f"{name}={value!r}: must be an integer, at least 1")
        cycle, ticks = self._cycles(X, groups)
        cycles = np.unique(cycle)
        tested = self.n_splits * self.test_cycles
        if tested >= len(cycles):
            raise ValueError(
                f"n_splits={self.n_splits} of {self.test_cycles} cycle(s) need at least {tested + 1} cycles: "
                f"there are {len(cycles)}"
            )
        for first in range(len(cycles) - tested, len(cycles), self.test_cycles):
            test_range = cycles[first : first + self.test_cycles]
            test = np.flatnonzero((cycle >= test_range[0]) & (cycle <= test_range[-1]))
            train = self._train_rows(cycle, ticks, int(test_range[0]), test)
            if len(train) == 0:
                raise ValueError(
                    f"gap={self.gap!r} leaves nothing to train on before cycle {test_range[0]}: shorten it"
                )
            yield train, test

    def _train_rows(self, cycle: Array, ticks: Array | None, first: int, test: Array) -> Array:
        """Return the rows to train on. first: first test cycle. test: test rows."""
        in_train = cycle < first
        # np.timedelta64 is a subclass of np.integer.
        is_count = isinstance(self.gap, int | np.integer) and not isinstance(self.gap, bool | np.timedelta64)
        gap: Any = self.gap
        if is_count and gap >= 0:
            in_train &= cycle < first - gap
        else:
            length = _gap_microseconds(gap)
            if ticks is None:
                raise ValueError(f"gap={self.gap!r}: with groups=, give a number of cycles")
            in_train &= ticks <= ticks[test].min() - length
        if self.max_train_cycles is not None:
            in_train &= cycle >= np.unique(cycle[in_train])[-self.max_train_cycles :].min(initial=first)
        return np.flatnonzero(in_train)

    def _cycles(self, X: Any, groups: Any) -> tuple[Array, Array | None]:
        """Return the cycle of each row and, with a time column, its time in microseconds."""
        if self.time_column is None:
            if groups is None:
                raise ValueError(
                    "the rows have no time or cycle: set time_column= to a column of X, or "
                    "give the cycles as groups="
                )
            return _cycle_numbers(groups, len(X) if not hasattr(X, "shape") else X.shape[0]), None
        if groups is not None:
            raise ValueError("give either time_column= or groups=, not both")
        table = to_arrow(X) if is_frame(X) else as_table(X)
        at = position(table, self.time_column)
        if at is None:
            raise ValueError(f"time_column={self.time_column!r}: X has no column {self.time_column!r}")
        when = time_values(table, at, self.zone, self.schedule)
        locator = locator_of(when, None, self.schedule, self.zone)
        (cycle, block), ticks = locator.place(when, None, table.shape[0])
        assert cycle is not None
        if (block < 0).any():
            raise ValueError(f"row {int((block < 0).argmax())} has no time: leave it out")
        return cycle, ticks


def _gap_microseconds(gap: Any) -> int:
    """Convert a duration to microseconds."""
    if isinstance(gap, np.timedelta64):
        gap = gap.astype("timedelta64[us]").item()
    if isinstance(gap, str):
        return specs.parse_duration("gap", gap)
    if not isinstance(gap, timedelta) or gap < timedelta(0):
        raise ValueError(f"gap={gap!r}: give a number of cycles, or a duration such as '6h', 0 or more")
    return to_microseconds(gap)


def _cycle_numbers(groups: Any, rows: int) -> Array:
    """Return groups as integers: unchanged if they are integers, otherwise their ranks."""
    cycles = np.asarray(groups)
    if cycles.shape != (rows,):
        raise ValueError(f"groups has shape {cycles.shape}: X has {rows} rows, give the cycle of each")
    if cycles.dtype.kind in "iu":
        return cycles
    if absent(cycles).any():
        raise ValueError(f"row {int(absent(cycles).argmax())} has no cycle in groups: leave it out")
    return np.asarray(np.unique(cycles, return_inverse=True)[1])
