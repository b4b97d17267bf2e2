"""`semicyclic federate`: simulate a federated fleet and compare methods."""

import json
import logging
import shutil
import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic import experiments, reports, store
from semicyclic.cli.output_dir import output_dir

STATE, ASKED = "state", "asked.json"


def federate(
    data: Annotated[
        str,
        Parameter(help="synthetic, flights (a client is a route), or a file of tweets as Sentiment140's."),
    ] = "synthetic",
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder for the report, the results and the models.")],
    availability: Annotated[
        str,
        Parameter(
            help="When devices are there: label-cycle (in one block alone), cosine or linear (around their "
            "night), flat, rows (when their own rows were made), or a trace: FedScale's JSON, or NPZ with A "
            "and step_minutes."
        ),
    ] = "label-cycle",
    devices: Annotated[int, Parameter(help="How many devices the synthetic population has.")] = 1000,
    per_round: Annotated[int, Parameter(help="Replies that end a round, k.")] = 20,
    invited: Annotated[int | None, Parameter(help="Devices asked, n; 1.3 k unless given.")] = None,
    days: Annotated[int, Parameter(help="Days of training.")] = 10,
    rounds_per_block: Annotated[int, Parameter(help="Rounds in each block of a day.")] = 6,
    local_steps: Annotated[
        list[int] | None,
        Parameter(
            help="SGD steps of a device in a round; several are compared. [default: 10]",
            consume_multiple=True,
            negative=(),
        ),
    ] = None,
    step_size: Annotated[
        float, Parameter(help="Of local steps, for all approaches; 0: each one's best of four.")
    ] = 0.0,
    batch_size: Annotated[int, Parameter(help="Rows of a local step.")] = 10,
    skew: Annotated[
        float, Parameter(help="How far labels follow the zone, from 0 to below .5 (synthetic).")
    ] = 0.35,
    turn: Annotated[
        float,
        Parameter(help="How far what tells the classes apart turns with the zone, radians (synthetic)."),
    ] = 0.0,
    ties: Annotated[
        float, Parameter(help="How far speed, reliability and amount of data follow the zone; 0: not at all.")
    ] = 0.0,
    separation: Annotated[float, Parameter(help="Hours between two participations of a device.")] = 0.0,
    deadline: Annotated[float, Parameter(help="Seconds after which a round waits for nobody.")] = 30.0,
    repetitions: Annotated[int, Parameter(help="Fleets made and trained anew.")] = 3,
    seed: Annotated[int, Parameter(help="Seed of everything that is random.")] = 0,
) -> None:
    """Train a fleet of devices that come and go with the clock, and compare what to do about it.

    Federated Averaging as it is and copies of it by block, one model for each block of the day
    (`PluralisticStrategy`), separate chains, a hedge, and the ideal of devices that are always available;
    each with the step size that is best for it on rows for validation. Runs Flower's own apps in this
    process; killed and started again with the same words it goes on. Writes report.html, its figures,
    results.json and the first repetition's models.safetensors.

    Example: semicyclic federate --availability cosine --local-steps 1 10 --out fleet
    """
    told = dict(locals())

    reports.plot.check_installed()
    if repetitions < 1:
        raise ValueError(f"--repetitions {repetitions}: must be at least 1")
    settings, steps = _settings(told)
    # Imported before anything is written: Flower may not be installed.
    compare = experiments.federated.compare
    # Every rejected reply is counted and reported; Flower's own lines for every round help nobody here.
    logging.getLogger("flwr").setLevel(logging.ERROR)
    started = time.perf_counter()
    console = Console(stderr=True)
    with output_dir(out), reports.terminal.progress(console) as tell:
        state = _state(out, told, console)
        try:
            results, models = compare.compare(
                settings,
                repetitions=repetitions,
                local_steps=steps,
                out=state,
                tell=lambda share, what: tell(0.97 * share, what),
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; the same command goes on from here") from None
        except ValueError as error:
            if not any(state.glob("**/rounds.jsonl")):
                shutil.rmtree(state)
            if isinstance(error, compare.NoReplies):
                raise ValueError(
                    "no round had a reply in time: give a longer --deadline, or another --availability"
                ) from None
            raise
        tell(0.98, "drawing")
        models.save(out / "models.safetensors")
        reports.federate.write(out, {**results, "versions": experiments.reproduce.run.versions()})
        shutil.rmtree(state)
    reports.federate.print_report(Console(), results, out, time.perf_counter() - started)


def _settings(told: dict[str, Any]) -> "tuple[experiments.federated.fleet.FleetSettings, tuple[int, ...]]":
    """What was asked for, checked."""

    steps = tuple(told["local_steps"] or (10,))
    if len(set(steps)) != len(steps) or min(steps) < 1:
        raise ValueError(f"--local-steps {' '.join(map(str, steps))}: different numbers, each at least 1")
    invited = -(-13 * told["per_round"] // 10) if told["invited"] is None else told["invited"]
    mine = {each.name for each in fields(experiments.federated.fleet.FleetSettings)} - {
        "local_steps",
        "invited",
    }
    given = {name: told[name] for name in mine}
    return experiments.federated.fleet.FleetSettings(**given, local_steps=steps[0], invited=invited), steps


def _state(out: Path, told: dict[str, Any], console: Console) -> Path:
    """The folder of what is not finished; the same words go on with it."""
    state = out / STATE

    asked = {name: str(value) for name, value in told.items() if name != "out"}
    known = state / ASKED
    if known.exists():
        try:
            before = json.loads(known.read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(
                f"{known}: it cannot be read: remove {state}, or choose another folder"
            ) from None
        for name, value in asked.items():
            if before.get(name) != value:
                raise ValueError(
                    f"--out {out}: there is an unfinished run with {name.replace('_', '-')} "
                    f"{before.get(name)}, not {value}: say the same to go on, remove {state}, "
                    "or choose another folder"
                )
        console.print(
            f"going on with the unfinished run in {out}", highlight=False, soft_wrap=True, markup=False
        )
    else:
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir(parents=True)
        store.atomic.write_text(known, json.dumps(asked))
    return state
