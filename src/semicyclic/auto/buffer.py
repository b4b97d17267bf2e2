"""Buffer of rows whose labels are not known yet."""

from typing import NamedTuple

import numpy as np

from semicyclic.method.batches import encode
from semicyclic.method.loss import Loss
from semicyclic.types import Array


class RowBuffer(NamedTuple):
    """Rows as they come: features, targets as the loss wants them, weights, places and times."""

    indptr: Array
    indices: Array
    values: Array
    target: Array
    weight: Array
    fine: Array
    cycle: Array
    clock: Array
    dawn: Array
    block: Array

    @property
    def size(self) -> int:
        return len(self.clock)

    def take(self, part: slice) -> "RowBuffer":
        low, high, _ = part.indices(self.size)
        cells = slice(self.indptr[low], self.indptr[high])
        rows = [column[low:high] for column in self[3:]]
        return RowBuffer(
            self.indptr[low : high + 1] - self.indptr[low], self.indices[cells], self.values[cells], *rows
        )


def concat_buffers(first: RowBuffer, second: RowBuffer) -> RowBuffer:
    """One after the other."""
    indptr = np.r_[first.indptr, second.indptr[1:] + first.indptr[-1]]
    return RowBuffer(indptr, *(np.concatenate(pair) for pair in zip(first[1:], second[1:], strict=True)))


def targets(labels: Array | None, loss: Loss) -> Array:
    """Labels as the loss wants them, from numbers or codes of classes."""
    return encode(labels, loss, tuple(range(loss.classes)) or None)[0]
