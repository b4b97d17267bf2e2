"""Sentiment140: tweets as bags of the most frequent words (Section 7)."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semicyclic.datasets import kernels
from semicyclic.types import Array

# Bytes read at a time.
PART = 1 << 23
VOCABULARY = 1024
CAP = 4


@dataclass(frozen=True, eq=False)
class Tweets:
    """Rows in the order of the file.

    start, words, counts: row r has the words[start[r]:start[r+1]], all different, so often each.
    positive: the label. second: the second of the day, by the clock that wrote the date.
    vocabulary: the words by number, the most frequent first.
    """

    start: Array
    words: Array
    counts: Array
    positive: Array
    second: Array
    vocabulary: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.positive)


def read_file(
    path: Path,
    *,
    vocabulary: int = VOCABULARY,
    progress: Callable[[float], None] = lambda _: None,
) -> Tweets:
    """Read a file in the layout of Sentiment140's training.1600000.processed.noemoticon.csv."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the CSV file in it")
    size = path.stat().st_size
    return read(_parts(path), vocabulary=vocabulary, progress=lambda done: progress(done / max(size, 1)))


def _parts(path: Path) -> Iterator[Array]:
    with path.open("rb") as file:
        while part := file.read(PART):
            yield np.frombuffer(part, np.uint8)


def read(
    parts: Iterable[Array],
    *,
    vocabulary: int = VOCABULARY,
    progress: Callable[[int], None] = lambda _: None,
) -> Tweets:
    """Read the bytes of such a file, in parts cut anywhere. `progress` is told how many were read."""
    if not 1 <= vocabulary <= 2**16:
        raise ValueError(f"a vocabulary of {vocabulary} words: choose from 1 to {2**16}")
    found = _Reader()
    rest = np.zeros(0, np.uint8)
    done = 0
    for part in _ahead(parts):
        rest = found.read(np.concatenate([rest, part]) if len(rest) else part, final=False)
        done += len(part)
        progress(done)
    found.read(rest, final=True)
    return found.tweets(vocabulary)


def _ahead(parts: Iterable[Array]) -> Iterator[Array]:
    """The same parts, the next one being made while the present one is used."""
    source = iter(parts)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (part := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield part


class _Reader:
    """What was read so far: the words of every row by number, and a table of all words."""

    def __init__(self) -> None:
        self.rows = 0
        self.columns: list[tuple[Array, Array, Array]] = []
        self.words: list[Array] = []
        self.table = _blank(1 << 17)
        self.pool = np.zeros(1 << 20, np.uint8), np.zeros((1 << 16) + 1, np.int64)
        self.used = np.zeros(1, np.int64)

    def read(self, data: Array, *, final: bool) -> Array:
        """Read the whole rows of these bytes; what is left of them."""

        start = 0
        while start < len(data):
            # A row has at least 16 bytes: five commas, a label, a date; words are shorter than bytes.
            room = len(data) - start
            columns = np.empty(room // 16 + 2, bool), np.empty(room // 16 + 2, np.int32)
            begin, words = np.empty(room // 16 + 3, np.int64), np.empty(room + 8, np.int32)
            rows, stop, wrong, low, high, used = kernels.tokenizer.read_rows(
                data, start, final, (*columns, begin), words, self.table, self.pool, self.used
            )
            self.columns.append(
                (columns[0][:rows].copy(), columns[1][:rows].copy(), np.diff(begin[: rows + 1]))
            )
            self.words.append(words[:used].copy())
            self.rows += rows
            if wrong not in (kernels.tokenizer.FINE, kernels.tokenizer.FULL):
                raise ValueError(self._sentence(wrong, data, low, high))
            if wrong == kernels.tokenizer.FINE:
                return data[stop:].copy()
            start = stop
            self._widen()
        return data[len(data) :]

    def _widen(self) -> None:

        wider = _blank(2 * len(self.table))
        kernels.tokenizer.place_again(self.table, wider)
        self.table = wider
        letters, starts = self.pool
        self.pool = np.r_[letters, np.zeros_like(letters)], np.r_[starts, np.zeros(len(starts) - 1, np.int64)]

    def _sentence(self, wrong: int, data: Array, low: int, high: int) -> str:

        row = self.rows + 1
        if wrong == kernels.tokenizer.COLUMN_COUNT:
            return f"row {row} has {low} column(s): there must be six, target, id, date, flag, user and text"
        if wrong == kernels.tokenizer.OPEN_QUOTE:
            return f"row {row} has a quote that is not closed"
        if wrong == kernels.tokenizer.TOO_LONG:
            return f"row {row} has a text of {low:,} bytes: at most {high:,} can be read"
        field = data[low:high].tobytes().decode("latin-1").removesuffix('"')
        # In one line, whatever the field holds.
        shown = field[:60].encode("unicode_escape").decode("ascii")
        if wrong == kernels.tokenizer.LABEL:
            header = " (a header? remove that line)" if row == 1 else ""
            return (
                f'row {row} has the unknown label "{shown}": the target must be 0 (negative) or 4 '
                f"(positive){header}"
            )
        return (
            f'row {row} has the date "{shown}": it must be like "Mon Apr 06 22:19:45 PDT 2009", Pacific time'
        )

    def tweets(self, vocabulary: int) -> Tweets:
        """Bags of the most frequent words; of equally frequent ones those seen first."""

        positive = np.concatenate([part[0] for part in self.columns] or [np.zeros(0, bool)])
        if len(positive) == 0:
            raise ValueError("there are no rows: the file is empty")
        if positive.all() or not positive.any():
            raise ValueError(
                f"all rows, from row 1 to row {len(positive)}, have the target {4 if positive[0] else 0}: "
                "both classes are needed (the original is sorted by label: take a random sample of it)"
            )
        number, (letters, starts) = int(self.used[0]), self.pool
        counts = np.zeros(number, np.int64)
        for words in self.words:
            counts += np.bincount(words, minlength=number)
        chosen = np.argsort(-counts, kind="stable")[:vocabulary]
        rank = np.full(max(number, 1), -1, np.int32)
        rank[chosen] = np.arange(len(chosen))
        self.table = self.table[:0]
        begins, columns, cells = [np.zeros(1, np.int64)], [], []
        total = 0
        for place, words in enumerate(self.words):
            begin = np.r_[0, np.cumsum(self.columns[place][2])]
            start, column = np.empty(len(begin), np.int64), np.empty(len(words), np.uint16)
            count = np.empty(len(words), np.uint8)
            used = kernels.tokenizer.bags(words, begin, rank, CAP, (start, column, count))
            begins.append(start[1:] + total)
            columns.append(column[:used].copy())
            cells.append(count[:used].copy())
            total += used
            self.words[place] = words[:0]
        return Tweets(
            np.concatenate(begins),
            np.concatenate(columns),
            np.concatenate(cells),
            positive,
            np.concatenate([part[1] for part in self.columns]),
            tuple(letters[starts[k] : starts[k + 1]].tobytes().decode("latin-1") for k in chosen),
        )


def _blank(slots: int) -> Array:
    """A table of tokens that has none."""
    return np.full((slots, 2), 2**64 - 1, np.uint64)
