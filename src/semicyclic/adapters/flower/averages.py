"""Means of a sequence of models per block: `method/average.py` for named arrays of any size.

A round is a step: w_t is the global model that the round began with, before its update. Only the visit that
is open is touched in a round; when another one begins it is merged into its block's mean, so that the cost
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
    """The names, shapes and types that all models of a run share."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]

    @staticmethod
    def of(arrays: Named) -> "ArraySpec":
        """The layout of some arrays; all must be numbers."""
        if not arrays:
            raise ValueError("there are no arrays: a model has at least one")
        for name, value in arrays.items():
            if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
                raise ValueError(f"array {name!r} holds {value.dtype}: it cannot be averaged and kept")
        names, shapes, dtypes = zip(
            *((name, value.shape, value.dtype.newbyteorder("=")) for name, value in arrays.items()),
            strict=True,
        )
        return ArraySpec(names, shapes, dtypes)

    def cast(self, values: Iterable[Array]) -> dict[str, Array]:
        """Means as a model has them: of the model's own types, whole numbers rounded; not parts of a file."""
        pairs = zip(self.names, self.dtypes, values, strict=True)
        whole = (
            (name, dtype, np.array(value) if _is_mapped(value) else value) for name, dtype, value in pairs
        )
        return {name: as_type(value, dtype) for name, dtype, value in whole}

    def only(self, names: Iterable[str]) -> "ArraySpec":
        """The layout of some of the arrays, in the same order."""
        wanted = set(names)
        columns = [each for each in zip(*self, strict=True) if each[0] in wanted]
        if not columns:
            return ArraySpec((), (), ())
        return ArraySpec(*(tuple(column) for column in zip(*columns, strict=True)))

    def zeros(self) -> list[Array]:
        """Where a mean begins."""
        return [np.zeros(shape) for shape in self.shapes]


def _is_mapped(value: Array) -> bool:
    """Whether an array lies in a mapped file, where it changes with the run."""
    return isinstance(value, np.memmap)


