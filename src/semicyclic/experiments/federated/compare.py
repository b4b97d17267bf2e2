"""Comparison of federated methods on a fleet.

One run with shared and separate chains provides most approaches, from the same devices and the same rows.
"best" and "uniform", the ideal in which all devices are always available, each need a separate run.
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
from semicyclic.method.evaluate import paired_difference
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
# Approaches that need no model per block, or only copies of the current one.
BASELINES = ("fedavg_last", "fedavg_average", "fedavg_block_last", "fedavg_block_before")
# Step sizes that every approach chooses from, as fractions of the largest.
STEP_SIZE_FRACTIONS = (1.0, 0.32, 0.1, 0.032)


class NoReplies(ValueError):
    """Raised if no round had a reply before its deadline."""

    def __init__(self) -> None:
        super().__init__("no round had a reply in time: give a longer deadline=, or another availability=")


class FleetOutcome(NamedTuple):
    """Result of one repetition with one step size.

    by_block: [m] test accuracy of each approach.
    validation: accuracy of each approach on the validation rows, by which it chooses its step size.
    over_days: [days, m] test accuracy of some approaches at the end of every day.
    matrix: [m, m] accuracy of the shared chain at the end of block i on block j's rows.
    memberships: accuracy for each way of assigning a model to a device.
    participation: [m] replies used in each block.
    lost: counts of requests and replies.
    hedge: [m] share of the separate chains in the hedged mixture.
    models: models of "best".
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


def run_repetition(
    settings: FleetSettings, out: Path | None, report_progress: ReportProgress
) -> FleetOutcome:
    """Run one repetition; resume it if `out` has checkpoints of it."""
    fleet = make_fleet(settings)
    test, validation = HeldOutRows.of(fleet), HeldOutRows.of(fleet, validation=True)
    clock = clock_of(fleet)
    # Most approaches are read-outs of this run, which trains shared and separate chains.
    both = strategy_of(fleet, chains=Chains.HEDGED, clock=clock, evaluators=0)
    days = _Days(fleet, test, both)
    result = _run(
        fleet,
        both,
        clock,
        _under(out, "cyclic"),
        days.measure,
        lambda done: report_progress(0.5 * done, "cyclic"),
    )
    split = strategy_of(fleet, chains=Chains.SPLIT, clock=clock)
    _run(
        fleet,
        split,
        clock,
        _under(out, "split"),
        None,
        lambda done: report_progress(0.5 + 0.3 * done, "default"),
    )
    ideal = strategy_of(fleet, clock=clock, evaluators=0)
    _run(
        fleet,
        ideal,
        clock,
        _under(out, "uniform"),
        None,
        lambda done: report_progress(0.8 + 0.2 * done, "always available"),
        uniform=True,
    )
    for strategy in (both, split, ideal):
        if not strategy.participation.any():
            raise NoReplies
    daily = [metrics for _, metrics in sorted(result.evaluate_metrics_serverapp.items())]
    over_days = {key: np.stack([np.array(metrics[key]) for metrics in daily]) for key in days.KEYS}
    models, best = both.mean(of="shared"), split.best()
    return FleetOutcome(
        _scores(test, both, best, ideal),
        {key: float(scores.mean()) for key, scores in _scores(validation, both, best, ideal).items()},
        over_days,
        test.matrix(both.last(of="shared")),
        test.memberships(models),
        both.participation,
        both.reply_counts(),
        both.hedge_shares()[:, 1],
        best,
    )


def _scores(
    rows: HeldOutRows, both: PluralisticStrategy, best: BlockModels, ideal: PluralisticStrategy
) -> dict[str, Array]:
    """[m] accuracy of every approach by block."""
    matrix = rows.matrix(both.last(of="shared"))
    blocks = np.arange(len(matrix))
    return {
        "fedavg_last": matrix.mean(axis=0),
        "fedavg_average": rows.by_block(both.consensus()[WEIGHTS]),
        "fedavg_block_last": np.diag(matrix),
        "fedavg_block_before": matrix[blocks - 1, blocks],
        "pluralistic": np.diag(rows.matrix(both.mean(of="shared"))),
        "separate": np.diag(rows.matrix(both.mean(of="own"))),
        "hedged": np.diag(rows.matrix(both.mean(of="hedged"))),
        "best": np.diag(rows.matrix(best)),
        "uniform": rows.by_block(ideal.consensus()[WEIGHTS]),
    }


