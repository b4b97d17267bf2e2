"""Feature hashing: from the cells of a table to the columns of sparse rows.

A feature has a name, such as `carrier=UA`, and its key is a hash of that name: FNV-1a of its UTF-8
bytes, followed by the finalizer of SplitMix64. The hash must never change, because stored models depend
on it. `key_of` is the reference implementation; the kernels compute the same key incrementally.
"""

from typing import Any

import numpy as np

from semicyclic.jit import inline, jit

OFFSET, PRIME = 0xCBF29CE484222325, 0x100000001B3
_PRIME = np.uint64(PRIME)
_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# Separators between a column name and a value, token or bin; MISSING ends the name of a missing value.
EQUALS, HAS, MISSING, BIN = "=", ":", "?", "~"
# Strings that count as missing. The kernel compares them as integers, so they have at most four bytes.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")
_MISSING_CODES = np.array([int.from_bytes(word.encode(), "big") for word in MISSING_WORDS], np.uint64)
# Byte to token byte: letters in lower case, digits, underscore and all non-ASCII bytes; 0 is a separator.
LETTER = np.zeros(256, np.uint8)
for _byte in range(256):
    if chr(_byte).isalnum() or _byte == ord("_") or _byte >= 128:
        LETTER[_byte] = _byte
    if ord("A") <= _byte <= ord("Z"):
        LETTER[_byte] = _byte + 32


def key_of(name: str) -> int:
    """Return the 64-bit key of a feature name."""
    return mix_bits(seed_of(name))


def seed_of(text: str) -> int:
    """Return the FNV-1a state after `text`, the name prefix that all features of a column share."""
    key = OFFSET
    for byte in text.encode("utf-8"):
        key = (key ^ byte) * PRIME % 2**64
    return key


def mix_bits(key: int) -> int:
    """Apply the SplitMix64 finalizer; never returns 0, which means no feature."""
    key = (key ^ key >> 30) * int(_MIX[0]) % 2**64
    key = (key ^ key >> 27) * int(_MIX[1]) % 2**64
    return (key ^ key >> 31) or 1


def tokens_of(text: bytes) -> list[bytes]:
    """Split a text into tokens, in the same way as the kernels."""
    lowered = LETTER[np.frombuffer(text, np.uint8)].tobytes()
    return [token for token in lowered.split(b"\0") if token]


@jit
def mark_missing_words(data: Any, first: Any, there: Any) -> Any:
    """Set there[r] to False for strings that are in `MISSING_WORDS`."""
    for r in range(len(there)):
        low = first[r]
        size = first[r + 1] - low
        if not there[r] or size > 4:
            continue
        word = np.uint64(0)
        for p in range(low, first[r + 1]):
            word = word << np.uint64(8) | np.uint64(data[p])
        for k in range(len(_MISSING_CODES)):
            if word == _MISSING_CODES[k]:
                there[r] = False


@inline
def _mix(key: Any) -> Any:
    key = (key ^ (key >> np.uint64(30))) * _MIX[0]
    key = (key ^ (key >> np.uint64(27))) * _MIX[1]
    key = key ^ (key >> np.uint64(31))
    return key if key != np.uint64(0) else np.uint64(1)


@jit
def cell_keys(data: Any, first: Any, there: Any, seed: Any, missing: Any, keys: Any) -> Any:
    """Write the key of every cell of a category column to `keys`; `missing` is the key of a missing cell."""
    for r in range(len(keys)):
        if not there[r]:
            keys[r] = missing
            continue
        key = seed
        for p in range(np.uint64(first[r]), np.uint64(first[r + 1])):
            key = (key ^ np.uint64(data[p])) * _PRIME
        keys[r] = _mix(key)


@jit
def token_keys(data: Any, first: Any, there: Any, seed: Any, missing: Any, begin: Any, keys: Any) -> Any:
    """Write the token keys of all texts, text r at keys[begin[r]:begin[r+1]]; return their number."""
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
                    keys[at] = _mix(key)
                    at += 1
                    key = seed
            if key != seed:
                keys[at] = _mix(key)
                at += 1
        begin[r + 1] = at
    return at


