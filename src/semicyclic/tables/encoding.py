"""`TableEncoding`: how the rows of a table become the rows of a model.

It travels with rows, runs and models, and is stored in model files, so that training and serving cannot
disagree. Its description is decoded on first use: loading a model does not need pyarrow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semicyclic import tables
from semicyclic.method.rows import Rows, encoded_rows
from semicyclic.schedule.numbered import AnySchedule
from semicyclic.schedule.schedule import Schedule

if TYPE_CHECKING:
    from semicyclic.tables.features import Features
    from semicyclic.tables.one_row import RowEncoder

# What to do about a faulty row of a table to predict.
REMEDY = "remove or repair such rows"


@dataclass(frozen=True)
class TableEncoding:
    """Encoding of tables as rows.

    about: the features as a JSON value (`Features.to_json`), and names of features by column.
    """

    about: Any

    def __repr__(self) -> str:
        kinds = self.about.get("columns", {}).get("kinds", {}) if isinstance(self.about, dict) else {}
        return f"<TableEncoding of {', '.join(list(kinds)[:8])}{', ...' * (len(kinds) > 8)}>"

    def to_json(self) -> Any:
        """Return the JSON value that is stored in model files."""
        return self.about

    def check_same(self, other: Any) -> None:
        """Raise if rows of another encoding have other features in their columns."""
        if other is self or not isinstance(other, TableEncoding):
            return
        if self._of_columns != other._of_columns:
            raise ValueError(
                "the rows have other features than the model was trained on: read them with like=model, or "
                "give the model the table"
            )

    @cached_property
    def _of_columns(self) -> Any:
        """What determines the feature in every column."""
        about = {name: value for name, value in self.about.items() if name not in ("names", "columns")}
        return about, self.about.get("columns", {}).get("kinds")

    @cached_property
    def features(self) -> "Features":
        """The mapping from clean rows to sparse rows."""
        return tables.features.Features.from_json(self.about)

    @cached_property
    def names(self) -> dict[int, str]:
        """Names of features by column, as far as they are known."""
        if self.features.bits is None:
            return dict(enumerate(self.features.names))
        return {int(column): str(name) for column, name in self.about.get("names", {}).items()}

    @cached_property
    def _row_encoder(self) -> "RowEncoder":
        return tables.one_row.RowEncoder(self.features)

    def rows(self, table: Any, schedule: AnySchedule | None) -> Rows:
        """Return the rows of a table, or the row of one dict, with their blocks in `schedule`.

        schedule: None to leave out the blocks, which then need no times.
        """
        if isinstance(table, Mapping):
            encoded = self._row_encoder.encode(table, schedule)
            if encoded is not None:
                return encoded
            table = [table]
        return self._encode(table, schedule)

    def _encode(self, table: Any, schedule: AnySchedule | None) -> Rows:
        """Encode a table of any number of rows, column by column."""
        columns = self.features.columns.without_label()
        located = isinstance(schedule, Schedule)
        if not located:
            columns = columns.without_time()
        elif columns.when is None:
            raise ValueError("the model was trained on rows without a time column: give block=")
        if tables.frames.is_records(table) and len(table) > 1:
            for number, row in enumerate(table):
                tables.columns.check_row_columns(columns.names, row.keys(), row=number)
        source = tables.frames.TableSource(table)
        tables.columns.check_row_columns(columns.names, source.table.column_names)
        part = next(source.parts(tables.sources.ReadPosition()))
        if source.table.num_rows > len(part.batch.row):
            parts = list(source.parts(tables.sources.ReadPosition()))
            clean = tables.cleaning.clean_parts(columns, parts, source.name, remedy=REMEDY)
        else:
            clean = tables.cleaning.clean_part(columns, part, source.name(0), remedy=REMEDY)
        sparse = self.features.encode(clean.table)
        block = None
        if isinstance(schedule, Schedule):
            block = schedule.place(clean.ticks).block
        elif schedule is not None and schedule.blocks == 1:
            block = np.zeros(len(clean.ticks), np.int64)
        return encoded_rows(sparse.indptr, sparse.indices, sparse.data, sparse.width, block=block)
