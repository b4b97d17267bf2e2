"""Sealed files: safetensors, or JSON, with a format version and SHA-256 digests that are checked on reading.

The metadata of a safetensors file is one JSON string: the format version, a description, and a digest of
both and of the names, types and shapes of the tensors. Digests of the tensors themselves are part of the
description. A tensor can therefore be read and verified without reading the others.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semicyclic.store.atomic import write_tensors, write_text
from semicyclic.types import Array

Arrays = dict[str, Array]
# Type and shape of a tensor by name.
Layout = dict[str, tuple[str, tuple[int, ...]]]

# NumPy names of the safetensors types, where they differ from the rule below.
TENSOR_TYPES = {"BOOL": "bool", "BF16": "bfloat16"}
KINDS = {"F": "float", "I": "int", "U": "uint"}


class Unreadable(ValueError):
    """Raised for a file that is damaged, or not of the expected kind and version.

    `load` raises it for model files, and reading a checkpoint does too.
    """


class FileFormat(NamedTuple):
    """A kind of sealed files.

    key: metadata key; there is one only, because safetensors does not fix the order of several.
    section: name of the description in the header. version: format version that is written.
    oldest: oldest version that can be read. what: such as "a semicyclic model". remedy: for older versions.
    """

    key: str
    section: str
    version: int
    oldest: int
    what: str
    remedy: str = "write it again"


class SealedFile(NamedTuple):
    """An open file whose header has been verified. about: the description."""

    file: Any
    about: dict[str, Any]
    layout: Layout

    def tensor(self, name: str) -> Array:
        """Read a tensor and compare it with its digest."""
        tensor = np.asarray(self.file.get_tensor(name))
        if digest(tensor) != self.about["digests"][name]:
            raise damage_error(f"'{name}'")
        return tensor

    def part(self, name: str, span: slice) -> Array:
        """Read some rows of a tensor, without reading the others; the caller compares a digest."""
        dtype, shape = self.layout[name]
        if span.start == 0 and span.stop == shape[0]:
            return np.asarray(self.file.get_tensor(name))
        if span.start == span.stop:
            return np.empty((0, *shape[1:]), np.dtype(dtype))
        return np.asarray(self.file.get_slice(name)[span.start : span.stop])


def write_sealed(
    path: Path, form: FileFormat, tensors: Arrays, about: dict[str, Any], whole: Iterable[str] | None = None
) -> None:
    """Write tensors and their description, a JSON value, atomically.

    whole: names of the tensors to verify as a whole, by default all of them; the description must have
    digests of the others.
    """
    # Sorted by name, so that the order does not depend on how safetensors sorts tensors.
    # In native byte order, as they will be read.
    ordered = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    ordered = {
        name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in ordered.items()
    }
    digests = {name: digest(ordered[name]) for name in (ordered if whole is None else whole)}
    # Round-tripped through JSON, so that the digest covers exactly what a reader will parse.
    described = json.loads(json_text({**about, "digests": digests}))
    layout = {name: (tensor.dtype.name, tensor.shape) for name, tensor in ordered.items()}
    head = {
        "version": form.version,
        "digest": _head_digest(form.version, described, layout),
        form.section: described,
    }
    write_tensors(path, ordered, {form.key: json_text(head)})


@contextmanager
def open_sealed(path: str | os.PathLike[str], form: FileFormat) -> Iterator[SealedFile]:
    """Open a file and verify its header; all errors that a damaged file can cause become `Unreadable`."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no such file")
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            yield _read_head(file, form)
    except Unreadable as error:
        raise Unreadable(f"{os.fspath(path)}: {error}") from None
    except SafetensorError as error:
        reason = str(error)[:200]
        raise Unreadable(f"{os.fspath(path)}: not a safetensors file, or a damaged one ({reason})") from None
    except (
        LookupError,
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
        RecursionError,
        MemoryError,
    ) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise Unreadable(f"{os.fspath(path)}: damaged, or not {form.what} ({reason})") from None


def read_sealed(path: Path, form: FileFormat) -> tuple[Arrays, dict[str, Any]]:
    """Read and verify all tensors of a file, and its description."""
    with open_sealed(path, form) as sealed:
        return {name: sealed.tensor(name) for name in sealed.layout}, sealed.about


def _read_head(file: Any, form: FileFormat) -> SealedFile:
    text = (file.metadata() or {}).get(form.key)
    if text is None:
        raise Unreadable(f"a safetensors file, but not {form.what}")
    head = json.loads(text)
    version = head["version"]
    _check_version(version, form)
    layout = {}
    for name in file.keys():  # noqa: SIM118 - not a mapping
        tensor = file.get_slice(name)
        layout[name] = (_numpy_type(tensor.get_dtype()), tuple(tensor.get_shape()))
    about = head[form.section]
    if head["digest"] != _head_digest(version, about, layout):
        raise damage_error("its description")
    return SealedFile(file, about, layout)


def _check_version(version: Any, form: FileFormat) -> None:
    if type(version) is not int:
        raise Unreadable(f"format version {version!r} is unknown: the file is damaged")
    if version > form.version:
        raise Unreadable(
            f"written in format {version} by a newer semicyclic, this one reads up to {form.version}: upgrade"
        )
    if version < form.oldest:
        raise Unreadable(
            f"{form.what} in format {version}, but this version reads {form.oldest} and newer: {form.remedy}"
        )


def _numpy_type(name: str) -> str:
    """Return the NumPy name of a safetensors type, such as float32 for F32."""
    return TENSOR_TYPES.get(name, KINDS.get(name[:1], "?") + name[1:])


def write_sealed_json(path: Path, form: FileFormat, value: dict[str, Any]) -> None:
    """Write a JSON object with its format version and digest atomically."""
    plain = json.loads(json_text(value))
    head = {"version": form.version, "digest": _head_digest(form.version, plain, {}), form.section: plain}
    write_text(path, json_text(head))


def read_sealed_json(path: Path, form: FileFormat) -> dict[str, Any]:
    """Read and verify the object of `write_sealed_json`."""
    try:
        head = json.loads(path.read_bytes(), parse_constant=_refuse)
        _check_version(head["version"], form)
        value = dict(head[form.section])
        if head["digest"] != _head_digest(head["version"], value, {}):
            raise damage_error("it")
        return value
    except Unreadable as error:
        raise Unreadable(f"{path}: {error}") from None
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise Unreadable(
            f"{path}: not {form.what}, or damaged, or of an older version ({str(error)[:200]})"
        ) from None


def _refuse(constant: str) -> None:
    raise ValueError(f"it has {constant}")


def damage_error(part: str) -> Unreadable:
    """Return the error for a part of a file that does not match its digest."""
    return Unreadable(f"{part} was altered or damaged: the digest does not match")


def json_text(value: Any) -> str:
    """Return a JSON value as text that depends on the value only; raise ValueError for NaN."""
    return json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))


def digest(*arrays: Array) -> str:
    """Return the SHA-256 digest of arrays, with their types and shapes."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.name} {array.shape};".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def _head_digest(version: int, about: Any, layout: Layout) -> str:
    described = {name: [dtype, list(shape)] for name, (dtype, shape) in layout.items()}
    return hashlib.sha256(json_text([version, about, described]).encode()).hexdigest()
