"""The block of each row as one-hot features: the usual alternative to a model per block."""

import numpy as np

from semicyclic.method.rows import Rows
from semicyclic.method.sparse import SparseRows


def with_indicators(rows: Rows, blocks: int) -> Rows:
    """The rows with one more column per block, which is 1 in the rows of that block."""
    assert rows.block is not None
    cells, n = len(rows.values), len(rows)
    kind = np.uint16 if rows.width + blocks <= 2**16 else np.uint32
    indptr = np.arange(n + 1) + rows.indptr
    # The new cell is the last of its row.
    added = np.zeros(cells + n, bool)
    added[indptr[1:] - 1] = True
    indices, values = np.empty(cells + n, kind), np.ones(cells + n, rows.values.dtype)
    indices[added] = rows.block + rows.width
    indices[~added], values[~added] = rows.indices, rows.values
    corpus = SparseRows(indptr, indices, values, rows.width + blocks)
    return Rows(corpus, rows.labels, block=rows.block, cycle=rows.cycle, dtype=rows.values.dtype)
