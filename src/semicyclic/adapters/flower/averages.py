"""Per-block means of a sequence of models: `method/average.py` for named arrays of any size.

A round is a step: w_t is the global model at the start of the round, before its update. A round changes only
the mean of the open visit. When the next visit begins, that mean is merged into its block's mean, so the cost
of a round does not depend on the number of blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method import average
from semicyclic.types import Array

Named = Mapping[str, Array]


class ArraySpec(NamedTuple):
    """Array names, shapes and dtypes that all models of a run share."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]

    @staticmethod
    def of(arrays: Named) -> "ArraySpec":
        """Return the layout of `arrays`; raise if one is not boolean, integer or float."""
        if not arrays:
            raise ValueError("the model has no arrays: pass at least one")
        for name, value in arrays.items():
            if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
                raise ValueError(
                    f"array {name!r} has dtype {value.dtype}, which cannot be averaged: use a boolean, "
                    "integer or float dtype of at most 64 bits"
                )
        names, shapes, dtypes = zip(
            *((name, value.shape, value.dtype.newbyteorder("=")) for name, value in arrays.items()),
            strict=True,
        )
        return ArraySpec(names, shapes, dtypes)

    def cast(self, values: Iterable[Array]) -> dict[str, Array]:
        """Return means as a model in the model's dtypes: round integers, copy memory-mapped arrays."""
        pairs = zip(self.names, self.dtypes, values, strict=True)
        in_memory = (
            (name, dtype, np.array(value) if _is_mapped(value) else value) for name, dtype, value in pairs
        )
        return {name: as_type(value, dtype) for name, dtype, value in in_memory}

    def only(self, names: Iterable[str]) -> "ArraySpec":
        """Return the layout of the named arrays, in the same order."""
        wanted = set(names)
        rows = [row for row in zip(*self, strict=True) if row[0] in wanted]
        if not rows:
            return ArraySpec((), (), ())
        return ArraySpec(*(tuple(column) for column in zip(*rows, strict=True)))

    def zeros(self) -> list[Array]:
        """Return float64 arrays of zeros: the initial value of a mean."""
        return [np.zeros(shape) for shape in self.shapes]


def _is_mapped(value: Array) -> bool:
    """Return whether an array is memory-mapped, so that its values change as the run continues."""
    return isinstance(value, np.memmap)


def as_type(value: Array, dtype: np.dtype[Any]) -> Array:
    """Cast to `dtype`: round for integers, threshold at 0.5 for booleans. No copy if the dtype is equal."""
    if value.dtype == dtype:
        return value
    if dtype.kind in "iu" and value.dtype.kind == "f":
        value = np.rint(value)
    elif dtype.kind == "b":
        value = value > 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        return value.astype(dtype)


class ModelMean(NamedTuple):
    """Mean of a set of models, array by array, and its weight: the number of rounds averaged."""

    values: list[Array]
    weight: float


class CycleMean(NamedTuple):
    """Mean of one block over one cycle, and the storage slot that holds it."""

    cycle: int
    mean: ModelMean
    slot: int


@dataclass(frozen=True)
class Storage:
    """Location and precision of the block means.

    Parameters
    ----------
    precision : {"full", "half"}, default "full"
        "full" stores float64 for arrays of 64-bit dtypes and float32 for all others. "half" stores the means
        of recent cycles of float arrays as float16 (three digits). Means over all rounds always have full
        precision, because every visit adds to them.
    folder : path-like, optional
        Existing folder for a memory-mapped file that holds the means. By default they are in memory.

    Raises
    ------
    ValueError
        If `precision` is unknown or `folder` does not exist.
    """

    precision: str = "full"
    folder: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.precision not in ("full", "half"):
            raise ValueError(f"precision={self.precision!r}: choose 'full' or 'half'")
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ValueError(f"folder={self.folder!r}: no such folder; create it first")

    def dtypes(self, layout: ArraySpec) -> tuple[list[np.dtype[Any]], list[np.dtype[Any]]]:
        """Return the dtypes of stored means, over all rounds and of recent cycles, for arrays of `layout`."""
        full_dtypes = [np.dtype(np.float64 if dtype.itemsize > 4 else np.float32) for dtype in layout.dtypes]
        if self.precision == "full":
            return full_dtypes, full_dtypes
        pairs = zip(layout.dtypes, full_dtypes, strict=True)
        return full_dtypes, [np.dtype(np.float16) if dtype.kind == "f" else full for dtype, full in pairs]


