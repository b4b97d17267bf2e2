"""Compiled: the block of a row as an ordinary feature."""

from typing import Any

import numpy as np

from semicyclic.data.sparse import Cells
from semicyclic.method.jit import jit
from semicyclic.method.rows import Rows


def with_indicators(rows: Rows, blocks: int) -> Rows:
    """The rows with one column more for each block, 1 in those of that block."""
    assert rows.block is not None
    cells, n = len(rows.values), len(rows)
    kind = np.uint16 if rows.width + blocks <= 2**16 else np.uint32
    corpus = Cells(
        np.arange(n + 1) + rows.indptr,
        np.empty(cells + n, kind),
        np.empty(cells + n, rows.values.dtype),
        rows.width + blocks,
    )
    append(rows.indptr, rows.indices, rows.values, rows.block + rows.width, corpus.indices, corpus.data)
    return Rows(corpus, rows.labels, block=rows.block, cycle=rows.cycle, dtype=rows.values.dtype)


@jit
def append(
    indptr: Any, indices: Any, values: Any, column: Any, out_indices: Any, out_values: Any
) -> Any:  # pragma: no cover - compiled
    """Copy rows, each with a cell more: a one in its column."""
    at = np.uint64(0)
    for r in range(len(column)):
        for p in range(np.uint64(indptr[r]), np.uint64(indptr[r + 1])):
            out_indices[at] = indices[p]
            out_values[at] = values[p]
            at += np.uint64(1)
        out_indices[at] = column[r]
        out_values[at] = 1
        at += np.uint64(1)
