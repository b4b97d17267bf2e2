"""The averages of a sequence of models, per block: `average.py` of the method, for named arrays of any size.

A round is a step: w_t is the global model that the round began with, before its update. Only the visit that
is open is touched in a round; when another one begins it is merged into its block's mean, so that the cost
of a round does not depend on the number of blocks.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.method import average

NDArray = npt.NDArray[Any]
Named = Mapping[str, NDArray]


class Layout(NamedTuple):
    """The names, shapes and types that all models of a run share."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]

    @staticmethod
    def of(arrays: Named) -> "Layout":
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
        return Layout(names, shapes, dtypes)

    def cast(self, values: Iterable[NDArray]) -> dict[str, NDArray]:
        """Means as a model has them: of the model's own types, whole numbers rounded."""
        pairs = zip(self.names, self.dtypes, values, strict=True)
        return {name: as_type(value, dtype) for name, dtype, value in pairs}

    def zeros(self) -> list[NDArray]:
        """Where a mean begins."""
        return [np.zeros(shape) for shape in self.shapes]


def as_type(value: NDArray, dtype: np.dtype[Any]) -> NDArray:
    """Numbers in another type: whole ones rounded, truth by majority; the same array if it has that type."""
    if value.dtype == dtype:
        return value
    if dtype.kind in "iu" and value.dtype.kind == "f":
        value = np.rint(value)
    elif dtype.kind == "b":
        value = value > 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        return value.astype(dtype)


class Mean(NamedTuple):
    """The mean of some models, array by array, and how many rounds it stands for."""

    values: list[NDArray]
    weight: float


class Part(NamedTuple):
    """A cycle's mean of one block."""

    cycle: int
    mean: Mean


class Averages:
    """Means of one sequence of models: of each block, and of its last `tail` cycles.

    Block means are kept in the precision of the models, at least single, and added to once a visit; the
    open visit's in double precision. That is (1 + tail) models of memory for each block.
    """

    def __init__(self, layout: Layout, blocks: int, tail: int) -> None:
        self.layout, self.tail = layout, tail
        self.total: list[Mean | None] = [None] * blocks
        self.recent: list[list[Part]] = [[] for _ in range(blocks)]
        self.place: tuple[int, int] | None = None
        self.open = Mean([], 0.0)

    def record(self, place: tuple[int, int], models: Iterable[tuple[float, Named]]) -> int | None:
        """A step at a (cycle, block): the model in force, as a mixture of `models` with shares that sum to 1.

        Returns the block whose mean has changed because another visit began, if one did.
        """
        ended = None
        if place != self.place:
            ended = self._close()
            self.place, self.open = place, Mean(self.layout.zeros(), 0.0)
        weight = self.open.weight + 1.0
        mixture = [(share, model) for share, model in models if share > 0]
        for name, mean in zip(self.layout.names, self.open.values, strict=True):
            _towards(mean, [(share, model[name]) for share, model in mixture], 1.0 / weight)
        self.open = Mean(self.open.values, weight)
        return ended

    def _close(self) -> int | None:
        """Merge the open visit into its block's means."""
        if self.place is None or not self.open.weight:
            return None
        cycle, block = self.place
        self.total[block] = self._kept(_merge(self.total[block], self.open))
        if self.tail:
            parts = self.recent[block]
            same = parts and parts[-1].cycle == cycle
            whole = _merge(parts.pop().mean if same else None, self.open)
            self.recent[block] = [*parts, Part(cycle, self._kept(whole))][-self.tail :]
        self.place, self.open = None, Mean([], 0.0)
        return block

    def _kept(self, mean: Mean) -> Mean:
        kinds = (np.float64 if dtype.itemsize > 4 else np.float32 for dtype in self.layout.dtypes)
        values = [value.astype(kind) for value, kind in zip(mean.values, kinds, strict=True)]
        return Mean(values, mean.weight)

    def means(self) -> list[Mean | None]:
        """The mean of each block over all its steps; None where there were none."""
        return [self.mean(block) for block in range(len(self.total))]

    def mean(self, block: int) -> Mean | None:
        """The mean of one block."""
        return merged(self.total[block], self._open_in(block))

    def tails(self, cycles: int) -> list[Mean | None]:
        """The mean of each block over its own last `cycles` cycles."""
        if not 1 <= cycles <= self.tail:
            raise ValueError(
                f"cycles={cycles}: the means of the last {self.tail} cycles of each block are kept; "
                "ask for more of them beforehand with tail="
            )
        found: list[Mean | None] = []
        for block, parts in enumerate(self.recent):
            opened = self._open_in(block)
            by_cycle = [(part.cycle, part.mean) for part in parts]
            if opened is not None and self.place is not None:
                by_cycle.append((self.place[0], opened))
            last = sorted({cycle for cycle, _ in by_cycle})[-cycles:]
            whole: Mean | None = None
            for cycle, mean in by_cycle:
                if cycle in last:
                    whole = merged(whole, mean)
            found.append(whole)
        return found

    def _open_in(self, block: int) -> Mean | None:
        """The open visit's mean, if it is one of this block; a copy, as the visit goes on."""
        if self.place is None or self.place[1] != block or not self.open.weight:
            return None
        return Mean([value.copy() for value in self.open.values], self.open.weight)


def merged(a: Mean | None, b: Mean | None) -> Mean | None:
    """Mean over two disjoint sets of steps, either of which may be empty."""
    return a if b is None else _merge(a, b)


def _merge(a: Mean | None, b: Mean) -> Mean:
    if a is None:
        return b
    pairs = zip(a.values, b.values, strict=True)
    merges = [
        average.merge(average.Mean(x, a.weight), average.Mean(np.asarray(y, np.float64), b.weight))
        for x, y in pairs
    ]
    return Mean([each.value for each in merges], a.weight + b.weight)


# So many numbers at a time: they stay in the cache between the operations on them.
PIECE = 1 << 15


def _towards(mean: NDArray, parts: list[tuple[float, NDArray]], step: float) -> None:
    """mean += step (sum_e p_e w_e - mean), in place."""
    flat = mean.reshape(-1)
    values = [(share, value.reshape(-1)) for share, value in parts]
    for begin in range(0, flat.size, PIECE):
        piece = slice(begin, begin + PIECE)
        here = flat[piece]
        model = _mixed(values, piece)
        model -= here
        model *= step
        here += model


def _mixed(values: list[tuple[float, NDArray]], piece: slice) -> NDArray:
    if len(values) == 1:
        return values[0][1][piece].astype(np.float64)
    return np.asarray(sum(share * value[piece].astype(np.float64) for share, value in values))
