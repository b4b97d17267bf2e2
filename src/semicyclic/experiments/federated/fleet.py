"""`Fleet`: devices, their data, availability, speed and reliability, made from `FleetSettings`."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from semicyclic.experiments.federated import availability as available
from semicyclic.experiments.federated.availability import Availability
from semicyclic.experiments.federated.population import Population, flights, synthetic, tweets
from semicyclic.types import Array

MODELS = ("label-cycle", "cosine", "linear", "flat", "rows")
# The first day of a simulated fleet.
START = datetime(2024, 1, 1, tzinfo=UTC)
# A reply takes some seconds, more on slow devices.
SECONDS, SPREAD = 5.0, 0.6
RELIABLE = 0.98


KINDS: dict[type, Any] = {str: str, int: int, float: float}


@dataclass(frozen=True)
class FleetSettings:
    """All that a fleet and its training depend on; a Flower app is told the same in its run configuration.

    data: "synthetic", "flights", or the path of a file of tweets. availability: one of MODELS or a path.
    per_round, invited: k of n. separation: hours between two participations of a device.
    step_size: of local steps; 0 for 2 / sqrt(local steps), as averages want large ones (SPEC K6).
    ties: how much speed, amount of data and reliability follow the zone.
    """

    data: str = "synthetic"
    availability: str = "label-cycle"
    devices: int = 1000
    per_round: int = 20
    invited: int = 26
    days: int = 10
    rounds_per_block: int = 10
    local_steps: int = 10
    batch_size: int = 10
    step_size: float = 0.0
    skew: float = 0.35
    turn: float = 0.0
    ties: float = 0.0
    deadline: float = 30.0
    separation: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("devices", "per_round", "days", "rounds_per_block", "local_steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{_option(name)} {getattr(self, name)}: must be at least 1")
        if self.invited < self.per_round:
            raise ValueError(
                f"{_option('invited')} {self.invited}: must be at least the {self.per_round} wanted"
            )
        for name in ("step_size", "turn", "ties", "separation", "seed"):
            if not 0 <= getattr(self, name) < 2**32:
                raise ValueError(f"{_option(name)} {getattr(self, name)}: must be 0 or more")
        if not 0 <= self.skew < 0.5:
            raise ValueError(f"--skew {self.skew}: must be from 0 to below .5")
        if not 0 < self.deadline < 1e9:
            raise ValueError(f"--deadline {self.deadline}: must be positive")
        if self.data not in ("synthetic", "flights") and not Path(self.data).exists():
            raise ValueError(f"{self.data}: choose synthetic, flights, or a file of tweets that exists")
        kind = self.availability
        if kind not in MODELS and not Path(kind).exists():
            raise ValueError(
                f"--availability {kind}: choose {', '.join(MODELS)}, or a trace file that exists"
            )
        if kind == "rows" and self.data == "synthetic":
            raise ValueError("--availability rows: the synthetic population's rows have no hours")

    @property
    def rate(self) -> float:
        """The step size of local steps."""
        return self.step_size or 2.0 / float(np.sqrt(self.local_steps))

    @staticmethod
    def from_config(config: Any) -> "FleetSettings":
        """The settings in a Flower run configuration, whose names have hyphens; others are not looked at."""
        return _parse_config(tuple(config.items()))

    def config(self) -> dict[str, Any]:
        """A Flower run configuration that tells the same."""
        return {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self)}


@lru_cache(maxsize=16)
def _parse_config(config: tuple[tuple[str, Any], ...]) -> FleetSettings:
    given = dict(config)
    found = {}
    for each in fields(FleetSettings):
        value = given.get(each.name.replace("_", "-"))
        if value is not None:
            found[each.name] = KINDS[type(each.default)](value)
    return FleetSettings(**found)


@dataclass(frozen=True, eq=False)
class Fleet:
    """A fleet made from its settings, the same for the same seed."""

    settings: FleetSettings
    population: Population
    availability: Availability
    profiles: Array
    latency: Array
    reliability: Array

    @property
    def rounds(self) -> int:
        return self.settings.days * self.population.schedule.blocks * self.settings.rounds_per_block

    @property
    def width(self) -> int:
        """The number of weights, the intercept included."""
        return int(self.population.rows.width) + 1

    def arrival(self, device: int, number: int) -> float | None:
        """After how many seconds a device's reply in a round comes; None if it does not."""
        there, seconds = _weather(self, number)
        return float(seconds[device]) if there[device] else None


@lru_cache(maxsize=4)
def _weather(world: Fleet, number: int) -> tuple[Array, Array]:
    """Which devices answer in a round, and after how many seconds."""
    draw = np.random.default_rng([world.settings.seed, 7, number])
    there = draw.random(world.population.devices) < world.reliability
    return there, world.latency * draw.lognormal(0.0, 0.3, world.population.devices)


def make_fleet(settings: FleetSettings) -> Fleet:
    """The fleet of some settings; kept, since every device of a process asks for it."""
    return _make_fleet(settings)


@lru_cache(maxsize=4)
def _make_fleet(settings: FleetSettings) -> Fleet:
    rng = np.random.default_rng([settings.seed, 1])
    population = _population(settings, rng)
    found = _availability(settings, population, rng)
    tie = settings.ties * np.cos(population.phase)
    latency = SECONDS * rng.lognormal(0.0, SPREAD, population.devices) * np.exp(tie)
    reliability = np.clip(RELIABLE - 0.3 * settings.ties * (1 + np.cos(population.phase)) / 2, 0.05, 1.0)
    profiles = found.profiles(population.schedule)
    return Fleet(settings, population, found, profiles, latency, reliability)


def _population(settings: FleetSettings, rng: np.random.Generator) -> Population:
    if settings.data == "synthetic":
        return synthetic(settings.devices, rng, skew=settings.skew, turn=settings.turn, ties=settings.ties)
    if settings.data == "flights":
        return flights(rng)
    return tweets(Path(settings.data), rng)


def _availability(settings: FleetSettings, population: Population, rng: np.random.Generator) -> Availability:
    zone, home = population.schedule.zone, population.home
    kind = settings.availability
    if kind == "flat":
        return available.flat(population.devices, zone)
    if kind == "cosine":
        return available.cosine(home, zone)
    if kind == "linear":
        return available.linear(home, zone)
    if kind == "label-cycle":
        return available.label_cycle(home, population.schedule)
    if kind == "rows":
        assert population.own is not None
        return available.as_rows(population.own, zone)
    return available.from_trace(Path(kind), home, zone, rng)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
