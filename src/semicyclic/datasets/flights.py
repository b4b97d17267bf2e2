"""Flights from New York City in 2013; the label is whether a flight arrives more than 15 minutes late."""

from importlib import resources
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from semicyclic.method.rows import Rows
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.load import read
from semicyclic.types import Array

ZONE = "America/New_York"
# Blocks per day, number of cycles, and share of the rows held out for testing.
BLOCKS, CYCLES, HELD_OUT = 6, 10, 0.1
# Smallest share of the rows that a block may have.
MIN_BLOCK_SHARE = 0.01


class Flights(NamedTuple):
    """Rows, their schedule, and the cycle, block and local hour of each row."""

    rows: Rows
    schedule: Schedule
    cycle: Array
    block: Array
    hour: Array


def data_path() -> str:
    """Return the path of the Parquet file."""
    return str(resources.files("semicyclic.datasets") / "flights.parquet")


def day() -> Schedule:
    """Return a daily schedule whose blocks have similar numbers of rows, based on the local times only."""
    table = pq.read_table(data_path(), columns=["when", "late"]).drop_null()
    hour = table.column("when").to_numpy().astype("datetime64[h]").astype(np.int64) % 24
    return Schedule.daily(edges=edges_of(np.bincount(hour, minlength=24), BLOCKS), zone=ZONE)


def load(schedule: Schedule) -> Flights:
    """Read the flights and assign each to a cycle and block of `schedule`."""
    rows = read(data_path(), when="when", label="late", zone=ZONE)
    assert rows.when is not None
    hour = Schedule.daily(24, zone=ZONE).place(rows.when).block
    return Flights(rows, schedule, *schedule.place(rows.when), hour)


def routes() -> Array:
    """Return the route of each labeled flight as "carrier origin destination", in the order of `load`."""
    table = pq.read_table(data_path(), columns=["late", "carrier", "origin", "dest"]).drop_null()
    names = [table.column(name).to_numpy(zero_copy_only=False) for name in ("carrier", "origin", "dest")]
    return np.array([" ".join(route) for route in zip(*names, strict=True)])


def edges_of(by_hour: Array, blocks: int) -> list[int]:
    """Return the hours at which blocks start, so that all blocks have about the same number of rows.

    by_hour: number of rows by hour of the day. The first block starts with the first hour that has more than
    a thousandth of the rows. Raises if a block would have less than MIN_BLOCK_SHARE of the rows.
    """
    share = by_hour / by_hour.sum()
    first = int((share > 0.001).argmax())
    cumulative = np.cumsum(np.roll(share, -first))
    starts = [first]
    for block in range(1, blocks):
        at = first + 1 + int(np.abs(cumulative[:-1] - block / blocks).argmin())
        starts.append(max(at, starts[-1] + 1))
    block_share = np.add.reduceat(np.roll(share, -first), [start - first for start in starts])
    if starts[-1] > 23 or block_share.min() < MIN_BLOCK_SHARE:
        raise ValueError(
            f"{blocks} blocks of whole hours leave one with less than {MIN_BLOCK_SHARE:.0%} of the rows"
        )
    return starts
