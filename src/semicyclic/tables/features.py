"""`Features`: the mapping from clean rows to sparse ones, fixed once learned.

number    its scaled value, under the name of its column, and the bin it lies in, `distance~3`
category  1 under `carrier=UA`
text      every token, `tweet:rain`, together of length 1
missing   1 under `distance?`

Scaling and bins come from the stream's first rows (or from a first pass over all) and then stay: what is
averaged over weeks must mean the same throughout. Columns are hashed names, 2^bits of them; or
those of a dictionary, which a first pass has made.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semicyclic.method.sparse import SparseRows
from semicyclic.tables.arrow import TextColumn, texts
from semicyclic.tables.columns import BOOLEAN, CATEGORY, NUMBER, TEXT, Schema
from semicyclic.tables.kernels import hashing as k
from semicyclic.types import Array

BINS = 16
# A value so many standard deviations away counts as if it were no further.
FURTHEST = 5.0
# How many names of features are kept for people to read.
NAMES = 1 << 16


class Scale(NamedTuple):
    """How a number is scaled and binned: bin b holds edges[b-1] <= x < edges[b]."""

    mean: float
    deviation: float
    edges: tuple[float, ...]


@dataclass(frozen=True)
class Features:
    """The map from tidy rows to sparse ones.

    scales: of each number. bits: 2^bits hashed columns; or names: the dictionary, a column each.
    """

    columns: Schema
    scales: dict[str, Scale]
    bits: int | None = 18
    names: tuple[str, ...] = field(default=(), repr=False)

    @property
    def width(self) -> int:
        """d, how many columns the sparse rows have."""
        return max(len(self.names), 1) if self.bits is None else 1 << self.bits

    def to_json(self) -> dict[str, Any]:
        scales = {name: [each.mean, each.deviation, list(each.edges)] for name, each in self.scales.items()}
        how = {"dictionary": list(self.names)} if self.bits is None else {"bits": self.bits}
        return {"columns": self.columns.to_json(), "scales": scales, **how}

    @staticmethod
    def from_json(value: Any) -> "Features":
        """What `to_json` wrote."""
        try:
            columns = Schema.from_json(value["columns"])
            scales = {
                str(name): Scale(float(mean), float(deviation), tuple(float(edge) for edge in edges))
                for name, (mean, deviation, edges) in value["scales"].items()
            }
            numbers = {name for name, kind in columns.kinds.items() if kind == NUMBER}
            if set(scales) != numbers or not all(each.deviation > 0 for each in scales.values()):
                raise ValueError("the scales are not those of the numbers")
            if "dictionary" in value:
                return Features(columns, scales, None, tuple(map(str, value["dictionary"])))
            bits = value["bits"]
            if type(bits) is not int or not 1 <= bits <= 30:
                raise ValueError(f"bits={bits!r}")
            return Features(columns, scales, bits)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the features of a file: {error!r}") from None

    def encode(self, table: Any, seen: "FeatureNames | None" = None) -> SparseRows:
        """The sparse rows of a tidy table; names of new features go to `seen`."""
        n, kinds = table.num_rows, self.columns.kinds
        sizes = {NUMBER: 2, CATEGORY: 1, BOOLEAN: 1, TEXT: 0}
        width = sum(sizes[kind] for kind in kinds.values())
        columns, values = np.empty((n, width), np.int32), np.ones((n, width), np.float32)
        begins, tokens = [np.zeros((0, n + 1), np.int64)], [np.zeros(0, np.int32)]
        at = total = 0
        for name, kind in kinds.items():
            column = table.column(name)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            own = slice(at, at + sizes[kind])
            at += sizes[kind]
            if kind == NUMBER:
                numbers = column.to_numpy(zero_copy_only=False)
                self._number(name, numbers, columns[:, own], values[:, own])
            elif kind != TEXT:
                columns[:, at - 1] = self._category(name, texts(column), seen)
            else:
                begin, found = self._tokens(name, texts(column), seen)
                begins.append(begin[None] + total)
                tokens.append(found)
                total += len(found)
        indptr = np.empty(n + 1, np.int64)
        indices, cells = np.empty(n * width + total, np.int32), np.empty(n * width + total, np.float32)
        spot = np.full(self.width, -1, np.int32)
        given = columns, values, np.concatenate(tokens), np.concatenate(begins)
        count = k.lay_rows(*given, spot, indptr, indices, cells)
        return SparseRows(indptr, indices[:count], cells[:count], self.width)

    def _number(self, name: str, numbers: Array, columns: Array, values: Array) -> None:
        scale = self.scales[name]
        _, places, edges = self._of_number[name]
        k.number_cells(numbers, (scale.mean, scale.deviation, FURTHEST), edges, places, columns, values)

    def _category(self, name: str, cells: TextColumn, seen: "FeatureNames | None") -> Array:
        keys = np.empty(len(cells.there), np.uint64)
        seed, missing = self._of_text[name]
        k.cell_keys(*cells, seed, missing, keys)
        columns = self._place(keys)
        if seen is not None:
            for at in seen.new(columns):
                text = cells.data[cells.first[at] : cells.first[at + 1]].tobytes().decode("utf-8", "replace")
                label = name + k.EQUALS + text if cells.there[at] else name + k.MISSING
                seen.add(int(columns[at]), label)
        return columns

    def _tokens(self, name: str, cells: TextColumn, seen: "FeatureNames | None") -> tuple[Array, Array]:
        n = len(cells.there)
        # A token and what parts it from the next take two bytes at least; a missing text has one.
        room = int(cells.first[n] - cells.first[0]) // 2 + n + 1
        begin, keys = np.empty(n + 1, np.int64), np.empty(room, np.uint64)
        seed, missing = self._of_text[name]
        keys = keys[: k.token_keys(*cells, seed, missing, begin, keys)]
        columns = self._place(keys)
        if seen is not None:
            for at in seen.new(columns):
                row = int(np.searchsorted(begin, at, side="right")) - 1
                label = name + k.MISSING
                if cells.there[row]:
                    words = k.tokens_of(cells.data[cells.first[row] : cells.first[row + 1]].tobytes())
                    label = name + k.HAS + words[at - int(begin[row])].decode("utf-8", "replace")
                seen.add(int(columns[at]), label)
        return begin, columns

    def _place(self, keys: Array) -> Array:
        columns = np.empty(len(keys), np.int32)
        if self.bits is not None:
            k.hash_columns(keys, self.bits, columns)
        else:
            k.look_up(keys, *self._dictionary, columns)
        return columns

    @cached_property
    def _of_number(self) -> dict[str, tuple[list[str], Array, Array]]:
        """Of each number the names of its features, their columns, and its edges."""
        found = {}
        for name, scale in self.scales.items():
            bins = [f"{name}{k.BIN}{number}" for number in range(len(scale.edges) + 1)]
            labels = [name, name + k.MISSING, *bins]
            keys = np.array([k.key_of(each) for each in labels], np.uint64)
            found[name] = labels, self._place(keys), np.array(scale.edges, np.float64)
        return found

    @cached_property
    def _of_text(self) -> dict[str, tuple[Any, Any]]:
        """Of each category and text how its features' keys begin, and the key of a missing one."""
        marks = {CATEGORY: k.EQUALS, BOOLEAN: k.EQUALS, TEXT: k.HAS}
        return {
            name: (np.uint64(k.seed_of(name + marks[kind])), np.uint64(k.key_of(name + k.MISSING)))
            for name, kind in self.columns.kinds.items()
            if kind in marks
        }

    @cached_property
    def _dictionary(self) -> tuple[Array, Array]:
        size = 1 << max(2 * len(self.names), 2).bit_length()
        table, number = np.zeros(size, np.uint64), np.zeros(size, np.int32)
        k.enter(np.array([k.key_of(name) for name in self.names], np.uint64), table, number)
        return table, number

    def title(self, name: str) -> str:
        """A feature's name as people read it: a bin by its edges."""
        column, mark, number = name.rpartition(k.BIN)
        scale = self.scales.get(column)
        if not mark or scale is None or not number.isdigit() or int(number) > len(scale.edges):
            return name
        b = int(number)
        if b == 0:
            return f"{column} < {scale.edges[0]:g}"
        if b == len(scale.edges):
            return f"{column} >= {scale.edges[-1]:g}"
        return f"{column} {scale.edges[b - 1]:g} to {scale.edges[b]:g}"


