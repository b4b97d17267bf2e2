"""Per-block means of a sequence of models, each as one flat vector: `method/average.py` for named arrays.

A round is a step: w_t is the global model at the start of the round, before its update. A round changes only
the mean of the open visit. When the next visit begins, that mean is merged into its block's mean, so the cost
of a round does not depend on the number of blocks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.average import Mean, merge
from semicyclic.types import Array

Named = Mapping[str, Array]
NO_ROUNDS = Mean(np.zeros(0), 0.0)


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

    @property
    def bounds(self) -> list[int]:
        """Bounds of the arrays in a flat vector of all their values, in order."""
        return [0, *accumulate(prod(shape) for shape in self.shapes)]

    def unflatten(self, vector: Array) -> dict[str, Array]:
        """Return a flat vector as a model in the model's dtypes: round integers, copy if memory-mapped."""
        flat = np.array(vector) if isinstance(vector, np.memmap) else vector
        spans = pairwise(self.bounds)
        return {
            name: as_type(flat[low:high].reshape(shape), dtype)
            for (name, shape, dtype), (low, high) in zip(zip(*self, strict=True), spans, strict=True)
        }


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


class CycleMean(NamedTuple):
    """Mean of one block over one cycle, and the storage slot that holds it."""

    cycle: int
    mean: Mean
    slot: int


@dataclass(frozen=True)
class Storage:
    """Location and precision of the block means.

    Parameters
    ----------
    precision : {"full", "half"}, default "full"
        "full" stores float64 if the model has float64 arrays or initial integers beyond 2^24, else float32.
        "half" stores the means of recent cycles as float16 (three digits) if the model has only float arrays.
        Means over all rounds always have full precision, because every visit adds to them.
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

    def dtypes(self, arrays: Named) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Return the dtypes of stored means, over all rounds and of recent cycles, of a model."""
        double = any(
            value.dtype == np.float64
            or (value.dtype.kind in "iu" and value.size and np.abs(value.astype(np.float64)).max() > 2**24)
            for value in arrays.values()
        )
        full = np.dtype(np.float64 if double else np.float32)
        half = self.precision == "half" and all(value.dtype.kind == "f" for value in arrays.values())
        return full, np.dtype(np.float16) if half else full


