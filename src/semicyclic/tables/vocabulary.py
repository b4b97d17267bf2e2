"""`Vocabulary`: all features of an input, collected in an extra pass."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from semicyclic.tables.arrow import known_texts, texts
from semicyclic.tables.columns import NUMBER, TEXT, Schema
from semicyclic.tables.features import Features, Scale, scale_of
from semicyclic.tables.kernels import hashing as k
from semicyclic.types import Array

# Inputs with more features than this are hashed instead.
MAX_FEATURES = 1 << 20
# Number of rows, evenly spaced over the stream, from which number scales are computed.
SAMPLE_ROWS = 1 << 17
_LETTERS = bytes(k.LETTER)


def exact_features(
    columns: Schema, parts: Iterable[Any], *, bins: int, max_columns: int = MAX_FEATURES, bits: int = 18
) -> Features:
    """Return features with a column each, from clean rows; hashed to 2^bits columns if there are too many."""
    vocabulary = Vocabulary(columns)
    for part in parts:
        vocabulary.add(part)
    scales = vocabulary.scales(bins)
    features = vocabulary.features(scales)
    if features is None or features.width > max_columns:
        return Features(columns, scales, bits)
    return features


@dataclass
class Vocabulary:
    """Features seen so far.

    found: names of the category and token features. numbers: every `stride`-th value of each number column.
    rows: number of rows seen.
    """

    columns: Schema
    found: set[str] = field(default_factory=set)
    stride: int = 1
    rows: int = 0
    numbers: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, table: Any) -> None:
        """Add the features of clean rows."""
        for name, kind in self.columns.kinds.items():
            column = table.column(name).combine_chunks()
            if kind == NUMBER:
                first = -self.rows % self.stride
                self.numbers.setdefault(name, []).append(column.to_numpy()[first :: self.stride])
                continue
            if not texts(column).there.all():
                self.found.add(name + k.MISSING)
            known = known_texts(column)
            if kind != TEXT:
                self.found.update(f"{name}{k.EQUALS}{value}" for value in pc.unique(known).to_pylist())
            else:
                words: set[bytes] = set()
                for text in pc.unique(known):
                    words.update(text.as_buffer().to_pybytes().translate(_LETTERS).split(b"\0"))
                words.discard(b"")
                self.found.update(f"{name}{k.HAS}{word.decode('utf-8', 'replace')}" for word in words)
        self.rows += table.num_rows
        while self.rows > self.stride * SAMPLE_ROWS:
            # Keep every second value, as if the stride had been twice as long from the start.
            self.numbers = {name: [np.concatenate(parts)[::2]] for name, parts in self.numbers.items()}
            self.stride *= 2

    def scales(self, bins: int) -> dict[str, Scale]:
        """Compute the scale of every number column from the sample."""
        return {name: scale_of(np.concatenate(parts), bins) for name, parts in self.numbers.items()}

    def features(self, scales: dict[str, Scale]) -> Features | None:
        """Return features with a column each, or None if there are more than MAX_FEATURES."""
        labels = list(self.found)
        for name, scale in scales.items():
            bins = len(scale.edges) + 1 if scale.edges else 0
            labels += [name, name + k.MISSING, *(f"{name}{k.BIN}{number}" for number in range(bins))]
        if len(labels) > MAX_FEATURES:
            return None
        return Features(self.columns, scales, None, tuple(sorted(labels)))