@dataclass
class FeatureNames:
    """Which columns were seen, and the first feature that was in each: NAMES of them."""

    seen: Array
    names: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(features: Features) -> "FeatureNames":
        """What is known before any row is seen: the features of numbers."""
        names = FeatureNames(np.zeros(features.width, bool))
        for labels, places, _ in features._of_number.values():
            for at in names.new(places):
                names.add(int(places[at]), labels[at])
        return names

    def new(self, columns: Array) -> list[int]:
        """Where columns stand that were never seen; they count as seen now."""
        where = np.empty(len(columns), np.int64)
        return [int(at) for at in where[: k.first_seen(columns, self.seen, where)]]

    def first(self, count: int) -> dict[str, str]:
        """The first so many names by column, as JSON has them."""
        return {str(column): name for column, name in sorted(islice(self.names.items(), count))}

    def add(self, column: int, name: str) -> None:
        """Remember a name, if there is room."""
        if len(self.names) < NAMES:
            self.names[column] = name


def learn_scales(table: Any, columns: Schema, *, bins: int = BINS) -> dict[str, Scale]:
    """Mean, deviation and quantiles of every number, from tidy rows."""
    return {
        name: scale_of(table.column(name).to_numpy(), bins)
        for name, kind in columns.kinds.items()
        if kind == NUMBER
    }


def scale_of(values: Array, bins: int = BINS) -> Scale:
    """How to scale a number like these."""
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return Scale(0.0, 1.0, ())
    with np.errstate(over="ignore"):
        mean, deviation = float(known.mean()), float(known.std())
    if not (np.isfinite(deviation) and deviation > 1e-12 * max(abs(mean), 1e-300)):
        deviation = max(abs(mean), 1.0)
    if not np.isfinite(mean):
        mean = 0.0
    quantiles = np.quantile(known, np.arange(1, bins) / bins, method="higher")
    # An edge at the least value would leave the first bin empty.
    return Scale(mean, deviation, tuple(float(edge) for edge in np.unique(quantiles) if edge > known.min()))
