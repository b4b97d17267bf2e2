"""Loading of all rows of some files into memory, in training order."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.rows import Rows, join
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.sources import Sources
from semicyclic.training.config import TrainConfig
from semicyclic.training.label_queue import byte_size
from semicyclic.training.reader import ArrivedRows, Reader, ReaderState, open_reader
from semicyclic.types import Array, ReportProgress


class LoadedRows(NamedTuple):
    """All rows in training order, with the final state of the reader.

    ticks: times in microseconds. clock: arrival times in microseconds. table: feature cells as read.
    """

    rows: Rows
    ticks: Array
    clock: Array
    table: Any
    reading: ReaderState


def load_all(config: TrainConfig, inputs: Sources, report_progress: ReportProgress) -> LoadedRows:
    """Read all rows. The schema, scales and labels are inferred from the first rows only.

    Raise if the rows need more than `config.memory` bytes, or if no row has a label.
    """
    import pyarrow as pa

    reading, parts = open_reader(config, inputs, lambda stage: report_progress(0.0, stage))
    reader = Reader(config, inputs.name, reading, FeatureNames.of(reading.features))
    loaded: list[ArrivedRows] = []
    size = 0
    for chunk in reader.chunks(parts):
        loaded.append(chunk.arrived)
        size += _byte_size(chunk.arrived)
        if size > config.memory:
            raise ValueError(
                f"the rows need more than memory={config.memory / 1e9:g}GB: give more, or fewer rows"
            )
        report_progress(chunk.share, "reading")
    last = reader.rest()
    if last is not None:
        loaded.append(last.arrived)
    if not loaded:
        raise ValueError("no row has a label")
    return LoadedRows(
        join([part.rows for part in loaded]),
        np.concatenate([part.ticks for part in loaded]),
        np.concatenate([part.clock for part in loaded]),
        pa.concat_tables([part.table for part in loaded]),
        reader.state,
    )


def _byte_size(arrived: ArrivedRows) -> int:
    return byte_size(arrived.rows) + int(arrived.table.nbytes)
