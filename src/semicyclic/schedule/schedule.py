"""`Schedule`: a period of wall time cut into blocks, and the (cycle, block) of a time.

`locate` gives (cycle, block). Blocks are periodic in local wall time, start inclusive and
end exclusive; the cycle is the local date, week or period index (docs/math.md#time). So a
repeated hour may visit a block twice in one cycle, and a skipped hour not at all.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from semicyclic.schedule import kernels
from semicyclic.schedule.block_edges import DAY, Edges, build
from semicyclic.schedule.timestamps import instants, to_microseconds
from semicyclic.schedule.timezones import EPOCH, changes, offset_at, to_wall, zone_info
from semicyclic.types import Array

# 1970-01-01 was a Thursday: weeks start on the Monday before.
MONDAY = -3 * DAY
# The mean year of the calendar, and the beginning of 2001 in microseconds since 1970.
YEAR = 3652425 * DAY // 10_000
FIRST_YEAR = 11_323 * DAY
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Below this many rows NumPy answers sooner than Numba loads.
MANY = 1 << 16


class Located(NamedTuple):
    """Position of times in a schedule: cycle (counted from 1970) and block (from 0)."""

    cycle: Array
    block: Array


@dataclass(frozen=True)
class Schedule:
    """A period of wall time cut into blocks without overlaps or gaps.

    Create one with `daily`, `weekly`, `yearly` or `every`.

    Parameters
    ----------
    period : int
        Length in microseconds.
    starts : tuple of int
        Start of each block within the period, in microseconds, in block order. A block ends where the next
        one begins; the last one may extend across the end of the period.
    labels : tuple of str
        Names of the blocks.
    zone : str
        IANA time zone.
    origin : int
        Wall time at which cycle 0 begins, in microseconds since 1970.
    """

    period: int
    starts: tuple[int, ...]
    labels: tuple[str, ...]
    zone: str = "UTC"
    origin: int = 0

    def __post_init__(self) -> None:
        zone_info(self.zone)
        if self.period <= 0:
            raise ValueError(f"period={self.period!r}: must be positive")
        if not self.starts or len(set(self.starts)) != len(self.starts):
            raise ValueError("a schedule needs at least one block, and no two may start together")
        if len(self.labels) != len(self.starts) or len(set(self.labels)) != len(self.labels):
            raise ValueError(f"{len(self.starts)} blocks need as many labels, all different")
        if not all(0 <= start < self.period for start in self.starts):
            raise ValueError("a block must start within the period")

    def __repr__(self) -> str:
        names = {DAY: "a day", 7 * DAY: "a week", YEAR: "a year"}
        period = names.get(self.period, f"every {timedelta(microseconds=self.period)}")
        shown = ", ".join(self.labels[:3]) + (", ..." if self.blocks > 3 else "")
        plural = "blocks" if self.blocks > 1 else "block"
        return f"<Schedule: {self.blocks} {plural} {period} ({shown}), {self.zone}>"

    @staticmethod
    def daily(blocks: int | None = None, *, edges: Edges | None = None, zone: str = "UTC") -> "Schedule":
        """Cut the day into blocks.

        Parameters
        ----------
        blocks : int, optional
            Number of equal blocks, from midnight.
        edges : sequence or mapping, optional
            Instead of `blocks`: start times (6, "13:30"), (start, end) pairs, or {label: (start, end)}.
        zone : str
            IANA time zone, such as "America/New_York".

        Examples
        --------
        >>> import semicyclic as sc
        >>> sc.Schedule.daily(edges=[6, "13:30", 22], zone="Europe/Paris").labels
        ('06:00-13:30', '13:30-22:00', '22:00-06:00')
        """
        return Schedule(DAY, *build(DAY, blocks, edges), zone)

    @staticmethod
    def weekly(blocks: int | None = None, *, edges: Edges | None = None, zone: str = "UTC") -> "Schedule":
        """Cut the week, which begins on Monday, into blocks.

        Parameters
        ----------
        blocks, zone
            As in `daily`.
        edges : sequence or mapping, optional
            As in `daily`, with weekdays: "Sat 08:00".

        Returns
        -------
        Schedule
        """
        return Schedule(7 * DAY, *build(7 * DAY, blocks, edges), zone, MONDAY)

    @staticmethod
    def yearly(blocks: int = 12, *, zone: str = "UTC") -> "Schedule":
        """Cut the year into equal blocks, from 1 January.

        A year has 365.2425 days here, the mean of the calendar, so that a block begins up to two days earlier
        or later than in a calendar.

        Parameters
        ----------
        blocks : int, default 12
            Number of blocks, up to 365.
        zone : str
            IANA time zone.

        Returns
        -------
        Schedule

        Examples
        --------
        >>> import semicyclic as sc
        >>> sc.Schedule.yearly(4).labels
        ('from 1 Jan', 'from 2 Apr', 'from 2 Jul', 'from 1 Oct')
        """
        if isinstance(blocks, bool) or blocks != int(blocks) or not 1 <= blocks <= 365:
            raise ValueError(f"blocks={blocks!r}: a year has 1 to 365 blocks")
        starts = [number * YEAR // int(blocks) for number in range(int(blocks))]
        first = EPOCH.replace(tzinfo=None) + timedelta(microseconds=FIRST_YEAR)
        days = [first + timedelta(microseconds=start) for start in starts]
        labels = tuple(f"from {day.day} {MONTHS[day.month - 1]}" for day in days)
        return Schedule(YEAR, tuple(starts), labels, zone, FIRST_YEAR)

    @staticmethod
    def every(
        period: timedelta | float,
        blocks: int | None = None,
        *,
        edges: Edges | None = None,
        zone: str = "UTC",
        origin: datetime | None = None,
    ) -> "Schedule":
        """Cut any period into blocks.

        Parameters
        ----------
        period : timedelta or float
            Its length, as a timedelta or in seconds.
        blocks, edges, zone
            As in `daily`.
        origin : datetime, optional
            Wall time from which periods are counted.

        Returns
        -------
        Schedule
        """
        ticks = to_microseconds(period if isinstance(period, timedelta) else timedelta(seconds=period))
        start = (
            0 if origin is None else to_microseconds(origin.replace(tzinfo=None) - EPOCH.replace(tzinfo=None))
        )
        return Schedule(ticks, *build(ticks, blocks, edges), zone, start)

    @property
    def blocks(self) -> int:
        """m, the number of blocks."""
        return len(self.starts)

    def locate(
        self,
        when: object,
        *,
        zone: str | None = None,
        ambiguous: str = "earlier",
        missing: str = "shift",
    ) -> Located:
        """Return (cycle, block) of each time.

        Parameters
        ----------
        when : sequence of times
            Aware datetimes or epoch seconds; or naive datetimes or `datetime64`, which need `zone`.
        zone : str, optional
            Time zone of naive times.
        ambiguous : {"earlier", "later", "raise"}
            Rule for a naive time that occurs twice when clocks are set back.
        missing : {"shift", "raise"}
            Rule for a naive time that is skipped when clocks are set forward: "shift" moves it forward by the
            gap.

        Returns
        -------
        Located
        """
        return self.place(instants(when, zone=zone, ambiguous=ambiguous, missing=missing))

    def place(self, ticks: Array) -> Located:
        """Return (cycle, block) of times in microseconds since 1970 UTC; see `locate`.

        Parameters
        ----------
        ticks : array of int

        Returns
        -------
        Located
        """
        starts, owner = (np.array(column) for column in self._sorted_starts)
        if len(ticks) >= MANY:
            table = changes(self.zone, int(ticks.min()), int(ticks.max()))
            width = self.period // self.blocks
            equal = width if self._is_equal() else 0
            located = kernels.locate.locate(ticks, *table, (self.period, self.origin, equal), starts, owner)
            return Located(*located)
        cycle, rest = np.divmod(to_wall(self.zone, ticks) - self.origin, self.period)
        return Located(cycle, owner[np.searchsorted(starts, rest, side="right") - 1].astype(np.int64))

    def place_one(self, ticks: int) -> tuple[int, int]:
        """Return (cycle, block) of one time in microseconds since 1970 UTC, as Python numbers.

        Parameters
        ----------
        ticks : int

        Returns
        -------
        (int, int)
        """
        starts, owner = self._sorted_starts
        wall = ticks + offset_at(self.zone, ticks) - self.origin
        cycle, rest = divmod(wall, self.period)
        return cycle, owner[bisect_right(starts, rest) - 1]

    @cached_property
    def _sorted_starts(self) -> tuple[list[int], list[int]]:
        """Starts in order of time, the first at 0, and the block that begins at each."""
        pairs = sorted((start, block) for block, start in enumerate(self.starts))
        if pairs[0][0] != 0:
            pairs.insert(0, (0, pairs[-1][1]))
        return [start for start, _ in pairs], [block for _, block in pairs]

    def membership(self, when: object, *, width: timedelta, **naive: Any) -> Array:
        """Return soft membership: the share of a window around each time that falls into each block.

        Parameters
        ----------
        when : sequence of times
            As in `locate`.
        width : timedelta
            Wall time of the window, which is centred on the time.
        **naive
            `zone`, `ambiguous` and `missing`, as in `locate`.

        Returns
        -------
        array of shape [n, m]
            A distribution over blocks per row, as `Pluralistic.predict(membership=...)` accepts it
            (docs/math.md#soft-membership).
        """
        window = to_microseconds(width)
        if not window > 0:
            raise ValueError(f"width={width!r}: must be positive")
        wall = to_wall(self.zone, instants(when, **naive)) - self.origin
        low = wall - window // 2
        return np.asarray((self._time_per_block(low + window) - self._time_per_block(low)) / window)

    def _time_per_block(self, wall: Array) -> Array:
        """[rows, m] time spent in each block from the origin to `wall`."""
        turns, rest = np.divmod(wall[:, None], self.period)
        order = np.argsort(self.starts)
        begin = np.array(self.starts)
        end = np.empty_like(begin)
        end[order] = np.r_[begin[order][1:], self.period]
        spent = np.clip(rest, begin, end) - begin
        total = end - begin
        last, wrap = order[-1], begin[order[0]]
        spent[:, last] += np.minimum(rest[:, 0], wrap)
        total[last] += wrap
        return np.asarray(turns * total + spent)

    def _is_equal(self) -> bool:
        width, rest = divmod(self.period, self.blocks)
        return rest == 0 and self.starts == tuple(range(0, self.period, width))

    def nest(self, coarser: "Schedule") -> Array:
        """Return the block of a coarser schedule that contains each block of this one.

        Parameters
        ----------
        coarser : Schedule

        Returns
        -------
        array of shape [m]

        Raises
        ------
        ValueError
            If a block of the coarser schedule is not a union of blocks of this one.
        """
        same = (self.period, self.origin, self.zone) == (coarser.period, coarser.origin, coarser.zone)
        if not same or not set(coarser.starts) <= set(self.starts):
            raise ValueError(
                "the coarser schedule must have the same period, zone and origin, and every edge "
                "of it must be an edge of the finer one"
            )
        order = np.argsort(coarser.starts)
        index = np.searchsorted(np.array(coarser.starts)[order], self.starts, side="right") - 1
        return np.asarray(order[index])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that `from_json` reads back."""
        return {
            "period": self.period,
            "starts": list(self.starts),
            "labels": list(self.labels),
            "zone": self.zone,
            "origin": self.origin,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Schedule":
        """Read the result of `to_json`.

        Parameters
        ----------
        value : dict

        Returns
        -------
        Schedule

        Raises
        ------
        ValueError
            If it is not a schedule.
        """
        try:
            return Schedule(
                period=int(value["period"]),
                starts=tuple(int(start) for start in value["starts"]),
                labels=tuple(str(label) for label in value["labels"]),
                zone=str(value["zone"]),
                origin=int(value["origin"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a schedule: {error!r} in {value!r}") from None
