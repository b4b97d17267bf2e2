"""Writer of the synthetic tweets as bytes."""

from typing import Any

import numpy as np

from semicyclic.jit import jit

NAMES = np.frombuffer(b"SatSunMonTueWedThuFri", np.uint8)
MONTHS = np.frombuffer(b"AprMayJun", np.uint8)
LENGTHS = np.array([30, 31, 30])
# Saturday, 4 April 2009, is the first of 80 days.
FIRST_DAY, SPAN = 4, 80
HEAD = np.frombuffer(b'","', np.uint8)
FLAG = np.frombuffer(b'","NO_QUERY","user', np.uint8)
LINK = np.frombuffer(b"http://bit.ly/", np.uint8)
USERS = 660_000
# Of 2**32: how often a row is neutral, begins with a name, ends in a link; a word is drawn out.
NEUTRAL, NAMED, LINKED, DRAWN_OUT = (np.uint64(share * 2**32) for share in (0.15, 1 / 12, 1 / 25, 1 / 50))


@jit
def alias(shares: Any) -> Any:
    """Vose's alias tables: draw k uniformly, keep it with chance[k] / 2^32, else take other[k]."""
    chance = np.empty(shares.shape, np.uint32)
    other = np.empty(shares.shape, np.uint16)
    size = shares.shape[1]
    left = np.empty(size)
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    for table in range(len(shares)):
        few, many = 0, 0
        total = shares[table].sum()
        for k in range(size):
            left[k] = shares[table, k] * size / total
            if left[k] < 1.0:
                small[few] = k
                few += 1
            else:
                large[many] = k
                many += 1
        while few > 0 and many > 0:
            few -= 1
            one, most = small[few], large[many - 1]
            chance[table, one] = np.uint32(left[one] * 4294967295.0)
            other[table, one] = most
            left[most] -= 1.0 - left[one]
            if left[most] < 1.0:
                many -= 1
                small[few] = most
                few += 1
        while many > 0:
            many -= 1
            chance[table, large[many]] = np.uint32(4294967295)
            other[table, large[many]] = large[many]
        while few > 0:
            few -= 1
            chance[table, small[few]] = np.uint32(4294967295)
            other[table, small[few]] = small[few]
    return chance, other


@jit
def _next(state: Any) -> Any:
    """Splitmix64: a row's numbers depend on the row alone, not on how rows are cut into parts."""
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
    """As Twitter wrote it: "Mon Apr 06 22:19:45 PDT 2009"."""
    name, month, date = day % 7, 0, FIRST_DAY + day
    while date > LENGTHS[month]:
        date -= LENGTHS[month]
        month += 1
    for k in range(3):
        out[at + k] = NAMES[3 * name + k]
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
        place = (draw >> np.uint64(32)) * size >> np.uint64(32)
        word = np.int64(place)
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
    """Write the rows first..last-1 of a file of so many; how many bytes they take."""
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
        # The day, and how much of its rows lie before this one: by that much of its clock.
        place = (row - half * positive + (_next(state) >> np.uint64(11)) / 9007199254740992.0) * SPAN / half
        day = min(int(place), SPAN - 1)
        second = np.searchsorted(clock[np.int64(positive)], min(place - day, 1.0), side="right") - 1
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
