"""What a fleet's models are worth: Federated Averaging, a model for each block, separate chains, a hedge.

One run with both kinds of chains gives all but one of the approaches, from the same devices and the same
rows; the idealised one, for which devices are available at all times alike, is a run of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from semicyclic.adapters.flower import BlockClock, BlockModels, Chains, Pluralistic
from semicyclic.experiments.fleet.app import WEIGHTS, clock_of, fleet_grid, run, strategy_of
from semicyclic.experiments.fleet.world import Settings, World, make
from semicyclic.experiments.summary import beyond

Array = npt.NDArray[Any]
Tell = Callable[[float, str], None]

APPROACHES = {
    "fedavg_last": "as it is at the end of each block of the last day, used at all hours",
    "fedavg_average": "one model for all hours",
    "pluralistic": "one chain of rounds, and a mean for each block",
    "separate": "a chain of its own for each block, and its mean",
    "hedged": "a mixture of the two for each block, by what they lost",
    "uniform": "the mean of all rounds of a run in which all devices are always available",
}
MEMBERSHIPS = {
    "clock": "the model of the hour",
    "hard": "the model of the block in which it is available most",
    "soft": "the mixture of models by its own availability",
}


class Yardstick(NamedTuple):
    """Held-out rows, and how much each counts in each block: as its device is available there (SPEC G1)."""

    X: Array
    truth: Array
    device: Array
    share: Array
    profiles: Array

    @staticmethod
    def of(world: World) -> "Yardstick":
        population = world.population
        share = world.profiles[population.test_device]
        total = share.sum(axis=0)
        if not total.all():
            block = int((total == 0).argmax())
            label = population.schedule.labels[block]
            raise ValueError(
                f"no device with rows to test is ever available in block {label}: take more devices, or "
                "another availability"
            )
        X = np.zeros((len(population.test), population.test.width + 1))
        row = np.repeat(np.arange(len(X)), np.diff(population.test.indptr))
        X[row, population.test.indices] = population.test.values
        X[:, -1] = 1.0
        return Yardstick(X, population.test_labels > 0, population.test_device, share / total, world.profiles)

    def matrix(self, models: BlockModels) -> Array:
        """[m, m] the accuracy of block i's model on block j's rows."""
        return np.asarray(self._right(_table(models)).T @ self.share)

    def by_block(self, weights: Array) -> Array:
        """[m] the accuracy of one model on each block's rows."""
        return np.asarray(self._right(weights[None])[:, 0] @ self.share)

    def _right(self, weights: Array) -> Array:
        """[rows, models] 1 where a model is right; a score of exactly 0 says no."""
        return np.asarray((self.X @ weights.T > 0) == self.truth[:, None], np.float64)

    def memberships(self, models: BlockModels) -> dict[str, float]:
        """The accuracy over all blocks, by how a device comes to its model."""
        table = _table(models)
        right = self._right(table)
        home = self.profiles.argmax(axis=1)
        mixed = self.profiles @ table
        soft = np.einsum("rd,rd->r", self.X, mixed[self.device]) > 0
        over = self.share.mean(axis=1)
        return {
            "clock": float((right * self.share).sum(axis=0).mean()),
            "hard": float(over @ right[np.arange(len(right)), home[self.device]]),
            "soft": float(over @ (soft == self.truth)),
        }


class Outcome(NamedTuple):
    """One repetition: accuracies by block, over days, and what happened."""

    by_block: dict[str, Array]
    over_days: dict[str, Array]
    matrix: Array
    memberships: dict[str, float]
    participation: Array
    lost: dict[str, Any]
    hedge: Array
    models: BlockModels


