r"""Tokenizer: from the bytes of Sentiment140's CSV to word numbers, in one pass.

The file is Sentiment140's: latin-1, six columns (target, id, date, flag, user, text). A byte is
a character, so a table of 256 entries says what Python's `re` says of each. The text becomes
tokens by three rules in this order (SPEC H1): "http://" and "https://" are replaced by "URI ";
of a run of three or more equal characters two stay; a token is one of `[\w']+|[.,!?;]`.
"""

import re
from typing import Any

import numpy as np

from semicyclic.jit import jit

COLUMNS = 6
TEXT = 5
# What a byte is to the token rule.
BREAK, WORD, MARK = 0, 1, 2
KIND = np.array(
    [
        WORD if re.match(r"[\w']", chr(byte)) else MARK if re.match(r"[.,!?;]", chr(byte)) else BREAK
        for byte in range(256)
    ],
    np.uint8,
)
URI = np.frombuffer(b"URI ", np.uint8)
SCHEME = np.frombuffer(b"http://", np.uint8)
QUOTE, COMMA, NEWLINE, RETURN, S = (np.uint8(ord(sign)) for sign in '",\n\rs')
# "Mon Apr 06 22:19:45 PDT 2009": the places of its digits and of its fixed signs.
DATE = 28
DAYS = np.frombuffer(b"MonTueWedThuFriSatSun", np.uint8)
MONTHS = np.frombuffer(b"JanFebMarAprMayJunJulAugSepOctNovDec", np.uint8)
LENGTHS = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
ZONES = np.frombuffer(b"PDTPST", np.uint8)
# What may be wrong with a row; FULL is not the row's fault but asks for more room.
FINE, COLUMN_COUNT, LABEL, WHEN, OPEN_QUOTE, TOO_LONG, FULL = range(7)

# A slot of the table of tokens holds a number and a length in one integer; none yet is EMPTY.
LENGTH_BITS, LENGTH = np.uint64(20), np.uint64(2**20 - 1)
EMPTY = np.uint64(2**64 - 1)
# So many letters fit into a key.
SHORT = np.uint64(8)
FNV_PRIME, SPREAD = np.uint64(1099511628211), np.uint64(0x9E3779B97F4A7C15)
# The longest text a row may have; tweets have 140 characters.
LONGEST = 1 << 16


@jit
def _field(data: Any, at: Any, end: Any, bound: Any) -> Any:
    """Where a field ends; -1 if the data end inside quotes. Its bounds: where it begins, and its
    closing quote, or -1 if it has none.

    As Python's csv has it: after a closing quote the rest up to the comma belongs to the field.
    """
    first = at
    close = -1
    if at < end and data[at] == QUOTE:
        first = at + 1
        close = first
        while True:
            if close >= end:
                return -1
            if data[close] == QUOTE:
                if close + 1 >= end or data[close + 1] != QUOTE:
                    break
                close += 1
            close += 1
        at = close + 1
    while at < end and data[at] != COMMA and data[at] != NEWLINE and data[at] != RETURN:
        at += 1
    bound[0] = first
    bound[1] = close
    return at


@jit
def _number(data: Any, at: Any) -> Any:
    """Two digits as a number; a large one where they are none."""
    tens = np.int64(data[at]) - 48
    ones = np.int64(data[at + 1]) - 48
    return 10 * tens + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else 1000


