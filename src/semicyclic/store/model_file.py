"""Model files: sealed safetensors files (`store/sealed.py`).

The tensors are those of `DeltaWeights`: kind, first, column, value, dense. The description is the model
without its weights, with digests of the tables `kind` and `first`, and of each key frame with the blocks that
build on it. A single block can therefore be read and verified without reading the others.
"""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.delta_weights import DENSE, DIFFERENT, DeltaWeights, frames_of, group_of
from semicyclic.method.loss import by_name
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Encoding
from semicyclic.schedule.numbered import AnySchedule, Numbered
from semicyclic.schedule.schedule import Schedule
from semicyclic.store.sealed import (
    FileFormat,
    SealedFile,
    Unreadable,
    damage_error,
    digest,
    json_text,
    open_sealed,
    write_sealed,
)
from semicyclic.types import Array

FORMAT = FileFormat("semicyclic", "model", version=1, oldest=1, what="a semicyclic model")
PRECISIONS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
TENSOR_NAMES = ("kind", "first", "column", "value", "dense")
# Tensors that are read as a whole; of the others, a single block needs a part only.
WHOLE = ("kind", "first")


def save(model: Pluralistic, path: str | os.PathLike[str], *, dtype: npt.DTypeLike | None = None) -> None:
    """Write a model to a safetensors file atomically.

    Parameters
    ----------
    model : Pluralistic
        The model. Its classes and provenance must be JSON values.
    path : path
        File to write. Its folder must exist; an existing file is replaced.
    dtype : {float16, float32, float64}, optional
        Precision of the stored weights. By default, that of the model.

    Raises
    ------
    TypeError
        If `model` is not a model.
    ValueError
        If `dtype` is not supported, or if the model has weights that are not finite or values that JSON
        cannot represent.
    FileNotFoundError
        If the folder does not exist.
    OSError
        If the file cannot be written.
    """
    if not isinstance(model, Pluralistic):
        raise TypeError(_not_a_model_message(model))
    if dtype is not None and np.dtype(dtype).name not in PRECISIONS:
        raise ValueError(f"dtype={dtype!r}: choose float32, float16 or float64")
    frames = _frames(model, dtype)
    tensors = {name: np.ascontiguousarray(getattr(frames, name)) for name in TENSOR_NAMES}
    about = _describe(model, frames)
    write_sealed(Path(path), FORMAT, tensors, about, whole=WHOLE)


def read_model(
    path: str | os.PathLike[str], decode: Callable[[Any], Encoding], *, block: int | None = None
) -> Pluralistic:
    """Read a model, or one block of it, from a file written by `save`.

    decode: returns the encoding of tables from its JSON value.
    """
    if block is not None and (isinstance(block, bool) or not isinstance(block, int | np.integer)):
        raise TypeError(f"block={block!r}: must be a whole number")
    with open_sealed(path, FORMAT) as sealed:
        _check_tensors(sealed)
        settings, blocks = _settings(sealed.about, decode), sealed.about["shape"][0]
        if block is None:
            frames, _ = _read_frames(sealed, None)
            # If every block is a key frame in full precision, the frames are the weight array itself.
            is_plain = bool((frames.kind == DENSE).all()) and frames.value.dtype != np.float16
            return Pluralistic(frames.dense.reshape(frames.shape) if is_plain else frames, **settings)
        if 0 <= block < blocks:
            frames, first = _read_frames(sealed, block)
            settings |= {
                "schedule": 1,
                "fallback": (0,) if block in settings["fallback"] else (),
                "provenance": {"block": int(block), "of": settings["provenance"]},
            }
            return Pluralistic(frames.alone(block - first), **settings)
    raise IndexError(f"block {block}: the model has blocks 0 to {blocks - 1}")


# ------------------------------------------------------------------------------- writing


def _frames(model: Pluralistic, dtype: npt.DTypeLike | None) -> DeltaWeights:
    if not isinstance(model.held, DeltaWeights):
        if not np.isfinite(model.held).all():
            raise ValueError("the model has weights that are not finite: it cannot be saved")
        return frames_of(model.held, dtype)
    if dtype is None or np.dtype(dtype) == model.held.value.dtype:
        return model.held
    return frames_of(model.weights, dtype)


