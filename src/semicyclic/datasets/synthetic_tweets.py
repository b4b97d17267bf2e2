"""Synthetic replacement for Sentiment140, in the same layout and size.

It allows running the experiment without the data. It is one fixed file, independent of the experiment's
seed. A shorter file has the same distribution, but is not a prefix of a longer one.

The words. There are 60,000, made of syllables, some with capitals, and the five marks
`. , ! ? ;`. The word of rank r has the share 1 / (r + 2.7) (a Zipf law as in English).

The labels and the logit. Half of the rows are negative, then half positive, each in order of
time, as in the original. A row has 1 + Poisson(14) words, drawn independently. Under label y = -1
or +1 at hour h, word j has a probability proportional to

    zipf_j exp(y (t_j + s_j cos(2 pi (h - h_j) / 24)) / 2)

Given words and hour, the log odds of the label are thus a constant plus the sum of t_j + s_j cos(...)
over the words, up to the normalizing constants. t_j is normal with standard deviation .6; s_j is 0 for
half of the words and normal with standard deviation .2 for the others, h_j uniform: the meaning of
those words changes with the hour.

The noise. In three rows of twenty the words are drawn from the Zipf law alone, independent of the label.
One row in twelve starts with "@" and a name, one in twenty-five ends in a link, one word in fifty is
drawn out ("soooo"): none of these tokens carries information about the label.

The skew. The share of positive rows at hour h is .5 + .07 cos(2 pi (h - 1) / 24): slightly higher at night
than during the day, as in the original. Rows are most frequent in the evening and rarest in the early
morning. The experiment adds its own skew to this. The numbers above were chosen from known properties of
the original (its length, its rates by hour) and as round figures, without looking at any approach's
results.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from semicyclic.datasets import kernels
from semicyclic.types import Array

ROWS = 1_600_000
WORDS = 60_000
MARKS = ".,!?;"
# Rows per part.
PART_ROWS = 50_000
SEED = 2009
# Standard deviations of t_j and s_j.
TILT, HOURLY = 0.6, 0.2
# Relative frequency of rows by hour, from midnight (Pacific time).
ROWS_BY_HOUR = (
    60, 50, 42, 36, 34, 36, 42, 50, 56, 58, 58, 56, 54, 52, 52, 52, 53, 55, 58, 62, 68, 72, 74, 68,
)  # fmt: skip


class Language(NamedTuple):
    """Words as bytes, and an alias table for each (label, hour) to draw them from.

    letters, starts: word j is letters[starts[j]:starts[j+1]]. chance, other: the alias tables; table 2 h is
    for negative and 2 h + 1 for positive rows of hour h, the last one for neutral rows.
    """

    letters: Array
    starts: Array
    chance: Array
    other: Array
    # [2, 24 * 3600 + 1] cumulative distribution of the second of the day, for each label.
    clock: Array
    # [65536] number of words of a row; all entries are equally likely.
    lengths: Array


def make(rows: int = ROWS) -> Iterator[Array]:
    """Yield the bytes of a file of `rows` rows, in parts of complete rows."""
    if rows < 2 or rows % 2:
        raise ValueError(f"rows={rows}: give an even number of at least 2, half of it for each label")
    language = _language()
    for first in range(0, rows, PART_ROWS):
        last = min(first + PART_ROWS, rows)
        # A text rarely exceeds 140 letters; the extra space allows for the longest words.
        buffer = np.empty((last - first) * 400 + 4096, np.uint8)
        used = kernels.tweet_writer.write_rows(SEED, (first, last, rows), language, buffer)
        yield buffer[:used]


def _language() -> Language:
    rng = np.random.default_rng(SEED)
    words = _words(rng)
    letters = np.frombuffer("".join(words).encode("ascii"), np.uint8)
    starts = np.r_[0, np.cumsum([len(word) for word in words])].astype(np.int64)
    zipf = 1 / (np.arange(WORDS) + 2.7)
    tilt = rng.normal(0, TILT, WORDS)
    hourly = rng.normal(0, HOURLY, WORDS) * (rng.random(WORDS) < 0.5)
    peak = rng.uniform(0, 24, WORDS)
    shares = []
    for hour in range(24):
        meaning = tilt + hourly * np.cos(2 * np.pi * (hour - peak) / 24)
        shares += [zipf * np.exp(sign * meaning / 2) for sign in (-1, 1)]
    chance, other = kernels.tweet_writer.alias(np.array([*shares, zipf]))
    return Language(letters, starts, chance, other, _clock(), _lengths())


def _lengths() -> Array:
    """Return 2^16 quantiles of 1 + Poisson(14)."""
    count = np.arange(60)
    mass = np.exp(count * np.log(14.0) - 14.0 - np.cumsum(np.log(np.maximum(count, 1))))
    quantile = (np.arange(2**16) + 0.5) / 2**16
    return (1 + np.searchsorted(np.cumsum(mass), quantile)).astype(np.uint8)


def _clock() -> Array:
    """Return the cumulative distribution of the second of the day for negative and positive rows."""
    hour = np.arange(24 * 3600) / 3600
    frequency = np.interp(hour, np.arange(25) + 0.5, [*ROWS_BY_HOUR, ROWS_BY_HOUR[0]], period=24)
    rate = 0.5 + 0.07 * np.cos(2 * np.pi * (hour - 1) / 24)
    density = np.stack([frequency * (1 - rate), frequency * rate])
    cumulative = np.cumsum(density, axis=1)
    return np.hstack([np.zeros((2, 1)), cumulative / cumulative[:, -1:]])


def _words(rng: np.random.Generator) -> list[str]:
    """Return punctuation marks and made-up words; frequent words are short."""
    onsets = [*"bcdfghklmnprstvw", "th", "sh", "st"]
    vowels = [*"aeiou", "ee", "oo"]
    codas = ["", "", "", "n", "s", "t", "l", "r", "ng"]
    syllables = [onset + vowel + coda for onset in onsets for vowel in vowels for coda in codas]
    words = dict.fromkeys(MARKS)
    while len(words) < WORDS:
        draws = rng.integers(len(syllables), size=(WORDS, 3)).tolist()
        capital, shorter = rng.random(WORDS) < 0.15, rng.random(WORDS) < 0.5
        for chosen, capitalize, short in zip(draws, capital.tolist(), shorter.tolist(), strict=True):
            max_syllables = 1 if len(words) < 150 else 2 if len(words) < 3000 else 3
            word = "".join([syllables[k] for k in chosen[: max(max_syllables - short, 1)]])
            words[word.capitalize() if capitalize else word] = None
    return list(words)[:WORDS]
