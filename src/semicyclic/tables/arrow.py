"""Conversion of Arrow columns to NumPy arrays: strings, numbers and booleans."""

from math import floor, isfinite, log10
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.tables.kernels import hashing
from semicyclic.types import Array

Column = Any  # an Arrow array

# Plain decimal numbers; other strings that Arrow can parse as numbers (inf, nan) are tried one by one.
NUMBER_PATTERN = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# Smaller fractions in double precision are not taken for single-precision ones; larger ones than 2^23 are not
# in single precision.
MIN_SINGLE = 1e-10
POWERS = np.array([float(10**k) for k in range(23)])
BOOLEANS = {"true": True, "false": False, "True": True, "False": False, "TRUE": True, "FALSE": False}


class TextColumn(NamedTuple):
    """UTF-8 strings as bytes: string r is data[first[r]:first[r+1]]; there[r] is False if it is missing."""

    data: Array
    first: Array
    there: Array


def is_text(column: Column) -> bool:
    """Return whether the column holds strings, as every column of CSV and JSON lines does."""
    dtype = column.type
    return bool(
        pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
    )


def is_number(dtype: Any) -> bool:
    """Return whether an Arrow type is numeric."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def is_plain(dtype: Any) -> bool:
    """Return whether an Arrow type is numeric, boolean, string or null."""
    text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
    return bool(is_number(dtype) or text or pa.types.is_boolean(dtype) or pa.types.is_null(dtype))


def value_type(dtype: Any) -> Any:
    """Return the Arrow type, or for a dictionary type that of its values."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def valid_mask(column: Column) -> Array:
    """Boolean mask of the cells that are not null."""
    if column.null_count == 0:
        return np.ones(len(column), bool)
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))


def combined(column: Column) -> Column:
    """Return a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def column_named(table: Any, name: str) -> Column:
    """Return a column of a table as one array."""
    return combined(table.column(name))


def known_mask(column: Column) -> Array:
    """Boolean mask of the cells that are neither null nor a word such as NA."""
    return texts(column).there if is_text(column) else valid_mask(column)


def as_text(column: Column) -> Column:
    """Convert a column of any type to an Arrow string array; nested cells become null."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_null(column.type) or pa.types.is_nested(column.type):
        return pa.nulls(len(column), pa.string())
    return pc.cast(column, pa.string())


def texts(column: Column) -> TextColumn:
    """Return the bytes and offsets of a string column without copying; words such as NA count as missing."""
    column = as_text(column)
    _, first, data = column.buffers()
    bounds = np.zeros(1, np.int32) if first is None else np.frombuffer(first, np.int32)
    offsets = bounds[column.offset : column.offset + len(column) + 1]
    if len(column) == 0:
        offsets = np.zeros(1, np.int32)
    all_bytes = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    known = valid_mask(column)
    hashing.mark_missing_words(all_bytes, offsets, known)
    return TextColumn(all_bytes, offsets, known)


def known_texts(column: Column) -> Column:
    """Return only the strings that are not missing."""
    text = as_text(column)
    return text.filter(pa.array(texts(text).there))


def numbers(column: Column) -> tuple[Array, Array]:
    """Return the cells as float64, NaN where missing, and a mask of the cells that are not numbers.

    Single-precision numbers are read as their shortest decimals, 39.02 instead of 39.0200004577; so are
    fractions in double precision that have the value of one, as after a conversion to dicts or files.
    """
    values, bad = _parse_numbers(column)
    if pa.types.is_float32(column.type) or pa.types.is_float16(column.type):
        return _shortest_decimals(values), bad
    single = _were_single(values)
    if single.any():
        values[single] = _shortest_decimals(values[single])
    return values, bad


def _were_single(values: Array) -> Array:
    """Mask of fractions that have the value of a single-precision number and more than twelve digits."""
    with np.errstate(over="ignore", invalid="ignore"):
        mask = (values.astype(np.float32) == values) & (values != np.floor(values))
    mask &= np.abs(values) > MIN_SINGLE
    found = np.flatnonzero(mask)
    power = POWERS[11 - np.floor(np.log10(np.abs(values[found]))).astype(np.int64)]
    mask[found] = np.round(values[found] * power) / power != values[found]
    return np.asarray(mask)


