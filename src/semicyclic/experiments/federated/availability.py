"""Availability of devices over time: daily models, or traces of real phones."""

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

# Availability has a resolution of half an hour.
SLOTS_PER_DAY = 48
SLOT_MICROSECONDS = DAY // SLOTS_PER_DAY
# Hour at which most phones of a trace are available; traces are shifted to make it the home hour.
TRACE_PEAK_HOUR = 4.0


class Availability(NamedTuple):
    """Probability that each device is available, by half hour; the table repeats after its last row.

    table: [days * 48, N] probabilities. The half hours follow the wall clock of `zone`, from midnight.
    zone: IANA time zone.
    """

    table: Array
    zone: str

    def chance(self, instant: int) -> Array:
        """[N] probability that each device is available at an instant, in epoch microseconds."""
        wall = int(to_wall(self.zone, np.array([instant]))[0])
        return np.asarray(self.table[(wall // SLOT_MICROSECONDS) % len(self.table)])

    def online(self, instant: int, seed: int) -> Array:
        """Draw the devices that are available at an instant, in epoch microseconds.

        The draw changes every half hour and is deterministic for a given seed.
        """
        wall = int(to_wall(self.zone, np.array([instant]))[0])
        chance = self.table[(wall // SLOT_MICROSECONDS) % len(self.table)]
        drawn = np.random.default_rng([seed, wall // SLOT_MICROSECONDS]).random(len(chance))
        return np.flatnonzero(drawn < chance)

    def profiles(self, schedule: Schedule) -> Array:
        """[N, m] each device's availability as a distribution over blocks (docs/math.md#availability).

        The distribution is uniform for a device that is never available.
        """
        middle = np.arange(len(self.table)) * SLOT_MICROSECONDS + SLOT_MICROSECONDS // 2
        block = _wall_schedule(schedule).place(middle).block
        by_block = np.zeros((self.table.shape[1], schedule.blocks))
        for i in range(schedule.blocks):
            by_block[:, i] = self.table[block == i].sum(axis=0)
        total = by_block.sum(axis=1, keepdims=True)
        return np.where(total > 0, by_block / np.where(total > 0, total, 1.0), 1.0 / schedule.blocks)

    def curve(self, devices: Array | None = None) -> Array:
        """[48] share of the given devices (default: all) that are available, by half hour of the day."""
        table = self.table if devices is None else self.table[:, devices]
        return np.asarray(table.mean(axis=1).reshape(-1, SLOTS_PER_DAY).mean(axis=0))

    def by_home(self, home: Array, schedule: Schedule) -> list[list[float] | None]:
        """Return for each block the curve of the devices whose home hour is in it; None if there are none."""
        block = _wall_schedule(schedule).place((np.asarray(home) * DAY / 24).astype(np.int64)).block
        groups = (np.flatnonzero(block == i) for i in range(schedule.blocks))
        return [self.curve(group).tolist() if len(group) else None for group in groups]


def flat(devices: int, zone: str) -> Availability:
    """Availability of 1 at all times."""
    return Availability(np.ones((SLOTS_PER_DAY, devices)), zone)


def cosine(home: Array, zone: str) -> Availability:
    """Availability ((1 + cos) / 2)^2: 1 at the home hour, 0 twelve hours later."""
    return Availability(((1 + np.cos(2 * np.pi * _hours_from(home) / 24)) / 2) ** 2, zone)


def linear(home: Array, zone: str) -> Availability:
    """Availability that falls linearly from 1 at the home hour to 0 twelve hours later."""
    return Availability(1 - _hours_from(home) / 12, zone)


def label_cycle(home: Array, schedule: Schedule) -> Availability:
    """Availability of 1 in the block of the home hour, and 0 in all others."""
    wall = _wall_schedule(schedule)
    slot = wall.place(np.arange(SLOTS_PER_DAY) * SLOT_MICROSECONDS + SLOT_MICROSECONDS // 2).block
    home_block = wall.place((np.asarray(home) * DAY / 24).astype(np.int64)).block
    return Availability((slot[:, None] == home_block[None, :]).astype(np.float64), schedule.zone)


def as_rows(rows_by_hour: Array, zone: str) -> Availability:
    """Availability proportional to a device's rows [N, 24] by hour; its busiest hour has probability 1."""
    share = rows_by_hour / np.maximum(rows_by_hour.max(axis=1, keepdims=True), 1.0)
    return Availability(np.repeat(share.T, SLOTS_PER_DAY // 24, axis=0), zone)


def from_trace(path: Path, home: Array, zone: str, rng: np.random.Generator) -> Availability:
    """Read a trace file; each device follows a random phone, shifted to the device's home hour."""
    if path.suffix in (".pkl", ".pickle", ""):
        with open(path, "rb") as file:
            is_pickle = file.read(1) == b"\x80"
        if is_pickle:
            raise ValueError(
                f"{path}: a pickle, as FedScale's client_behave_trace, and reading one can run any code: "
                "convert it to JSON first, as docs/federated.md shows under 'Traces'"
            )
    phones = _read_npz(path) if path.suffix == ".npz" else _read_json(path)
    chosen = rng.integers(0, phones.shape[1], len(home))
    shift = np.rint((TRACE_PEAK_HOUR - np.asarray(home)) * SLOTS_PER_DAY / 24).astype(np.int64)
    slot = (np.arange(len(phones))[:, None] + shift[None, :]) % len(phones)
    return Availability(phones[slot, chosen[None, :]].astype(np.float64), zone)


def _read_npz(path: Path) -> Array:
    """Read arrays `A` [T, phones] (1 means available) and `step_minutes`; an incomplete last day is dropped.

    Returns [days * 48, phones].
    """
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            table, step = np.asarray(file["A"]), int(file["step_minutes"])
    except (KeyError, ValueError, OSError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path}: not a trace with arrays A and step_minutes: {error}") from None
    if table.ndim != 2 or step <= 0 or (24 * 60) % step:
        raise ValueError(
            f"{path}: A has shape {table.shape} and step_minutes is {step}: A must be [time, phones], and "
            "step_minutes must divide a day"
        )
    per_day = 24 * 60 // step
    days = len(table) // per_day
    if days == 0 or table.shape[1] == 0:
        raise ValueError(f"{path}: a trace needs at least one complete day and one phone")
    active = table[: days * per_day] == 1
    index = (np.arange(days * SLOTS_PER_DAY) * per_day) // SLOTS_PER_DAY
    return np.asarray(active[index])


def _read_json(path: Path) -> Array:
    """Read FedScale's format: for each client, lists of seconds at which it became active and inactive."""
    try:
        trace = json.loads(path.read_bytes())
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from None
    clients = list(trace.values()) if isinstance(trace, dict) else trace
    if not isinstance(clients, list) or not clients:
        raise ValueError(f"{path}: a trace names clients, each with active, inactive and finish_time")
    columns = [_client(path, number, client) for number, client in enumerate(clients)]
    length = max(len(column) for column in columns)
    return np.stack([np.resize(column, length) for column in columns], axis=1)


def _client(path: Path, number: int, client: Any) -> Array:
    """[days * 48] whether a client is active in the middle of each half hour."""
    try:
        if not isinstance(client, Mapping):
            raise TypeError("it is not an object")
        active, inactive = (np.asarray(client[name], np.float64) for name in ("active", "inactive"))
        finish = float(client["finish_time"])
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
    # At equal times, "active" sorts last and wins, so adjacent intervals are joined.
    order = np.lexsort((np.arange(len(events)) < len(active), events))
    begins = (order < len(active)).tolist()
    days = max(int(np.ceil(finish / 86_400)), 1)
    middle = (np.arange(days * SLOTS_PER_DAY) + 0.5) * 1800 % finish
    # The trace repeats, so the state before the first event is the state after the last.
    latest = np.searchsorted(events[order], middle, side="right") - 1
    return np.array([bool(begins) and begins[event] for event in latest])


def _wall_schedule(schedule: Schedule) -> Schedule:
    """Return the schedule for wall-clock times, which are treated as UTC."""
    return replace(schedule, zone="UTC")


def _hours_from(home: Array) -> Array:
    """[48, N] cyclic distance in hours between the middle of each half hour and the home hour."""
    hour = (np.arange(SLOTS_PER_DAY) + 0.5) / 2
    apart = np.abs(hour[:, None] - np.asarray(home)[None, :]) % 24
    return np.asarray(np.minimum(apart, 24 - apart))
