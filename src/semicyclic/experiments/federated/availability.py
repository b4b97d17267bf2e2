"""Availability of devices over time: models of day and night, or traces of real phones."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import to_wall
from semicyclic.types import Array

# Availability is known by the half hour.
SLOTS = 48
STEP = DAY // SLOTS
# The hour at which most phones of a trace are available: traces are turned so that it is the home hour.
PEAK = 4.0


class Availability(NamedTuple):
    """table: [days * 48, N] how probable it is that a device is available in each half hour, over again.

    The half hours are those of the wall clock of `zone`, the first one at a midnight.
    """

    table: Array
    zone: str

    def chance(self, instant: int) -> Array:
        """[N] how probable it is that each device is available at an instant."""
        wall = int(to_wall(self.zone, np.array([instant]))[0])
        return np.asarray(self.table[(wall // STEP) % len(self.table)])

    def online(self, instant: int, seed: int) -> Array:
        """The devices that are available at an instant; drawn anew every half hour, the same for one seed."""
        wall = int(to_wall(self.zone, np.array([instant]))[0])
        chance = self.table[(wall // STEP) % len(self.table)]
        drawn = np.random.default_rng([seed, wall // STEP]).random(len(chance))
        return np.flatnonzero(drawn < chance)

    def profiles(self, schedule: Schedule) -> Array:
        """[N, m] each device's availability as a distribution over blocks (SPEC G1); alike if it has none."""
        begin = np.arange(len(self.table)) * STEP + STEP // 2
        block = _walls(schedule).place(begin).block
        found = np.zeros((self.table.shape[1], schedule.blocks))
        for i in range(schedule.blocks):
            found[:, i] = self.table[block == i].sum(axis=0)
        total = found.sum(axis=1, keepdims=True)
        return np.where(total > 0, found / np.where(total > 0, total, 1.0), 1.0 / schedule.blocks)

    def curve(self, devices: Array | None = None) -> Array:
        """[48] the share of all devices, or of some, that are available, by the half hour of the day."""
        table = self.table if devices is None else self.table[:, devices]
        return np.asarray(table.mean(axis=1).reshape(-1, SLOTS).mean(axis=0))

    def by_home(self, home: Array, schedule: Schedule) -> list[list[float] | None]:
        """For each block the curve of the devices whose home hour is in it; None where there are none."""
        block = _walls(schedule).place((np.asarray(home) * DAY / 24).astype(np.int64)).block
        groups = (np.flatnonzero(block == i) for i in range(schedule.blocks))
        return [self.curve(group).tolist() if len(group) else None for group in groups]


def flat(devices: int, zone: str) -> Availability:
    """All devices are available at all times."""
    return Availability(np.ones((SLOTS, devices)), zone)


def cosine(home: Array, zone: str) -> Availability:
    """Most at the home hour, hardly twelve hours later: the square of (1 + cos) / 2."""
    return Availability(((1 + np.cos(2 * np.pi * _apart(home) / 24)) / 2) ** 2, zone)


def linear(home: Array, zone: str) -> Availability:
    """From 1 at the home hour straight down to 0 twelve hours later."""
    return Availability(1 - _apart(home) / 12, zone)


