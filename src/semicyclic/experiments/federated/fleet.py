"""`Fleet`: devices with data, availability, speed and reliability, built from `FleetSettings`."""

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

AVAILABILITY_MODELS = ("label-cycle", "cosine", "linear", "flat", "rows")
# First day of a simulated fleet.
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
# Reply times are log-normal across devices: median in seconds, and sigma.
MEDIAN_REPLY_SECONDS, REPLY_TIME_SIGMA = 5.0, 0.6
# Probability that a device replies, if `ties` is 0.
BASE_RELIABILITY = 0.98


CONVERTERS: dict[type, Any] = {str: str, int: int, float: float}


@dataclass(frozen=True)
class FleetSettings:
    """Settings of a fleet and its training; a Flower app gets the same settings as its run configuration.

    data: "synthetic", "flights", or the path of a file of tweets.
    availability: one of AVAILABILITY_MODELS, or the path of a trace file.
    per_round, invited: a round uses `per_round` replies of `invited` devices.
    step_size: step size of local steps; 0 means 2 / sqrt(local_steps), because averages need large steps
        (docs/math.md#step-for-averages).
    skew, turn: dependence of the synthetic rows on the zone, see `population.synthetic`.
    ties: dependence of speed, amount of data and reliability on the zone.
    deadline: seconds that a round waits for replies.
    separation: minimum hours between two rounds of the same device.
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
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.invited < self.per_round:
            raise ValueError(f"invited={self.invited}: must be at least per_round={self.per_round}")
        for name in ("step_size", "turn", "ties", "separation", "seed"):
            if not 0 <= getattr(self, name) < 2**32:
                raise ValueError(f"{name}={getattr(self, name)}: must be 0 or more")
        if not 0 <= self.skew < 0.5:
            raise ValueError(f"skew={self.skew}: must be from 0 to below .5")
        if not 0 < self.deadline < 1e9:
            raise ValueError(f"deadline={self.deadline}: must be positive")
        if self.data not in ("synthetic", "flights") and not Path(self.data).exists():
            raise ValueError(f"{self.data}: choose synthetic, flights, or a file of tweets that exists")
        model = self.availability
        if model not in AVAILABILITY_MODELS and not Path(model).exists():
            names = ", ".join(AVAILABILITY_MODELS)
            raise ValueError(f"availability={model!r}: choose {names}, or a trace file that exists")
        if model == "rows" and self.data == "synthetic":
            raise ValueError("availability='rows': the synthetic population's rows have no hours")

    @property
    def rate(self) -> float:
        """Step size of local steps."""
        return self.step_size or 2.0 / float(np.sqrt(self.local_steps))

    @staticmethod
    def from_config(config: Any) -> "FleetSettings":
        """Read settings from a Flower run configuration, whose keys have hyphens; other keys are ignored."""
        return _parse_config(tuple(config.items()))

    def config(self) -> dict[str, Any]:
        """Return these settings as a Flower run configuration."""
        return {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}


@lru_cache(maxsize=16)
def _parse_config(config: tuple[tuple[str, Any], ...]) -> FleetSettings:
    given = dict(config)
    settings = {}
    for field in fields(FleetSettings):
        value = given.get(field.name.replace("_", "-"))
        if value is not None:
            settings[field.name] = CONVERTERS[type(field.default)](value)
    return FleetSettings(**settings)


@dataclass(frozen=True, eq=False)
class Fleet:
    """A simulated fleet, deterministic for a given seed.

    profiles: [N, m] availability of each device as a distribution over blocks.
    latency: [N] typical reply time of each device, in seconds.
    reliability: [N] probability that a device replies.
    """

    settings: FleetSettings
    population: Population
    availability: Availability
    profiles: Array
    latency: Array
    reliability: Array

    @property
    def rounds(self) -> int:
        """Total number of rounds."""
        return self.settings.days * self.population.schedule.blocks * self.settings.rounds_per_block

    @property
    def width(self) -> int:
        """Number of weights, including the intercept."""
        return int(self.population.rows.width) + 1

    def arrival(self, device: int, number: int) -> float | None:
        """Return the seconds until a device's reply in a round arrives; None if it does not reply."""
        replies, seconds = _draw_replies(self, number)
        return float(seconds[device]) if replies[device] else None


@lru_cache(maxsize=4)
def _draw_replies(fleet: Fleet, number: int) -> tuple[Array, Array]:
    """Draw for every device whether it replies in a round, and after how many seconds."""
    draw = np.random.default_rng([fleet.settings.seed, 7, number])
    replies = draw.random(fleet.population.devices) < fleet.reliability
    return replies, fleet.latency * draw.lognormal(0.0, 0.3, fleet.population.devices)


def make_fleet(settings: FleetSettings) -> Fleet:
    """Build a fleet; the result is cached because every device of a process needs it."""
    return _make_fleet(settings)


@lru_cache(maxsize=4)
def _make_fleet(settings: FleetSettings) -> Fleet:
    rng = np.random.default_rng([settings.seed, 1])
    population = _population(settings, rng)
    availability = _availability(settings, population, rng)
    tie = settings.ties * np.cos(population.phase)
    latency = MEDIAN_REPLY_SECONDS * rng.lognormal(0.0, REPLY_TIME_SIGMA, population.devices) * np.exp(tie)
    reliability = np.clip(
        BASE_RELIABILITY - 0.3 * settings.ties * (1 + np.cos(population.phase)) / 2, 0.05, 1.0
    )
    profiles = availability.profiles(population.schedule)
    return Fleet(settings, population, availability, profiles, latency, reliability)


def _population(settings: FleetSettings, rng: np.random.Generator) -> Population:
    if settings.data == "synthetic":
        return synthetic(settings.devices, rng, skew=settings.skew, turn=settings.turn, ties=settings.ties)
    if settings.data == "flights":
        return flights(rng)
    return tweets(Path(settings.data), rng)


def _availability(settings: FleetSettings, population: Population, rng: np.random.Generator) -> Availability:
    zone, home = population.schedule.zone, population.home
    model = settings.availability
    if model == "flat":
        return available.flat(population.devices, zone)
    if model == "cosine":
        return available.cosine(home, zone)
    if model == "linear":
        return available.linear(home, zone)
    if model == "label-cycle":
        return available.label_cycle(home, population.schedule)
    if model == "rows":
        assert population.own is not None
        return available.as_rows(population.own, zone)
    return available.from_trace(Path(model), home, zone, rng)
