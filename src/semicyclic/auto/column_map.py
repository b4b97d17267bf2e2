"""`ColumnMap`: dense column numbers for the features seen so far, however wide the rows are."""

from dataclasses import dataclass, field

import numpy as np

from semicyclic.types import Array


@dataclass
class ColumnMap:
    """Where features have their columns, -1 where none has come yet. The first are marks and the intercept.

    width: how many features there may be. first: the column of the first of them. most: columns there may be;
    beyond, features share them.
    """

    width: int
    first: int
    most: int
    used: int = 0
    place: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        self.most = max(min(self.most, self.first + self.width), self.first)
        self.used = self.first
        self.place = np.full(self.width, -1, np.int64)

    def take_in(self, features: Array) -> None:
        """Columns for features that come for the first time."""
        fresh = features[self.place[features] < 0]
        if len(fresh) == 0:
            return
        # In the order in which they come: however rows are cut, they get the same columns.
        found, at = np.unique(fresh, return_index=True)
        new = found[np.argsort(at)]
        own, rest = np.split(new, [min(self.most - self.used, len(new))])
        self.place[own] = self.used + np.arange(len(own))
        self.used += len(own)
        self.place[rest] = self.first + rest % max(self.used - self.first, 1)
