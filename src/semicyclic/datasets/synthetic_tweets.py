"""Synthetic replacement for Sentiment140, in the same layout and size.

For trying the experiment without the data. It is one fixed file, whatever the experiment's
seed; its first rows are those of a shorter one with the same shares, not of the same text.

The words. There are 60,000, made of syllables, some with capitals, and the five marks
`. , ! ? ;`. The word of rank r has the share 1 / (r + 2.7) (a Zipf law as in English).

The labels and the logit. Half of the rows are negative, then half positive, each in order of
time, as in the original. A row has 1 + Poisson(14) words, drawn independently: word j has under
label y = -1 or +1 at hour h the share proportional to

    zipf_j exp(y (t_j + s_j cos(2 pi (h - h_j) / 24)) / 2)

so that, given words and hour, the log odds of the label are a constant plus the sum over its words
of t_j + s_j cos(...), up to the shares' normalisers. t_j is normal with standard deviation .6;
s_j is 0 for half of the words and normal with standard deviation .2 for the others, h_j uniform:
these change their meaning with the hour.

The noise. In three rows of twenty the words are drawn from the Zipf law alone, whatever the label.
One row in twelve starts with "@" and a name, one in twenty-five ends in a link, one word in
fifty is drawn out ("soooo"): all tokens that say nothing.

The skew. The share of positive rows at hour h is .5 + .07 cos(2 pi (h - 1) / 24), a night that is
a little happier than the day, as in the original; rows are most frequent in the evening and
rarest before dawn. The experiment adds its own skew to this. The numbers above were chosen from
what is known of the original (its length, its rates by hour) and as round figures; no approach's
result was looked at.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from semicyclic.datasets import kernels
from semicyclic.types import Array

ROWS = 1_600_000
WORDS = 60_000
MARKS = ".,!?;"
# Rows made at a time.
PART = 50_000
SEED = 2009
TILT, HOURLY = 0.6, 0.2
# How many rows come in each hour, from midnight (Pacific time), relative to one another.
BUSY = (60, 50, 42, 36, 34, 36, 42, 50, 56, 58, 58, 56, 54, 52, 52, 52, 53, 55, 58, 62, 68, 72, 74, 68)


class Language(NamedTuple):
    """The words as bytes, and for each (label, hour) an alias table to draw them from.

    Table 2 h is for negative and 2 h + 1 for positive rows of hour h, the last for neutral ones.
    """

    letters: Array
    starts: Array
    chance: Array
    other: Array
    # [2, 24 * 3600 + 1] where in a day's rows of each label a second begins.
    clock: Array
    # [65536] how many words a row has, each entry as likely as any other.
    lengths: Array


def make(rows: int = ROWS) -> Iterator[Array]:
    """The bytes of the file, in parts of whole rows."""

    if rows < 2 or rows % 2:
        raise ValueError(f"a stand-in of {rows} rows: give an even number, half of it for each label")
    language = _language()
    for first in range(0, rows, PART):
        last = min(first + PART, rows)
        # 140 letters are about the most a row takes; room for the longest words is cheap.
        room = np.empty((last - first) * 400 + 4096, np.uint8)
        used = kernels.tweet_writer.write_rows(SEED, (first, last, rows), language, room)
        yield room[:used]


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
    """1 + Poisson(14), by its quantiles."""
    count = np.arange(60)
    mass = np.exp(count * np.log(14.0) - 14.0 - np.cumsum(np.log(np.maximum(count, 1))))
    quantile = (np.arange(2**16) + 0.5) / 2**16
    return (1 + np.searchsorted(np.cumsum(mass), quantile)).astype(np.uint8)


def _clock() -> Array:
    """The distribution of the second of the day, of negative and of positive rows."""
    hour = np.arange(24 * 3600) / 3600
    busy = np.interp(hour, np.arange(25) + 0.5, [*BUSY, BUSY[0]], period=24)
    rate = 0.5 + 0.07 * np.cos(2 * np.pi * (hour - 1) / 24)
    density = np.stack([busy * (1 - rate), busy * rate])
    whole = np.cumsum(density, axis=1)
    return np.hstack([np.zeros((2, 1)), whole / whole[:, -1:]])


def _words(rng: np.random.Generator) -> list[str]:
    """Marks and made-up words, the frequent ones short."""
    onsets = [*"bcdfghklmnprstvw", "th", "sh", "st"]
    vowels = [*"aeiou", "ee", "oo"]
    codas = ["", "", "", "n", "s", "t", "l", "r", "ng"]
    syllables = [onset + vowel + coda for onset in onsets for vowel in vowels for coda in codas]
    found = dict.fromkeys(MARKS)
    while len(found) < WORDS:
        part = rng.integers(len(syllables), size=(WORDS, 3)).tolist()
        capital, shorter = rng.random(WORDS) < 0.15, rng.random(WORDS) < 0.5
        for chosen, large, short in zip(part, capital.tolist(), shorter.tolist(), strict=True):
            most = 1 if len(found) < 150 else 2 if len(found) < 3000 else 3
            word = "".join([syllables[k] for k in chosen[: max(most - short, 1)]])
            found[word.capitalize() if large else word] = None
    return list(found)[:WORDS]