@jit
def number_cells(numbers: Any, scaling: Any, edges: Any, places: Any, columns: Any, values: Any) -> Any:
    """Write the features of each number: its scaled value and its bin, or that it is missing.

    scaling: (mean, scale, limit), the scaled value being clipped to +-limit. places: the columns of the
    value, of a missing value, and of each bin. columns, values: [n, 2] output; column -1 means no feature.
    """
    mean, scale, limit = scaling
    for r in range(np.uint64(len(numbers))):
        x = numbers[r]
        if np.isnan(x):
            columns[r, 0] = places[1]
            columns[r, 1] = -1
            values[r, 0] = 1.0
            continue
        columns[r, 0] = places[0]
        values[r, 0] = min(max((x - mean) / scale, -limit), limit)
        values[r, 1] = 1.0
        # With fewer than twenty edges, counting is faster than a binary search.
        below = 0
        for e in range(np.uint64(len(edges))):
            below += x >= edges[e]
        columns[r, 1] = places[2 + below] if len(edges) else -1


@jit
def hash_columns(keys: Any, bits: Any, columns: Any) -> Any:
    """Write the column of every key: its highest `bits` bits; -1 for key 0."""
    shift = np.uint64(64 - bits)
    for k in range(len(keys)):
        columns[k] = np.int32(keys[k] >> shift) if keys[k] else -1


@jit
def look_up(keys: Any, table: Any, number: Any, columns: Any) -> Any:
    """Write the column of every key in the hash table; -1 for unknown keys."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(keys)):
        columns[k] = -1
        slot = keys[k] & mask
        while table[slot] != np.uint64(0) and keys[k]:
            if table[slot] == keys[k]:
                columns[k] = number[slot]
                break
            slot = (slot + np.uint64(1)) & mask


@jit
def insert_keys(keys: Any, table: Any, number: Any) -> Any:
    """Insert keys into an empty hash table (linear probing), numbered in their order."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(keys)):
        slot = keys[k] & mask
        while table[slot] != np.uint64(0):
            slot = (slot + np.uint64(1)) & mask
        table[slot] = keys[k]
        number[slot] = k


@jit
def first_seen(columns: Any, seen: Any, where: Any) -> Any:
    """Write the positions of columns not seen before to `where`, mark them as seen, return their number."""
    count = 0
    for k in range(len(columns)):
        j = columns[k]
        if j >= 0 and not seen[j]:
            seen[j] = True
            where[count] = k
            count += 1
    return count


@jit
def write_sparse_rows(
    columns: Any, values: Any, tokens: Any, begin: Any, spot: Any, indptr: Any, indices: Any, cells: Any
) -> Any:
    """Write the rows in CSR form, summing cells of the same column; return the number of cells.

    columns, values: [n, F] cells of numbers and categories; column -1 means no cell. tokens: columns of the
    tokens of all texts; those of row r in text t are begin[t, r]:begin[t, r + 1], and have norm 1 together
    if they all differ. spot: [d] filled with -1; work space for the last position of each column.
    """
    at = np.uint64(0)
    indptr[0] = 0
    for r in range(np.uint64(len(columns))):
        low = np.int64(at)
        for k in range(np.uint64(columns.shape[1])):
            j = columns[r, k]
            if j >= 0:
                at = _write_cell(np.uint64(j), values[r, k], low, at, spot, indices, cells)
        for t in range(np.uint64(len(begin))):
            first, last = begin[t, r], begin[t, r + np.uint64(1)]
            if first == last:
                continue
            value = cells.dtype.type(1.0 / np.sqrt(np.float64(last - first)))
            for k in range(np.uint64(first), np.uint64(last)):
                j = tokens[k]
                if j >= 0:
                    at = _write_cell(np.uint64(j), value, low, at, spot, indices, cells)
        indptr[r + np.uint64(1)] = at
    return np.int64(at)


@inline
def _write_cell(j: Any, value: Any, low: Any, at: Any, spot: Any, indices: Any, cells: Any) -> Any:
    previous = np.int64(spot[j])
    if previous >= low:
        cells[np.uint64(previous)] += value
        return at
    spot[j] = np.int32(at)
    indices[at] = j
    cells[at] = value
    return at + np.uint64(1)
