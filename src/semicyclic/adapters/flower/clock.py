"""Clocks: real time, a fixed time step per round, rounds per block, or accelerated time.

A strategy reads the clock once at the start of each round, in microseconds since the epoch (1970 UTC). The
clock stores the value in `instant`, so that simulated devices see the same time as the server.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import numpy as np

from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import from_wall

MICROSECONDS_PER_SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Protocol of the clocks that a strategy accepts."""

    instant: int

    @property
    def time(self) -> datetime:
        """Time of the latest round, as a datetime in UTC."""
        ...

    def now(self, server_round: int) -> int:
        """Return the time of a round that starts now, in microseconds since the epoch."""
        ...

    def resume(self, instant: int) -> None:
        """Continue from `instant` after a server restart, in microseconds since the epoch."""
        ...

    def to_json(self) -> list[object]:
        """Return the settings that a resumed run must share, as JSON values."""
        ...


class _Instant(Clock):
    """Base of the clocks: stores the time of the latest round."""

    instant: int

    @property
    def time(self) -> datetime:
        """Time of the latest round, as a datetime in UTC."""
        return EPOCH + timedelta(microseconds=self.instant)


class WallClock(_Instant):
    """Real time.

    Parameters
    ----------
    time : callable, default `time.time`
        Returns the current time in seconds since the epoch.
    """

    def __init__(self, time: Callable[[], float] = time.time) -> None:
        self._seconds = time
        self.instant = 0

    def now(self, server_round: int) -> int:  # noqa: ARG002
        self.instant = int(self._seconds() * MICROSECONDS_PER_SECOND)
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant = instant

    def to_json(self) -> list[object]:
        return ["WallClock"]


class RoundClock(_Instant):
    """Simulated time that advances by a fixed step per round, independent of the round's real duration.

    The time depends only on the number of the round, so a resumed run repeats the same times.

    Parameters
    ----------
    start : datetime
        Time of the first round, with a time zone.
    every : timedelta
        Step between two rounds, at least one microsecond.

    Raises
    ------
    ValueError
        If `start` has no time zone or `every` is not positive.
    """

    def __init__(self, start: datetime, every: timedelta) -> None:
        self.start = _instant(start)
        self.every = every // timedelta(microseconds=1)
        if self.every <= 0:
            raise ValueError(f"every={every!r}: must be positive")
        self.instant = self.start

    def now(self, server_round: int) -> int:
        self.instant = self.start + (server_round - 1) * self.every
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant = instant

    def to_json(self) -> list[object]:
        return ["RoundClock", self.start, self.every]


class BlockClock(_Instant):
    """Simulated time with the same number of rounds in every block, independent of the block's length.

    Parameters
    ----------
    schedule : Schedule
        Schedule that defines the blocks.
    start : datetime
        A time in the first cycle, with a time zone. Rounds start at the beginning of that cycle.
    rounds_per_block : int
        Number of rounds per visit of a block, spread evenly over the block.

    Raises
    ------
    ValueError
        If `start` has no time zone or `rounds_per_block` is less than 1.
    """

    def __init__(self, schedule: Schedule, start: datetime, rounds_per_block: int) -> None:
        if rounds_per_block < 1:
            raise ValueError(f"rounds_per_block={rounds_per_block}: must be at least 1")
        self.schedule, self.rounds = schedule, rounds_per_block
        self.first = int(schedule.place(np.array([_instant(start)])).cycle[0])
        self.begin = sorted(schedule.starts)
        self.instant = _instant(start)

    def now(self, server_round: int) -> int:
        cycle, round_in_cycle = divmod(server_round - 1, len(self.begin) * self.rounds)
        block, number = divmod(round_in_cycle, self.rounds)
        ends = [*self.begin[1:], self.schedule.period + self.begin[0]]
        length = ends[block] - self.begin[block]
        offset = self.begin[block] + (2 * number + 1) * length // (2 * self.rounds)
        wall = self.schedule.origin + (self.first + cycle) * self.schedule.period + offset
        converted = from_wall(self.schedule.zone, np.array([wall]), ambiguous="earlier", missing="shift")
        self.instant = int(converted.ticks[0])
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant = instant

    def to_json(self) -> list[object]:
        return ["BlockClock", self.first, self.rounds]


class FastClock(_Instant):
    """Accelerated time: `speed` times as fast as real time.

    Parameters
    ----------
    start : datetime
        Time of the first round, with a time zone.
    speed : float
        Acceleration factor; with 1440, a day takes a minute.
    time : callable, default `time.monotonic`
        Returns the real time in seconds.

    Raises
    ------
    ValueError
        If `start` has no time zone or `speed` is not positive and finite.
    """

    def __init__(self, start: datetime, speed: float, time: Callable[[], float] = time.monotonic) -> None:
        if not 0 < speed < float("inf"):
            raise ValueError(f"speed={speed!r}: must be positive and finite")
        self.speed, self._seconds = speed, time
        self.instant = _instant(start)
        self._from: tuple[int, float] | None = None

    def now(self, server_round: int) -> int:  # noqa: ARG002
        seconds = self._seconds()
        if self._from is None:
            self._from = self.instant, seconds
        start, start_seconds = self._from
        self.instant = start + int((seconds - start_seconds) * self.speed * MICROSECONDS_PER_SECOND)
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant, self._from = instant, None

    def to_json(self) -> list[object]:
        return ["FastClock", self.speed]


def _instant(when: datetime) -> int:
    """Return a datetime in microseconds since the epoch; raise if it has no time zone."""
    if when.tzinfo is None:
        raise ValueError(
            f"start={when!r}: add a time zone, such as datetime(2024, 1, 1, tzinfo=timezone.utc)"
        )
    return (when - EPOCH) // timedelta(microseconds=1)
