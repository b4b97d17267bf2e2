"""All rows of some files in memory, in the order in which a run would learn from them."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.rows import Rows, join
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.sources import Sources
from semicyclic.training.config import TrainConfig
from semicyclic.training.reader import ArrivedRows, Reader, ReaderState, open_reader
from semicyclic.types import Array, ReportProgress


class LoadedRows(NamedTuple):
    """Rows in the order in which they came, their times, their cells as read, and what reading knows."""

    rows: Rows
    ticks: Array
    clock: Array
    table: Any
    reading: ReaderState


def load_all(job: TrainConfig, inputs: Sources, tell: ReportProgress) -> LoadedRows:
    """Read everything there is; what is learnt of columns and labels comes from the first rows alone."""
    import pyarrow as pa

    reading, parts = open_reader(job, inputs, lambda what: tell(0.0, what))
    reader = Reader(job, inputs.name, reading, FeatureNames.of(reading.features))
    held: list[ArrivedRows] = []
    size = 0
    for chunk in reader.chunks(parts):
        if chunk.rows is not None:
            held.append(chunk.rows)
            size += _size(chunk.rows)
        if size > job.memory:
            raise ValueError(
                f"the rows need more than --memory {job.memory / 1e9:g}GB: give more, or fewer rows"
            )
        tell(chunk.share, "reading")
    last = reader.rest()
    if last is not None and last.rows is not None:
        held.append(last.rows)
    if not held:
        raise ValueError("there are no rows with a label")
    return LoadedRows(
        join([each.rows for each in held]),
        np.concatenate([each.ticks for each in held]),
        np.concatenate([each.clock for each in held]),
        pa.concat_tables([each.table for each in held]),
        reader.reading,
    )


def _size(came: ArrivedRows) -> int:
    rows = came.rows
    return int(rows.indices.nbytes + rows.values.nbytes + rows.indptr.nbytes + came.table.nbytes)
