"""Comparison of federated methods on a fleet.

One run with both kinds of chains gives all but one of the approaches, from the same devices and the same
rows; the idealised one, for which devices are available at all times alike, is a run of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from semicyclic.adapters.flower import BlockClock, BlockModels, Chains, PluralisticStrategy
from semicyclic.experiments.federated.app import WEIGHTS, clock_of, fleet_grid, run, strategy_of
from semicyclic.experiments.federated.fleet import Fleet, FleetSettings, make_fleet
from semicyclic.experiments.federated.held_out import MEMBERSHIPS, HeldOutRows
from semicyclic.experiments.reproduce.summary import beyond
from semicyclic.types import Array, ReportProgress

APPROACHES = {
    "fedavg_last": "the current model, at all hours; taken at the end of each block of the last day",
    "fedavg_average": "the mean of all rounds, at all hours",
    "fedavg_block_last": "a copy of the current model from the end of each block, for that block",
    "fedavg_block_before": "a copy from the end of the block before",
    "pluralistic": "one chain of rounds, and its mean in each block",
    "separate": "a chain of its own for each block, and its mean",
    "hedged": "both, every device trains both, and a mixture for each block by what they lost",
    "best": "both, every device trains one, and for each block the model with the least loss on rows that "
    "devices hold back: the default",
    "uniform": "the mean of all rounds of a run in which all devices are always available",
}
# What can be had without a model for each block, or by copying one.
BASELINES = ("fedavg_last", "fedavg_average", "fedavg_block_last", "fedavg_block_before")
# Step sizes that every approach chooses from, in parts of the largest.
GRID = (1.0, 0.32, 0.1, 0.032)


class NoReplies(ValueError):
    """No round had a reply before its deadline."""

    def __init__(self) -> None:
        super().__init__("no round had a reply in time: give a longer deadline=, or another availability=")


class FleetOutcome(NamedTuple):
    """One repetition with one step size: accuracies by block, over days, and what happened.

    validation: the accuracy of each approach on rows for validation, by which it chooses its step size.
    """

    by_block: dict[str, Array]
    validation: dict[str, float]
    over_days: dict[str, Array]
    matrix: Array
    memberships: dict[str, float]
    participation: Array
    lost: dict[str, Any]
    hedge: Array
    models: BlockModels


def run_repetition(settings: FleetSettings, out: Path | None, tell: ReportProgress) -> FleetOutcome:
    """One repetition, from where it was if `out` has some of it."""
    world = make_fleet(settings)
    yard, validation = HeldOutRows.of(world), HeldOutRows.of(world, validation=True)
    clock = clock_of(world)
    # Both kinds of chains in one run: most approaches are read-outs of it.
    both = strategy_of(world, chains=Chains.HEDGED, clock=clock, evaluators=0)
    days = _Days(world, yard, both)
    result = _run(
        world, both, clock, _under(out, "cyclic"), days.measure, lambda done: tell(0.5 * done, "cyclic")
    )
    split = strategy_of(world, chains=Chains.SPLIT, clock=clock)
    _run(world, split, clock, _under(out, "split"), None, lambda done: tell(0.5 + 0.3 * done, "default"))
    ideal = strategy_of(world, clock=clock, evaluators=0)
    _run(
        world,
        ideal,
        clock,
        _under(out, "uniform"),
        None,
        lambda done: tell(0.8 + 0.2 * done, "always available"),
        uniform=True,
    )
    for each in (both, split, ideal):
        if not each.participation.any():
            raise NoReplies
    told = result.evaluate_metrics_serverapp
    over = {key: np.stack([np.array(each[key]) for _, each in sorted(told.items())]) for key in days.KEYS}
    models, best = both.mean(of="shared"), split.best()
    return FleetOutcome(
        _scores(yard, both, best, ideal),
        {key: float(found.mean()) for key, found in _scores(validation, both, best, ideal).items()},
        over,
        yard.matrix(both.last(of="shared")),
        yard.memberships(models),
        both.participation,
        both.reply_counts(),
        both.hedge_shares()[:, 1],
        best,
    )


def _scores(
    yard: HeldOutRows, both: PluralisticStrategy, best: BlockModels, ideal: PluralisticStrategy
) -> dict[str, Array]:
    """[m] the accuracy of every approach, by block."""
    matrix = yard.matrix(both.last(of="shared"))
    blocks = np.arange(len(matrix))
    return {
        "fedavg_last": matrix.mean(axis=0),
        "fedavg_average": yard.by_block(both.consensus()[WEIGHTS]),
        "fedavg_block_last": np.diag(matrix),
        "fedavg_block_before": matrix[blocks - 1, blocks],
        "pluralistic": np.diag(yard.matrix(both.mean(of="shared"))),
        "separate": np.diag(yard.matrix(both.mean(of="own"))),
        "hedged": np.diag(yard.matrix(both.mean(of="hedged"))),
        "best": np.diag(yard.matrix(best)),
        "uniform": yard.by_block(ideal.consensus()[WEIGHTS]),
    }


class _Days:
    """What a server measures at the end of every day; it is kept with the rounds."""

    KEYS = ("fedavg_last", "fedavg_average", "pluralistic", "separate", "hedged")

    def __init__(self, world: Fleet, yard: HeldOutRows, strategy: PluralisticStrategy) -> None:
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
                "fedavg_last": yard.matrix(strategy.last(of="shared")).mean(axis=0).tolist(),
                "fedavg_average": yard.by_block(strategy.consensus()[WEIGHTS]).tolist(),
                "pluralistic": np.diag(yard.matrix(strategy.mean(of="shared"))).tolist(),
                "separate": np.diag(yard.matrix(strategy.mean(of="own"))).tolist(),
                "hedged": np.diag(yard.matrix(strategy.mean(of="hedged"))).tolist(),
            }
        )


def _run(
    world: Fleet,
    strategy: PluralisticStrategy,
    clock: BlockClock,
    checkpoint: Path | None,
    measure: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    tell: Callable[[float], None],
    *,
    uniform: bool = False,
) -> Result:
    grid = fleet_grid(world, clock, uniform=uniform)
    try:
        return run(
            strategy,
            grid,
            world,
            world.rounds,
            checkpoint=checkpoint,
            measure=measure,
            on_round=lambda this: tell(this.number / world.rounds),
        )
    except TimeoutError:
        raise NoReplies from None


def compare(
    settings: FleetSettings,
    *,
    repetitions: int,
    local_steps: tuple[int, ...],
    out: Path | None,
    tell: ReportProgress,
) -> tuple[dict[str, Any], BlockModels]:
    """All repetitions with each number of local steps and each step size, summed up; and models.

    Every approach has the step size of the grid that is best for it on rows for validation, over all
    repetitions. A step size that is stated is the only one. The models are those of "best", first repetition.
    """
    seeds = [
        int(child.generate_state(1)[0] >> 1)
        for child in np.random.SeedSequence(settings.seed).spawn(repetitions)
    ]
    found: dict[int, dict[float, list[FleetOutcome]]] = {}
    sizes = {steps: _grid(replace(settings, local_steps=steps)) for steps in local_steps}
    whole = sum(map(len, sizes.values())) * repetitions
    begun = 0
    for steps in local_steps:
        found[steps] = {size: [] for size in sizes[steps]}
        for r, seed in enumerate(seeds):
            for number, size in enumerate(sizes[steps], 1):
                words = f"{steps} local step(s) of size {size:.3g}, repetition {r + 1} of {repetitions}"

                def report_progress(share: float, what: str, begun: int = begun, words: str = words) -> None:
                    tell((begun + share) / whole, f"{words}, {what}")

                each = replace(settings, local_steps=steps, step_size=size, seed=seed)
                place = _under(out, f"{steps}-steps/repetition-{r + 1}/size-{number}")
                found[steps][size].append(run_repetition(each, place, report_progress))
                begun += 1
    world = make_fleet(replace(settings, local_steps=local_steps[0], seed=seeds[0]))
    first = summarize(found[local_steps[0]])
    results = first | {
        "approaches": APPROACHES,
        "memberships": MEMBERSHIPS,
        "availability": world.availability.curve().tolist(),
        "availability_by_home": world.availability.by_home(world.population.home, world.population.schedule),
        "soft": _softness(world.profiles),
        "local_steps": {str(steps): summarize(each) for steps, each in found.items()},
        "population": {
            "name": world.population.name,
            "devices": world.population.devices,
            "rows": len(world.population.rows),
            "test_rows": int((~world.population.validates).sum()),
            "validation_rows": int(world.population.validates.sum()),
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
            "step_sizes": {str(steps): list(sizes[steps]) for steps in local_steps},
        },
    }
    return results, found[local_steps[0]][first["step_sizes"]["best"]][0].models


def _grid(settings: FleetSettings) -> tuple[float, ...]:
    """The step sizes that approaches choose from: the one that was stated, or parts of a large one."""
    return tuple(
        (1.0 if settings.step_size else part) * settings.rate
        for part in GRID[: 1 if settings.step_size else None]
    )


def summarize(found: Mapping[float, list[FleetOutcome]]) -> dict[str, Any]:
    """Repetitions summed up, every approach with its own best step size."""
    score = {
        key: {size: float(np.mean([each.validation[key] for each in some])) for size, some in found.items()}
        for key in APPROACHES
    }
    chosen = {key: max(by_size, key=lambda size: (by_size[size], size)) for key, by_size in score.items()}
    own = {key: found[size] for key, size in chosen.items()}
    by = {key: np.stack([each.by_block[key] for each in some]) for key, some in own.items()}
    mean = {key: values.mean(axis=1) for key, values in by.items()}
    baseline = max(BASELINES, key=lambda key: score[key][chosen[key]])
    lost: dict[str, Any] = {}
    for each in own["pluralistic"]:
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
        "step_sizes": chosen,
        "validation": {
            key: [{"step_size": s, "accuracy": a} for s, a in by_size.items()]
            for key, by_size in score.items()
        },
        "baseline": baseline,
        "gain": _difference(mean["best"], mean[baseline]),
        "repetitions": {key: values.tolist() for key, values in mean.items()},
        "differences": {
            key: _difference(mean["pluralistic"], mean[key]) for key in APPROACHES if key != "pluralistic"
        },
        "over_days": {
            key: np.stack([each.over_days[key] for each in own[key]]).mean(axis=0).tolist()
            for key in own["pluralistic"][0].over_days
        },
        "matrix": np.stack([each.matrix for each in own["fedavg_last"]]).mean(axis=0).tolist(),
        "membership": {
            key: {
                "mean": float(np.mean([each.memberships[key] for each in own["pluralistic"]])),
                "std": _std(np.array([each.memberships[key] for each in own["pluralistic"]])),
            }
            for key in MEMBERSHIPS
        },
        "never_trained": sorted({block for each in own["pluralistic"] for block in _untrained_blocks(each)}),
        "participation": np.stack([each.participation for each in own["pluralistic"]]).mean(axis=0).tolist(),
        "hedge": np.stack([each.hedge for each in own["hedged"]]).mean(axis=0).tolist(),
        "chosen": [list(each.models.chosen) for each in own["best"]],
        "lost": lost,
    }


def _difference(a: Array, b: Array) -> dict[str, Any]:
    """How much better a is than b, in pairs."""
    return {
        "mean": float((a - b).mean()),
        "std": _std(a - b),
        "better_in": int((a > b).sum()),
        "clear": _is_clear(a - b),
    }


def _untrained_blocks(outcome: FleetOutcome) -> list[int]:
    return np.flatnonzero(outcome.participation == 0).tolist()


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
