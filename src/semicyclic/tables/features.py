"""`Features`: the mapping from clean rows to sparse rows, fixed once learned.

Each cell of a row becomes one or more named features:

number    the scaled value, named after its column, and 1 for the bin that contains it, `distance~3`
category  1 for `carrier=UA`
text      one feature per token, `tweet:rain`; the tokens of a cell have Euclidean norm 1 together
missing   1 for `distance?`

Scales and bins are computed from the stream's first rows (or in a first pass over all rows) and never
change: weights averaged over weeks must refer to the same features throughout. A feature's column is a hash
of its name, one of 2^bits; or its index in a dictionary that a first pass has collected.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.rows import SparseRows
from semicyclic.store.json_codec import from_json, to_json
from semicyclic.tables.arrow import TextColumn, column_named, texts
from semicyclic.tables.columns import BOOLEAN, CATEGORY, NUMBER, TEXT, Schema
from semicyclic.tables.kernels import hashing as k
from semicyclic.types import Array

DEFAULT_BINS = 16
# Scaled values are clipped to this many standard deviations.
MAX_DEVIATIONS = 5.0
# Number of feature names kept for reports.
MAX_FEATURE_NAMES = 1 << 16


class Scale(NamedTuple):
    """Scaling and binning of a number column: bin b holds edges[b-1] <= x < edges[b]."""

    mean: float
    deviation: float
    edges: tuple[float, ...]


@dataclass(frozen=True)
class Features:
    """Mapping from clean rows to sparse rows.

    scales: scale of each number column. bits: the features are hashed to 2^bits columns; if None, `names`
    is the dictionary of features, one column each.
    """

    columns: Schema
    scales: dict[str, Scale]
    bits: int | None = 18
    names: tuple[str, ...] = field(default=(), repr=False)

    @property
    def width(self) -> int:
        """Number d of columns of the sparse rows."""
        return max(len(self.names), 1) if self.bits is None else 1 << self.bits

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that `from_json` reads back, as in model files."""
        mapping = {"dictionary": list(self.names)} if self.bits is None else {"bits": self.bits}
        return {"columns": to_json(self.columns), "scales": to_json(self.scales), **mapping}

    @staticmethod
    def from_json(value: Any) -> "Features":
        """Restore features from `to_json`."""
        try:
            columns, scales = (
                from_json(value["columns"], Schema),
                from_json(value["scales"], dict[str, Scale]),
            )
            numbers = {name for name, kind in columns.kinds.items() if kind == NUMBER}
            if set(scales) != numbers or not all(scale.deviation > 0 for scale in scales.values()):
                raise ValueError("the scales do not match the number columns")
            if "dictionary" in value:
                return Features(columns, scales, None, tuple(map(str, value["dictionary"])))
            bits = value["bits"]
            if type(bits) is not int or not 1 <= bits <= 30:
                raise ValueError(f"bits={bits!r}")
            return Features(columns, scales, bits)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not valid features of a file: {error!r}") from None

    def encode(self, table: Any, seen: "FeatureNames | None" = None) -> SparseRows:
        """Encode a clean table as sparse rows; names of new features are added to `seen`."""
        n, kinds = table.num_rows, self.columns.kinds
        sizes = {NUMBER: 2, CATEGORY: 1, BOOLEAN: 1, TEXT: 0}
        width = sum(sizes[kind] for kind in kinds.values())
        columns, values = np.empty((n, width), np.int32), np.ones((n, width), np.float32)
        begins, tokens = [np.zeros((0, n + 1), np.int64)], [np.zeros(0, np.int32)]
        at = total = 0
        for name, kind in kinds.items():
            column = column_named(table, name)
            cells_of_column = slice(at, at + sizes[kind])
            at += sizes[kind]
            if kind == NUMBER:
                numbers = column.to_numpy(zero_copy_only=False)
                self._encode_number(name, numbers, columns[:, cells_of_column], values[:, cells_of_column])
            elif kind != TEXT:
                columns[:, at - 1] = self._encode_category(name, texts(column), seen)
            else:
                begin, token_columns = self._encode_tokens(name, texts(column), seen)
                begins.append(begin[None] + total)
                tokens.append(token_columns)
                total += len(token_columns)
        indptr = np.empty(n + 1, np.int64)
        indices, cells = np.empty(n * width + total, np.int32), np.empty(n * width + total, np.float32)
        last_position = np.full(self.width, -1, np.int32)
        inputs = columns, values, np.concatenate(tokens), np.concatenate(begins)
        count = k.write_sparse_rows(*inputs, last_position, indptr, indices, cells)
        return SparseRows(indptr, indices[:count], cells[:count], self.width)

    def _encode_number(self, name: str, numbers: Array, columns: Array, values: Array) -> None:
        scale = self.scales[name]
        _, feature_columns, edges = self._number_features[name]
        k.number_cells(
            numbers, (scale.mean, scale.deviation, MAX_DEVIATIONS), edges, feature_columns, columns, values
        )

    def _encode_category(self, name: str, cells: TextColumn, seen: "FeatureNames | None") -> Array:
        keys = np.empty(len(cells.there), np.uint64)
        seed, missing = self._text_keys[name]
        k.cell_keys(*cells, seed, missing, keys)
        columns = self._columns_of(keys)
        if seen is not None:
            for at in seen.new(columns):
                text = cells.data[cells.first[at] : cells.first[at + 1]].tobytes().decode("utf-8", "replace")
                label = name + k.EQUALS + text if cells.there[at] else name + k.MISSING
                seen.add(int(columns[at]), label)
        return columns

    def _encode_tokens(
        self, name: str, cells: TextColumn, seen: "FeatureNames | None"
    ) -> tuple[Array, Array]:
        n = len(cells.there)
        # A token and its separator take at least two bytes; a missing text has one token.
        max_tokens = int(cells.first[n] - cells.first[0]) // 2 + n + 1
        begin, keys = np.empty(n + 1, np.int64), np.empty(max_tokens, np.uint64)
        seed, missing = self._text_keys[name]
        keys = keys[: k.token_keys(*cells, seed, missing, begin, keys)]
        columns = self._columns_of(keys)
        if seen is not None:
            for at in seen.new(columns):
                row = int(np.searchsorted(begin, at, side="right")) - 1
                label = name + k.MISSING
                if cells.there[row]:
                    words = k.tokens_of(cells.data[cells.first[row] : cells.first[row + 1]].tobytes())
                    label = name + k.HAS + words[at - int(begin[row])].decode("utf-8", "replace")
                seen.add(int(columns[at]), label)
        return begin, columns

    def _columns_of(self, keys: Array) -> Array:
        columns = np.empty(len(keys), np.int32)
        if self.bits is not None:
            k.hash_columns(keys, self.bits, columns)
        else:
            k.look_up(keys, *self._dictionary, columns)
        return columns

    @cached_property
    def _number_features(self) -> dict[str, tuple[list[str], Array, Array]]:
        """Per number column: the names of its features, their columns, and its bin edges."""
        features = {}
        for name, scale in self.scales.items():
            bins = [f"{name}{k.BIN}{number}" for number in range(len(scale.edges) + 1)]
            labels = [name, name + k.MISSING, *bins]
            keys = np.array([k.key_of(label) for label in labels], np.uint64)
            features[name] = labels, self._columns_of(keys), np.array(scale.edges, np.float64)
        return features

    @cached_property
    def _text_keys(self) -> dict[str, tuple[Any, Any]]:
        """Per category or text column: the hash state of the name prefix, and the key of a missing value."""
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
        k.insert_keys(np.array([k.key_of(name) for name in self.names], np.uint64), table, number)
        return table, number

    def title(self, name: str) -> str:
        """Return a readable name of a feature; a bin is shown by its edges."""
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
    """Names of the features seen so far.

    seen: mask of the columns seen. names: the first feature seen in each column, at most MAX_FEATURE_NAMES.
    """

    seen: Array
    names: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(features: Features) -> "FeatureNames":
        """Return the names known before any row is seen: those of the number features."""
        names = FeatureNames(np.zeros(features.width, bool))
        for labels, columns, _ in features._number_features.values():
            for at in names.new(columns):
                names.add(int(columns[at]), labels[at])
        return names

    def new(self, columns: Array) -> list[int]:
        """Return the positions of columns not seen before, and mark those columns as seen."""
        where = np.empty(len(columns), np.int64)
        return [int(at) for at in where[: k.first_seen(columns, self.seen, where)]]

    def first(self, count: int) -> dict[str, str]:
        """Return the first `count` names by column, the keys as strings for JSON."""
        return {str(column): name for column, name in sorted(islice(self.names.items(), count))}

    def add(self, column: int, name: str) -> None:
        """Store a name unless MAX_FEATURE_NAMES are stored already."""
        if len(self.names) < MAX_FEATURE_NAMES:
            self.names[column] = name


def learn_scales(table: Any, columns: Schema, *, bins: int = DEFAULT_BINS) -> dict[str, Scale]:
    """Compute the scale of every number column from clean rows."""
    return {
        name: scale_of(table.column(name).to_numpy(), bins)
        for name, kind in columns.kinds.items()
        if kind == NUMBER
    }


def scale_of(values: Array, bins: int = DEFAULT_BINS) -> Scale:
    """Compute mean, standard deviation and quantile bin edges; values that are not finite are ignored."""
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
    # An edge at the minimum would leave the first bin empty.
    return Scale(mean, deviation, tuple(float(edge) for edge in np.unique(quantiles) if edge > known.min()))
