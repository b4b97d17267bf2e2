"""Flower's serialized arrays, read without copying.

Flower's `Array` holds an array in NumPy's own file format. Reading one takes longer than it should when a
round has many small ones: the header is a Python literal, parsed every time. Headers repeat, so what they
say is remembered here; data are looked at where they are.
"""

import io
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord

from semicyclic.types import Array

# What Flower calls NumPy's format.
NUMPY = "numpy.ndarray"
MAGIC = b"\x93NUMPY"
# No header of an array of numbers is longer.
LONGEST = 4096


def decode(array: FlowerArray) -> Array:
    """The array, read-only, sharing its bytes."""
    data = array.data
    if array.stype != NUMPY or not data.startswith(MAGIC):
        raise ValueError(f"an array of kind {array.stype!r} cannot be read")
    width = 2 if data[6:7] == b"\x01" else 4
    begin = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if not 16 <= begin <= min(len(data), LONGEST):
        raise ValueError("an array has no header that could be read")
    try:
        dtype, shape, fortran = _header(data[:begin])
    except Exception as error:
        # A header is a Python literal, and what a client sends may break its parser in any way.
        raise ValueError(f"an array's header cannot be read: {type(error).__name__}") from None
    if prod(shape) * dtype.itemsize != len(data) - begin:
        raise ValueError("an array has more or fewer bytes than its shape tells")
    flat = np.frombuffer(data, dtype, prod(shape), begin)
    return flat.reshape(shape, order="F" if fortran else "C")


def encode(value: Array) -> FlowerArray:
    """The array for a message: what `FlowerArray(value)` makes, in C order."""
    whole = np.ascontiguousarray(value).reshape(np.shape(value))
    data = _head(whole.dtype.str, whole.shape) + whole.tobytes()
    return FlowerArray(str(whole.dtype), whole.shape, NUMPY, data)


def record(arrays: dict[str, Array]) -> ArrayRecord:
    """Named arrays as one record."""
    found = ArrayRecord()
    for name, value in arrays.items():
        found[name] = encode(value)
    return found


def remember(array: FlowerArray, value: Array) -> None:
    """Let an array that was read answer `numpy()` with a copy, which is what it would parse its bytes for."""
    # On the object, not in a class of its own: Flower writes the names of classes into messages.
    object.__setattr__(array, "numpy", partial(np.array, value))


@lru_cache(maxsize=4096)
def _header(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.kind not in "biufc":
        raise ValueError(f"an array of {dtype} cannot be read: numbers are expected")
    return dtype, shape, fortran


@lru_cache(maxsize=4096)
def _head(dtype: str, shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()
