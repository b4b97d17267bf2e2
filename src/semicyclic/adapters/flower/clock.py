"""Clocks: real time, a fixed time step per round, rounds per block, or accelerated time.

A clock is asked once at the beginning of a round, in microseconds since 1970 UTC, and remembers its answer:
whatever simulates devices reads `instant` and lives in the same moment as the server.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import numpy as np

from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import from_wall

MICROSECONDS = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What a strategy asks for the time."""

    instant: int

    @property
    def time(self) -> datetime:
        """The instant of the latest round, as a datetime in UTC."""
        ...

    def now(self, server_round: int) -> int:
        """The instant of a round that begins, in microseconds since 1970 UTC."""
        ...

    def resume(self, instant: int) -> None:
        """Go on from an instant: a server was started again."""
        ...

    def to_json(self) -> list[object]:
        """What must be the same for a run to go on: values for JSON."""
        ...


class _Instant:
    """A clock that remembers the instant of the latest round."""

    instant: int

    @property
    def time(self) -> datetime:
        """The instant of the latest round, as a datetime in UTC."""
        return EPOCH + timedelta(microseconds=self.instant)


class WallClock(_Instant):
    """The real time. `time` tells seconds since 1970 UTC."""

    def __init__(self, time: Callable[[], float] = time.time) -> None:
        self._seconds = time
        self.instant = 0

    def now(self, server_round: int) -> int:  # noqa: ARG002
        self.instant = int(self._seconds() * MICROSECONDS)
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant = instant

    def to_json(self) -> list[object]:
        return ["WallClock"]


class RoundClock(_Instant):
    """Time that goes on by the same span with every round, however long it takes.

    The first round begins at `start`. Nothing else is remembered, so a run that is resumed is the same run.
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
    """Time that gives every block of a schedule the same number of rounds, however long the block is.

    The rounds of a block are spread evenly over it; the first cycle is the one that `start` is in.
    """

    def __init__(self, schedule: Schedule, start: datetime, rounds_per_block: int) -> None:
        if rounds_per_block < 1:
            raise ValueError(f"rounds_per_block={rounds_per_block}: must be at least 1")
        self.schedule, self.rounds = schedule, rounds_per_block
        self.first = int(schedule.place(np.array([_instant(start)])).cycle[0])
        self.begin = sorted(schedule.starts)
        self.instant = _instant(start)

    def now(self, server_round: int) -> int:
        cycle, rest = divmod(server_round - 1, len(self.begin) * self.rounds)
        block, number = divmod(rest, self.rounds)
        ends = [*self.begin[1:], self.schedule.period + self.begin[0]]
        length = ends[block] - self.begin[block]
        into = self.begin[block] + (2 * number + 1) * length // (2 * self.rounds)
        wall = self.schedule.origin + (self.first + cycle) * self.schedule.period + into
        found = from_wall(self.schedule.zone, np.array([wall]), ambiguous="earlier", missing="shift")
        self.instant = int(found.ticks[0])
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant = instant

    def to_json(self) -> list[object]:
        return ["BlockClock", self.first, self.rounds]


class FastClock(_Instant):
    """Time that runs `speed` times as fast as real time: with 1440, a day in a minute."""

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
        begin, then = self._from
        self.instant = begin + int((seconds - then) * self.speed * MICROSECONDS)
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant, self._from = instant, None

    def to_json(self) -> list[object]:
        return ["FastClock", self.speed]


def _instant(when: datetime) -> int:
    if when.tzinfo is None:
        raise ValueError(f"start={when!r}: name its zone, such as datetime(2024, 1, 1, tzinfo=timezone.utc)")
    return (when - EPOCH) // timedelta(microseconds=1)
