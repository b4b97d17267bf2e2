"""The stream the benchmarks run on: Zipf columns, logistic labels, cut into equal visits."""

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
    """CSR features in float32, and labels 0 and 1."""

    X: Any
    y: Any

    def rows(self, blocks: int, cycles: int) -> Rows:
        """The stream as `cycles` equal passes through `blocks` equal blocks."""
        cycle, block = calendar(blocks, cycles)
        return Rows(self.X, self.y, block=block, cycle=cycle)


@cache
def calendar(blocks: int, cycles: int) -> tuple[Any, Any]:
    """(cycle, block) of every row, in equal visits."""
    return np.divmod(np.arange(ROWS) * (blocks * cycles) // ROWS, blocks)


@cache
def stream(columns: int = 1024, seed: int = 1) -> Stream:
    """1.44 M rows, 13 M non-zeros: Zipf ids, hashed into `columns` where that is not 1024.

    Kept in the folder SEMICYCLIC_BENCHMARK_DATA, if that is set: making it takes longer than measuring.
    """
    folder = os.environ.get("SEMICYCLIC_BENCHMARK_DATA")
    if folder is None:
        return _made(columns, seed)
    path = Path(folder) / f"stream-{columns}-{seed}.npz"
    if not path.exists():
        X, y = _made(columns, seed)
        np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, y=y)
    with np.load(path) as held:
        cells = held["data"], held["indices"], held["indptr"]
        return Stream(scipy.sparse.csr_matrix(cells, shape=(ROWS, columns)), held["y"])


def _made(columns: int, seed: int) -> Stream:
    rng = np.random.default_rng(seed)
    words = 1024 if columns == 1024 else columns
    lengths = 1 + rng.poisson(12.5, ROWS)
    rank = _zipf(rng, words, int(lengths.sum()))
    # Ids are scattered over the columns, so that frequent ones are not neighbours.
    place = rng.permutation(columns) if columns == 1024 else rng.integers(0, columns, words)
    row = np.repeat(np.arange(ROWS, dtype=np.int64), lengths)
    cell = np.unique(row * columns + place[rank])
    cell = np.delete(cell, rng.choice(len(cell), len(cell) - CELLS, replace=False))
    row, column = np.divmod(cell, columns)
    counts = rng.choice([1, 2, 3, 4], CELLS, p=[0.9, 0.07, 0.02, 0.01]).astype(np.float32)
    indptr = np.searchsorted(row, np.arange(ROWS + 1)).astype(np.int32)
    X = scipy.sparse.csr_matrix((counts, column.astype(np.int32), indptr), shape=(ROWS, columns))
    weights = rng.normal(0, 0.5, columns).astype(np.float32)
    chance = 1 / (1 + np.exp(-(X @ weights)))
    return Stream(X, (rng.random(ROWS) < chance).astype(np.int64))


def _zipf(rng: np.random.Generator, words: int, size: int) -> Any:
    share = 1 / np.arange(1, words + 1)
    return np.searchsorted(np.cumsum(share / share.sum()), rng.random(size)).clip(0, words - 1)
