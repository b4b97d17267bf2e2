"""Feature hashing: from the cells of a table to the columns of sparse rows.

A feature has a name, such as `carrier=UA`, and its key is a hash of that name: FNV-1a of its UTF-8
bytes, stirred by the last steps of SplitMix64. It is stable for ever, since models are stored on it;
`key_of` is the definition, which the kernels follow piece by piece.
"""

from typing import Any

import numpy as np

from semicyclic.jit import inline, jit

OFFSET, PRIME = 0xCBF29CE484222325, 0x100000001B3
_PRIME = np.uint64(PRIME)
_STIR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# What stands between a column's name and a value, and after it where the value is missing.
EQUALS, HAS, MISSING, BIN = "=", ":", "?", "~"
# Texts of at most four bytes that stand for nothing, as numbers.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")
_NOTHING = np.array([int.from_bytes(word.encode(), "big") for word in MISSING_WORDS], np.uint64)
# A token's letters: figures, letters in lower case, the underscore, and all beyond ASCII.
LETTER = np.zeros(256, np.uint8)
for _byte in range(256):
    if chr(_byte).isalnum() or _byte == ord("_") or _byte >= 128:
        LETTER[_byte] = _byte
    if ord("A") <= _byte <= ord("Z"):
        LETTER[_byte] = _byte + 32


def key_of(name: str) -> int:
    """The key of a feature."""
    return mix_bits(seed_of(name))


def seed_of(text: str) -> int:
    """FNV-1a so far, of the part of a name that all of a column's features share."""
    key = OFFSET
    for byte in text.encode("utf-8"):
        key = (key ^ byte) * PRIME % 2**64
    return key


def mix_bits(key: int) -> int:
    """A hash of which every bit counts; never 0, which stands for no feature."""
    key = (key ^ key >> 30) * int(_STIR[0]) % 2**64
    key = (key ^ key >> 27) * int(_STIR[1]) % 2**64
    return (key ^ key >> 31) or 1


def tokens_of(text: bytes) -> list[bytes]:
    """The tokens of a text, as the kernels find them."""
    lowered = LETTER[np.frombuffer(text, np.uint8)].tobytes()
    return [token for token in lowered.split(b"\0") if token]


@jit
def leave_out_missing(data: Any, first: Any, there: Any) -> Any:
    """Texts that stand for nothing (`MISSING_WORDS`) are not there."""
    for r in range(len(there)):
        low = first[r]
        size = first[r + 1] - low
        if not there[r] or size > 4:
            continue
        word = np.uint64(0)
        for p in range(low, first[r + 1]):
            word = word << np.uint64(8) | np.uint64(data[p])
        for k in range(len(_NOTHING)):
            if word == _NOTHING[k]:
                there[r] = False


@inline
def _stir(key: Any) -> Any:
    key = (key ^ (key >> np.uint64(30))) * _STIR[0]
    key = (key ^ (key >> np.uint64(27))) * _STIR[1]
    key = key ^ (key >> np.uint64(31))
    return key if key != np.uint64(0) else np.uint64(1)


@jit
def cell_keys(data: Any, first: Any, there: Any, seed: Any, missing: Any, keys: Any) -> Any:
    """The key of every cell of a column of texts, each one value; `missing` where there is none."""
    for r in range(len(keys)):
        if not there[r]:
            keys[r] = missing
            continue
        key = seed
        for p in range(np.uint64(first[r]), np.uint64(first[r + 1])):
            key = (key ^ np.uint64(data[p])) * _PRIME
        keys[r] = _stir(key)


@jit
def token_keys(data: Any, first: Any, there: Any, seed: Any, missing: Any, begin: Any, keys: Any) -> Any:
    """The keys of every text's tokens, one after another; text r has begin[r]:begin[r+1]."""
    at = 0
    begin[0] = 0
    for r in range(len(begin) - 1):
        if not there[r]:
            keys[at] = missing
            at += 1
        else:
            key = seed
            for p in range(np.uint64(first[r]), np.uint64(first[r + 1])):
                letter = LETTER[data[p]]
                if letter:
                    key = (key ^ np.uint64(letter)) * _PRIME
                elif key != seed:
                    keys[at] = _stir(key)
                    at += 1
                    key = seed
            if key != seed:
                keys[at] = _stir(key)
                at += 1
        begin[r + 1] = at
    return at


