"""Sentiment140: tweets as bags of the most frequent words (Section 7)."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semicyclic.datasets import kernels
from semicyclic.types import Array

# Bytes per read.
PART_BYTES = 1 << 23
# Default vocabulary size.
VOCABULARY = 1024
# Word counts are capped at this number.
MAX_WORD_COUNT = 4


@dataclass(frozen=True, eq=False)
class Tweets:
    """Tweets as bags of words, in the order of the file.

    start, words, counts: row r has the distinct words[start[r]:start[r+1]], with these counts (capped).
    positive: the label. second: the second of the day, in the local time of the date field.
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
    """Read a file in the format of Sentiment140's training.1600000.processed.noemoticon.csv.

    vocabulary: number of words to keep. progress: called with the share of the file read so far.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the CSV file in it")
    size = path.stat().st_size
    return read(_parts(path), vocabulary=vocabulary, progress=lambda done: progress(done / max(size, 1)))


def _parts(path: Path) -> Iterator[Array]:
    with path.open("rb") as file:
        while part := file.read(PART_BYTES):
            yield np.frombuffer(part, np.uint8)


def read(
    parts: Iterable[Array],
    *,
    vocabulary: int = VOCABULARY,
    progress: Callable[[int], None] = lambda _: None,
) -> Tweets:
    """Read the bytes of such a file, in parts split anywhere; `progress` gets the number of bytes read."""
    if not 1 <= vocabulary <= 2**16:
        raise ValueError(f"a vocabulary of {vocabulary} words: choose from 1 to {2**16}")
    reader = _Reader()
    rest = np.zeros(0, np.uint8)
    done = 0
    for part in _read_ahead(parts):
        rest = reader.read(np.concatenate([rest, part]) if len(rest) else part, final=False)
        done += len(part)
        progress(done)
    reader.read(rest, final=True)
    return reader.tweets(vocabulary)


def _read_ahead(parts: Iterable[Array]) -> Iterator[Array]:
    """Yield the same parts with read-ahead: a thread produces the next while the current one is used."""
    source = iter(parts)
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, source, None)
        while (part := upcoming.result()) is not None:
            upcoming = pool.submit(next, source, None)
            yield part


class _Reader:
    """Incremental reader: keeps the word numbers of every row read so far, and a hash table of all words."""

    def __init__(self) -> None:
        self.rows = 0
        self.columns: list[tuple[Array, Array, Array]] = []
        self.words: list[Array] = []
        self.table = _empty_table(1 << 17)
        self.pool = np.zeros(1 << 20, np.uint8), np.zeros((1 << 16) + 1, np.int64)
        self.used = np.zeros(1, np.int64)

    def read(self, data: Array, *, final: bool) -> Array:
        """Read the complete rows of `data`; return the remaining bytes."""
        start = 0
        while start < len(data):
            # A row has at least 16 bytes (five commas, a label, a date), and a word at least one.
            size = len(data) - start
            columns = np.empty(size // 16 + 2, bool), np.empty(size // 16 + 2, np.int32)
            begin, words = np.empty(size // 16 + 3, np.int64), np.empty(size + 8, np.int32)
            rows, stop, status, low, high, used = kernels.tokenizer.read_rows(
                data, start, final, (*columns, begin), words, self.table, self.pool, self.used
            )
            self.columns.append(
                (columns[0][:rows].copy(), columns[1][:rows].copy(), np.diff(begin[: rows + 1]))
            )
            self.words.append(words[:used].copy())
            self.rows += rows
            if status not in (kernels.tokenizer.FINE, kernels.tokenizer.FULL):
                raise ValueError(self._error_message(status, data, low, high))
            if status == kernels.tokenizer.FINE:
                return data[stop:].copy()
            start = stop
            self._grow()
        return data[len(data) :]

    def _grow(self) -> None:
        wider = _empty_table(2 * len(self.table))
        kernels.tokenizer.rehash(self.table, wider)
        self.table = wider
        letters, starts = self.pool
        self.pool = np.r_[letters, np.zeros_like(letters)], np.r_[starts, np.zeros(len(starts) - 1, np.int64)]

    def _error_message(self, status: int, data: Array, low: int, high: int) -> str:
        row = self.rows + 1
        if status == kernels.tokenizer.COLUMN_COUNT:
            return f"row {row} has {low} column(s): there must be six, target, id, date, flag, user and text"
        if status == kernels.tokenizer.OPEN_QUOTE:
            return f"row {row} has a quote that is not closed"
        if status == kernels.tokenizer.TOO_LONG:
            return f"row {row} has a text of {low:,} bytes: at most {high:,} can be read"
        field = data[low:high].tobytes().decode("latin-1").removesuffix('"')
        # Escaped, so that the message stays on one line.
        shown = field[:60].encode("unicode_escape").decode("ascii")
        if status == kernels.tokenizer.LABEL:
            header = " (a header? remove that line)" if row == 1 else ""
            return (
                f'row {row} has the unknown label "{shown}": the target must be 0 (negative) or 4 '
                f"(positive){header}"
            )
        return (
            f'row {row} has the date "{shown}": it must be like "Mon Apr 06 22:19:45 PDT 2009", Pacific time'
        )

    def tweets(self, vocabulary: int) -> Tweets:
        """Return bags of the most frequent words; ties are broken in favor of words seen first."""
        positive = np.concatenate([part[0] for part in self.columns] or [np.zeros(0, bool)])
        if len(positive) == 0:
            raise ValueError("there are no rows: the file is empty")
        if positive.all() or not positive.any():
            raise ValueError(
                f"all rows, from row 1 to row {len(positive)}, have the target {4 if positive[0] else 0}: "
                "both classes are needed (the original is sorted by label: take a random sample of it)"
            )
        number, (letters, starts) = int(self.used[0]), self.pool
        self.table = self.table[:0]
        begins = [np.r_[0, np.cumsum(part[2])] for part in self.columns]
        second = np.concatenate([part[1] for part in self.columns])

        def name(k: int) -> str:
            return letters[starts[k] : starts[k + 1]].tobytes().decode("latin-1")

        return bags_of(self.words, begins, positive, second, name, number, vocabulary)


def bags_of(
    words: list[Array],
    begins: list[Array],
    positive: Array,
    second: Array,
    name: Callable[[int], str],
    number: int,
    vocabulary: int,
) -> Tweets:
    """Return tweets as bags of the most frequent words; ties are broken in favor of lower numbers.

    words, begins: in parts, which are removed; row r of a part has words[begin[r]:begin[r+1]], from 0 to
    number - 1. name: the text of a word. positive, second: of all rows.
    """
    counts = np.zeros(number, np.int64)
    for part in words:
        counts += np.bincount(part, minlength=number)
    chosen = np.argsort(-counts, kind="stable")[:vocabulary]
    rank = np.full(max(number, 1), -1, np.int32)
    rank[chosen] = np.arange(len(chosen))
    starts, columns, cells = [np.zeros(1, np.int64)], [], []
    total = 0
    for at, part in enumerate(words):
        start, column = np.empty(len(begins[at]), np.int64), np.empty(len(part), np.uint16)
        count = np.empty(len(part), np.uint8)
        used = kernels.tokenizer.bags(part, begins[at], rank, MAX_WORD_COUNT, (start, column, count))
        starts.append(start[1:] + total)
        columns.append(column[:used].copy())
        cells.append(count[:used].copy())
        total += used
        words[at] = part[:0]
    bags = (np.concatenate(starts), np.concatenate(columns), np.concatenate(cells))
    return Tweets(*bags, positive, second, tuple(name(k) for k in chosen))


def _empty_table(slots: int) -> Array:
    """Return an empty token table."""
    return np.full((slots, 2), 2**64 - 1, np.uint64)
