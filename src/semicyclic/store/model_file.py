"""Model files: safetensors with a JSON header.

The tensors are those of `DeltaWeights`: kind, first, column, value, dense. The metadata is one JSON text:
the format's version, what the model is beside its weights, and digests: of that, of the tables,
and of each key frame with what builds on it. So a block can be read and checked without the rest.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.delta_weights import DENSE, DIFFERENT, DeltaWeights, frames_of, group_of
from semicyclic.method.loss import by_name
from semicyclic.method.model import Pluralistic
from semicyclic.schedule.numbered import AnySchedule, Numbered
from semicyclic.schedule.schedule import Schedule
from semicyclic.store.atomic import write_tensors
from semicyclic.types import Array

# One key only: safetensors writes several in no particular order.
KEY, VERSION = "semicyclic", 1
PRECISIONS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
NAMES = ("kind", "first", "column", "value", "dense")


class Unreadable(ValueError):
    """A file that does not hold a model this version can read."""


class _NoBlock(IndexError):
    """The file is fine, the block asked for is not in it."""


def save(model: Pluralistic, path: str | os.PathLike[str], *, dtype: npt.DTypeLike | None = None) -> None:
    """Write a model to one file, whole or not at all.

    dtype: float32 or float16; unless given, the model's own.
    """
    if not isinstance(model, Pluralistic):
        raise TypeError(_no_model(model))
    if dtype is not None and np.dtype(dtype).name not in PRECISIONS:
        raise ValueError(f"dtype={dtype!r}: choose float32, float16 or float64")
    frames = _frames(model, dtype)
    tensors = {name: np.ascontiguousarray(getattr(frames, name)) for name in NAMES}
    about = _describe(model, frames, tensors)
    kinds = {name: (each.dtype.name, each.shape) for name, each in tensors.items()}
    head = {"version": VERSION, "digest": _head_digest(VERSION, about, kinds), "model": about}
    write_tensors(Path(path), tensors, {KEY: _text(head)})


def load(path: str | os.PathLike[str], *, block: int | None = None) -> Pluralistic:
    """Read a model back; or only one block of it, as a model that has that block alone."""
    if block is not None and (isinstance(block, bool) or not isinstance(block, int | np.integer)):
        raise TypeError(f"block={block!r}: must be a whole number")
    with _open(path) as file:
        about, held = _head(file)
        settings = _settings(about)
        if block is None:
            frames, _ = _read(file, about, held, None)
            # With every block a key frame in full precision, the frames are the table itself.
            whole = bool((frames.kind == DENSE).all()) and frames.value.dtype != np.float16
            return Pluralistic(frames.dense.reshape(frames.shape) if whole else frames, **settings)
        if not 0 <= block < about["shape"][0]:
            raise _NoBlock(f"block {block}: the model has blocks 0 to {about['shape'][0] - 1}")
        frames, first = _read(file, about, held, block)
        settings |= {
            "schedule": 1,
            "fallback": (0,) if block in settings["fallback"] else (),
            "provenance": {"block": int(block), "of": settings["provenance"]},
        }
        return Pluralistic(frames.alone(block - first), **settings)


# ------------------------------------------------------------------------------- writing


def _frames(model: Pluralistic, dtype: npt.DTypeLike | None) -> DeltaWeights:
    if not isinstance(model.held, DeltaWeights):
        if not np.isfinite(model.held).all():
            raise ValueError("the model has weights that are not finite: it cannot be saved")
        return frames_of(model.held, dtype)
    if dtype is None or np.dtype(dtype) == model.held.value.dtype:
        return model.held
    return frames_of(model.weights, dtype)


def _describe(model: Pluralistic, frames: DeltaWeights, tensors: dict[str, Array]) -> dict[str, Any]:
    about = {
        "schedule": model.schedule.to_json(),
        "loss": model.loss.name,
        "classes": list(model.classes),
        "fallback": list(model.fallback),
        "features": model.features,
        "provenance": model.provenance,
        "shape": list(frames.shape),
        "digests": {name: _digest(tensors[name]) for name in ("kind", "first")},
        "groups": [_digest(*parts) for parts in _groups(frames)],
    }
    try:
        # What comes back from JSON, so that digests are of what a reader will see.
        return dict(json.loads(_text(about)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"classes, features and provenance must be JSON values: {error}") from None


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _groups(frames: DeltaWeights) -> Iterator[tuple[Array, ...]]:
    """What each key frame and the blocks that build on it consist of."""
    for key, end in pairwise([*frames.keys.tolist(), len(frames)]):
        span = slice(int(frames.first[key]), int(frames.first[end]))
        own = slice(int(frames.dense_before[key]), int(frames.dense_before[end]))
        yield frames.column[span], frames.value[span], frames.dense[own]


def _digest(*arrays: Array) -> str:
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.name} {array.shape};".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def _head_digest(version: int, about: Any, tensors: dict[str, Any]) -> str:
    told = {name: [kind, list(shape)] for name, (kind, shape) in tensors.items()}
    return hashlib.sha256(_text([version, about, told]).encode()).hexdigest()


# ------------------------------------------------------------------------------- reading

# What safetensors calls the kinds of numbers.
SIZES = {"U8": "uint8", "U32": "uint32", "U64": "uint64", "I32": "int32", "I64": "int64"}
KINDS = SIZES | {"F16": "float16", "F32": "float32", "F64": "float64"}


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The file, and one kind of error for all that can be wrong with it."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no such file")
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            yield file
    except _NoBlock:
        raise
    except Unreadable as error:
        raise Unreadable(f"{os.fspath(path)}: {error}") from None
    except SafetensorError as error:
        raise Unreadable(
            f"{os.fspath(path)}: not a safetensors file, or a damaged one ({str(error)[:200]})"
        ) from None
    except (
        LookupError,
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
        RecursionError,
        MemoryError,
    ) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise Unreadable(f"{os.fspath(path)}: damaged, or not written by semicyclic ({why})") from None


def _head(file: Any) -> tuple[dict[str, Any], dict[str, tuple[str, tuple[int, ...]]]]:
    """What the model is and what tensors there are, checked against their digest."""
    text = (file.metadata() or {}).get(KEY)
    if text is None:
        raise Unreadable("a safetensors file, but not a semicyclic model")
    head = json.loads(text)
    version = head["version"]
    if type(version) is not int or version < 1:
        raise Unreadable(f"format version {version!r} is unknown: the file is damaged")
    if version > VERSION:
        raise Unreadable(
            f"written in format {version} by a newer semicyclic, this one reads up to {VERSION}: upgrade"
        )
    held = {}
    for name in file.keys():  # noqa: SIM118 - not a mapping
        part = file.get_slice(name)
        held[name] = (KINDS.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape()))
    about = head["model"]
    if head["digest"] != _head_digest(version, about, held):
        raise _damage_error("its description")
    if sorted(held) != sorted(NAMES):
        raise Unreadable(f"it should hold {', '.join(NAMES)}, and holds {', '.join(sorted(held))}")
    shape = about["shape"]
    if len(shape) != 3 or not all(type(size) is int and 0 < size < 2**48 for size in shape):
        raise Unreadable(f"its shape {shape!r} is not blocks, outputs and columns")
    return about, held


def _damage_error(what: str) -> Unreadable:
    return Unreadable(f"{what} was altered or damaged: the digest does not fit")


def _read(file: Any, about: dict[str, Any], held: Any, block: int | None) -> tuple[DeltaWeights, int]:
    """The frames; with a block given, only its key frame and what builds on it. Their first block."""
    kind, first = (_table(file, about, name) for name in ("kind", "first"))
    m, outputs, width = about["shape"]
    if kind.shape != (m,) or first.shape != (m + 1,) or kind.dtype != np.uint8 or first.dtype != np.int64:
        raise Unreadable("its tables have the wrong shape")
    listed, dense = held["column"][1], held["dense"][1]
    if listed != held["value"][1] or listed != (int(first[-1]),) or bool((np.diff(first) < 0).any()):
        raise Unreadable("its lists have the wrong length")
    if dense != (int((kind == DENSE).sum()), outputs * width):
        raise Unreadable("its dense frames have the wrong shape")
    if held["value"][0] != held["dense"][0] or held["value"][0] not in PRECISIONS:
        raise Unreadable(f"its weights are {held['value'][0]}: they should be float32, float16 or float64")
    if held["column"][0] not in ("uint32", "uint64"):
        raise Unreadable(f"its columns are {held['column'][0]}: they should be whole numbers")
    if kind[0] == DIFFERENT:
        raise Unreadable("its first block builds on nothing")
    keys = np.flatnonzero(kind != DIFFERENT)
    if len(about["groups"]) != len(keys):
        raise Unreadable("its digests are not one for each key frame")
    low, high = (0, m) if block is None else group_of(keys, m, block)
    span = slice(int(first[low]), int(first[high]))
    before = int((kind[:low] == DENSE).sum())
    rows = slice(before, before + int((kind[low:high] == DENSE).sum()))
    frames = DeltaWeights(
        kind[low:high],
        first[low : high + 1] - first[low],
        _part(file, "column", span, listed[0]),
        _part(file, "value", span, listed[0]),
        _part(file, "dense", rows, dense[0]),
        (high - low, outputs, width),
    )
    for number, parts in enumerate(_groups(frames), start=int((keys < low).sum())):
        if _digest(*parts) != about["groups"][number]:
            raise _damage_error("a group of blocks")
    return frames, low


def _table(file: Any, about: dict[str, Any], name: str) -> Array:
    table = np.asarray(file.get_tensor(name))
    if _digest(table) != about["digests"][name]:
        raise _damage_error(f"'{name}'")
    return table


def _part(file: Any, name: str, span: slice, length: int) -> Array:
    """A part of a tensor, read without the rest."""
    if span.start == 0 and span.stop == length:
        return np.asarray(file.get_tensor(name))
    part = file.get_slice(name)
    if span.start == span.stop:
        kind = np.dtype(KINDS[part.get_dtype()])
        return np.empty((0, *part.get_shape()[1:]), kind)
    return np.asarray(part[span.start : span.stop])


def _settings(about: dict[str, Any]) -> dict[str, Any]:
    """All that a model has beside its weights."""
    given = about["schedule"]
    schedule: AnySchedule = Numbered(given) if type(given) is int else Schedule.from_json(given)
    loss, classes = by_name(about["loss"]), tuple(about["classes"])
    blocks, outputs, _ = about["shape"]
    if type(about["classes"]) is not list or not all(isinstance(c, str | int | float) for c in classes):
        raise Unreadable("its classes are not a list of texts or numbers")
    fits = len(classes) in (0, loss.classes) and len(set(classes)) == len(classes)
    if outputs != loss.outputs or not fits:
        raise Unreadable(f"{outputs} output(s) and {len(classes)} classes do not go with loss {loss.name}")
    if schedule.blocks != blocks:
        raise Unreadable(f"it has weights of {blocks} blocks for another schedule")
    fallback = tuple(about["fallback"])
    if not all(type(each) is int and 0 <= each < blocks for each in fallback):
        raise Unreadable("it names blocks that it does not have")
    return {
        "schedule": schedule,
        "loss": loss,
        "classes": classes,
        "fallback": fallback,
        "features": about["features"],
        "provenance": about["provenance"],
    }


def _no_model(given: object) -> str:
    how = "save its to_model()" if hasattr(given, "to_model") else "read it out of a run, such as run.mean()"
    return f"model is a {type(given).__name__}: {how}"