class BlockAverages:
    """Means of one sequence of models: per block over all rounds, and over each of its last `tail` cycles.

    initial: the initial model, or those of its arrays that are averaged. storage: location and precision of
    the block means, which are updated once per visit. The mean of the open visit is in double precision. Each
    block takes (1 + tail) models.
    """

    def __init__(self, initial: Named, blocks: int, tail: int, storage: Storage | None = None) -> None:
        self.layout, self.tail = ArraySpec.of(initial), tail
        storage = Storage() if storage is None else storage
        self.dtypes = storage.dtypes(initial)
        # Slot 0 of a block has its mean over all rounds, the others those of recent cycles.
        self.on_disk: tuple[Array, Array] | None = None
        if storage.folder is not None:
            size = self.layout.bounds[-1]
            self.on_disk = (
                _mapped((blocks, 1, size), self.dtypes[0], storage.folder),
                _mapped((blocks, tail, size), self.dtypes[1], storage.folder),
            )
        self.total: list[Mean | None] = [None] * blocks
        self.recent: list[list[CycleMean]] = [[] for _ in range(blocks)]
        self.place: tuple[int, int] | None = None
        self.open = NO_ROUNDS

    def visit(self, cycle_and_block: tuple[int, int]) -> int | None:
        """Continue or open the visit of a (cycle, block); return the block whose visit this closes."""
        if cycle_and_block == self.place:
            return None
        closed_block = self._close()
        self.place = cycle_and_block
        return closed_block

    def record(self, models: Iterable[tuple[float, Named]]) -> None:
        """Add a step to the open visit: a mixture of `models` (share, arrays) whose shares sum to 1."""
        vector = self.open.value if self.open.weight else np.zeros(self.layout.bounds[-1])
        weight = self.open.weight + 1.0
        mixture = [(share, model) for share, model in models if share > 0]
        for name, (low, high) in zip(self.layout.names, pairwise(self.layout.bounds), strict=True):
            _move_towards(vector[low:high], [(share, model[name]) for share, model in mixture], 1.0 / weight)
        self.open = Mean(vector, weight)

    def _close(self) -> int | None:
        """Merge the open visit into the means of its block; return the block, None if no visit is open."""
        if self.place is None or not self.open.weight:
            return None
        cycle, block = self.place
        self.total[block] = self.store(block, 0, merge_means(self.total[block], self.open))
        if self.tail:
            parts = self.recent[block]
            if parts and parts[-1].cycle == cycle:
                last = parts.pop()
                slot, mean = last.slot, merge_means(last.mean, self.open)
            else:
                # Ring buffer: a new cycle reuses the slot of the oldest.
                slot = 1 + len(parts) if len(parts) < self.tail else parts[0].slot
                mean = self.open
            self.recent[block] = [*parts, CycleMean(cycle, self.store(block, slot, mean), slot)][-self.tail :]
        self.place, self.open = None, NO_ROUNDS
        return block

    def store(self, block: int, slot: int, mean: Mean) -> Mean:
        """Copy a mean into a slot, in the dtype of the storage, and return the copy."""
        value = _narrow(mean.value, self.dtypes[min(slot, 1)])
        if self.on_disk is not None:
            place = self.on_disk[0][block, 0] if slot == 0 else self.on_disk[1][block, slot - 1]
            place[:] = value
            value = place
        return Mean(value, mean.weight)

    def means(self) -> list[Mean | None]:
        """Return the mean of each block over all its steps; None for a block without steps."""
        return [self.mean(block) for block in range(len(self.total))]

    def mean(self, block: int) -> Mean | None:
        """Return the mean of one block over all its steps; None if it has none."""
        total, opened = self.total[block], self._open_in(block)
        return total if opened is None else merge_means(total, opened)

    def tails(self, cycles: int) -> list[Mean | None]:
        """Return the mean of each block over its last `cycles` cycles."""
        if not 1 <= cycles <= self.tail:
            raise ValueError(
                f"cycles={cycles}: only the means of the last {self.tail} cycles of each block are kept; "
                "set a larger tail= before the run"
            )
        return [self.tail_mean(block, cycles) for block in range(len(self.recent))]

    def tail_mean(self, block: int, cycles: int) -> Mean | None:
        """Return the mean of one block over its last `cycles` cycles; None if it has none."""
        opened = self._open_in(block)
        by_cycle = [(part.cycle, part.mean) for part in self.recent[block]]
        if opened is not None and self.place is not None:
            by_cycle.append((self.place[0], opened))
        last = sorted({cycle for cycle, _ in by_cycle})[-cycles:]
        tail: Mean | None = None
        for cycle, mean in by_cycle:
            if cycle in last:
                tail = merge_means(tail, mean)
        return tail

    def _open_in(self, block: int) -> Mean | None:
        """Return a copy of the open visit's mean if it is of `block`; later rounds change the original."""
        if self.place is None or self.place[1] != block or not self.open.weight:
            return None
        return Mean(self.open.value.copy(), self.open.weight)


def _narrow(value: Array, dtype: np.dtype[Any]) -> Array:
    """Return a copy with another dtype; clip values to the range of half precision."""
    if dtype.itemsize < 4:
        limit = np.finfo(dtype).max
        value = np.clip(value, -limit, limit)
    return value.astype(dtype)


def merge_means(a: Mean | None, b: Mean) -> Mean:
    """Return the mean over two disjoint sets of steps, in double precision; None is the empty set."""
    return b if a is None else merge(a, Mean(np.asarray(b.value, np.float64), b.weight))


def _mapped(shape: tuple[int, ...], dtype: np.dtype[Any], folder: Any) -> Array:
    """Return an array of zeros in an unnamed memory-mapped file."""
    size = prod(shape) * dtype.itemsize
    with TemporaryFile(dir=folder) as file:
        file.truncate(max(size, 1))
        return np.memmap(file, np.uint8, "r+")[:size].view(dtype).reshape(shape)


# Number of values per chunk, small enough that a chunk stays in the CPU cache between operations.
CHUNK_VALUES = 1 << 15


def _move_towards(mean: Array, parts: list[tuple[float, Array]], step: float) -> None:
    """Update in place: mean += step (sum_e p_e w_e - mean), with `parts` the pairs (p_e, w_e)."""
    values = [(share, value.reshape(-1)) for share, value in parts]
    for begin in range(0, mean.size, CHUNK_VALUES):
        chunk = slice(begin, begin + CHUNK_VALUES)
        target = mean[chunk]
        model = _mix(values, chunk)
        model -= target
        model *= step
        target += model


def _mix(values: list[tuple[float, Array]], chunk: slice) -> Array:
    """Return sum_e p_e w_e of one chunk in double precision; a single model has share 1."""
    if len(values) == 1:
        return values[0][1][chunk].astype(np.float64)
    return np.asarray(sum(share * value[chunk].astype(np.float64) for share, value in values))
