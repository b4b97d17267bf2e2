"""`ColumnScale`: the scale of each column, by which normalized steps divide features.

The scale of a column is the root mean square of its nonzero values so far, that of the present row included
(docs/math.md#normalized-steps).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semicyclic.method import kernels
from semicyclic.method.rows import Rows, with_fields
from semicyclic.types import Array


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """Mean squares of the nonzero values of each column so far, [d], and their numbers, [d].

    Rows of weight 0 do not count. The intercept has no scale.
    """

    mean_square: Array
    count: Array

    @staticmethod
    def empty(width: int) -> "ColumnScale":
        """Return the scale before any rows."""
        return ColumnScale(np.zeros(width), np.zeros(width, np.int64))

    def copy(self) -> "ColumnScale":
        """Return a copy that later rows do not change."""
        return ColumnScale(self.mean_square.copy(), self.count.copy())

    def normalize(self, rows: Rows) -> Rows:
        """Return rows, in order of arrival, divided by the scale of their column; changes the scale."""
        values = np.empty_like(rows.values)
        weight = np.zeros(0, rows.values.dtype) if rows.weight is None else rows.weight
        kernels.column_scale.normalize(
            (rows.indptr, rows.indices, rows.values), weight, self.mean_square, self.count, values
        )
        return with_fields(rows, values=values)

    def factors(self, dtype: npt.DTypeLike) -> Array:
        """Return what makes weights on features of those on normalized ones: [d + 1], 1 for the intercept."""
        factors = np.ones(len(self.count) + 1, dtype)
        with np.errstate(divide="ignore"):
            factors[:-1] = np.where(self.mean_square > 0, 1.0 / np.sqrt(self.mean_square), 0.0)
        return factors


def weights_on_features(weights: Array, scale: ColumnScale | None) -> Array:
    """Return weights [..., d+1, C] of a run's vectors as weights on the features as they are."""
    return weights if scale is None else weights * scale.factors(weights.dtype)[:, None]
