"""Division of features by the root mean square of their column so far."""

from typing import Any

import numpy as np

from semicyclic.jit import jit

# Squares are limited to this, so that the mean square of huge values stays finite.
MAX_SQUARE = 1e300


@jit
def normalize(cells: Any, weight: Any, mean_square: Any, count: Any, out: Any) -> Any:
    """Update the mean squares of columns row by row, and set `out` to the values divided by their roots.

    cells: (indptr, indices, values) in CSR form. weight: of the rows, empty if they have none.
    """
    indptr, indices, values = cells
    for row in range(len(indptr) - 1):
        counts = len(weight) == 0 or weight[row] > 0
        for p in range(indptr[row], indptr[row + 1]):
            j, x = indices[p], np.float64(values[p])
            if counts and x != 0.0:
                count[j] += 1
                # Indicators are the most common values: they change nothing.
                off = min(x * x, MAX_SQUARE) - mean_square[j]
                if off != 0.0:
                    mean_square[j] += off / count[j]
            square = mean_square[j]
            out[p] = x if square == 1.0 else x / np.sqrt(square) if square > 0.0 else 0.0