class _Days:
    """Server-side evaluation at the end of every day; results are saved with the rounds."""

    KEYS = ("fedavg_last", "fedavg_average", "pluralistic", "separate", "hedged")

    def __init__(self, fleet: Fleet, rows: HeldOutRows, strategy: PluralisticStrategy) -> None:
        self.yard, self.strategy = rows, strategy
        self.length = fleet.population.schedule.blocks * fleet.settings.rounds_per_block

    def measure(self, number: int, arrays: ArrayRecord) -> MetricRecord | None:  # noqa: ARG002
        """Return the accuracies after the last round of a day; None after other rounds."""
        if number == 0 or number % self.length:
            return None
        rows, strategy = self.yard, self.strategy
        if not strategy.total.get("moved") and not strategy.this_round().moved:
            start = rows.by_block(np.zeros(rows.X.shape[1])).tolist()
            return MetricRecord(dict.fromkeys(self.KEYS, start))
        return MetricRecord(
            {
                "fedavg_last": rows.matrix(strategy.last(of="shared")).mean(axis=0).tolist(),
                "fedavg_average": rows.by_block(strategy.consensus()[WEIGHTS]).tolist(),
                "pluralistic": np.diag(rows.matrix(strategy.mean(of="shared"))).tolist(),
                "separate": np.diag(rows.matrix(strategy.mean(of="own"))).tolist(),
                "hedged": np.diag(rows.matrix(strategy.mean(of="hedged"))).tolist(),
            }
        )


def _run(
    fleet: Fleet,
    strategy: PluralisticStrategy,
    clock: BlockClock,
    checkpoint: Path | None,
    measure: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    report_progress: Callable[[float], None],
    *,
    uniform: bool = False,
) -> Result:
    """Run all rounds of a strategy on the fleet; raise `NoReplies` if rounds stay without participants."""
    grid = fleet_grid(fleet, clock, uniform=uniform)
    try:
        return run(
            strategy,
            grid,
            fleet,
            fleet.rounds,
            checkpoint=checkpoint,
            measure=measure,
            on_round=lambda this: report_progress(this.number / fleet.rounds),
        )
    except TimeoutError:
        raise NoReplies from None


def compare(
    settings: FleetSettings,
    *,
    repetitions: int,
    local_steps: tuple[int, ...],
    out: Path | None,
    report_progress: ReportProgress,
) -> tuple[dict[str, Any], BlockModels]:
    """Run all repetitions with each number of local steps and each step size.

    Every approach uses the step size of the grid with its best mean validation accuracy over all
    repetitions. A step size in `settings` replaces the grid.

    out: folder for checkpoints; None for no checkpoints.
    report_progress: called with the completed share, 0 to 1, and the current task.

    Returns the summary for results.json, and the models of "best" of the first repetition.
    """
    seeds = [
        int(child.generate_state(1)[0] >> 1)
        for child in np.random.SeedSequence(settings.seed).spawn(repetitions)
    ]
    outcomes: dict[int, dict[float, list[FleetOutcome]]] = {}
    sizes = {steps: _grid(replace(settings, local_steps=steps)) for steps in local_steps}
    total_runs = sum(map(len, sizes.values())) * repetitions
    runs_done = 0
    for steps in local_steps:
        outcomes[steps] = {size: [] for size in sizes[steps]}
        for r, seed in enumerate(seeds):
            for number, size in enumerate(sizes[steps], 1):
                words = f"{steps} local step(s) of size {size:.3g}, repetition {r + 1} of {repetitions}"

                def report_run(share: float, what: str, done: int = runs_done, words: str = words) -> None:
                    report_progress((done + share) / total_runs, f"{words}, {what}")

                run_settings = replace(settings, local_steps=steps, step_size=size, seed=seed)
                folder = _under(out, f"{steps}-steps/repetition-{r + 1}/size-{number}")
                outcomes[steps][size].append(run_repetition(run_settings, folder, report_run))
                runs_done += 1
    fleet = make_fleet(replace(settings, local_steps=local_steps[0], seed=seeds[0]))
    first = summarize(outcomes[local_steps[0]])
    results = first | {
        "approaches": APPROACHES,
        "memberships": MEMBERSHIPS,
        "availability": fleet.availability.curve().tolist(),
        "availability_by_home": fleet.availability.by_home(fleet.population.home, fleet.population.schedule),
        "soft": _softness(fleet.profiles),
        "local_steps": {str(steps): summarize(by_size) for steps, by_size in outcomes.items()},
        "population": {
            "name": fleet.population.name,
            "devices": fleet.population.devices,
            "rows": len(fleet.population.rows),
            "test_rows": int((~fleet.population.validates).sum()),
            "validation_rows": int(fleet.population.validates.sum()),
            "columns": fleet.population.rows.width,
        },
        "blocks": list(fleet.population.schedule.labels),
        "zone": fleet.population.schedule.zone,
        "settings": {
            **{name.replace("-", "_"): value for name, value in settings.config().items()},
            "local_steps": list(local_steps),
            "devices": fleet.population.devices,
            "repetitions": repetitions,
            "rounds": fleet.rounds,
            "step_sizes": {str(steps): list(sizes[steps]) for steps in local_steps},
        },
    }
    return results, outcomes[local_steps[0]][first["step_sizes"]["best"]][0].models


