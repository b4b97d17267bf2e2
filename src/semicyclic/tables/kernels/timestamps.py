"""Parser of ISO 8601 timestamps, such as 2013-01-31T05:15:00-05:00, to microseconds since 1970."""

from typing import Any

import numpy as np

from semicyclic.jit import inline, jit

# Parse results: without time zone, with time zone, not a time, missing.
NAIVE, ZONED, BAD, NONE = 0, 1, 2, 3
# Microseconds per second.
SECOND = 1_000_000
_DAYS_PER_MONTH = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@inline
def _parse_digits(data: Any, at: Any, end: Any, count: Any) -> Any:
    """Parse the next `count` digits as a number; -1 if they are not all digits."""
    if at + count > end:
        return -1
    value: Any = 0
    for p in range(at, at + count):
        digit: Any = np.int64(data[p]) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@jit
def days_since_1970(year: Any, month: Any, day: Any) -> Any:
    """Return days since 1970-01-01 (Gregorian); years start in March, so that a leap day is the last day."""
    y = year - (month <= 2)
    era = y // 400
    year_of_era = y - era * 400
    day_of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


@jit
def _parse_timestamp(data: Any, at: Any, end: Any) -> Any:
    """Parse the timestamp in data[at:end]; returns (NAIVE, ZONED or BAD, microseconds)."""
    while at < end and data[at] == 32:
        at += 1
    while end > at and data[end - 1] == 32:
        end -= 1
    year, month, day = (
        _parse_digits(data, at, end, 4),
        _parse_digits(data, at + 5, end, 2),
        _parse_digits(data, at + 8, end, 2),
    )
    if year < 1 or month < 1 or month > 12 or day < 1:
        return BAD, 0
    leap = month == 2 and (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    if day > _DAYS_PER_MONTH[month - 1] + leap or data[at + 4] != data[at + 7]:
        return BAD, 0
    if data[at + 4] != 45 and data[at + 4] != 47:  # - or /
        return BAD, 0
    ticks = np.int64(days_since_1970(year, month, day)) * 86_400 * SECOND
    at += 10
    if at == end:
        return NAIVE, ticks
    if data[at] != 32 and data[at] != 84:  # a space or T
        return BAD, 0
    hour, minute = _parse_digits(data, at + 1, end, 2), _parse_digits(data, at + 4, end, 2)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or data[at + 3] != 58:
        return BAD, 0
    ticks += (hour * 3600 + minute * 60) * SECOND
    at += 6
    if at < end and data[at] == 58:
        second = _parse_digits(data, at + 1, end, 2)
        if second < 0 or second > 59:
            return BAD, 0
        ticks += second * SECOND
        at += 3
        if at < end and (data[at] == 46 or data[at] == 44):
            at += 1
            unit = SECOND // 10
            first = at
            while at < end and 48 <= data[at] <= 57:
                ticks += (np.int64(data[at]) - 48) * unit
                unit //= 10
                at += 1
            if at == first:
                return BAD, 0
    if at == end:
        return NAIVE, ticks
    if data[at] == 32:
        at += 1
    if at + 1 == end and (data[at] == 90 or data[at] == 122):  # Z
        return ZONED, ticks
    if at + 3 == end and data[at] == 85 and data[at + 1] == 84 and data[at + 2] == 67:  # UTC
        return ZONED, ticks
    if data[at] != 43 and data[at] != 45:  # + or -
        return BAD, 0
    offset_hours = _parse_digits(data, at + 1, end, 2)
    rest = at + 3
    if rest < end and data[rest] == 58:
        rest += 1
    offset_minutes = 0 if rest == end else _parse_digits(data, rest, end, 2)
    if (
        offset_hours < 0
        or offset_hours > 23
        or offset_minutes < 0
        or offset_minutes > 59
        or (rest != end and rest + 2 != end)
    ):
        return BAD, 0
    offset = (offset_hours * 3600 + offset_minutes * 60) * SECOND
    return ZONED, ticks - offset if data[at] == 43 else ticks + offset


@jit
def moments(data: Any, first: Any, there: Any, ticks: Any, kind: Any) -> Any:
    """Parse every string of a column to `ticks` (microseconds) and `kind` (NAIVE, ZONED, BAD or NONE)."""
    for r in range(len(ticks)):
        if there[r]:
            kind[r], ticks[r] = _parse_timestamp(data, np.int64(first[r]), np.int64(first[r + 1]))
        else:
            kind[r], ticks[r] = NONE, 0


@jit
def clock_times(data: Any, first: Any, there: Any, ticks: Any, kind: Any) -> Any:
    """Parse times of day, such as 5, 17, 17:30 or 17:30:05, to `ticks` (microseconds) and `kind`."""
    for r in range(len(ticks)):
        kind[r] = NONE
        ticks[r] = 0
        if not there[r]:
            continue
        kind[r] = BAD
        at, end = np.int64(first[r]), np.int64(first[r + 1])
        digits = 0
        while at + digits < end and 48 <= data[at + digits] <= 57:
            digits += 1
        hour = _parse_digits(data, at, end, digits) if 0 < digits <= 2 else -1
        at += digits
        if hour < 0 or hour > 24:
            continue
        total = hour * 3600
        unit = 60
        while at < end and data[at] == 58 and unit > 0:
            part = _parse_digits(data, at + 1, end, 2)
            if part < 0 or part > 59:
                break
            total += part * unit
            unit //= 60
            at += 3
        if at == end and total <= 86_400:
            ticks[r] = total * SECOND
            kind[r] = NAIVE
