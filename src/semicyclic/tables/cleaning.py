"""Cleaning: converts a batch of a file to typed rows and lists the faulty ones."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semicyclic.tables.columns import CleanRows, Schema, check_columns, check_types
from semicyclic.tables.formats import concat_tables
from semicyclic.tables.sources import SourceBatch

# Number of first rows used to infer column types, number scales and label classes.
START = 1 << 14


def first_rows(parts: Iterable[SourceBatch], count: int = START) -> Any:
    """Return the first `count` rows of a stream as one table, or None if it has no rows."""
    tables = []
    for part in parts:
        if count > 0 and part.batch.table.num_rows:
            tables.append(part.batch.table.slice(0, count))
            count -= tables[-1].num_rows
    return concat_tables(tables) if tables else None


def clean_batch(columns: Schema, part: SourceBatch, name: str, rows: int | None = None) -> CleanRows:
    """Clean a batch, or its first `rows` rows, and list its faults; `name` is the file name for errors."""
    batch, table = part.batch, part.batch.table
    for missing in columns.names if batch.lenient else ():
        # A key that no JSON object of this batch has.
        if missing not in table.column_names:
            table = table.append_column(missing, pa.nulls(len(batch.row), pa.string()))
    try:
        check_columns(columns.names, table.column_names)
        check_types(columns, table)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    row_numbers, faults = batch.row[:rows], batch.faults
    if rows is not None and rows < len(batch.row):
        faults = [(row, what) for row, what in faults if row < batch.row[rows]]
    clean = columns.clean(table.slice(0, rows), row_numbers)
    return clean._replace(faults=sorted([*faults, *clean.faults]))


def raise_first_fault(clean: CleanRows, name: str, remedy: str) -> None:
    """Raise for the first faulty row, naming its file, its row number and the remedy."""
    if clean.faults:
        row, what = clean.faults[0]
        raise ValueError(f"{name}, row {row:,}: {what}; {remedy}")


def concat_clean_rows(parts: Sequence[CleanRows]) -> CleanRows:
    """Concatenate clean rows."""
    labels: Any = [part.labels for part in parts]
    if any(part_labels is None for part_labels in labels):
        labels = None
    elif isinstance(labels[0], np.ndarray):
        labels = np.concatenate(labels)
    else:
        labels = pa.concat_arrays(labels)
    return CleanRows(
        pa.concat_tables([part.table for part in parts]).combine_chunks(),
        np.concatenate([part.ticks for part in parts]),
        labels,
        np.concatenate([part.row for part in parts]),
        [fault for part in parts for fault in part.faults],
        sum(part.missing for part in parts),
        sum(part.shifted for part in parts),
    )