def _grid(settings: FleetSettings) -> tuple[float, ...]:
    """Step sizes that approaches choose from: the one in `settings`, or fractions of a large one."""
    return tuple(
        (1.0 if settings.step_size else part) * settings.rate
        for part in STEP_SIZE_FRACTIONS[: 1 if settings.step_size else None]
    )


def summarize(by_size: Mapping[float, list[FleetOutcome]]) -> dict[str, Any]:
    """Summarize repetitions, given by step size; every approach uses its best step size."""
    score = {
        key: {
            size: float(np.mean([outcome.validation[key] for outcome in repetitions]))
            for size, repetitions in by_size.items()
        }
        for key in APPROACHES
    }
    chosen = {key: max(sizes, key=lambda size: (sizes[size], size)) for key, sizes in score.items()}
    outcomes = {key: by_size[size] for key, size in chosen.items()}
    by_block = {
        key: np.stack([outcome.by_block[key] for outcome in repetitions])
        for key, repetitions in outcomes.items()
    }
    mean = {key: values.mean(axis=1) for key, values in by_block.items()}
    baseline = max(BASELINES, key=lambda key: score[key][chosen[key]])
    lost: dict[str, Any] = {}
    for outcome in outcomes["pluralistic"]:
        _add_counts(lost, outcome.lost)
    return {
        "accuracy": {
            key: {
                "mean": float(mean[key].mean()),
                "std": _std(mean[key]),
                "by_block": by_block[key].mean(axis=0).tolist(),
            }
            for key in APPROACHES
        },
        "step_sizes": chosen,
        "validation": {
            key: [{"step_size": size, "accuracy": accuracy} for size, accuracy in sizes.items()]
            for key, sizes in score.items()
        },
        "baseline": baseline,
        "gain": _difference(mean["best"], mean[baseline]),
        "repetitions": {key: values.tolist() for key, values in mean.items()},
        "differences": {
            key: _difference(mean["pluralistic"], mean[key]) for key in APPROACHES if key != "pluralistic"
        },
        "over_days": {
            key: np.stack([outcome.over_days[key] for outcome in outcomes[key]]).mean(axis=0).tolist()
            for key in outcomes["pluralistic"][0].over_days
        },
        "matrix": np.stack([outcome.matrix for outcome in outcomes["fedavg_last"]]).mean(axis=0).tolist(),
        "membership": {
            key: {
                "mean": float(np.mean([outcome.memberships[key] for outcome in outcomes["pluralistic"]])),
                "std": _std(np.array([outcome.memberships[key] for outcome in outcomes["pluralistic"]])),
            }
            for key in MEMBERSHIPS
        },
        "never_trained": sorted(
            {block for outcome in outcomes["pluralistic"] for block in _untrained_blocks(outcome)}
        ),
        "participation": np.stack([outcome.participation for outcome in outcomes["pluralistic"]])
        .mean(axis=0)
        .tolist(),
        "hedge": np.stack([outcome.hedge for outcome in outcomes["hedged"]]).mean(axis=0).tolist(),
        "chosen": [list(outcome.models.chosen) for outcome in outcomes["best"]],
        "lost": lost,
    }


def _difference(a: Array, b: Array) -> dict[str, Any]:
    """Paired differences a - b: mean, standard deviation, how often a is better, and significance."""
    return {
        "mean": float((a - b).mean()),
        "std": _std(a - b),
        "better_in": int((a > b).sum()),
        # A single repetition has no standard error.
        "clear": len(a) > 1 and paired_difference(a, b).is_significant,
    }


def _untrained_blocks(outcome: FleetOutcome) -> list[int]:
    """Blocks in which no reply was used."""
    return np.flatnonzero(outcome.participation == 0).tolist()


def _add_counts(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add nested counts to `total` in place."""
    for key, value in more.items():
        if isinstance(value, Mapping):
            _add_counts(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value


def _softness(profiles: Array) -> float:
    """Mean normalized entropy of profiles: 0 if each device has one block, 1 if all are uniform."""
    m = profiles.shape[1]
    share = np.where(profiles > 0, profiles, 1.0)
    entropy = -(profiles * np.log(share)).sum(axis=1).mean()
    return abs(float(entropy)) / np.log(m) if m > 1 else 0.0


def _std(values: Array) -> float:
    """Sample standard deviation; 0 for a single value."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _under(out: Path | None, name: str) -> Path | None:
    """Return `out / name`, or None without `out`."""
    return None if out is None else out / name
