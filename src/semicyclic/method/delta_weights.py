"""Delta-encoded weights for many blocks: key frames plus per-block differences.

From one block to the next, a mean changes only in the columns touched there, provided that blocks have equal
shares of every cycle. So a block is stored as its differences from the block before it: the cells that
differ, with their new values. Decoding is exact. Some blocks are key frames, stored by themselves: dense, or
as a list of the cells that are not 0, whichever is smaller. A new key frame begins where the differences
since the last one would take more space than the block itself. So decoding a block never reads much more than
the block, and if blocks have nothing in common, every one is a key frame.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method import kernels
from semicyclic.types import Array

DIFFERENT, SPARSE, DENSE = range(3)


@dataclass(frozen=True, eq=False)
class DeltaWeights:
    """Weights of m blocks, [C, d+1] each.

    kind: [m] encoding of block i: DIFFERENT (differences from the block before), or a key frame, SPARSE or
    DENSE.
    first: [m+1] block i lists the cells first[i]:first[i+1] of `column` and `value`.
    dense: [D, C * (d+1)] the dense key frames, in block order.
    shape: (m, C, d+1).
    """

    kind: Array
    first: Array
    column: Array
    value: Array
    dense: Array
    shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        m, cells = self.shape[0], self.shape[1] * self.shape[2]
        listed = np.diff(self.first) if self.first.shape == (m + 1,) else np.zeros(0)
        fine = (
            m > 0
            and cells > 0
            and self.kind.shape == (m,)
            and self.first.shape == (m + 1,)
            and self.column.shape == self.value.shape == (self.first[-1],)
            and self.dense.shape == (int((self.kind == DENSE).sum()), cells)
            and self.first[0] == 0
            and bool((listed >= 0).all())
            and not bool(listed[self.kind == DENSE].any())
            and bool(np.isin(self.kind, (DIFFERENT, SPARSE, DENSE)).all())
            and self.kind[0] != DIFFERENT
            and bool((self.column < cells).all())
        )
        if not fine:
            raise ValueError("the parts of the frames do not fit together")

    @cached_property
    def keys(self) -> Array:
        """The blocks that are key frames."""
        return np.asarray(np.flatnonzero(self.kind != DIFFERENT))

    @cached_property
    def dense_before(self) -> Array:
        """[m+1] number of dense key frames before each block."""
        return np.asarray(np.r_[0, np.cumsum(self.kind == DENSE)])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of computations: half precision is for storage only."""
        return np.promote_types(self.value.dtype, np.float32)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.kind, self.first, self.column, self.value, self.dense))

    def __len__(self) -> int:
        return self.shape[0]

    def group(self, block: int) -> tuple[int, int]:
        """The key frame that a block is encoded against, and the end of the blocks encoded against it."""
        return group_of(self.keys, len(self), block)

    def block(self, block: int) -> Array:
        """[C, d+1] the weights of a block."""
        if not 0 <= block < len(self):
            raise IndexError(f"block {block}: there are 0 to {len(self) - 1}")
        key, _ = self.group(block)
        out = self._key(key)
        # Where a cell changed more than once, the last change stays.
        span = slice(int(self.first[key]), int(self.first[block + 1]))
        out[self.column[span]] = self.value[span]
        return out.reshape(self.shape[1:])

    def alone(self, block: int) -> "DeltaWeights":
        """One block as a `DeltaWeights`, without decoding it."""
        key, _ = self.group(block)
        span = slice(int(self.first[key]), int(self.first[block + 1]))
        if self.kind[key] == DENSE:
            dense = self.dense[[int(self.dense_before[key])]]
            dense[0, self.column[span]] = self.value[span]
            column, value = self.column[:0], self.value[:0]
        else:
            # Of a cell that changed more than once the last change, which is the first backwards.
            column, index = np.unique(self.column[span][::-1], return_index=True)
            value, dense = self.value[span][::-1][index], self.dense[:0]
        encoding = self.kind[key : key + 1]
        return DeltaWeights(encoding, np.array([0, len(column)]), column, value, dense, (1, *self.shape[1:]))

    def _key(self, key: int) -> Array:
        if self.kind[key] == DENSE:
            return np.array(self.dense[int(self.dense_before[key])], dtype=self.dtype)
        return np.zeros(self.shape[1] * self.shape[2], self.dtype)

    def walk(self, blocks: Array) -> Iterator[tuple[int, Array]]:
        """Iterate over (block, weights) in ascending order; the weights are valid until the next one."""
        current, at = np.zeros(0, self.dtype), -1
        for block in np.unique(blocks).tolist():
            key, _ = self.group(block)
            if key > at:
                current, at = self._key(key), key - 1
            span = slice(int(self.first[at + 1]), int(self.first[block + 1]))
            current[self.column[span]] = self.value[span]
            at = block
            yield block, current.reshape(self.shape[1:])

    def table(self) -> Array:
        """[m, C, d+1] all weights, decoded."""
        out = np.empty(self.shape, self.dtype)
        for block, weights in self.walk(np.arange(len(self))):
            out[block] = weights
        return out


def group_of(keys: Array, blocks: int, block: int) -> tuple[int, int]:
    """The last key frame up to a block, and the next key frame or the number of blocks."""
    at = int(np.searchsorted(keys, block, side="right"))
    return int(keys[at - 1]), int(keys[at]) if at < len(keys) else blocks


def frames_of(weights: Array, dtype: npt.DTypeLike | None = None) -> DeltaWeights:
    """Encode weights [m, C, d+1], optionally in another precision."""

    stored = np.dtype(weights.dtype if dtype is None else dtype)
    converted = weights if stored == weights.dtype else _convert(weights, stored)
    shape = weights.shape
    m, cells = shape[0], shape[1] * shape[2]
    # The same cells in the same order, however they lie in memory: no copy for one output.
    flat = converted.reshape(m, cells) if shape[1] > 1 else converted[:, 0]
    bits = flat.view(np.dtype(f"u{stored.itemsize}"))
    by_cell = abs(bits.strides[0]) < abs(bits.strides[1])
    changed, nonzero = np.zeros(m, np.int64), np.zeros(m, np.int64)
    kernels.delta.count_changes(bits, by_cell, changed, nonzero)
    column = np.uint32 if cells <= 2**32 else np.uint64
    listed = np.dtype(column).itemsize + stored.itemsize
    how = _choose(changed * listed, nonzero * listed, cells * stored.itemsize)
    count = np.select([how == DIFFERENT, how == SPARSE], [changed, nonzero], 0)
    first = np.r_[0, np.cumsum(count)]
    columns, values = np.empty(first[-1], column), np.empty(first[-1], bits.dtype)
    kernels.delta.list_changes(bits, by_cell, how, first, columns, values)
    dense = np.ascontiguousarray(flat[how == DENSE])
    return DeltaWeights(how, first, columns, values.view(stored), dense, (shape[0], shape[1], shape[2]))


def _convert(weights: Array, kind: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        converted = weights.astype(kind)
    if not np.isfinite(converted).all():
        most = float(np.abs(weights).max())
        raise ValueError(f"a weight of {most:.4g} is too large for {kind}: save it as {weights.dtype}")
    return converted


def _choose(different: Array, sparse: Array, dense: int) -> Array:
    """Choose the encoding of each block: differences as long as they are smaller than a key frame."""
    how = np.zeros(len(different), np.uint8)
    since = 0
    for block in range(len(how)):
        alone = min(int(sparse[block]), dense)
        since += int(different[block])
        if block == 0 or since > alone:
            how[block] = SPARSE if sparse[block] < dense else DENSE
            since = 0
    return how