@jit
def number_cells(numbers: Any, scaling: Any, edges: Any, places: Any, columns: Any, values: Any) -> Any:
    """For each number its scaled value and its bin; or that it is missing.

    scaling: (mean, scale, furthest). places: the columns of the value, of a missing one, of each bin.
    columns, values: [n, 2]; a column of -1 is none.
    """
    mean, scale, furthest = scaling
    for r in range(np.uint64(len(numbers))):
        x = numbers[r]
        if np.isnan(x):
            columns[r, 0] = places[1]
            columns[r, 1] = -1
            values[r, 0] = 1.0
            continue
        columns[r, 0] = places[0]
        values[r, 0] = min(max((x - mean) / scale, -furthest), furthest)
        values[r, 1] = 1.0
        # Fewer than twenty comparisons are counted sooner than guessed.
        below = 0
        for e in range(np.uint64(len(edges))):
            below += x >= edges[e]
        columns[r, 1] = places[2 + below] if len(edges) else -1


@jit
def hash_columns(keys: Any, bits: Any, columns: Any) -> Any:
    """The column of every key: its highest bits; -1 for none."""
    shift = np.uint64(64 - bits)
    for k in range(len(keys)):
        columns[k] = np.int32(keys[k] >> shift) if keys[k] else -1


@jit
def look_up(keys: Any, table: Any, number: Any, columns: Any) -> Any:
    """The column of every key in a dictionary; -1 for what it does not have."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(keys)):
        columns[k] = -1
        place = keys[k] & mask
        while table[place] != np.uint64(0) and keys[k]:
            if table[place] == keys[k]:
                columns[k] = number[place]
                break
            place = (place + np.uint64(1)) & mask


@jit
def enter(keys: Any, table: Any, number: Any) -> Any:
    """Put keys into an empty dictionary, numbered in their order."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(keys)):
        place = keys[k] & mask
        while table[place] != np.uint64(0):
            place = (place + np.uint64(1)) & mask
        table[place] = keys[k]
        number[place] = k


@jit
def first_seen(columns: Any, seen: Any, where: Any) -> Any:
    """Where columns occur that were never seen before; how many there are."""
    count = 0
    for k in range(len(columns)):
        j = columns[k]
        if j >= 0 and not seen[j]:
            seen[j] = True
            where[count] = k
            count += 1
    return count


@jit
def lay_rows(
    columns: Any, values: Any, tokens: Any, begin: Any, spot: Any, indptr: Any, indices: Any, cells: Any
) -> Any:
    """Lay the cells of every row side by side, those of one column as one; how many there are.

    columns, values: [n, F] cells of numbers and categories; a column of -1 is none. tokens: the columns
    of all texts' tokens; those of row r in text t go from begin[t, r] to begin[t, r + 1], and have
    length 1 together if they all differ. spot: [d] of -1, where a column last occurred.
    """
    at = np.uint64(0)
    indptr[0] = 0
    for r in range(np.uint64(len(columns))):
        low = np.int64(at)
        for k in range(np.uint64(columns.shape[1])):
            j = columns[r, k]
            if j >= 0:
                at = _lay(np.uint64(j), values[r, k], low, at, spot, indices, cells)
        for t in range(np.uint64(len(begin))):
            first, last = begin[t, r], begin[t, r + np.uint64(1)]
            if first == last:
                continue
            value = cells.dtype.type(1.0 / np.sqrt(np.float64(last - first)))
            for k in range(np.uint64(first), np.uint64(last)):
                j = tokens[k]
                if j >= 0:
                    at = _lay(np.uint64(j), value, low, at, spot, indices, cells)
        indptr[r + np.uint64(1)] = at
    return np.int64(at)


@inline
def _lay(j: Any, value: Any, low: Any, at: Any, spot: Any, indices: Any, cells: Any) -> Any:
    held = np.int64(spot[j])
    if held >= low:
        cells[np.uint64(held)] += value
        return at
    spot[j] = np.int32(at)
    indices[at] = j
    cells[at] = value
    return at + np.uint64(1)
