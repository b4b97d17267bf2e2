"""Buffer of rows whose labels are not known yet."""

from typing import NamedTuple

import numpy as np

from semicyclic.method.batches import encode
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows, join
from semicyclic.types import Array


class RowBuffer(NamedTuple):
    """Rows in order of arrival.

    rows: features, with blocks of the user's schedule and cycles. target: [n] labels as encoded for the loss.
    fine: [n] finest block.
    clock: [n] arrival time. frozen_at: [n] freeze time, that is when the models that predict the row in the
        walk-forward protocol were last updated. Both in microseconds since 1970.
    normalized: [cells] values of the features, divided by the scale of their column on arrival.
    """

    rows: Rows
    target: Array
    fine: Array
    clock: Array
    frozen_at: Array
    normalized: Array

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.clock)

    @property
    def weight(self) -> Array:
        """[n] weights of the rows."""
        weight = self.rows.weight
        return np.ones(self.size, np.float32) if weight is None else weight.astype(np.float32, copy=False)

    def take(self, part: slice) -> "RowBuffer":
        """Return a contiguous slice of the rows."""
        first, last, _ = part.indices(self.size)
        begin, end = self.rows.indptr[[first, max(first, last)]] - self.rows.indptr[0]
        return RowBuffer(
            self.rows[part],
            self.target[part],
            self.fine[part],
            self.clock[part],
            self.frozen_at[part],
            self.normalized[begin:end],
        )


def concat_buffers(first: RowBuffer, second: RowBuffer) -> RowBuffer:
    """Return the rows of `first` followed by those of `second`."""
    columns = zip(first[1:], second[1:], strict=True)
    return RowBuffer(join([first.rows, second.rows]), *(np.concatenate(pair) for pair in columns))


def targets(labels: Array | None, loss: Loss) -> Array:
    """Return labels, given as numbers or as class codes, in the encoding that the loss expects."""
    return encode(labels, loss, tuple(range(loss.classes)) or None)[0]