def play(settings: Settings, out: Path | None, tell: Tell) -> Outcome:
    """One repetition, from where it was if `out` has some of it."""
    world = make(settings)
    yard = Yardstick.of(world)
    clock = clock_of(world)
    strategy = strategy_of(world, chains=Chains.HEDGED, clock=clock)
    days = _Days(world, yard, strategy)
    result = _run(
        world, strategy, clock, _under(out, "cyclic"), days.measure, lambda done: tell(0.7 * done, "cyclic")
    )
    ideal = strategy_of(world, clock=clock)
    _run(
        world,
        ideal,
        clock,
        _under(out, "uniform"),
        None,
        lambda done: tell(0.7 + 0.3 * done, "always available"),
        uniform=True,
    )
    for each in (strategy, ideal):
        if not each.participation.any():
            raise ValueError(
                "no round had a reply in time: give a longer --deadline, or another --availability"
            )
    told = result.evaluate_metrics_serverapp
    over = {key: np.stack([np.array(each[key]) for _, each in sorted(told.items())]) for key in days.KEYS}
    matrix = yard.matrix(strategy.lasts(of="shared"))
    models = strategy.models(of="shared")
    found = {
        "fedavg_last": matrix.mean(axis=0),
        "fedavg_average": yard.by_block(strategy.consensus()[WEIGHTS]),
        "pluralistic": np.diag(yard.matrix(models)),
        "separate": np.diag(yard.matrix(strategy.models(of="own"))),
        "hedged": np.diag(yard.matrix(strategy.models(of="hedged"))),
        "uniform": yard.by_block(ideal.consensus()[WEIGHTS]),
    }
    return Outcome(
        found,
        over,
        matrix,
        yard.memberships(models),
        strategy.participation,
        strategy.lost(),
        strategy.hedge_shares()[:, 1],
        models,
    )


class _Days:
    """What a server measures at the end of every day; it is kept with the rounds."""

    KEYS = ("fedavg_last", "fedavg_average", "pluralistic", "separate", "hedged")

    def __init__(self, world: World, yard: Yardstick, strategy: Pluralistic) -> None:
        self.yard, self.strategy = yard, strategy
        self.length = world.population.schedule.blocks * world.settings.rounds_per_block

    def measure(self, number: int, arrays: ArrayRecord) -> MetricRecord | None:  # noqa: ARG002
        if number == 0 or number % self.length:
            return None
        yard, strategy = self.yard, self.strategy
        if not strategy.total.get("moved") and not strategy.this_round().moved:
            start = yard.by_block(np.zeros(yard.X.shape[1])).tolist()
            return MetricRecord(dict.fromkeys(self.KEYS, start))
        return MetricRecord(
            {
                "fedavg_last": yard.matrix(strategy.lasts(of="shared")).mean(axis=0).tolist(),
                "fedavg_average": yard.by_block(strategy.consensus()[WEIGHTS]).tolist(),
                "pluralistic": np.diag(yard.matrix(strategy.models(of="shared"))).tolist(),
                "separate": np.diag(yard.matrix(strategy.models(of="own"))).tolist(),
                "hedged": np.diag(yard.matrix(strategy.models(of="hedged"))).tolist(),
            }
        )


def _run(
    world: World,
    strategy: Pluralistic,
    clock: BlockClock,
    checkpoint: Path | None,
    measure: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    tell: Callable[[float], None],
    *,
    uniform: bool = False,
) -> Result:
    grid = fleet_grid(world, clock, uniform=uniform)
    return run(
        strategy,
        grid,
        world,
        world.rounds,
        checkpoint=checkpoint,
        measure=measure,
        on_round=lambda this: tell(this.number / world.rounds),
    )


