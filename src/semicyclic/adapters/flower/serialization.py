"""Zero-copy decoding and encoding of Flower's serialized arrays.

Flower's `Array` holds an array in NumPy's .npy format. Its header is a Python literal, which is slow to parse
when a round has many small arrays. Headers repeat, so parsed headers are cached here; array data is read in
place.
"""

import io
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord

from semicyclic.types import Array

# Flower's name of the .npy format.
NUMPY_STYPE = "numpy.ndarray"
NPY_MAGIC = b"\x93NUMPY"
# Upper limit of the header length of a numeric array.
MAX_HEADER_BYTES = 4096


def decode(array: FlowerArray) -> Array:
    """Return a read-only view of a serialized array; raise ValueError if it is malformed."""
    data = array.data
    if array.stype != NUMPY_STYPE or not data.startswith(NPY_MAGIC):
        raise ValueError(f"an array with stype {array.stype!r} cannot be read, expected {NUMPY_STYPE!r}")
    width = 2 if data[6:7] == b"\x01" else 4
    begin = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if not 16 <= begin <= min(len(data), MAX_HEADER_BYTES):
        raise ValueError("an array has no valid header")
    try:
        dtype, shape, fortran = _parse_header(data[:begin])
    except Exception as error:
        # The header is a Python literal from a client: a malformed one may raise any exception in the parser.
        raise ValueError(f"an array's header cannot be read: {type(error).__name__}") from None
    if prod(shape) * dtype.itemsize != len(data) - begin:
        raise ValueError("the byte length of an array does not match its shape")
    flat = np.frombuffer(data, dtype, prod(shape), begin)
    return flat.reshape(shape, order="F" if fortran else "C")


def encode(value: Array) -> FlowerArray:
    """Serialize an array in C order, with the same bytes as `FlowerArray(value)`."""
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    data = _build_header(array.dtype.str, array.shape) + array.tobytes()
    return FlowerArray(str(array.dtype), array.shape, NUMPY_STYPE, data)


def record(arrays: dict[str, Array]) -> ArrayRecord:
    """Serialize named arrays to one record."""
    encoded = ArrayRecord()
    for name, value in arrays.items():
        encoded[name] = encode(value)
    return encoded


def cache_decoded(array: FlowerArray, value: Array) -> None:
    """Make `array.numpy()` return a copy of the decoded `value` instead of parsing the bytes again."""
    # Set on the instance, not in a subclass: Flower writes class names into messages.
    object.__setattr__(array, "numpy", partial(np.array, value))


@lru_cache(maxsize=4096)
def _parse_header(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return dtype, shape and Fortran order of an .npy header."""
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.kind not in "biufc":
        raise ValueError(f"an array of dtype {dtype} cannot be read, expected numbers")
    return dtype, shape, fortran


@lru_cache(maxsize=4096)
def _build_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the .npy header of a C-order array."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()
