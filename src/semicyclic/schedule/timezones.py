"""Time zones: conversion between UTC and wall time, with the changes of each zone's offset.

Times here are ticks: whole microseconds since 1970-01-01 00:00, of UTC (an instant) or of a
zone's wall clock (local). `zoneinfo` answers one time at a time; the changes it implies are
found once per year and zone and then searched.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from semicyclic.types import Array

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Python's calendar ends at the years 1 and 9999, less a margin for the widest offset.
EARLIEST = -62_100_000_000 * SECOND
LATEST = 253_300_000_000 * SECOND
# No zone has changed its clock twice within this time.
STRIDE = timedelta(hours=12)


class OffsetChanges(NamedTuple):
    """Offset of the wall clock from UTC, in microseconds: `offset[k]` from `at[k]` on."""

    at: Array
    offset: Array


@lru_cache(maxsize=512)
def zone_info(zone: str) -> ZoneInfo:
    """Return the time zone with this name; raise ValueError if there is none."""
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError):
        raise ValueError(
            f"unknown time zone {zone!r}: use an IANA name such as 'America/New_York' or 'UTC'"
        ) from None


def _offset(info: ZoneInfo, instant: datetime) -> int:
    ahead = instant.astimezone(info).utcoffset()
    assert ahead is not None
    return ahead // timedelta(microseconds=1)


def _bisect(info: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the first second at which the offset is that of `high`."""
    before = _offset(info, low)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        low, high = (low, middle) if _offset(info, middle) != before else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _year(zone: str, year: int) -> tuple[tuple[int, int], ...]:
    """Return the offset changes of one UTC year, its first offset included, as (tick, offset)."""
    info = zone_info(zone)
    low = datetime(year, 1, 1, tzinfo=UTC)
    changes = [(low, _offset(info, low))]
    while low.year == year:
        high = low + STRIDE
        ahead = _offset(info, high)
        if ahead != changes[-1][1]:
            changes.append((_bisect(info, low, high), ahead))
        low = high
    tick = timedelta(microseconds=1)
    return tuple(((instant - EPOCH) // tick, ahead) for instant, ahead in changes)


def changes(zone: str, first: int, last: int) -> OffsetChanges:
    """Return the offset changes needed for times from `first` to `last`."""
    if first < EARLIEST or last > LATEST:
        bad = first if first < EARLIEST else last
        raise ValueError(f"time {bad} (microseconds since 1970) lies outside the years 2 to 9996")
    years = range(*((EPOCH + timedelta(microseconds=t)).year for t in (first, last)))
    pairs = [pair for year in [*years, years.stop] for pair in _year(zone, year)]
    at, offset = np.array(pairs, dtype=np.int64).T
    keep = np.r_[True, np.diff(offset) != 0]
    return OffsetChanges(at[keep], offset[keep])


def to_wall(zone: str, instants: Array) -> Array:
    """Convert UTC times to wall time."""
    if len(instants) == 0 or zone == "UTC":
        return instants
    table = changes(zone, int(instants.min()), int(instants.max()))
    return np.asarray(instants + table.offset[_latest(table.at, instants)])


def offset_at(zone: str, instant: int) -> int:
    """Return the offset of the wall clock from UTC at one UTC time, in microseconds."""
    return 0 if zone == "UTC" else max(pair for pair in _changes_near(zone, instant) if pair[0] <= instant)[1]


def local_to_utc(zone: str, wall: int) -> int:
    """Convert one wall time to UTC: the earlier one if it occurs twice, shifted forward if it is skipped."""
    if zone == "UTC":
        return wall
    table = _changes_near(zone, wall)
    offset = table[0][1]
    for at, ahead in table[1:]:
        # From the later reading of the change on, the new offset counts; see `from_wall`.
        if wall < at + max(offset, ahead):
            break
        offset = ahead
    return wall - offset


def _changes_near(zone: str, tick: int) -> list[tuple[int, int]]:
    """Return the offset changes of the years around a time, in order, as (tick, offset)."""
    if not EARLIEST <= tick <= LATEST:
        raise ValueError(f"time {tick} (microseconds since 1970) lies outside the years 2 to 9996")
    return _years(zone, (EPOCH + timedelta(microseconds=tick)).year)


@lru_cache(maxsize=4096)
def _years(zone: str, middle: int) -> list[tuple[int, int]]:
    """Return the offset changes of three years, in order, as (tick, offset)."""
    return [pair for year in range(max(middle - 1, 2), middle + 2) for pair in _year(zone, year)]


class WallInstants(NamedTuple):
    """UTC times of wall times, and which wall times were ambiguous or missing."""

    ticks: Array
    ambiguous: Array
    missing: Array


def from_wall(zone: str, wall: Array, *, ambiguous: str, missing: str) -> WallInstants:
    """Convert wall times to UTC.

    An hour that occurs twice is taken as the `earlier` or `later` one. An hour that was skipped is shifted
    forward by the length of the gap (`shift`). `raise` raises for either.
    """
    if ambiguous not in ("earlier", "later", "raise"):
        raise ValueError(f"ambiguous={ambiguous!r}: choose 'earlier', 'later' or 'raise'")
    if missing not in ("shift", "raise"):
        raise ValueError(f"missing={missing!r}: choose 'shift' or 'raise'")
    none = np.zeros(len(wall), dtype=bool)
    if len(wall) == 0 or zone == "UTC":
        return WallInstants(wall, none, none)
    day = 86_400 * SECOND
    table = changes(zone, int(wall.min()) - day, int(wall.max()) + day)
    before, after = table.offset[:-1], table.offset[1:]
    # On the wall, a change opens a gap or an overlap between these two readings.
    low = table.at[1:] + np.minimum(before, after)
    high = table.at[1:] + np.maximum(before, after)
    inside = (np.searchsorted(low, wall, side="right") - np.searchsorted(high, wall, side="right")) > 0
    nearest = np.searchsorted(high, wall, side="right")
    forward = np.r_[after > before, False][nearest]
    twice, never = inside & ~forward, inside & forward
    for flag, rule, word in ((twice, ambiguous, "twice"), (never, missing, "never")):
        if rule == "raise" and flag.any():
            row = int(flag.argmax())
            shown = np.datetime64(int(wall[row]), "us")
            raise ValueError(
                f"row {row}: local time {shown} happened {word} in {zone}: fix the row, or state "
                "a rule with ambiguous='earlier' or 'later' and missing='shift'"
            )
    # Counting changes by their later reading keeps the old offset inside gap and overlap:
    # the earlier of two, and a forward shift of what is missing.
    index = nearest + (twice if ambiguous == "later" else 0)
    return WallInstants(wall - table.offset[index], twice, never)


def _latest(at: Array, instants: Array) -> Array:
    return np.maximum(np.searchsorted(at, instants, side="right") - 1, 0)
