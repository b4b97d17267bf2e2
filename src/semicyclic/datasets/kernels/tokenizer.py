r"""Tokenizer: converts the bytes of Sentiment140's CSV to word numbers in one pass.

The file is latin-1 with six columns (target, id, date, flag, user, text). A byte is a character, so a
table of 256 entries gives the class that Python's `re` assigns to each. The text is split into tokens by
three rules in this order: "http://" and "https://" are replaced by "URI "; a run of three or more equal
characters is shortened to two; a token matches `[\w']+|[.,!?;]` (docs/math.md#sentiment140).
"""

import re
from typing import Any

import numpy as np

from semicyclic.jit import jit

COLUMNS = 6
TEXT = 5
# Class of each byte in the token rule.
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
# Number of characters of a date, such as "Mon Apr 06 22:19:45 PDT 2009".
DATE_LENGTH = 28
DAYS = np.frombuffer(b"MonTueWedThuFriSatSun", np.uint8)
MONTHS = np.frombuffer(b"JanFebMarAprMayJunJulAugSepOctNovDec", np.uint8)
DAYS_PER_MONTH = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
ZONES = np.frombuffer(b"PDTPST", np.uint8)
# Status of a row: the error, if any. FULL is not an error of the row: the buffers need more space.
FINE, COLUMN_COUNT, LABEL, WHEN, OPEN_QUOTE, TOO_LONG, FULL = range(7)

# A slot of the token table packs the number and length of a token in one integer; EMPTY if unused.
LENGTH_BITS, LENGTH = np.uint64(20), np.uint64(2**20 - 1)
EMPTY = np.uint64(2**64 - 1)
# Number of letters that fit in a key.
MAX_KEY_LETTERS = np.uint64(8)
FNV_PRIME, SPREAD = np.uint64(1099511628211), np.uint64(0x9E3779B97F4A7C15)
# Maximum size of a text, including a small margin; tweets have 140 characters.
MAX_TEXT_BYTES = 1 << 16


@jit
def _find_field_end(data: Any, at: Any, end: Any, bound: Any) -> Any:
    """Return the end of a field, or -1 if the data end inside quotes.

    bound: output, the start of the field and the position of its closing quote (-1 if it has none).
    As in Python's csv module, characters between a closing quote and the comma belong to the field.
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
def _parse_two_digits(data: Any, at: Any) -> Any:
    """Parse two digits; returns 1000 if they are not digits."""
    tens = np.int64(data[at]) - 48
    ones = np.int64(data[at + 1]) - 48
    return 10 * tens + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else 1000


@jit
def _find_name(data: Any, at: Any, names: Any) -> Any:
    """Return the index of the three-letter name at this position, or -1 if there is none."""
    for k in range(len(names) // 3):
        if data[at] == names[3 * k] and data[at + 1] == names[3 * k + 1] and data[at + 2] == names[3 * k + 2]:
            return k
    return -1


@jit
def second_of_day(data: Any, at: Any, end: Any) -> Any:
    """Return the second of the day of a date, in its local time, or -1 if the date is invalid."""
    if end - at != DATE_LENGTH or data[at + 13] != 58 or data[at + 16] != 58:
        return -1
    for gap in (3, 7, 10, 19, 23):
        if data[at + gap] != 32:
            return -1
    month = _find_name(data, at + 4, MONTHS)
    day, century, year = (
        _parse_two_digits(data, at + 8),
        _parse_two_digits(data, at + 24),
        _parse_two_digits(data, at + 26),
    )
    hour, minute, second = (
        _parse_two_digits(data, at + 11),
        _parse_two_digits(data, at + 14),
        _parse_two_digits(data, at + 17),
    )
    if _find_name(data, at, DAYS) < 0 or month < 0 or _find_name(data, at + 20, ZONES) < 0:
        return -1
    if century > 99 or year > 99 or century + year == 0:
        return -1
    year += 100 * century
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day < 1 or day > DAYS_PER_MONTH[month] or (month == 1 and day == 29 and not leap):
        return -1
    if hour > 23 or minute > 59 or second > 59:
        return -1
    return 3600 * hour + 60 * minute + second


@jit
def _unquote(data: Any, first: Any, close: Any, end: Any, out: Any) -> Any:
    """Write a quoted field and the text after its closing quote, without the quoting; return its length."""
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
    """Write a text with long runs shortened and URI schemes replaced; return its length.

    doubled: 1 if the field was quoted, so that each quote is written twice, else 0.
    """
    length = np.int64(0)
    p = first
    repeats = 0
    previous = np.int64(-1)
    while p < end:
        c = data[p]
        p += 1
        if c == QUOTE:
            p += doubled  # skip the second quote
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
                    # A third "U" in a row is dropped like any other character.
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
def _find_token(
    text: Any, low: Any, high: Any, key: Any, table: Any, letters: Any, starts: Any, used: Any
) -> Any:
    """Return the number of the token text[low:high]; a new token gets the next number.

    A slot of the table is (key, number and length). The key of a short token consists of its letters, so
    comparing keys is enough; the key of a longer token is a hash.
    """
    length = high - low
    mask = np.uint64(len(table) - 1)
    slot = (key * SPREAD >> np.uint64(32)) & mask
    while table[slot, 1] != EMPTY:
        packed = table[slot, 1]
        if table[slot, 0] == key and packed & LENGTH == length:
            number = packed >> LENGTH_BITS
            if length <= MAX_KEY_LETTERS:
                return number
            first = np.uint64(starts[number])
            k = np.uint64(0)
            while k < length and letters[first + k] == text[low + k]:
                k += np.uint64(1)
            if k == length:
                return number
        slot = (slot + np.uint64(1)) & mask
    number = np.uint64(used[0])
    table[slot, 0] = key
    table[slot, 1] = number << LENGTH_BITS | length
    first = np.uint64(starts[number])
    for j in range(length):
        letters[first + j] = text[low + j]
    starts[number + np.uint64(1)] = first + length
    used[0] = number + np.uint64(1)
    return number


@jit
def _tokenise(
    text: Any, length: Any, spans: Any, table: Any, letters: Any, starts: Any, used: Any, out: Any, at: Any
) -> Any:
    """Write the token numbers of a text to `out`, starting at `at`; return the end position.

    All keys are computed before the lookups, so that the memory latencies of the lookups overlap.
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
                if p - low <= MAX_KEY_LETTERS:
                    key = key << np.uint64(8) | np.uint64(c)
                else:
                    key = (key ^ np.uint64(c)) * FNV_PRIME
        spans[tokens, 0] = low
        spans[tokens, 1] = p
        spans[tokens, 2] = key
        tokens += one
    mask = np.uint64(len(table) - 1)
    first = np.uint64(at)
    for k in range(tokens):
        low, high, key = spans[k, 0], spans[k, 1], spans[k, 2]
        slot = (key * SPREAD >> np.uint64(32)) & mask
        packed = table[slot, 1]
        # Most lookups end here; a function call would cost more.
        if table[slot, 0] == key and packed & LENGTH == high - low and high - low <= MAX_KEY_LETTERS:
            out[first + k] = packed >> LENGTH_BITS
        else:
            out[first + k] = _find_token(text, low, high, key, table, letters, starts, used)
    return at + np.int64(tokens)