def _describe(model: Pluralistic, frames: DeltaWeights) -> dict[str, Any]:
    about = {
        "schedule": model.schedule.to_json(),
        "loss": model.loss.name,
        "classes": list(model.classes),
        "fallback": list(model.fallback),
        "features": None if model.features is None else model.features.to_json(),
        "provenance": model.provenance,
        "shape": list(frames.shape),
        "groups": [digest(*parts) for parts in _groups(frames)],
    }
    try:
        json_text(about)
    except (TypeError, ValueError) as error:
        raise ValueError(f"classes, features and provenance must be JSON values: {error}") from None
    return about


def _groups(frames: DeltaWeights) -> Iterator[tuple[Array, ...]]:
    """Yield the arrays of each key frame together with the blocks that build on it."""
    for key, end in pairwise([*frames.keys.tolist(), len(frames)]):
        span = slice(int(frames.first[key]), int(frames.first[end]))
        dense_rows = slice(int(frames.dense_before[key]), int(frames.dense_before[end]))
        yield frames.column[span], frames.value[span], frames.dense[dense_rows]


# ------------------------------------------------------------------------------- reading


def _check_tensors(sealed: SealedFile) -> None:
    """Raise unless the file has the tensors of a model."""
    if sorted(sealed.layout) != sorted(TENSOR_NAMES):
        held = ", ".join(sorted(sealed.layout))
        raise Unreadable(f"it should hold {', '.join(TENSOR_NAMES)}, but holds {held}")
    shape = sealed.about["shape"]
    if len(shape) != 3 or not all(type(size) is int and 0 < size < 2**48 for size in shape):
        raise Unreadable(f"its shape {shape!r} is not blocks, outputs and columns")


def _read_frames(sealed: SealedFile, block: int | None) -> tuple[DeltaWeights, int]:
    """Return the frames and the number of their first block.

    With `block`, these are only its key frame and the blocks that build on that.
    """
    about, layout = sealed.about, sealed.layout
    kind, first = (sealed.tensor(name) for name in WHOLE)
    m, outputs, width = about["shape"]
    if kind.shape != (m,) or first.shape != (m + 1,) or kind.dtype != np.uint8 or first.dtype != np.int64:
        raise Unreadable("its tables have the wrong shape")
    listed, dense = layout["column"][1], layout["dense"][1]
    if listed != layout["value"][1] or listed != (int(first[-1]),) or bool((np.diff(first) < 0).any()):
        raise Unreadable("its lists have the wrong length")
    if dense != (int((kind == DENSE).sum()), outputs * width):
        raise Unreadable("its dense frames have the wrong shape")
    if layout["value"][0] != layout["dense"][0] or layout["value"][0] not in PRECISIONS:
        raise Unreadable(f"its weights are {layout['value'][0]}: they should be float32, float16 or float64")
    if layout["column"][0] not in ("uint32", "uint64"):
        raise Unreadable(f"its columns are {layout['column'][0]}: they should be uint32 or uint64")
    if kind[0] == DIFFERENT:
        raise Unreadable("its first block builds on nothing")
    keys = np.flatnonzero(kind != DIFFERENT)
    if len(about["groups"]) != len(keys):
        raise Unreadable("it does not have one digest for each key frame")
    low, high = (0, m) if block is None else group_of(keys, m, block)
    span = slice(int(first[low]), int(first[high]))
    before = int((kind[:low] == DENSE).sum())
    rows = slice(before, before + int((kind[low:high] == DENSE).sum()))
    frames = DeltaWeights(
        kind[low:high],
        first[low : high + 1] - first[low],
        sealed.part("column", span),
        sealed.part("value", span),
        sealed.part("dense", rows),
        (high - low, outputs, width),
    )
    for number, parts in enumerate(_groups(frames), start=int((keys < low).sum())):
        if digest(*parts) != about["groups"][number]:
            raise damage_error("a group of blocks")
    return frames, low


def _settings(about: dict[str, Any], decode: Callable[[Any], Encoding]) -> dict[str, Any]:
    """Return the arguments of `Pluralistic` other than its weights, validated."""
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
    if not all(type(number) is int and 0 <= number < blocks for number in fallback):
        raise Unreadable("it names blocks that it does not have")
    return {
        "schedule": schedule,
        "loss": loss,
        "classes": classes,
        "fallback": fallback,
        "features": None if about["features"] is None else decode(about["features"]),
        "provenance": about["provenance"],
    }


def _not_a_model_message(given: object) -> str:
    remedy = (
        "save its to_model()" if hasattr(given, "to_model") else "read it out of a run, such as run.mean()"
    )
    return f"model is a {type(given).__name__}: {remedy}"