def label_cycle(home: Array, schedule: Schedule) -> Availability:
    """Available in the home hour's block, and in no other."""
    wall = _walls(schedule)
    slot = wall.place(np.arange(SLOTS) * STEP + STEP // 2).block
    mine = wall.place((np.asarray(home) * DAY / 24).astype(np.int64)).block
    return Availability((slot[:, None] == mine[None, :]).astype(np.float64), schedule.zone)


def as_rows(own: Array, zone: str) -> Availability:
    """Available when its own rows were made: the busiest hour of each device counts as certain."""
    share = own / np.maximum(own.max(axis=1, keepdims=True), 1.0)
    return Availability(np.repeat(share.T, SLOTS // 24, axis=0), zone)


def from_trace(path: Path, home: Array, zone: str, rng: np.random.Generator) -> Availability:
    """A trace file: each device follows a phone of it, its night moved to the device's own."""
    if path.suffix in (".pkl", ".pickle", ""):
        with open(path, "rb") as file:
            is_pickle = file.read(1) == b"\x80"
        if is_pickle:
            raise ValueError(
                f"{path}: a pickle, as FedScale's client_behave_trace, and reading one can run any code: "
                "convert it to JSON first, as docs/federated.md shows under 'Traces'"
            )
    phones = _npz(path) if path.suffix == ".npz" else _json(path)
    chosen = rng.integers(0, phones.shape[1], len(home))
    shift = np.rint((PEAK - np.asarray(home)) * SLOTS / 24).astype(np.int64)
    slot = (np.arange(len(phones))[:, None] + shift[None, :]) % len(phones)
    return Availability(phones[slot, chosen[None, :]].astype(np.float64), zone)


def _npz(path: Path) -> Array:
    """[T, phones] arrays `A` (1 is available) and `step_minutes`, as many whole days as there are."""
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            table, step = np.asarray(file["A"]), int(file["step_minutes"])
    except (KeyError, ValueError, OSError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path}: not a trace with arrays A and step_minutes: {error}") from None
    if table.ndim != 2 or step <= 0 or (24 * 60) % step:
        raise ValueError(f"{path}: A has shape {table.shape} and steps of {step} minutes")
    per_day = 24 * 60 // step
    days = len(table) // per_day
    if days == 0 or table.shape[1] == 0:
        raise ValueError(f"{path}: a trace needs at least one whole day and one phone")
    there = table[: days * per_day] == 1
    index = (np.arange(days * SLOTS) * per_day) // SLOTS
    return np.asarray(there[index])


def _json(path: Path) -> Array:
    """FedScale's layout: for each client lists of seconds at which it became active and inactive."""
    try:
        told = json.loads(path.read_bytes())
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from None
    clients = list(told.values()) if isinstance(told, dict) else told
    if not isinstance(clients, list) or not clients:
        raise ValueError(f"{path}: a trace names clients, each with active, inactive and finish_time")
    columns = [_client(path, number, each) for number, each in enumerate(clients)]
    most = max(len(column) for column in columns)
    return np.stack([np.resize(column, most) for column in columns], axis=1)


def _client(path: Path, number: int, told: Any) -> Array:
    """[days * 48] whether a client is active in the middle of each half hour."""
    try:
        if not isinstance(told, Mapping):
            raise TypeError("it is not an object")
        active, inactive = (np.asarray(told[name], np.float64) for name in ("active", "inactive"))
        finish = float(told["finish_time"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: client {number} has no active, inactive and finish_time: {error}"
        ) from None
    if active.ndim != 1 or active.shape != inactive.shape or not np.isfinite(finish) or finish <= 0:
        raise ValueError(
            f"{path}: client {number} has {active.size} active and {inactive.size} inactive times"
        )
    events = np.r_[active, inactive]
    if not np.isfinite(events).all():
        raise ValueError(f"{path}: client {number} has times that are not finite")
    # Ties: what begins when something ends goes on.
    order = np.lexsort((np.arange(len(events)) < len(active), events))
    begins = (order < len(active)).tolist()
    days = max(int(np.ceil(finish / 86_400)), 1)
    middle = (np.arange(days * SLOTS) + 0.5) * 1800 % finish
    # Before the first event it is as after the last: the trace comes over again.
    latest = np.searchsorted(events[order], middle, side="right") - 1
    return np.array([bool(begins) and begins[each] for each in latest])


def _walls(schedule: Schedule) -> Schedule:
    """The schedule for wall times, taken as if they were UTC's."""
    return replace(schedule, zone="UTC")


def _apart(home: Array) -> Array:
    """[48, N] hours between the middle of each half hour and the home hour, the shorter way round."""
    hour = (np.arange(SLOTS) + 0.5) / 2
    apart = np.abs(hour[:, None] - np.asarray(home)[None, :]) % 24
    return np.asarray(np.minimum(apart, 24 - apart))
