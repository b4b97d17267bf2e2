"""Buffer of rows whose labels are not known yet."""

from typing import NamedTuple

import numpy as np

from semicyclic.method.batches import encode
from semicyclic.method.loss import Loss
from semicyclic.types import Array


class RowBuffer(NamedTuple):
    """Rows in order of arrival, with sparse features in CSR form.

    indptr, indices, values: the features. target: [n] labels as encoded for the loss. weight: [n].
    fine, cycle, block: [n] finest block, cycle, and block of the user's schedule.
    clock: [n] arrival time. frozen_at: [n] freeze time, that is when the models that predict the row in the
        walk-forward protocol were last updated. Both in microseconds since 1970.
    """

    indptr: Array
    indices: Array
    values: Array
    target: Array
    weight: Array
    fine: Array
    cycle: Array
    clock: Array
    frozen_at: Array
    block: Array

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.clock)

    def take(self, part: slice) -> "RowBuffer":
        """Return a contiguous slice of the rows."""
        low, high, _ = part.indices(self.size)
        cells = slice(self.indptr[low], self.indptr[high])
        rows = [column[low:high] for column in self[3:]]
        return RowBuffer(
            self.indptr[low : high + 1] - self.indptr[low], self.indices[cells], self.values[cells], *rows
        )


def concat_buffers(first: RowBuffer, second: RowBuffer) -> RowBuffer:
    """Return the rows of `first` followed by those of `second`."""
    indptr = np.r_[first.indptr, second.indptr[1:] + first.indptr[-1]]
    return RowBuffer(indptr, *(np.concatenate(pair) for pair in zip(first[1:], second[1:], strict=True)))


def targets(labels: Array | None, loss: Loss) -> Array:
    """Return labels, given as numbers or as class codes, in the encoding that the loss expects."""
    return encode(labels, loss, tuple(range(loss.classes)) or None)[0]
