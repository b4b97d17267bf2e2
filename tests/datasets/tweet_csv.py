"""Tweets as a file in Sentiment140's layout."""

from collections.abc import Iterator

import numpy as np

from semicyclic.datasets.sentiment140 import Tweets
from semicyclic.types import Array

ROWS = 50_000


def csv_parts(tweets: Tweets) -> Iterator[Array]:
    """Yield the bytes of a file that `sentiment140.read` reads as the same tweets, in parts of whole rows."""
    for first in range(0, len(tweets), ROWS):
        lines = []
        for row in range(first, min(first + ROWS, len(tweets))):
            cells = slice(tweets.start[row], tweets.start[row + 1])
            pairs = zip(tweets.words[cells].tolist(), tweets.counts[cells].tolist(), strict=True)
            text = " ".join(" ".join([tweets.vocabulary[word]] * count) for word, count in pairs)
            minute, second = divmod(int(tweets.second[row]), 60)
            clock = f"{minute // 60:02}:{minute % 60:02}:{second:02}"
            target = 4 if tweets.positive[row] else 0
            lines.append(
                f'"{target}","{row}","Mon Apr 06 {clock} PDT 2009","NO_QUERY","user{row}","{text} "\n'
            )
        yield np.frombuffer("".join(lines).encode("ascii"), np.uint8)


def csv_bytes(tweets: Tweets) -> bytes:
    """Return the bytes of the whole file."""
    return b"".join(part.tobytes() for part in csv_parts(tweets))
