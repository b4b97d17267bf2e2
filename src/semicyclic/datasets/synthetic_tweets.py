"""Synthetic replacement for Sentiment140, of the same size.

It allows running the experiment without the data. It is one fixed set of tweets, independent of the
experiment's seed. A smaller set has the same distribution, but is not part of a larger one.

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
One row in twenty-five ends in a link ("http"), and one word in fifty is drawn out ("soooo"), which makes it
another word: neither depends on the label.

The skew. The share of positive rows at hour h is .5 + .07 cos(2 pi (h - 1) / 24): slightly higher at night
than during the day, as in the original. Rows are most frequent in the evening and rarest in the early
morning. The experiment adds its own skew to this. The numbers above were chosen from known properties of
the original (its length, its rates by hour) and as round figures, without looking at any approach's
results.
"""

from collections.abc import Callable

import numpy as np

from semicyclic.datasets.sentiment140 import VOCABULARY, Tweets, bags_of
from semicyclic.types import Array

ROWS = 1_600_000
WORDS = 60_000
MARKS = ".,!?;"
SEED = 2009
# Standard deviations of t_j and s_j.
TILT, HOURLY = 0.6, 0.2
MEAN_LENGTH, SPAN_DAYS = 14, 80
# Probabilities that a row is neutral or ends in a link, and that a word is drawn out.
NEUTRAL, LINKED, DRAWN_OUT = 3 / 20, 1 / 25, 1 / 50
# Relative frequency of rows by hour, from midnight (Pacific time).
ROWS_BY_HOUR = (
    60, 50, 42, 36, 34, 36, 42, 50, 56, 58, 58, 56, 54, 52, 52, 52, 53, 55, 58, 62, 68, 72, 74, 68,
)  # fmt: skip


def make(
    rows: int = ROWS,
    *,
    vocabulary: int = VOCABULARY,
    progress: Callable[[float], None] = lambda _: None,
) -> Tweets:
    """Draw `rows` tweets. vocabulary: number of words to keep. progress: called with the share done."""
    if rows < 2 or rows % 2:
        raise ValueError(f"rows={rows}: give an even number of at least 2, half of it for each label")
    rng = np.random.default_rng(SEED)
    names = _words(rng)
    shares = _shares(rng)
    positive = np.arange(rows) >= rows // 2
    second = np.concatenate([_seconds(rng, rows // 2, clock) for clock in _clocks()])
    linked = rng.random(rows) < LINKED
    length = 1 + rng.poisson(MEAN_LENGTH, rows) + linked
    begin = np.r_[0, np.cumsum(length)]
    neutral = rng.random(rows) < NEUTRAL
    # The distribution that each row draws its words from: two for every hour, and the neutral one.
    table = np.where(neutral, len(shares) - 1, 2 * (second // 3600) + positive).astype(np.uint8)
    table_of_word = np.repeat(table, length)
    words = np.empty(int(begin[-1]), np.int32)
    for number, share in enumerate(shares):
        own = np.flatnonzero(table_of_word == number)
        # As many independent draws: counts by word, in random order.
        drawn = np.repeat(np.arange(WORDS, dtype=np.int32), rng.multinomial(len(own), share))
        words[own] = rng.permutation(drawn)
        progress((number + 1) / len(shares))
    words[(rng.random(len(words), np.float32) < DRAWN_OUT) & (words >= len(MARKS))] += WORDS
    words[begin[1:][linked] - 1] = 2 * WORDS
    texts = [*names, *(name + 3 * name[-1] for name in names), "http"]
    return bags_of([words], [begin], positive, second, texts.__getitem__, len(texts), vocabulary)


def _shares(rng: np.random.Generator) -> Array:
    """[49, words] the distribution of words: of negative and positive rows of each hour, and the Zipf law."""
    zipf = 1 / (np.arange(WORDS) + 2.7)
    tilt = rng.normal(0, TILT, WORDS)
    hourly = rng.normal(0, HOURLY, WORDS) * (rng.random(WORDS) < 0.5)
    peak = rng.uniform(0, 24, WORDS)
    shares = []
    for hour in range(24):
        meaning = tilt + hourly * np.cos(2 * np.pi * (hour - peak) / 24)
        shares += [zipf * np.exp(sign * meaning / 2) for sign in (-1, 1)]
    table = np.array([*shares, zipf])
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _clocks() -> Array:
    """[2, 24 * 3600] the cumulative distribution of the second of the day for negative and positive rows."""
    hour = np.arange(24 * 3600) / 3600
    frequency = np.interp(hour, np.arange(25) + 0.5, [*ROWS_BY_HOUR, ROWS_BY_HOUR[0]], period=24)
    rate = 0.5 + 0.07 * np.cos(2 * np.pi * (hour - 1) / 24)
    cumulative = np.cumsum(np.stack([frequency * (1 - rate), frequency * rate]), axis=1)
    return np.asarray(cumulative / cumulative[:, -1:])


def _seconds(rng: np.random.Generator, rows: int, clock: Array) -> Array:
    """Return the second of the day of rows in order of time, spread evenly over the days."""
    days = (np.arange(rows) + rng.random(rows)) * SPAN_DAYS / rows
    return np.searchsorted(clock, days % 1.0, side="right").clip(max=24 * 3600 - 1)


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