def contest(
    settings: Settings, *, repetitions: int, local_steps: tuple[int, ...], out: Path | None, tell: Tell
) -> tuple[dict[str, Any], BlockModels]:
    """All repetitions with each number of local steps, summed up; and the first one's models."""
    seeds = [
        int(child.generate_state(1)[0] >> 1)
        for child in np.random.SeedSequence(settings.seed).spawn(repetitions)
    ]
    found: dict[int, list[Outcome]] = {}
    whole = len(local_steps) * repetitions
    for i, steps in enumerate(local_steps):
        found[steps] = []
        for r, seed in enumerate(seeds):
            begun = i * repetitions + r
            words = f"{steps} local step(s), repetition {r + 1} of {repetitions}"

            def told(share: float, what: str, begun: int = begun, words: str = words) -> None:
                tell((begun + share) / whole, f"{words}, {what}")

            each = replace(settings, local_steps=steps, seed=seed)
            found[steps].append(play(each, _under(out, f"{steps}-steps/repetition-{r + 1}"), told))
    first = found[local_steps[0]]
    world = make(replace(settings, local_steps=local_steps[0], seed=seeds[0]))
    results = summed(first) | {
        "approaches": APPROACHES,
        "memberships": MEMBERSHIPS,
        "availability": world.availability.curve().tolist(),
        "availability_by_home": world.availability.by_home(world.population.home, world.population.schedule),
        "soft": _softness(world.profiles),
        "local_steps": {str(steps): summed(each) for steps, each in found.items()},
        "population": {
            "name": world.population.name,
            "devices": world.population.devices,
            "rows": len(world.population.rows),
            "test_rows": len(world.population.test),
            "columns": world.population.rows.width,
        },
        "blocks": list(world.population.schedule.labels),
        "zone": world.population.schedule.zone,
        "settings": {
            **{name.replace("-", "_"): value for name, value in settings.config().items()},
            "local_steps": list(local_steps),
            "devices": world.population.devices,
            "repetitions": repetitions,
            "rounds": world.rounds,
            "step_sizes": {str(s): replace(settings, local_steps=s).rate for s in local_steps},
        },
    }
    return results, first[0].models


def summed(outcomes: list[Outcome]) -> dict[str, Any]:
    """Repetitions summed up: means, standard deviations and paired differences."""
    by = {key: np.stack([each.by_block[key] for each in outcomes]) for key in APPROACHES}
    mean = {key: values.mean(axis=1) for key, values in by.items()}
    lost: dict[str, Any] = {}
    for each in outcomes:
        _add(lost, each.lost)
    return {
        "accuracy": {
            key: {
                "mean": float(mean[key].mean()),
                "std": _std(mean[key]),
                "by_block": by[key].mean(axis=0).tolist(),
            }
            for key in APPROACHES
        },
        "repetitions": {key: values.tolist() for key, values in mean.items()},
        "differences": {
            key: {
                "mean": float((mean["pluralistic"] - mean[key]).mean()),
                "std": _std(mean["pluralistic"] - mean[key]),
                "better_in": int((mean["pluralistic"] > mean[key]).sum()),
                "clear": _is_clear(mean["pluralistic"] - mean[key]),
            }
            for key in APPROACHES
            if key != "pluralistic"
        },
        "over_days": {
            key: np.stack([each.over_days[key] for each in outcomes]).mean(axis=0).tolist()
            for key in outcomes[0].over_days
        },
        "matrix": np.stack([each.matrix for each in outcomes]).mean(axis=0).tolist(),
        "membership": {
            key: {
                "mean": float(np.mean([each.memberships[key] for each in outcomes])),
                "std": _std(np.array([each.memberships[key] for each in outcomes])),
            }
            for key in MEMBERSHIPS
        },
        "never_trained": sorted({block for each in outcomes for block in each.models.fallback}),
        "participation": np.stack([each.participation for each in outcomes]).mean(axis=0).tolist(),
        "hedge": np.stack([each.hedge for each in outcomes]).mean(axis=0).tolist(),
        "lost": lost,
    }


def _add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping):
            _add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value


def _softness(profiles: Array) -> float:
    """How spread devices are over blocks: 0 if each is in one alone, 1 if all are alike in all."""
    m = profiles.shape[1]
    share = np.where(profiles > 0, profiles, 1.0)
    entropy = -(profiles * np.log(share)).sum(axis=1).mean()
    return abs(float(entropy)) / np.log(m) if m > 1 else 0.0


def _is_clear(differences: Array) -> bool:
    """Whether paired differences stand out from their own spread, by Student's t."""
    count = len(differences)
    if count < 2:
        return False
    return bool(abs(differences.mean()) > beyond(count) * differences.std(ddof=1) / np.sqrt(count))


def _std(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _under(out: Path | None, name: str) -> Path | None:
    return None if out is None else out / name


def _table(models: BlockModels) -> Array:
    """[m, d + 1] the weights of all blocks."""
    return np.stack([np.asarray(model[WEIGHTS], np.float64) for model in models.models])
