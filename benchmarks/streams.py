"""Synthetic stream for the benchmarks: Zipf columns, logistic labels, equal visits."""

import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from semicyclic.method.rows import Rows

ROWS = 1_440_000
CELLS = 13_000_000


class Stream(NamedTuple):
    """CSR features in float32, and labels 0 or 1."""

    X: Any
    y: Any

    def rows(self, blocks: int, cycles: int) -> Rows:
        """Return the stream as `cycles` equal cycles of `blocks` equal blocks."""
        cycle, block = calendar(blocks, cycles)
        return Rows(self.X, self.y, block=block, cycle=cycle)


@cache
def calendar(blocks: int, cycles: int) -> tuple[Any, Any]:
    """Return the cycle and block of every row, in visits of equal size."""
    return np.divmod(np.arange(ROWS) * (blocks * cycles) // ROWS, blocks)


@cache
def stream(columns: int = 1024, seed: int = 1) -> Stream:
    """Return 1.44 M rows with 13 M non-zeros: Zipf ids, hashed into `columns` unless that is 1024.

    The stream is cached in the folder SEMICYCLIC_BENCHMARK_DATA, if set, because generating it takes longer
    than the measurements.
    """
    folder = os.environ.get("SEMICYCLIC_BENCHMARK_DATA")
    if folder is None:
        return _generate(columns, seed)
    path = Path(folder) / f"stream-{columns}-{seed}.npz"
    if not path.exists():
        X, y = _generate(columns, seed)
        np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, y=y)
    with np.load(path) as file:
        cells = file["data"], file["indices"], file["indptr"]
        return Stream(scipy.sparse.csr_matrix(cells, shape=(ROWS, columns)), file["y"])


def _generate(columns: int, seed: int) -> Stream:
    """Generate the stream."""
    rng = np.random.default_rng(seed)
    words = 1024 if columns == 1024 else columns
    lengths = 1 + rng.poisson(12.5, ROWS)
    rank = _zipf(rng, words, int(lengths.sum()))
    # Scatter ids over the columns, so that frequent ids are not adjacent.
    column_of_id = rng.permutation(columns) if columns == 1024 else rng.integers(0, columns, words)
    row = np.repeat(np.arange(ROWS, dtype=np.int64), lengths)
    cell = np.unique(row * columns + column_of_id[rank])
    cell = np.delete(cell, rng.choice(len(cell), len(cell) - CELLS, replace=False))
    row, column = np.divmod(cell, columns)
    counts = rng.choice([1, 2, 3, 4], CELLS, p=[0.9, 0.07, 0.02, 0.01]).astype(np.float32)
    indptr = np.searchsorted(row, np.arange(ROWS + 1)).astype(np.int32)
    X = scipy.sparse.csr_matrix((counts, column.astype(np.int32), indptr), shape=(ROWS, columns))
    weights = rng.normal(0, 0.5, columns).astype(np.float32)
    probability = 1 / (1 + np.exp(-(X @ weights)))
    return Stream(X, (rng.random(ROWS) < probability).astype(np.int64))


def _zipf(rng: np.random.Generator, words: int, size: int) -> Any:
    """Draw `size` ranks below `words` with probability proportional to 1 / (rank + 1)."""
    share = 1 / np.arange(1, words + 1)
    return np.searchsorted(np.cumsum(share / share.sum()), rng.random(size)).clip(0, words - 1)
