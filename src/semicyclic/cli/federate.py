"""`semicyclic federate`: simulate a federated fleet and compare methods."""

import json
import logging
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic import experiments, reports, store
from semicyclic.cli.options import BatchSize
from semicyclic.cli.output_dir import output_dir

# Folder of an unfinished run within the output folder, and the file in it with the options of that run.
STATE_DIR, OPTIONS_FILE = "state", "asked.json"


@Parameter(name="*")
@dataclass(frozen=True)
class FleetOptions:
    """Options of `federate` that describe the fleet and its training."""

    availability: Annotated[
        str,
        Parameter(
            help="Times at which devices are available: label-cycle (in one block only), cosine or linear "
            "(mostly during their night), flat (alike at all hours), rows (at the times of their rows), or a "
            "trace file: FedScale's JSON, or NPZ with A and step_minutes."
        ),
    ] = "label-cycle"
    devices: Annotated[int, Parameter(help="Number of devices (synthetic).")] = 1000
    per_round: Annotated[int, Parameter(help="Number of replies that end a round, k.")] = 20
    invited: Annotated[
        int | None, Parameter(help="Number of devices invited to a round, n. Default: 1.3 times --per-round.")
    ] = None
    days: Annotated[int, Parameter(help="Number of simulated days of training.")] = 10
    rounds_per_block: Annotated[int, Parameter(help="Rounds per block of a day.")] = 6
    local_steps: Annotated[
        list[int] | None,
        Parameter(
            help="SGD steps per device and round; several values are compared. [default: 10]",
            consume_multiple=True,
            negative=(),
        ),
    ] = None
    step_size: Annotated[
        float,
        Parameter(help="Step size of the local steps; 0: the best of four for each approach."),
    ] = 0.0
    batch_size: BatchSize = 10
    skew: Annotated[
        float,
        Parameter(help="Amplitude of the share of positive labels over time zones, below .5 (synthetic)."),
    ] = 0.35
    turn: Annotated[
        float,
        Parameter(help="Maximum rotation of the class direction over time zones, in radians (synthetic)."),
    ] = 0.0
    ties: Annotated[
        float,
        Parameter(help="Dependence of device speed, reliability and data size on the time zone; 0: none."),
    ] = 0.0
    separation: Annotated[float, Parameter(help="Minimum hours between two participations of a device.")] = (
        0.0
    )
    deadline: Annotated[float, Parameter(help="Seconds after which a round stops waiting for replies.")] = (
        30.0
    )


DEFAULT_FLEET = FleetOptions()


def federate(
    data: Annotated[
        str,
        Parameter(
            help="synthetic, flights (one client per route), or a tweet file in Sentiment140's format."
        ),
    ] = "synthetic",
    /,
    *,
    out: Annotated[
        Path, Parameter(help="Output folder for the report, its figures, results.json and the models.")
    ],
    fleet: FleetOptions = DEFAULT_FLEET,
    repetitions: Annotated[int, Parameter(help="Number of repetitions, each with a new fleet.")] = 3,
    seed: Annotated[int, Parameter(help="Random seed for fleets and training.")] = 0,
) -> None:
    """Simulate a federated fleet whose devices are available at certain hours, and compare methods.

    Compares Federated Averaging, its copies per block, one model per block (`PluralisticStrategy`), separate
    chains, a hedge, and the ideal of devices that are always available; each uses its best step size on
    validation rows. Flower's apps run in this process. The same command resumes a run that was killed.
    Writes report.html, its figures, results.json and the first repetition's models.safetensors.

    Example: semicyclic federate --availability cosine --local-steps 1 10 --out fleet
    """
    reports.plot.check_installed()
    if repetitions < 1:
        raise ValueError(f"--repetitions {repetitions}: must be at least 1")
    settings, steps = _parse_settings(data, fleet, seed)
    # Import before anything is written: Flower may not be installed.
    compare = experiments.federated.compare
    # The report counts every rejected reply, so Flower's log lines for every round are not needed.
    logging.getLogger("flwr").setLevel(logging.ERROR)
    started = time.perf_counter()
    console = Console(stderr=True)
    with output_dir(out), reports.terminal.progress(console) as report_progress:
        options = {"data": data, **asdict(fleet), "repetitions": repetitions, "seed": seed}
        state_dir = _open_state_dir(out, options, console)
        try:
            results, models = compare.compare(
                settings,
                repetitions=repetitions,
                local_steps=steps,
                out=state_dir,
                report_progress=lambda share, stage: report_progress(0.97 * share, stage),
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped: run the same command again to resume") from None
        except ValueError as error:
            if not any(state_dir.glob("**/rounds.jsonl")):
                shutil.rmtree(state_dir)
            if isinstance(error, compare.NoReplies):
                raise ValueError(
                    "no round had a reply in time: give a longer --deadline, or another --availability"
                ) from None
            raise
        report_progress(0.98, "drawing")
        models.save(out / "models.safetensors")
        reports.federate.write(out, {**results, "versions": experiments.reproduce.run.versions()})
        shutil.rmtree(state_dir)
    reports.federate.print_report(Console(), results, out, time.perf_counter() - started)


def _parse_settings(
    data: str, fleet: FleetOptions, seed: int
) -> "tuple[experiments.federated.fleet.FleetSettings, tuple[int, ...]]":
    """Check the options; return the fleet's settings and the numbers of local steps to compare."""
    steps = tuple(fleet.local_steps or (10,))
    if len(set(steps)) != len(steps) or min(steps) < 1:
        raise ValueError(f"--local-steps {' '.join(map(str, steps))}: different numbers, each at least 1")
    invited = -(-13 * fleet.per_round // 10) if fleet.invited is None else fleet.invited
    options = {**asdict(fleet), "local_steps": steps[0], "invited": invited}
    return experiments.federated.fleet.FleetSettings(data=data, seed=seed, **options), steps


def _open_state_dir(out: Path, given: dict[str, Any], console: Console) -> Path:
    """Return the folder of the unfinished run, created if missing; raise if that run had other options."""
    state_dir = out / STATE_DIR

    options = {name: str(value) for name, value in given.items()}
    options_path = state_dir / OPTIONS_FILE
    if options_path.exists():
        try:
            saved = json.loads(options_path.read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(
                f"{options_path}: the file is corrupt: remove {state_dir}, or choose another folder"
            ) from None
        for name, value in options.items():
            if saved.get(name) != value:
                raise ValueError(
                    f"--out {out}: there is an unfinished run with {name.replace('_', '-')} "
                    f"{saved.get(name)}, not {value}: say the same to go on, remove {state_dir}, "
                    "or choose another folder"
                )
        console.print(f"resuming the unfinished run in {out}", highlight=False, soft_wrap=True, markup=False)
    else:
        shutil.rmtree(state_dir, ignore_errors=True)
        state_dir.mkdir(parents=True)
        store.atomic.write_text(options_path, json.dumps(options))
    return state_dir
