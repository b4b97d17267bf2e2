"""`SparseRows`: a minimal CSR matrix that `Rows` accepts, without SciPy."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.types import Array


class SparseRows(NamedTuple):
    """CSR matrix: row r has the columns indices[indptr[r]:indptr[r+1]], with their values in `data`."""

    indptr: Array
    indices: Array
    data: Array
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def tocsr(self) -> "SparseRows":
        return self
