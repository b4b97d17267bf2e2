"""The beginning of a stream: what its first rows tell, and everything from there."""

from collections.abc import Callable, Iterator
from itertools import chain

from semicyclic.data.inputs import Inputs, Mark, Part
from semicyclic.stream.first_pass import after_first_pass
from semicyclic.stream.job import Job
from semicyclic.stream.reading import Reading, open_stream


def opened(job: Job, inputs: Inputs, tell: Callable[[str], None]) -> tuple[Reading, Iterator[Part]]:
    """What enough parts tell of the columns; and all parts, these included."""
    tell("reading the first rows")
    held: list[Part] = []
    rows = 0
    parts = inputs.parts(Mark())
    for part in parts:
        held.append(part)
        rows += part.batch.table.num_rows
        if rows >= job.start:
            break
    found = open_stream(job, held, inputs.name)
    if job.first_pass:
        tell("first pass")
        found = after_first_pass(job, inputs, found)
    return found, chain(held, parts)
