"""Arrow columns as NumPy arrays: texts, numbers, booleans."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semicyclic.tables.kernels import hashing
from semicyclic.types import Array

Column = Any  # an Arrow array

# What a number looks like; whatever else Arrow can read (inf, nan) is tried one by one.
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
BOOLEANS = {"true": True, "false": False, "True": True, "False": False, "TRUE": True, "FALSE": False}


class TextColumn(NamedTuple):
    """Texts as bytes: text r is data[first[r]:first[r+1]], if it is there."""

    data: Array
    first: Array
    there: Array


def is_text(column: Column) -> bool:
    """Whether cells are texts, as all those of CSV and JSON lines are."""
    kind = column.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    """Whether a type is one of numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_plain(kind: Any) -> bool:
    """Whether cells of a type are numbers, true and false, texts, or nothing at all."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(is_number(kind) or text or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def value_type(kind: Any) -> Any:
    """A type, or that of the values of a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def there(column: Column) -> Array:
    """Which cells are not missing."""
    if column.null_count == 0:
        return np.ones(len(column), bool)
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))


def as_text(column: Column) -> Column:
    """Cells of any kind as an Arrow array of texts."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_null(column.type) or pa.types.is_nested(column.type):
        return pa.nulls(len(column), pa.string())
    return pc.cast(column, pa.string())


def texts(column: Column) -> TextColumn:
    """The bytes of an Arrow array of texts, without a copy."""
    column = as_text(column)
    _, first, data = column.buffers()
    bounds = np.zeros(1, np.int32) if first is None else np.frombuffer(first, np.int32)
    inside = bounds[column.offset : column.offset + len(column) + 1]
    if len(column) == 0:
        inside = np.zeros(1, np.int32)
    whole = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    known = there(column)
    hashing.leave_out_missing(whole, inside, known)
    return TextColumn(whole, inside, known)


def known_texts(column: Column) -> Column:
    """The texts that are not missing."""
    text = as_text(column)
    return text.filter(pa.array(texts(text).there))


def numbers(column: Column) -> tuple[Array, Array]:
    """Cells as float64, NaN where missing; and which of them are no numbers."""
    fine = np.zeros(len(column), bool)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan), fine
    if not is_text(column):
        if pa.types.is_boolean(column.type):
            column = pc.cast(column, pa.int8())
        short = pa.types.is_float32(column.type) or pa.types.is_float16(column.type)
        values = _floats(pc.cast(column, pa.float64(), safe=False))
        return _as_written(values) if short else values, fine
    try:
        return _floats(pc.cast(column, pa.float64())), fine
    except pa.ArrowInvalid:
        pass
    text = as_text(column)
    trimmed = pc.utf8_trim_whitespace(pc.if_else(pa.array(texts(text).there), text, None))
    plain = pc.match_substring_regex(trimmed, NUMBER)
    found = _floats(pc.cast(pc.if_else(plain, trimmed, None), pa.float64()))
    odd = np.flatnonzero(~_flags(plain) & there(trimmed))
    bad = np.zeros(len(column), bool)
    for row in odd.tolist():
        try:
            found[row] = pc.cast(trimmed[row], pa.float64()).as_py()
        except pa.ArrowInvalid:
            bad[row] = True
    return found, bad


def numeric_share(known: Column) -> float:
    """How many of some texts, none of them missing, are numbers."""
    trimmed = pc.utf8_trim_whitespace(known)
    plain = pc.match_substring_regex(trimmed, NUMBER)
    count = int(pc.sum(plain).as_py() or 0)
    # Words such as inf are rare: if most are no plain numbers, none is asked.
    if count < 0.5 * len(known):
        return count / len(known)
    return 1.0 - float(numbers(known)[1].mean())


def booleans(column: Column) -> tuple[Array, Array]:
    """Cells as 1.0 and 0.0, NaN where missing; and which of them are neither true nor false."""
    if pa.types.is_boolean(column.type):
        return _floats(pc.cast(pc.cast(column, pa.int8()), pa.float64())), np.zeros(len(column), bool)
    text = as_text(column)
    found = np.full(len(text), np.nan)
    for word, value in BOOLEANS.items():
        found[_flags(pc.equal(text, word))] = float(value)
    return found, np.isnan(found) & texts(text).there


def _as_written(values: Array) -> Array:
    """Numbers of single precision as a text would have them: 39.02, and not 39.0200004577.

    So that a bin holds the same rows whether they come with types or as texts.
    """
    out = values.copy()
    left = np.isfinite(values) & (values != 0)
    exponent = np.zeros(len(values))
    exponent[left] = np.floor(np.log10(np.abs(values[left])))
    # A text of six figures or fewer is found by six; next to 0, where the last bits are lost, by fewer.
    dim = np.abs(values) < np.finfo(np.float32).tiny
    for figures in range(1, 10):
        tried = left if figures >= 6 else left & dim
        if not tried.any():
            continue
        power = figures - 1 - exponent
        with np.errstate(over="ignore", invalid="ignore"):
            up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
            found = np.where(power >= 0, np.round(values * up) / up, np.round(values / down) * down)
            same = tried & (found.astype(np.float32) == values.astype(np.float32))
        out[same] = found[same]
        left &= ~same
    return out


def _flags(column: Column) -> Array:
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False))


def _floats(column: Column) -> Array:
    return np.array(pc.fill_null(column, float("nan")).to_numpy(zero_copy_only=False), np.float64)
