"""`FrameEncoding`: data frames as rows, with the features that `semicyclic train` makes of the same data.

Frames are pandas, Polars and Arrow tables and lists of dicts; their strings, categories, missing values,
texts and numbers become features. Arrays and sparse matrices are not encoded: their columns are features.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from semicyclic import tables, training
from semicyclic.adapters.sklearn.row_times import RowTimes
from semicyclic.method.loss import Loss
from semicyclic.method.rows import SparseRows
from semicyclic.tables.columns import NUMBER
from semicyclic.tables.encoding import TableEncoding
from semicyclic.tables.labels import Labels, learn_labels
from semicyclic.training.config import TrainConfig
from semicyclic.types import Array

# What to do about a cell that cannot be read.
REMEDY = "repair or remove such rows"


def is_frame(X: Any) -> bool:
    """Return whether a table has column names: a data frame, an Arrow table, or a list of dicts.

    A pandas frame whose columns are not all named by strings is an array, as for scikit-learn.
    """
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(isinstance(row, Mapping) for row in X)
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        return all(isinstance(name, str) for name in X.columns)
    return hasattr(X, "__arrow_c_stream__")


def to_arrow(X: Any, names: Any = None) -> Any:
    """Return a frame as an Arrow table; of an array, `names` are the names of the columns."""
    if is_frame(X):
        return tables.frames.to_arrow(X)
    columns = np.asarray(X).T
    return tables.frames.columns_to_arrow(dict(zip(names, columns, strict=True)))


@dataclass(frozen=True)
class FrameEncoding:
    """How frames become rows.

    encoding: the encoding; its time column, if any, is that of the frame. ignored: reasons by column name.
    """

    encoding: TableEncoding
    ignored: Mapping[str, str]

    @classmethod
    def learn(
        cls, config: TrainConfig, table: Any, times: RowTimes | None, ticks: Array | None, *, exact: bool
    ) -> Self:
        """Infer the types of columns and the features from a table.

        times: the time column of the frame, if it has one. ticks: times of the rows, if they have any; scales
        and types come from the first rows by time.
        exact: give every feature in the table its own column, instead of hashing.
        """
        assert config.loss is not None
        outputs = config.loss.outputs
        if ticks is not None and (np.diff(ticks) < 0).any():
            table = tables.frames.take_rows(table, np.argsort(ticks, kind="stable"))
        source = tables.frames.TableSource(table)
        parts = list(source.parts(tables.sources.ReadPosition()))
        request = replace(config.columns, when=())
        bare = tables.cleaning.infer_columns(parts, request, source.name, config.sample_rows)
        columns = replace(bare, when=None if times is None else times.column)
        first = tables.cleaning.clean_parts(bare, parts, source.name, remedy=REMEDY, rows=config.sample_rows)
        features = training.reader.hashed_features(config, bare, first.table, outputs)
        if exact:
            features = training.reader.exact_features(config, source, features, outputs)
        stored = tables.features.Features(columns, features.scales, features.bits, features.names)
        return cls(TableEncoding(stored.to_json()), columns.ignored)

    def encode(self, table: Any) -> SparseRows:
        """Return the features of all rows of a table; raise if it lacks a column or a cell cannot be read."""
        columns = self.encoding.features.columns.without_time()
        tables.columns.check_row_columns(columns.names, table.column_names)
        source = tables.frames.TableSource(table)
        parts = list(source.parts(tables.sources.ReadPosition()))
        clean = tables.cleaning.clean_parts(columns, parts, source.name, remedy=REMEDY)
        return self.encoding.features.encode(clean.table)

    def feature_names(self) -> Array:
        """Return the names of the features, one for each column of the rows."""
        known = self.encoding.names
        width = self.encoding.features.width
        return np.array([known.get(column, f"column {column}") for column in range(width)], dtype=object)


def label_scaling(
    values: Any, ticks: Array | None, loss: Loss, config: TrainConfig, frame: FrameEncoding | None
) -> Labels:
    """Return the encoding of labels: class codes, or numbers that are standardized if X is a frame.

    Mean and scale come from the first rows by time, as in `semicyclic train`.
    """
    if loss.classes:
        return Labels(NUMBER, loss, tuple(range(loss.classes)))
    if frame is None:
        return Labels(NUMBER, loss)
    numbers = np.asarray(values, np.float64)
    if ticks is not None:
        numbers = numbers[np.argsort(ticks, kind="stable")]
    return learn_labels(numbers[: config.sample_rows], NUMBER, loss, ())
