"""`Population`: devices and their rows, from a synthetic model, flights by route, or tweets."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from semicyclic import datasets
from semicyclic.experiments.reproduce import protocol
from semicyclic.method.rows import Rows
from semicyclic.method.sparse import SparseRows
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array

ZONES = 24
FEATURES = 20
# How far apart the two classes are: one model is right in about 76 of 100 cases.
APART = 0.7
# Phones train in their own night, most at this hour of it.
NIGHT = 2.0
# Half of them validate, half of them test.
TEST_ROWS = 20
# A route that flew less often is no client.
FEWEST_FLIGHTS = 40
TWEETS_EACH = 20


class Population(NamedTuple):
    """Devices 0, 1, ... and their rows, those of a device next to each other.

    first: [N + 1] where a device's rows begin. labels, test_labels: 0 or 1.
    home: [N] the hour of the schedule's day at which a device is most available.
    own: [N, 24] how a device's own rows spread over the hours, where they have hours; else None.
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
        """[test rows] whether a row that is held out validates; the others test. Every second of a device."""
        begin = np.searchsorted(self.test_device, self.test_device)
        return np.asarray((np.arange(len(self.test_device)) - begin) % 2 == 0)

    @property
    def phase(self) -> Array:
        """[N] the home hour as an angle."""
        return np.asarray(2 * np.pi * self.home / 24)


def synthetic(
    devices: int, rng: np.random.Generator, *, skew: float = 0.35, turn: float = 0.0, ties: float = 0.0
) -> Population:
    """Devices in 24 zones. Labels, and on request what tells them, follow the zone.

    skew: in zone z a label is positive with probability 1/2 + skew cos(phase of z).
    turn: by how many radians, at most, the direction that tells the classes apart turns with the zone.
    ties: how strongly the amount of data is tied to the zone: by the factor exp(ties cos(phase)).
    """
    if not 0 <= skew < 0.5:
        raise ValueError(f"skew={skew}: must be from 0 to below .5")
    offset = rng.integers(0, ZONES, devices)
    home = (NIGHT - offset) % 24
    phase = 2 * np.pi * home / 24
    amount = rng.lognormal(np.log(24), 0.5, devices) * np.exp(ties * np.cos(phase))
    counts = np.clip(np.rint(amount), 4, 400).astype(np.int64)
    basis = np.linalg.qr(rng.normal(size=(FEATURES, 2)))[0]

    def draw_rows(counts: Array) -> tuple[Array, Array]:
        device = np.repeat(np.arange(devices), counts)
        positive = rng.random(len(device)) < 0.5 + skew * np.cos(phase[device])
        angle = turn * np.sin(phase[device])
        means = APART * (np.cos(angle)[:, None] * basis[:, 0] + np.sin(angle)[:, None] * basis[:, 1])
        X = rng.normal(size=(len(device), FEATURES)) + np.where(positive, 1.0, -1.0)[:, None] * means
        return X, positive.astype(np.float64)

    X, y = draw_rows(counts)
    tests, truth = draw_rows(np.full(devices, TEST_ROWS))
    return Population(
        "synthetic",
        Rows(X, dtype=np.float64),
        y,
        np.r_[0, np.cumsum(counts)],
        Rows(tests, dtype=np.float64),
        truth,
        np.repeat(np.arange(devices), TEST_ROWS),
        Schedule.daily(6),
        home,
        tuple(f"Etc/GMT{-int(each):+d}" if each else "Etc/GMT" for each in _signed_offset(offset)),
        None,
    )


def flights(rng: np.random.Generator) -> Population:
    """All flights from New York in 2013: a client is a route of a carrier. Is an arrival late?"""
    schedule = datasets.flights.day()
    whole = datasets.flights.load(schedule)
    route = datasets.flights.routes()
    if len(route) != len(whole.rows):
        raise ValueError("the flights and their routes do not fit together")
    _, index, count = np.unique(route, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(count[index] >= FEWEST_FLIGHTS)
    device = np.unique(index[kept], return_inverse=True)[1]
    own = np.zeros((device.max() + 1, 24))
    np.add.at(own, (device, whole.hour[kept]), 1.0)
    labels = np.asarray(whole.rows.labels)[kept].astype(np.float64)
    zones = (schedule.zone,) * len(own)
    return _split_rows("flights", (whole.rows[kept], labels, device), schedule, zones, own, rng)


def tweets(path: Path, rng: np.random.Generator) -> Population:
    """Tweets in Sentiment140's layout: a client is some of those written in the same hours.

    Labels are skewed by block as in the paper's experiment.
    """

    held = datasets.sentiment140.read_file(path)
    how = protocol.text()
    schedule = Schedule.daily(how.blocks, zone="America/Los_Angeles")
    hour = held.second // 3600
    block = hour // (24 // how.blocks)
    chosen = protocol.apply_skew(how, np.arange(len(held)), held.positive, block, rng)
    chosen = chosen[np.argsort(block[chosen], kind="stable")]
    blocks = block[chosen]
    place = np.arange(len(chosen)) - np.searchsorted(blocks, blocks)
    device = np.unique(blocks * len(chosen) + place // TWEETS_EACH, return_inverse=True)[1]
    own = np.zeros((device.max() + 1, 24))
    np.add.at(own, (device, hour[chosen]), 1.0)
    table = SparseRows(held.start, held.words, held.counts, len(held.vocabulary))
    rows = Rows(table, dtype=np.float64)[chosen]
    zones = (schedule.zone,) * len(own)
    return _split_rows(
        "tweets", (rows, held.positive[chosen].astype(np.float64), device), schedule, zones, own, rng
    )


def _split_rows(
    name: str,
    whole: tuple[Rows, Array, Array],
    schedule: Schedule,
    zones: tuple[str, ...],
    own: Array,
    rng: np.random.Generator,
) -> Population:
    """Rows of devices divided into four fifths to learn from and one to test with."""
    rows, labels, device = whole
    held_out = rng.random(len(device)) < 0.2
    # Every device has something to learn from.
    seen = np.zeros(len(own), bool)
    seen[device[~held_out]] = True
    held_out &= seen[device]
    train = np.flatnonzero(~held_out)
    train = train[np.argsort(device[train], kind="stable")]
    test = np.flatnonzero(held_out)
    test = test[np.argsort(device[test], kind="stable")]
    angle = np.exp(2j * np.pi * (np.arange(24) + 0.5) / 24)
    home = (np.angle(own @ angle) / (2 * np.pi) * 24) % 24
    return Population(
        name,
        rows[train],
        labels[train],
        np.searchsorted(device[train], np.arange(len(own) + 1)),
        rows[test],
        labels[test],
        device[test],
        schedule,
        home,
        zones,
        own,
    )


def _signed_offset(offset: Array) -> Array:
    """Hours ahead of UTC, from -11 to 12."""
    return np.where(offset > 12, offset - 24, offset)
