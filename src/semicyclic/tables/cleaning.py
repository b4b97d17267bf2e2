"""Cleaning: from batches of files to typed rows, for training, prediction and `read` alike.

infer_columns: column types from the first rows -> clean_parts, clean_part: typed rows
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semicyclic.tables.columns import (
    CleanRows,
    ColumnRequest,
    Schema,
    check_columns,
    check_types,
    infer_schema,
)
from semicyclic.tables.formats import concat_tables
from semicyclic.tables.sources import SourceBatch

# Number of first rows used to infer column types, number scales and label classes.
START = 1 << 14


# A function from the number of a file to its name.
FileName = Callable[[int], str]


def infer_columns(
    parts: Sequence[SourceBatch], request: ColumnRequest, name: FileName, rows: int = START
) -> Schema:
    """Infer column types from the first `rows` rows of a stream."""
    tables, left = [], rows
    for part in parts:
        if left > 0 and part.batch.table.num_rows:
            tables.append(part.batch.table.slice(0, left))
            left -= tables[-1].num_rows
    if not tables:
        raise ValueError(f"{name(0)}: the input has no rows")
    try:
        return infer_schema(concat_tables(tables), request)
    except ValueError as error:
        raise ValueError(f"{name(parts[0].file)}: {error}") from None


def clean_parts(
    columns: Schema,
    parts: Sequence[SourceBatch],
    name: FileName,
    *,
    remedy: str | None,
    rows: int | None = None,
) -> CleanRows:
    """Clean a stream, or its first `rows` rows. remedy: as in `clean_part`."""
    cleaned = []
    for part in parts:
        if rows is None or rows > 0:
            cleaned.append(clean_part(columns, part, name(part.file), remedy=remedy, rows=rows))
            rows = None if rows is None else rows - len(part.batch.row)
    return concat_clean_rows(cleaned)


def clean_part(
    columns: Schema, part: SourceBatch, name: str, *, remedy: str | None, rows: int | None = None
) -> CleanRows:
    """Clean a batch, or its first `rows` rows, of the file `name`.

    remedy: raise at the first faulty row, with this remedy; None to list the faulty rows only.
    """
    clean = clean_batch(columns, part, name, rows)
    if remedy is not None:
        raise_first_fault(clean, name, remedy)
    return clean


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
