"""All rows of some files at once, as a run would have met them: to ask questions of the whole stream."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from semicyclic.data.features import Names
from semicyclic.data.inputs import Inputs
from semicyclic.method.rows import Rows, join
from semicyclic.stream.job import Job
from semicyclic.stream.opening import opened
from semicyclic.stream.reading import Came, Reader, Reading
from semicyclic.types import Array

Tell = Callable[[float, str], None]


class Collected(NamedTuple):
    """Rows in the order in which they came, their times, their cells as read, and what reading knows."""

    rows: Rows
    ticks: Array
    clock: Array
    table: Any
    reading: Reading


def collect(job: Job, inputs: Inputs, tell: Tell) -> Collected:
    """Read everything there is; what is learnt of columns and labels comes from the first rows alone."""
    import pyarrow as pa

    reading, parts = opened(job, inputs, lambda what: tell(0.0, what))
    reader = Reader(job, inputs.name, reading, Names.of(reading.features))
    held: list[Came] = []
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
    return Collected(
        join([each.rows for each in held]),
        np.concatenate([each.ticks for each in held]),
        np.concatenate([each.clock for each in held]),
        pa.concat_tables([each.table for each in held]),
        reader.reading,
    )


def _size(came: Came) -> int:
    rows = came.rows
    return int(rows.indices.nbytes + rows.values.nbytes + rows.indptr.nbytes + came.table.nbytes)
