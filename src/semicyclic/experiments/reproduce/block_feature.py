"""One-hot features for the block of each row: the usual alternative to a model per block."""

import numpy as np

from semicyclic.method.rows import Rows, SparseRows


def with_indicators(rows: Rows, blocks: int) -> Rows:
    """Return the rows with one indicator column per block, which is 1 in the rows of that block."""
    assert rows.block is not None
    cells, n = len(rows.values), len(rows)
    column_type = np.uint16 if rows.width + blocks <= 2**16 else np.uint32
    indptr = np.arange(n + 1) + rows.indptr
    # The indicator is the last cell of its row.
    added = np.zeros(cells + n, bool)
    added[indptr[1:] - 1] = True
    indices, values = np.empty(cells + n, column_type), np.ones(cells + n, rows.values.dtype)
    indices[added] = rows.block + rows.width
    indices[~added], values[~added] = rows.indices, rows.values
    widened = SparseRows(indptr, indices, values, rows.width + blocks)
    return Rows(widened, rows.labels, block=rows.block, cycle=rows.cycle, dtype=rows.values.dtype)
