"""What time a round has: the real one, a fixed span a round, or a day in a minute.

A clock is asked once at the beginning of a round, in microseconds since 1970 UTC, and remembers its answer:
whatever simulates devices reads `instant` and lives in the same moment as the server.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

MICROSECONDS = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What a strategy asks for the time."""

    instant: int

    def now(self, server_round: int) -> int:
        """The instant of a round that begins, in microseconds since 1970 UTC."""
        ...

    def resume(self, instant: int) -> None:
        """Go on from an instant: a server was started again."""
        ...


class WallClock:
    """The real time. `time` tells seconds since 1970 UTC."""

    def __init__(self, time: Callable[[], float] = time.time) -> None:
        self.time = time
        self.instant = 0

    def now(self, server_round: int) -> int:  # noqa: ARG002
        self.instant = int(self.time() * MICROSECONDS)
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant = instant


class RoundClock:
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


class FastClock:
    """Time that runs `speed` times as fast as real time: with 1440, a day in a minute."""

    def __init__(self, start: datetime, speed: float, time: Callable[[], float] = time.monotonic) -> None:
        if not 0 < speed < float("inf"):
            raise ValueError(f"speed={speed!r}: must be positive and finite")
        self.speed, self.time = speed, time
        self.instant = _instant(start)
        self._from: tuple[int, float] | None = None

    def now(self, server_round: int) -> int:  # noqa: ARG002
        seconds = self.time()
        if self._from is None:
            self._from = self.instant, seconds
        begin, then = self._from
        self.instant = begin + int((seconds - then) * self.speed * MICROSECONDS)
        return self.instant

    def resume(self, instant: int) -> None:
        self.instant, self._from = instant, None


def _instant(when: datetime) -> int:
    if when.tzinfo is None:
        raise ValueError(f"start={when!r}: name its zone, such as datetime(2024, 1, 1, tzinfo=timezone.utc)")
    return (when - EPOCH) // timedelta(microseconds=1)
