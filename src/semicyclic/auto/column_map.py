"""`ColumnMap`: dense column numbers for the features seen so far, however wide the rows are."""

from dataclasses import dataclass, field

import numpy as np

from semicyclic.types import Array


@dataclass
class ColumnMap:
    """Mapping from features to columns of the candidates' weight arrays.

    The first columns hold the marks (slot and weekday indicators) and the intercept. If features need more
    than `max_columns` columns, the later ones share columns.

    width: number of features. first: column of the first feature. max_columns: maximum number of columns.
    used: number of columns in use. column_of: [width] column of each feature, -1 if it has not been seen.
    """

    width: int
    first: int
    max_columns: int
    used: int = 0
    column_of: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        self.max_columns = max(min(self.max_columns, self.first + self.width), self.first)
        self.used = self.first
        self.column_of = np.full(self.width, -1, np.int64)

    def take_in(self, features: Array) -> None:
        """Assign columns to the features that have not been seen before."""
        unseen = features[self.column_of[features] < 0]
        if len(unseen) == 0:
            return
        # In order of appearance: columns do not depend on how the rows are split into chunks.
        distinct, position = np.unique(unseen, return_index=True)
        new = distinct[np.argsort(position)]
        unshared, rest = np.split(new, [min(self.max_columns - self.used, len(new))])
        self.column_of[unshared] = self.used + np.arange(len(unshared))
        self.used += len(unshared)
        self.column_of[rest] = self.first + rest % max(self.used - self.first, 1)