def as_type(value: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in another type: whole ones rounded, truth by majority; the same array if it has that type."""
    if value.dtype == dtype:
        return value
    if dtype.kind in "iu" and value.dtype.kind == "f":
        value = np.rint(value)
    elif dtype.kind == "b":
        value = value > 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        return value.astype(dtype)


class ModelMean(NamedTuple):
    """The mean of some models, array by array, and how many rounds it stands for."""

    values: list[Array]
    weight: float


class CycleMean(NamedTuple):
    """A cycle's mean of one block, and the number of the slot it is kept in."""

    cycle: int
    mean: ModelMean
    slot: int


@dataclass(frozen=True)
class Storage:
    """Where and how precisely the means of blocks are kept.

    precision: "full" for that of the model, at least single; "half" for half precision in the means of recent
        cycles (three digits). Means of all rounds are always full, because every visit adds to them.
    folder: means are kept in a file in this folder, mapped into memory, and not in memory itself.
    """

    precision: str = "full"
    folder: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.precision not in ("full", "half"):
            raise ValueError(f"precision={self.precision!r}: choose 'full' or 'half'")
        if self.folder is not None and not Path(self.folder).is_dir():
            raise ValueError(f"folder={self.folder!r}: there is no such folder")

    def dtypes(self, layout: ArraySpec) -> tuple[list[np.dtype[Any]], list[np.dtype[Any]]]:
        """In what types the means of arrays are kept: over all rounds, and of recent cycles."""
        whole = [np.dtype(np.float64 if dtype.itemsize > 4 else np.float32) for dtype in layout.dtypes]
        if self.precision == "full":
            return whole, whole
        pairs = zip(layout.dtypes, whole, strict=True)
        return whole, [np.dtype(np.float16) if dtype.kind == "f" else full for dtype, full in pairs]


class DiskSlots:
    """Room for the means of `blocks` blocks in one unnamed file that is mapped into memory.

    Slot 0 of a block is for the mean of all rounds, the others are for those of recent cycles.
    """

    def __init__(
        self, layout: ArraySpec, dtypes: Sequence[Sequence[np.dtype[Any]]], blocks: int, folder: Any
    ) -> None:
        self.layout, self.dtypes = layout, dtypes
        self.starts: list[list[int]] = []
        end = 0
        for kinds in dtypes:
            self.starts.append([])
            for dtype, form in zip(kinds, layout.shapes, strict=True):
                self.starts[-1].append(end)
                end += -(-dtype.itemsize * prod(form) // 8) * 8
        with TemporaryFile(dir=folder) as file:
            file.truncate(max(blocks * end, 1))
            self.room = np.memmap(file, np.uint8, "r+")[: blocks * end].reshape(blocks, end)

    def put(self, block: int, slot: int, values: Iterable[Array]) -> list[Array]:
        """Copy a model to its slot; the arrays there."""
        found = []
        columns = (values, self.dtypes[slot], self.layout.shapes, self.starts[slot])
        for value, dtype, form, begin in zip(*columns, strict=True):
            held = self.room[block, begin : begin + dtype.itemsize * prod(form)].view(dtype).reshape(form)
            held[...] = _narrow(value, dtype)
            found.append(held)
        return found


class BlockAverages:
    """Means of one sequence of models: of each block, and of its last `tail` cycles.

    Block means are kept as `storage` says, and added to once a visit; the open visit's is in double
    precision. That is (1 + tail) models for each block.
    """

    def __init__(self, layout: ArraySpec, blocks: int, tail: int, storage: Storage | None = None) -> None:
        self.layout, self.tail = layout, tail
        storage = Storage() if storage is None else storage
        whole, recent = storage.dtypes(layout)
        self.dtypes = [whole, *([recent] * tail)]
        self.slots = (
            None if storage.folder is None else DiskSlots(layout, self.dtypes, blocks, storage.folder)
        )
        self.total: list[ModelMean | None] = [None] * blocks
        self.recent: list[list[CycleMean]] = [[] for _ in range(blocks)]
        self.place: tuple[int, int] | None = None
        self.open = ModelMean([], 0.0)

    def visit(self, place: tuple[int, int]) -> int | None:
        """Go on at a (cycle, block); the block whose mean has changed because another visit ended, if any."""
        if place == self.place:
            return None
        ended = self._close()
        self.place = place
        return ended

    def record(self, models: Iterable[tuple[float, Named]]) -> None:
        """A step: the model in force, as a mixture of `models` with shares that sum to 1."""
        if not self.open.weight:
            self.open = ModelMean(self.layout.zeros(), 0.0)
        weight = self.open.weight + 1.0
        mixture = [(share, model) for share, model in models if share > 0]
        for name, mean in zip(self.layout.names, self.open.values, strict=True):
            _towards(mean, [(share, model[name]) for share, model in mixture], 1.0 / weight)
        self.open = ModelMean(self.open.values, weight)

    def _close(self) -> int | None:
        """Merge the open visit into its block's means."""
        if self.place is None or not self.open.weight:
            return None
        cycle, block = self.place
        self.total[block] = self.keep(block, 0, _merge(self.total[block], self.open))
        if self.tail:
            parts = self.recent[block]
            if parts and parts[-1].cycle == cycle:
                last = parts.pop()
                slot, whole = last.slot, _merge(last.mean, self.open)
            else:
                # The slots go round: a new cycle takes that of the oldest.
                slot = 1 + len(parts) if len(parts) < self.tail else parts[0].slot
                whole = self.open
            self.recent[block] = [*parts, CycleMean(cycle, self.keep(block, slot, whole), slot)][-self.tail :]
        self.place, self.open = None, ModelMean([], 0.0)
        return block

    def keep(self, block: int, slot: int, mean: ModelMean) -> ModelMean:
        """A mean as it is kept between visits."""
        if self.slots is not None:
            return ModelMean(self.slots.put(block, slot, mean.values), mean.weight)
        pairs = zip(mean.values, self.dtypes[slot], strict=True)
        return ModelMean([_narrow(value, dtype) for value, dtype in pairs], mean.weight)

    def means(self) -> list[ModelMean | None]:
        """The mean of each block over all its steps; None where there were none."""
        return [self.mean(block) for block in range(len(self.total))]

    def mean(self, block: int) -> ModelMean | None:
        """The mean of one block."""
        return merge_means(self.total[block], self._open_in(block))

    def tails(self, cycles: int) -> list[ModelMean | None]:
        """The mean of each block over its own last `cycles` cycles."""
        if not 1 <= cycles <= self.tail:
            raise ValueError(
                f"cycles={cycles}: the means of the last {self.tail} cycles of each block are kept; "
                "ask for more of them beforehand with tail="
            )
        return [self.tail_mean(block, cycles) for block in range(len(self.recent))]

    def tail_mean(self, block: int, cycles: int) -> ModelMean | None:
        """The mean of one block over its own last `cycles` cycles."""
        opened = self._open_in(block)
        by_cycle = [(part.cycle, part.mean) for part in self.recent[block]]
        if opened is not None and self.place is not None:
            by_cycle.append((self.place[0], opened))
        last = sorted({cycle for cycle, _ in by_cycle})[-cycles:]
        whole: ModelMean | None = None
        for cycle, mean in by_cycle:
            if cycle in last:
                whole = merge_means(whole, mean)
        return whole

    def _open_in(self, block: int) -> ModelMean | None:
        """The open visit's mean, if it is one of this block; a copy, as the visit goes on."""
        if self.place is None or self.place[1] != block or not self.open.weight:
            return None
        return ModelMean([value.copy() for value in self.open.values], self.open.weight)


def _narrow(value: Array, dtype: np.dtype[Any]) -> Array:
    """A copy in another type; values beyond its range become its largest."""
    if dtype.itemsize < 4:
        limit = np.finfo(dtype).max
        value = np.clip(value, -limit, limit)
    return value.astype(dtype)


def merge_means(a: ModelMean | None, b: ModelMean | None) -> ModelMean | None:
    """Mean over two disjoint sets of steps, either of which may be empty."""
    return a if b is None else _merge(a, b)


def _merge(a: ModelMean | None, b: ModelMean) -> ModelMean:
    if a is None:
        return b
    pairs = zip(a.values, b.values, strict=True)
    merges = [
        average.merge(average.Mean(x, a.weight), average.Mean(np.asarray(y, np.float64), b.weight))
        for x, y in pairs
    ]
    return ModelMean([each.value for each in merges], a.weight + b.weight)


# So many numbers at a time: they stay in the cache between the operations on them.
PIECE = 1 << 15


def _towards(mean: Array, parts: list[tuple[float, Array]], step: float) -> None:
    """mean += step (sum_e p_e w_e - mean), in place."""
    flat = mean.reshape(-1)
    values = [(share, value.reshape(-1)) for share, value in parts]
    for begin in range(0, flat.size, PIECE):
        piece = slice(begin, begin + PIECE)
        here = flat[piece]
        model = _mix(values, piece)
        model -= here
        model *= step
        here += model


def _mix(values: list[tuple[float, Array]], piece: slice) -> Array:
    if len(values) == 1:
        return values[0][1][piece].astype(np.float64)
    return np.asarray(sum(share * value[piece].astype(np.float64) for share, value in values))