def was_single(number: float) -> bool:
    """Return whether a number has the value of a single-precision fraction and more than twelve digits."""
    if not isfinite(number) or number.is_integer() or abs(number) <= MIN_SINGLE:
        return False
    if float(np.float32(number)) != number:
        return False
    power = float(POWERS[11 - floor(log10(abs(number)))])
    return round(number * power) / power != number


def _parse_numbers(column: Column) -> tuple[Array, Array]:
    no_errors = np.zeros(len(column), bool)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan), no_errors
    if not is_text(column):
        if pa.types.is_boolean(column.type):
            column = pc.cast(column, pa.int8())
        return _floats(pc.cast(column, pa.float64(), safe=False)), no_errors
    try:
        return _floats(pc.cast(column, pa.float64())), no_errors
    except pa.ArrowInvalid:
        pass
    text = as_text(column)
    trimmed = pc.utf8_trim_whitespace(pc.if_else(pa.array(texts(text).there), text, None))
    plain = pc.match_substring_regex(trimmed, NUMBER_PATTERN)
    values = _floats(pc.cast(pc.if_else(plain, trimmed, None), pa.float64()))
    odd = np.flatnonzero(~_flags(plain) & valid_mask(trimmed))
    bad = np.zeros(len(column), bool)
    for row in odd.tolist():
        try:
            values[row] = pc.cast(trimmed[row], pa.float64()).as_py()
        except pa.ArrowInvalid:
            bad[row] = True
    return values, bad


def numeric_share(known: Column) -> float:
    """Return the share of strings that are numbers; `known` has no missing strings."""
    trimmed = pc.utf8_trim_whitespace(known)
    plain = pc.match_substring_regex(trimmed, NUMBER_PATTERN)
    count = int(pc.sum(plain).as_py() or 0)
    # Words such as inf are rare: if most strings are not plain numbers, skip the slow check.
    if count < 0.5 * len(known):
        return count / len(known)
    return 1.0 - float(numbers(known)[1].mean())


def booleans(column: Column) -> tuple[Array, Array]:
    """Return the cells as 1.0 or 0.0, NaN where missing, and a mask of those neither true nor false."""
    if pa.types.is_boolean(column.type):
        return _floats(pc.cast(pc.cast(column, pa.int8()), pa.float64())), np.zeros(len(column), bool)
    text = as_text(column)
    values = np.full(len(text), np.nan)
    for word, value in BOOLEANS.items():
        values[_flags(pc.equal(text, word))] = float(value)
    return values, np.isnan(values) & texts(text).there


def _shortest_decimals(values: Array) -> Array:
    """Round single-precision numbers to their shortest decimal form."""
    out = values.copy()
    pending = np.isfinite(values) & (values != 0)
    exponent = np.zeros(len(values))
    exponent[pending] = np.floor(np.log10(np.abs(values[pending])))
    # Six digits recover any decimal of at most six; subnormal numbers have lost bits and need fewer.
    subnormal = np.abs(values) < np.finfo(np.float32).tiny
    for digits in range(1, 10):
        candidates = pending if digits >= 6 else pending & subnormal
        if not candidates.any():
            continue
        power = digits - 1 - exponent
        with np.errstate(over="ignore", invalid="ignore"):
            scale_up, scale_down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
            rounded = np.where(
                power >= 0, np.round(values * scale_up) / scale_up, np.round(values / scale_down) * scale_down
            )
            same = candidates & (rounded.astype(np.float32) == values.astype(np.float32))
        out[same] = rounded[same]
        pending &= ~same
    return out


def _flags(column: Column) -> Array:
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False))


def _floats(column: Column) -> Array:
    return np.array(pc.fill_null(column, float("nan")).to_numpy(zero_copy_only=False), np.float64)
