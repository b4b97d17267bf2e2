"""Writer of synthetic tweets as CSV bytes."""

from typing import Any

import numpy as np

from semicyclic.jit import jit

DAY_NAMES = np.frombuffer(b"SatSunMonTueWedThuFri", np.uint8)
MONTHS = np.frombuffer(b"AprMayJun", np.uint8)
DAYS_PER_MONTH = np.array([30, 31, 30])
# The rows cover 80 days, starting on Saturday, 4 April 2009.
FIRST_DAY, SPAN_DAYS = 4, 80
HEAD = np.frombuffer(b'","', np.uint8)
FLAG = np.frombuffer(b'","NO_QUERY","user', np.uint8)
LINK = np.frombuffer(b"http://bit.ly/", np.uint8)
USERS = 660_000
# Probabilities, times 2**32, that a row is neutral, starts with a name or ends in a link, and that a word is
# drawn out.
NEUTRAL, NAMED, LINKED, DRAWN_OUT = (np.uint64(share * 2**32) for share in (0.15, 1 / 12, 1 / 25, 1 / 50))


@jit
def alias(shares: Any) -> Any:
    """Vose alias tables: draw k uniformly, keep it with probability chance[k] / 2^32, else take other[k]."""
    chance = np.empty(shares.shape, np.uint32)
    other = np.empty(shares.shape, np.uint16)
    size = shares.shape[1]
    weight = np.empty(size)
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    for table in range(len(shares)):
        small_count, large_count = 0, 0
        total = shares[table].sum()
        for k in range(size):
            weight[k] = shares[table, k] * size / total
            if weight[k] < 1.0:
                small[small_count] = k
                small_count += 1
            else:
                large[large_count] = k
                large_count += 1
        while small_count > 0 and large_count > 0:
            small_count -= 1
            receiver, donor = small[small_count], large[large_count - 1]
            chance[table, receiver] = np.uint32(weight[receiver] * 4294967295.0)
            other[table, receiver] = donor
            weight[donor] -= 1.0 - weight[receiver]
            if weight[donor] < 1.0:
                large_count -= 1
                small[small_count] = donor
                small_count += 1
        while large_count > 0:
            large_count -= 1
            chance[table, large[large_count]] = np.uint32(4294967295)
            other[table, large[large_count]] = large[large_count]
        while small_count > 0:
            small_count -= 1
            chance[table, small[small_count]] = np.uint32(4294967295)
            other[table, small[small_count]] = small[small_count]
    return chance, other


@jit
def _next(state: Any) -> Any:
    """Return the next SplitMix64 number; a row's numbers do not depend on how rows are split into parts."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def _put(text: Any, out: Any, at: Any) -> Any:
    for k in range(len(text)):
        out[at + k] = text[k]
    return at + len(text)


@jit
def _put_number(number: Any, digits: Any, out: Any, at: Any) -> Any:
    for k in range(digits):
        out[at + digits - 1 - k] = 48 + number % 10
        number //= 10
    return at + digits


@jit
def _put_date(day: Any, second: Any, out: Any, at: Any) -> Any:
    """Write a date in Twitter's format: "Mon Apr 06 22:19:45 PDT 2009"."""
    name, month, date = day % 7, 0, FIRST_DAY + day
    while date > DAYS_PER_MONTH[month]:
        date -= DAYS_PER_MONTH[month]
        month += 1
    for k in range(3):
        out[at + k] = DAY_NAMES[3 * name + k]
        out[at + 4 + k] = MONTHS[3 * month + k]
        out[at + 20 + k] = (80, 68, 84)[k]  # PDT
    for gap in (3, 7, 10, 19, 23):
        out[at + gap] = 32
    out[at + 13] = 58
    out[at + 16] = 58
    _put_number(date, 2, out, at + 8)
    _put_number(second // 3600, 2, out, at + 11)
    _put_number(second // 60 % 60, 2, out, at + 14)
    _put_number(second % 60, 2, out, at + 17)
    return _put_number(2009, 4, out, at + 24)


@jit
def _put_words(state: Any, language: Any, table: Any, out: Any, at: Any) -> Any:
    letters, starts, chance, other, _, lengths = language
    size = np.uint64(chance.shape[1])
    count = np.int64(lengths[_next(state) >> np.uint64(48)])
    for w in range(count):
        draw = _next(state)
        index = (draw >> np.uint64(32)) * size >> np.uint64(32)
        word = np.int64(index)
        if (draw & np.uint64(0xFFFFFFFF)) > np.uint64(chance[table, word]):
            word = np.int64(other[table, word])
        low, high = starts[word], starts[word + 1]
        mark = high - low == 1 and letters[low] < 64
        if w > 0 and not mark:
            out[at] = 32
            at += 1
        for k in range(low, high):
            out[at] = letters[k]
            at += 1
        if not mark and (draw * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32) < DRAWN_OUT:
            for _ in range(3):
                out[at] = letters[high - 1]
                at += 1
    return at


@jit
def write_rows(seed: Any, rows: Any, language: Any, out: Any) -> Any:
    """Write rows first..last-1 of a file; rows is (first, last, total). Returns the number of bytes."""
    first, last, total = rows
    clock = language[4]
    half = total // 2
    state = np.zeros(1, np.uint64)
    at = 0
    for row in range(first, last):
        state[0] = np.uint64(seed) * np.uint64(0xD1B54A32D192ED03) + np.uint64(row) * np.uint64(
            0x8CB92BA72F3D8DD7
        )
        positive = row >= half
        # The integer part is the day; the fraction is the share of the day's rows before this one.
        days = (
            (row - half * positive + (_next(state) >> np.uint64(11)) / 9007199254740992.0) * SPAN_DAYS / half
        )
        day = min(int(days), SPAN_DAYS - 1)
        second = np.searchsorted(clock[np.int64(positive)], min(days - day, 1.0), side="right") - 1
        second = min(max(second, 0), 86399)
        out[at] = 34
        out[at + 1] = 52 if positive else 48
        at = _put(HEAD, out, at + 2)
        at = _put_number(1467810369 + 7 * row, 10, out, at)
        at = _put(HEAD, out, at)
        at = _put_date(day, second, out, at)
        at = _put(FLAG, out, at)
        at = _put_number(_next(state) % np.uint64(USERS), 6, out, at)
        at = _put(HEAD, out, at)
        if _next(state) >> np.uint64(32) < NAMED:
            out[at] = 64
            at = _put(FLAG[14:18], out, at + 1)
            at = _put_number(_next(state) % np.uint64(USERS), 6, out, at)
            out[at] = 32
            at += 1
        neutral = _next(state) >> np.uint64(32) < NEUTRAL
        table = len(language[2]) - 1 if neutral else 2 * (second // 3600) + np.int64(positive)
        at = _put_words(state, language, table, out, at)
        if _next(state) >> np.uint64(32) < LINKED:
            out[at] = 32
            at = _put(LINK, out, at + 1)
            draw = _next(state)
            for _ in range(5):
                out[at] = 97 + draw % np.uint64(26)
                draw //= np.uint64(26)
                at += 1
        out[at] = 32
        out[at + 1] = 34
        out[at + 2] = 10
        at += 3
    return at