@jit
def _inner_end(span: Any) -> Any:
    """Return the end of a field without its quotes, or its start if text follows the closing quote."""
    if span[1] < 0:
        return span[2]
    return span[1] if span[2] == span[1] + 1 else span[0]


@jit
def read_rows(
    data: Any, start: Any, final: Any, columns: Any, words: Any, table: Any, pool: Any, used: Any
) -> Any:
    """Read the complete rows of data[start:]; with `final`, the last row needs no line end.

    columns: output arrays (label, second, begin), begin[r] being the position of row r's first word in
    `words`. Returns the number of rows read, the start of the next row, the status, two numbers for the
    error message (usually a span of bytes), and the number of words.
    """
    label, second, begin = columns
    letters, starts = pool
    text, plain = np.empty(MAX_TEXT_BYTES, np.uint8), np.empty(MAX_TEXT_BYTES, np.uint8)
    token_spans = np.empty((MAX_TEXT_BYTES, 3), np.uint64)
    bound = np.zeros(2, np.int64)
    spans = np.zeros((COLUMNS, 3), np.int64)
    end = len(data)
    rows = 0
    at = start
    word = np.int64(0)
    begin[0] = 0
    while at < end and rows < len(label):
        if data[at] == NEWLINE or data[at] == RETURN:
            at += 1  # the second byte of a CRLF, or an empty line
            continue
        p = at
        column = 0
        status = FINE
        while True:
            stop = _find_field_end(data, p, end, bound)
            if stop < 0 or (stop >= end and not final):
                status = OPEN_QUOTE if final else FULL
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
        if status == FULL:
            break
        if status == OPEN_QUOTE:
            return rows, at, OPEN_QUOTE, at, end, word
        if column != COLUMNS:
            return rows, at, COLUMN_COUNT, column, p, word
        size = spans[TEXT, 2] - spans[TEXT, 0] - (1 if spans[TEXT, 1] >= 0 else 0)
        # A text of `size` bytes has at most `size` tokens (possibly all new) and letters.
        if size + 4 >= MAX_TEXT_BYTES:
            return rows, at, TOO_LONG, size, MAX_TEXT_BYTES - 5, word
        table_has_room = used[0] + size + 4 < len(table) // 2
        if word + size + 4 > len(words) or not table_has_room or starts[used[0]] + size + 4 > len(letters):
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
        word = _tokenise(text, length, token_spans, table, letters, starts, used, words, word)
        rows += 1
        begin[rows] = word
        at = p
    return rows, at, FINE, at, at, word


@jit
def rehash(table: Any, larger: Any) -> Any:
    """Insert every token of a table into a larger, empty one."""
    mask = np.uint64(len(larger) - 1)
    for k in range(len(table)):
        if table[k, 1] != EMPTY:
            slot = (table[k, 0] * SPREAD >> np.uint64(32)) & mask
            while larger[slot, 1] != EMPTY:
                slot = (slot + np.uint64(1)) & mask
            larger[slot, 0] = table[k, 0]
            larger[slot, 1] = table[k, 1]


@jit
def bags(words: Any, begin: Any, rank: Any, cap: Any, cells: Any) -> Any:
    """Write the bag of words of each row, with counts capped at `cap`; return the number of cells.

    rank: column of each word, -1 for words that are left out. cells: output arrays (start, column, count).
    """
    start, column, count = cells
    last_cell = np.full(rank.max() + 1, -1, np.int64)
    at = np.int64(0)
    start[0] = 0
    for r in range(len(begin) - 1):
        for k in range(begin[r], begin[r + 1]):
            word_column = rank[words[k]]
            if word_column < 0:
                continue
            cell = last_cell[word_column]
            if cell >= start[r]:
                count[cell] = min(count[cell] + 1, cap)
            else:
                last_cell[word_column] = at
                column[at] = word_column
                count[at] = 1
                at += 1
        start[r + 1] = at
    return at
