"""All flights from New York City in 2013: is an arrival more than 15 minutes late?"""

from importlib import resources
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from semicyclic.method.rows import Rows
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.load import read
from semicyclic.types import Array

ZONE = "America/New_York"


BLOCKS, CYCLES, HELD_OUT, LEAST = 6, 10, 0.1, 0.01


class Flights(NamedTuple):
    """The rows, a schedule that fits them, and where each row falls."""

    rows: Rows
    schedule: Schedule
    cycle: Array
    block: Array
    hour: Array


def data_path() -> str:
    """Where the flights are."""
    return str(resources.files("semicyclic.datasets") / "flights.parquet")


def day() -> Schedule:
    """The day cut into blocks that all have rows, by the flights' local times alone."""
    table = pq.read_table(data_path(), columns=["when", "late"]).drop_null()
    hour = table.column("when").to_numpy().astype("datetime64[h]").astype(np.int64) % 24
    return Schedule.daily(edges=edges_of(np.bincount(hour, minlength=24), BLOCKS), zone=ZONE)


def load(schedule: Schedule) -> Flights:
    """Read the flights, and find the block of each."""
    rows = read(data_path(), when="when", label="late", zone=ZONE)
    assert rows.when is not None
    hour = Schedule.daily(24, zone=ZONE).place(rows.when).block
    return Flights(rows, schedule, *schedule.place(rows.when), hour)


def routes() -> Array:
    """The route of each flight with a label, as "carrier origin destination", in the order of `load`."""
    table = pq.read_table(data_path(), columns=["late", "carrier", "origin", "dest"]).drop_null()
    names = [table.column(name).to_numpy(zero_copy_only=False) for name in ("carrier", "origin", "dest")]
    return np.array([" ".join(each) for each in zip(*names, strict=True)])


def edges_of(by_hour: Array, blocks: int) -> list[int]:
    """Whole hours at which blocks start, so that all have about as many rows, and none below LEAST.

    The first starts where the day does: with the first hour that has more than a thousandth of the rows.
    """
    share = by_hour / by_hour.sum()
    first = int((share > 0.001).argmax())
    turned = np.cumsum(np.roll(share, -first))
    starts = [first]
    for block in range(1, blocks):
        at = first + 1 + int(np.abs(turned[:-1] - block / blocks).argmin())
        starts.append(max(at, starts[-1] + 1))
    held = np.add.reduceat(np.roll(share, -first), [start - first for start in starts])
    if starts[-1] > 23 or held.min() < LEAST:
        raise ValueError(f"{blocks} blocks of whole hours leave one with less than {LEAST:.0%} of the rows")
    return starts