@jit
def _name(data: Any, at: Any, names: Any) -> Any:
    """Which of the three-letter names stands here; -1 for none."""
    for k in range(len(names) // 3):
        if data[at] == names[3 * k] and data[at + 1] == names[3 * k + 1] and data[at + 2] == names[3 * k + 2]:
            return k
    return -1


@jit
def second_of_day(data: Any, at: Any, end: Any) -> Any:
    """The second of the day, by the clock that wrote the date; -1 if it is none."""
    if end - at != DATE or data[at + 13] != 58 or data[at + 16] != 58:
        return -1
    for gap in (3, 7, 10, 19, 23):
        if data[at + gap] != 32:
            return -1
    month = _name(data, at + 4, MONTHS)
    day, century, year = _number(data, at + 8), _number(data, at + 24), _number(data, at + 26)
    hour, minute, second = _number(data, at + 11), _number(data, at + 14), _number(data, at + 17)
    if _name(data, at, DAYS) < 0 or month < 0 or _name(data, at + 20, ZONES) < 0:
        return -1
    if century > 99 or year > 99 or century + year == 0:
        return -1
    year += 100 * century
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day < 1 or day > LENGTHS[month] or (month == 1 and day == 29 and not leap):
        return -1
    if hour > 23 or minute > 59 or second > 59:
        return -1
    return 3600 * hour + 60 * minute + second


@jit
def _unquote(data: Any, first: Any, close: Any, end: Any, out: Any) -> Any:
    """A field in quotes and what follows them, without quotes that are not its own; its length."""
    length = 0
    p = first
    while p < close:
        out[length] = data[p]
        length += 1
        p += 2 if data[p] == QUOTE else 1
    for k in range(close + 1, end):
        out[length] = data[k]
        length += 1
    return length


@jit
def _clean(data: Any, first: Any, end: Any, doubled: Any, text: Any) -> Any:
    """Write a text without long runs and the schemes of URIs; its length.

    doubled: whether it stood in quotes, where a quote is written twice.
    """
    length = np.int64(0)
    p = first
    repeats = 0
    previous = np.int64(-1)
    while p < end:
        c = data[p]
        p += 1
        if c == QUOTE:
            p += doubled  # the second of two
        elif c == SCHEME[0] and p + 6 <= end:
            k = 1
            while k < 4 and data[p + k - 1] == SCHEME[k]:
                k += 1
            if k == 4:
                skip = p + 3
                if data[skip] == S:
                    skip += 1
                if skip + 3 <= end and data[skip] == 58 and data[skip + 1] == 47 and data[skip + 2] == 47:
                    p = skip + 3
                    # A third "U" in a row is dropped like any other sign.
                    if previous != URI[0] or repeats < 1:
                        text[length] = URI[0]
                        length += 1
                    for j in range(1, 4):
                        text[length] = URI[j]
                        length += 1
                    previous = np.int64(URI[3])
                    repeats = 0
                    continue
        if np.int64(c) == previous:
            repeats += 1
            if repeats >= 2:
                continue
        else:
            repeats = 0
            previous = np.int64(c)
        text[length] = c
        length += 1
    return length


@jit
def _find(text: Any, low: Any, high: Any, key: Any, table: Any, letters: Any, starts: Any, used: Any) -> Any:
    """The number of the token text[low:high], a new one if it was never seen.

    A slot of the table is (key, number and length). The key of a short token is its letters, so
    that nothing else need be looked at; that of a longer one is a hash of them.
    """
    length = high - low
    mask = np.uint64(len(table) - 1)
    place = (key * SPREAD >> np.uint64(32)) & mask
    while table[place, 1] != EMPTY:
        held = table[place, 1]
        if table[place, 0] == key and held & LENGTH == length:
            number = held >> LENGTH_BITS
            if length <= SHORT:
                return number
            first = np.uint64(starts[number])
            k = np.uint64(0)
            while k < length and letters[first + k] == text[low + k]:
                k += np.uint64(1)
            if k == length:
                return number
        place = (place + np.uint64(1)) & mask
    number = np.uint64(used[0])
    table[place, 0] = key
    table[place, 1] = number << LENGTH_BITS | length
    first = np.uint64(starts[number])
    for j in range(length):
        letters[first + j] = text[low + j]
    starts[number + np.uint64(1)] = first + length
    used[0] = number + np.uint64(1)
    return number


@jit
def _tokenise(
    text: Any, length: Any, spot: Any, table: Any, letters: Any, starts: Any, used: Any, out: Any, at: Any
) -> Any:
    """Write the numbers of a text's tokens to `out` from `at` on; where they end.

    First all keys, then all look-ups: these wait for memory, and so wait together.
    """
    one, end = np.uint64(1), np.uint64(length)
    p = np.uint64(0)
    tokens = np.uint64(0)
    while p < end:
        c = text[p]
        kind = KIND[c]
        low = p
        p += one
        if kind == BREAK:
            continue
        key = np.uint64(c)
        if kind == WORD:
            while p < end and KIND[text[p]] == WORD:
                c = text[p]
                p += one
                if p - low <= SHORT:
                    key = key << np.uint64(8) | np.uint64(c)
                else:
                    key = (key ^ np.uint64(c)) * FNV_PRIME
        spot[tokens, 0] = low
        spot[tokens, 1] = p
        spot[tokens, 2] = key
        tokens += one
    mask = np.uint64(len(table) - 1)
    first = np.uint64(at)
    for k in range(tokens):
        low, high, key = spot[k, 0], spot[k, 1], spot[k, 2]
        place = (key * SPREAD >> np.uint64(32)) & mask
        held = table[place, 1]
        # A call costs more than most look-ups, which end here.
        if table[place, 0] == key and held & LENGTH == high - low and high - low <= SHORT:
            out[first + k] = held >> LENGTH_BITS
        else:
            out[first + k] = _find(text, low, high, key, table, letters, starts, used)
    return at + np.int64(tokens)


@jit
def _inner_end(span: Any) -> Any:
    """Where a field ends without its quotes; where it begins, if anything follows them."""
    if span[1] < 0:
        return span[2]
    return span[1] if span[2] == span[1] + 1 else span[0]


@jit
def read_rows(
    data: Any, start: Any, final: Any, columns: Any, words: Any, table: Any, pool: Any, used: Any
) -> Any:
    """Read whole rows from data[start:]; the rest waits for more bytes unless these are the last.

    columns: (label, second, begin) to be filled row by row, begin[r] being where the words of row
    r start. Returns how many rows were read, where the next begins, and what stopped it, with
    the span of bytes in question.
    """
    label, second, begin = columns
    letters, starts = pool
    text, plain = np.empty(LONGEST, np.uint8), np.empty(LONGEST, np.uint8)
    spot = np.empty((LONGEST, 3), np.uint64)
    bound = np.zeros(2, np.int64)
    spans = np.zeros((COLUMNS, 3), np.int64)
    end = len(data)
    rows = 0
    at = start
    word = np.int64(0)
    begin[0] = 0
    while at < end and rows < len(label):
        if data[at] == NEWLINE or data[at] == RETURN:
            at += 1  # the second half of a line's end, or an empty line
            continue
        p = at
        column = 0
        wrong = FINE
        while True:
            stop = _field(data, p, end, bound)
            if stop < 0 or (stop >= end and not final):
                wrong = OPEN_QUOTE if final else FULL
                break
            if column < COLUMNS:
                spans[column, 0] = bound[0]
                spans[column, 1] = bound[1]
                spans[column, 2] = stop
            column += 1
            p = stop
            if p >= end or data[p] != COMMA:
                break
            p += 1
        if wrong == FULL:
            break
        if wrong == OPEN_QUOTE:
            return rows, at, OPEN_QUOTE, at, end, word
        if column != COLUMNS:
            return rows, at, COLUMN_COUNT, column, p, word
        size = spans[TEXT, 2] - spans[TEXT, 0] - (1 if spans[TEXT, 1] >= 0 else 0)
        # A text of so many bytes has at most as many tokens, new ones even, and letters.
        if size + 4 >= LONGEST:
            return rows, at, TOO_LONG, size, LONGEST - 5, word
        room = used[0] + size + 4 < len(table) // 2
        if word + size + 4 > len(words) or not room or starts[used[0]] + size + 4 > len(letters):
            return rows, at, FULL, at, at, word
        low, high = spans[0, 0], _inner_end(spans[0])
        if high - low != 1 or (data[low] != 48 and data[low] != 52):
            return rows, at, LABEL, low, spans[0, 2], word
        label[rows] = data[low] == 52
        low, high = spans[2, 0], _inner_end(spans[2])
        seconds = second_of_day(data, low, high)
        if seconds < 0:
            return rows, at, WHEN, low, spans[2, 2], word
        second[rows] = seconds
        first, close, stop = spans[TEXT, 0], spans[TEXT, 1], spans[TEXT, 2]
        if close < 0:
            length = _clean(data, first, stop, 0, text)
        elif stop == close + 1:
            length = _clean(data, first, close, 1, text)
        else:
            length = _clean(plain, 0, _unquote(data, first, close, stop, plain), 0, text)
        word = _tokenise(text, length, spot, table, letters, starts, used, words, word)
        rows += 1
        begin[rows] = word
        at = p
    return rows, at, FINE, at, at, word


@jit
def place_again(table: Any, wider: Any) -> Any:
    """Put every token of a table where it belongs in a wider one."""
    mask = np.uint64(len(wider) - 1)
    for k in range(len(table)):
        if table[k, 1] != EMPTY:
            place = (table[k, 0] * SPREAD >> np.uint64(32)) & mask
            while wider[place, 1] != EMPTY:
                place = (place + np.uint64(1)) & mask
            wider[place, 0] = table[k, 0]
            wider[place, 1] = table[k, 1]


@jit
def bags(words: Any, begin: Any, rank: Any, cap: Any, cells: Any) -> Any:
    """Bags of the ranked words of each row, counts capped; how many cells they have.

    rank: the column of each word, -1 for those left out. cells: (start, column, count).
    """
    start, column, count = cells
    where = np.full(rank.max() + 1, -1, np.int64)
    at = np.int64(0)
    start[0] = 0
    for r in range(len(begin) - 1):
        for k in range(begin[r], begin[r + 1]):
            each = rank[words[k]]
            if each < 0:
                continue
            place = where[each]
            if place >= start[r]:
                count[place] = min(count[place] + 1, cap)
            else:
                where[each] = at
                column[at] = each
                count[at] = 1
                at += 1
        start[r + 1] = at
    return at
