"""`Population`: devices and their rows, from a synthetic model, flights by route, or tweets."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from semicyclic import datasets
from semicyclic.experiments.reproduce import protocol
from semicyclic.method.rows import Rows, SparseRows
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array

ZONES = 24
FEATURES = 20
# Distance of each class mean from the origin, in standard deviations: one model is about 76 % accurate.
CLASS_DISTANCE = 0.7
# Local hour at which phones are most available for training.
LOCAL_PEAK_HOUR = 2.0
# Half of them are for validation, half for testing.
TEST_ROWS_PER_DEVICE = 20
# Routes with fewer flights are dropped.
MIN_FLIGHTS_PER_ROUTE = 40
TWEETS_PER_DEVICE = 20


class Population(NamedTuple):
    """Devices 0, 1, ..., N - 1 and their rows; the rows of a device are contiguous.

    rows, labels: training rows and their labels, 0 or 1.
    first: [N + 1] index of each device's first training row.
    test, test_labels, test_device: held-out rows, their labels (0 or 1) and their devices.
    schedule: blocks of the day.
    home: [N] hour of the schedule's day at which a device is most available.
    zone: [N] time zone of each device.
    own: [N, 24] number of a device's rows by hour of the day; None if rows have no time.
    """

    name: str
    rows: Rows
    labels: Array
    first: Array
    test: Rows
    test_labels: Array
    test_device: Array
    schedule: Schedule
    home: Array
    zone: tuple[str, ...]
    own: Array | None

    @property
    def devices(self) -> int:
        return len(self.first) - 1

    @property
    def validates(self) -> Array:
        """[test rows] mask of the held-out rows used for validation: every second row of a device."""
        begin = np.searchsorted(self.test_device, self.test_device)
        return np.asarray((np.arange(len(self.test_device)) - begin) % 2 == 0)

    @property
    def phase(self) -> Array:
        """[N] home hour as an angle in radians."""
        return np.asarray(2 * np.pi * self.home / 24)


def synthetic(
    devices: int, rng: np.random.Generator, *, skew: float = 0.35, turn: float = 0.0, ties: float = 0.0
) -> Population:
    """Draw devices in 24 time zones; label rates, and with `turn` the class means, depend on the zone.

    skew: in zone z, a label is positive with probability 1/2 + skew cos(phase of z).
    turn: maximum rotation, in radians, of the direction that separates the classes, by zone.
    ties: dependence of the amount of data on the zone, by the factor exp(ties cos(phase)).
    """
    if not 0 <= skew < 0.5:
        raise ValueError(f"skew={skew}: must be from 0 to below .5")
    offset = rng.integers(0, ZONES, devices)
    home = (LOCAL_PEAK_HOUR - offset) % 24
    phase = 2 * np.pi * home / 24
    amount = rng.lognormal(np.log(24), 0.5, devices) * np.exp(ties * np.cos(phase))
    counts = np.clip(np.rint(amount), 4, 400).astype(np.int64)
    basis = np.linalg.qr(rng.normal(size=(FEATURES, 2)))[0]

    def draw_rows(counts: Array) -> tuple[Array, Array]:
        device = np.repeat(np.arange(devices), counts)
        positive = rng.random(len(device)) < 0.5 + skew * np.cos(phase[device])
        angle = turn * np.sin(phase[device])
        means = CLASS_DISTANCE * (np.cos(angle)[:, None] * basis[:, 0] + np.sin(angle)[:, None] * basis[:, 1])
        X = rng.normal(size=(len(device), FEATURES)) + np.where(positive, 1.0, -1.0)[:, None] * means
        return X, positive.astype(np.float64)

    X, y = draw_rows(counts)
    tests, truth = draw_rows(np.full(devices, TEST_ROWS_PER_DEVICE))
    return Population(
        "synthetic",
        Rows(X, dtype=np.float64),
        y,
        np.r_[0, np.cumsum(counts)],
        Rows(tests, dtype=np.float64),
        truth,
        np.repeat(np.arange(devices), TEST_ROWS_PER_DEVICE),
        Schedule.daily(6),
        home,
        tuple(f"Etc/GMT{-int(hours):+d}" if hours else "Etc/GMT" for hours in _signed_offset(offset)),
        None,
    )


def flights(rng: np.random.Generator) -> Population:
    """Return all flights from New York in 2013, with one client per route and carrier.

    The label says whether the arrival is late.
    """
    schedule = datasets.flights.day()
    data = datasets.flights.load(schedule)
    route = datasets.flights.routes()
    if len(route) != len(data.rows):
        raise ValueError(
            f"{len(data.rows)} flights but {len(route)} routes: both must have one entry per row with a label"
        )
    _, index, count = np.unique(route, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(count[index] >= MIN_FLIGHTS_PER_ROUTE)
    device = np.unique(index[kept], return_inverse=True)[1]
    rows_by_hour = np.zeros((device.max() + 1, 24))
    np.add.at(rows_by_hour, (device, data.hour[kept]), 1.0)
    labels = np.asarray(data.rows.labels)[kept].astype(np.float64)
    zones = (schedule.zone,) * len(rows_by_hour)
    return _split_rows("flights", (data.rows[kept], labels, device), schedule, zones, rows_by_hour, rng)


def tweets(path: Path, rng: np.random.Generator) -> Population:
    """Read tweets in Sentiment140's format; a client has up to 20 tweets of the same block.

    Labels are skewed by block as in the paper's experiment.
    """
    data = datasets.sentiment140.read_file(path)
    how = protocol.text()
    schedule = Schedule.daily(how.blocks, zone="America/Los_Angeles")
    hour = data.second // 3600
    block = hour // (24 // how.blocks)
    chosen = protocol.apply_skew(how, np.arange(len(data)), data.positive, block, rng)
    chosen = chosen[np.argsort(block[chosen], kind="stable")]
    blocks = block[chosen]
    rank = np.arange(len(chosen)) - np.searchsorted(blocks, blocks)
    device = np.unique(blocks * len(chosen) + rank // TWEETS_PER_DEVICE, return_inverse=True)[1]
    rows_by_hour = np.zeros((device.max() + 1, 24))
    np.add.at(rows_by_hour, (device, hour[chosen]), 1.0)
    table = SparseRows(data.start, data.words, data.counts, len(data.vocabulary))
    rows = Rows(table, dtype=np.float64)[chosen]
    zones = (schedule.zone,) * len(rows_by_hour)
    return _split_rows(
        "tweets", (rows, data.positive[chosen].astype(np.float64), device), schedule, zones, rows_by_hour, rng
    )


def _split_rows(
    name: str,
    data: tuple[Rows, Array, Array],
    schedule: Schedule,
    zones: tuple[str, ...],
    rows_by_hour: Array,
    rng: np.random.Generator,
) -> Population:
    """Hold out a random fifth of the rows for testing; the rest are for training.

    data: rows, labels and device of each row.
    """
    rows, labels, device = data
    held_out = rng.random(len(device)) < 0.2
    # Every device keeps at least one training row.
    has_training = np.zeros(len(rows_by_hour), bool)
    has_training[device[~held_out]] = True
    held_out &= has_training[device]
    train = np.flatnonzero(~held_out)
    train = train[np.argsort(device[train], kind="stable")]
    test = np.flatnonzero(held_out)
    test = test[np.argsort(device[test], kind="stable")]
    angle = np.exp(2j * np.pi * (np.arange(24) + 0.5) / 24)
    home = (np.angle(rows_by_hour @ angle) / (2 * np.pi) * 24) % 24
    return Population(
        name,
        rows[train],
        labels[train],
        np.searchsorted(device[train], np.arange(len(rows_by_hour) + 1)),
        rows[test],
        labels[test],
        device[test],
        schedule,
        home,
        zones,
        rows_by_hour,
    )


def _signed_offset(offset: Array) -> Array:
    """Convert hours ahead of UTC from the range 0..23 to -11..12."""
    return np.where(offset > 12, offset - 24, offset)