class DiskSlots:
    """Storage for the means of `blocks` blocks in one unnamed memory-mapped file.

    Slot 0 of a block holds the mean over all rounds; the other slots hold the means of recent cycles.
    """

    def __init__(
        self, layout: ArraySpec, dtypes: Sequence[Sequence[np.dtype[Any]]], blocks: int, folder: Any
    ) -> None:
        self.layout, self.dtypes = layout, dtypes
        self.starts: list[list[int]] = []
        end = 0
        for slot_dtypes in dtypes:
            self.starts.append([])
            for dtype, shape in zip(slot_dtypes, layout.shapes, strict=True):
                self.starts[-1].append(end)
                end += -(-dtype.itemsize * prod(shape) // 8) * 8
        with TemporaryFile(dir=folder) as file:
            file.truncate(max(blocks * end, 1))
            self.room = np.memmap(file, np.uint8, "r+")[: blocks * end].reshape(blocks, end)

    def put(self, block: int, slot: int, values: Iterable[Array]) -> list[Array]:
        """Copy a model to a slot and return the memory-mapped arrays."""
        mapped = []
        columns = (values, self.dtypes[slot], self.layout.shapes, self.starts[slot])
        for value, dtype, shape, begin in zip(*columns, strict=True):
            view = self.room[block, begin : begin + dtype.itemsize * prod(shape)].view(dtype).reshape(shape)
            view[...] = _narrow(value, dtype)
            mapped.append(view)
        return mapped


class BlockAverages:
    """Means of one sequence of models: per block over all rounds, and over each of its last `tail` cycles.

    `storage` sets location and precision of the block means, which are updated once per visit. The mean of
    the open visit is in double precision. Each block takes (1 + tail) models.
    """

    def __init__(self, layout: ArraySpec, blocks: int, tail: int, storage: Storage | None = None) -> None:
        self.layout, self.tail = layout, tail
        storage = Storage() if storage is None else storage
        total_dtypes, recent_dtypes = storage.dtypes(layout)
        self.dtypes = [total_dtypes, *([recent_dtypes] * tail)]
        self.slots = (
            None if storage.folder is None else DiskSlots(layout, self.dtypes, blocks, storage.folder)
        )
        self.total: list[ModelMean | None] = [None] * blocks
        self.recent: list[list[CycleMean]] = [[] for _ in range(blocks)]
        self.place: tuple[int, int] | None = None
        self.open = ModelMean([], 0.0)

    def visit(self, cycle_and_block: tuple[int, int]) -> int | None:
        """Continue or open the visit of a (cycle, block); return the block whose visit this closes."""
        if cycle_and_block == self.place:
            return None
        closed_block = self._close()
        self.place = cycle_and_block
        return closed_block

    def record(self, models: Iterable[tuple[float, Named]]) -> None:
        """Add a step to the open visit: a mixture of `models` (share, arrays) whose shares sum to 1."""
        if not self.open.weight:
            self.open = ModelMean(self.layout.zeros(), 0.0)
        weight = self.open.weight + 1.0
        mixture = [(share, model) for share, model in models if share > 0]
        for name, mean in zip(self.layout.names, self.open.values, strict=True):
            _move_towards(mean, [(share, model[name]) for share, model in mixture], 1.0 / weight)
        self.open = ModelMean(self.open.values, weight)

    def _close(self) -> int | None:
        """Merge the open visit into the means of its block; return the block, None if no visit is open."""
        if self.place is None or not self.open.weight:
            return None
        cycle, block = self.place
        self.total[block] = self.store(block, 0, _merge(self.total[block], self.open))
        if self.tail:
            parts = self.recent[block]
            if parts and parts[-1].cycle == cycle:
                last = parts.pop()
                slot, mean = last.slot, _merge(last.mean, self.open)
            else:
                # Ring buffer: a new cycle reuses the slot of the oldest.
                slot = 1 + len(parts) if len(parts) < self.tail else parts[0].slot
                mean = self.open
            self.recent[block] = [*parts, CycleMean(cycle, self.store(block, slot, mean), slot)][-self.tail :]
        self.place, self.open = None, ModelMean([], 0.0)
        return block

    def store(self, block: int, slot: int, mean: ModelMean) -> ModelMean:
        """Copy a mean into a slot, in the dtypes of the storage, and return the copy."""
        if self.slots is not None:
            return ModelMean(self.slots.put(block, slot, mean.values), mean.weight)
        pairs = zip(mean.values, self.dtypes[slot], strict=True)
        return ModelMean([_narrow(value, dtype) for value, dtype in pairs], mean.weight)

    def means(self) -> list[ModelMean | None]:
        """Return the mean of each block over all its steps; None for a block without steps."""
        return [self.mean(block) for block in range(len(self.total))]

    def mean(self, block: int) -> ModelMean | None:
        """Return the mean of one block over all its steps; None if it has none."""
        return merge_means(self.total[block], self._open_in(block))

    def tails(self, cycles: int) -> list[ModelMean | None]:
        """Return the mean of each block over its last `cycles` cycles."""
        if not 1 <= cycles <= self.tail:
            raise ValueError(
                f"cycles={cycles}: only the means of the last {self.tail} cycles of each block are kept; "
                "set a larger tail= before the run"
            )
        return [self.tail_mean(block, cycles) for block in range(len(self.recent))]

    def tail_mean(self, block: int, cycles: int) -> ModelMean | None:
        """Return the mean of one block over its last `cycles` cycles; None if it has none."""
        opened = self._open_in(block)
        by_cycle = [(part.cycle, part.mean) for part in self.recent[block]]
        if opened is not None and self.place is not None:
            by_cycle.append((self.place[0], opened))
        last = sorted({cycle for cycle, _ in by_cycle})[-cycles:]
        tail: ModelMean | None = None
        for cycle, mean in by_cycle:
            if cycle in last:
                tail = merge_means(tail, mean)
        return tail

    def _open_in(self, block: int) -> ModelMean | None:
        """Return a copy of the open visit's mean if it is of `block`; later rounds change the original."""
        if self.place is None or self.place[1] != block or not self.open.weight:
            return None
        return ModelMean([value.copy() for value in self.open.values], self.open.weight)


def _narrow(value: Array, dtype: np.dtype[Any]) -> Array:
    """Return a copy with another dtype; clip values to the range of half precision."""
    if dtype.itemsize < 4:
        limit = np.finfo(dtype).max
        value = np.clip(value, -limit, limit)
    return value.astype(dtype)


def merge_means(a: ModelMean | None, b: ModelMean | None) -> ModelMean | None:
    """Return the mean over two disjoint sets of steps; None is the empty set."""
    return a if b is None else _merge(a, b)


def _merge(a: ModelMean | None, b: ModelMean) -> ModelMean:
    if a is None:
        return b
    pairs = zip(a.values, b.values, strict=True)
    merges = [
        average.merge(average.Mean(x, a.weight), average.Mean(np.asarray(y, np.float64), b.weight))
        for x, y in pairs
    ]
    return ModelMean([merged.value for merged in merges], a.weight + b.weight)


# Number of values per chunk, small enough that a chunk stays in the CPU cache between operations.
CHUNK_VALUES = 1 << 15


def _move_towards(mean: Array, parts: list[tuple[float, Array]], step: float) -> None:
    """Update in place: mean += step (sum_e p_e w_e - mean), with `parts` the pairs (p_e, w_e)."""
    flat = mean.reshape(-1)
    values = [(share, value.reshape(-1)) for share, value in parts]
    for begin in range(0, flat.size, CHUNK_VALUES):
        chunk = slice(begin, begin + CHUNK_VALUES)
        target = flat[chunk]
        model = _mix(values, chunk)
        model -= target
        model *= step
        target += model


def _mix(values: list[tuple[float, Array]], chunk: slice) -> Array:
    """Return sum_e p_e w_e of one chunk in double precision; a single model has share 1."""
    if len(values) == 1:
        return values[0][1][chunk].astype(np.float64)
    return np.asarray(sum(share * value[chunk].astype(np.float64) for share, value in values))
