"""Streams made by the package, for trying things out."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.method.rows import Rows
from semicyclic.method.zone import SECOND

Array = npt.NDArray[Any]

DAY = 86_400
# Sunday, 1 March 2026, 00:00 UTC.
FIRST_DAY = 1_772_323_200
# The paper's skew read as rates: two thirds positive at midnight, one third at noon, linear
# in between, for six blocks of four hours (SPEC H2).
RATES = (2 / 3, 5 / 9, 4 / 9, 1 / 3, 4 / 9, 5 / 9)


class Corpus(NamedTuple):
    """Bags of words in CSR form: row r has the words[start[r]:start[r+1]], all different."""

    start: Array
    words: Array
    counts: Array
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.start) - 1, self.columns

    @property
    def indptr(self) -> Array:
        return self.start

    @property
    def indices(self) -> Array:
        return self.words

    @property
    def data(self) -> Array:
        return self.counts

    def tocsr(self) -> "Corpus":
        """Itself: `Rows` takes whatever has the parts of a CSR matrix."""
        return self


def skewed(
    rows_per_day: int = 12_000, *, days: int = 10, columns: int = 1024, seed: int = 0, mixed: bool = False
) -> Rows:
    """A stream of short texts whose share of positive labels follows the time of day.

    The label of a row is positive with the probability RATES has for its four-hour block (UTC).
    A row has 1 + Poisson(9) words, drawn from a Zipf law; the odds of word j under a positive
    label are exp(t_j) times those under a negative one, t_j normal with standard deviation 0.5.
    Words mean the same at every hour: only how many are positive changes. `mixed` gives every
    row a label and words of a random hour, the i.i.d. stream of the same mixture.
    """
    rng = np.random.default_rng(seed)
    n = rows_per_day * days
    when = np.sort(rng.integers(0, days * DAY, n))
    hour = rng.integers(0, DAY, n) if mixed else when % DAY
    positive = rng.random(n) < np.array(RATES)[hour * len(RATES) // DAY]
    # The language is the same whatever the seed, or two streams could not be compared.
    tilt = np.random.default_rng(2019).normal(0, 0.5, columns)
    zipf = 1 / np.arange(1, columns + 1)
    length = 1 + rng.poisson(9, n)
    word = np.empty(int(length.sum()), np.int64)
    label = np.repeat(positive, length)
    for side, sign in ((True, 0.5), (False, -0.5)):
        share = zipf * np.exp(sign * tilt)
        table = np.cumsum(share / share.sum())
        own = label == side
        word[own] = np.searchsorted(table, rng.random(int(own.sum()))).clip(0, columns - 1)
    cell, counts = np.unique(np.repeat(np.arange(n), length) * columns + word, return_counts=True)
    row, words = np.divmod(cell, columns)
    start = np.searchsorted(row, np.arange(n + 1))
    corpus = Corpus(start, words.astype(np.int32), np.minimum(counts, 4).astype(np.float32), columns)
    ticks = (FIRST_DAY + when) * SECOND
    return Rows(corpus, positive, when=ticks.astype("datetime64[us]"), zone="UTC")
