"""Does the rhythm hurt me, what should I deploy, was I right? The commands that question a whole file."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import units
from semicyclic.commands.asked import (
    NO_COLUMNS,
    Columns,
    Delay,
    Files,
    Label,
    Out,
    Plan,
    When,
    Zone,
    collected,
)
from semicyclic.commands.asked import (
    warm_up as rows_before,
)
from semicyclic.commands.places import folder
from semicyclic.files import check_installed

if TYPE_CHECKING:
    from semicyclic.choose.backtest import Backtest, Stream
    from semicyclic.stream.collecting import Collected
    from semicyclic.stream.job import Job

    Asked = tuple[Job, Collected, Stream]

# The walk of a diagnosis goes through so many rows, the last ones.
RECENT = 200_000
FEWEST = 100


def backtest(
    files: Files,
    /,
    *,
    when: When,
    label: Label,
    out: Out,
    zone: Zone = "UTC",
    schedule: Plan = "daily:24",
    label_delay: Delay = "0",
    warm_up: Annotated[
        str, Parameter(help="Rows that are learnt from and not scored: 30%, 5000, or 14d.")
    ] = "30%",
    freeze: Annotated[
        Literal["day", "visit"],
        Parameter(help="Models that walk forward are frozen at local midnight, or when a visit begins."),
    ] = "day",
    baselines: Annotated[
        Literal["simple", "all"],
        Parameter(help="all: LightGBM and Vowpal Wabbit too, where they are installed."),
    ] = "simple",
    columns: Columns = NO_COLUMNS,
) -> None:
    """Was it right? Go through a file as if it came today, to compare the automatic choice with the rest.

    Hundreds of candidates learn from the rows as their labels become known; the choice mixes them by what
    they lost lately. Progressive scores are for those who learn while they serve, the walk forward for models
    that are made at midnight and used for a day. Beside them what else could be done: the running rate, the
    previous label, a constant for each block, one SGD model, the hour as a feature, one model for each block.
    Writes report.html, its figures and results.json.

    Example: semicyclic backtest flights.parquet --when when --label late --zone America/New_York --out judged
    """
    check_installed()
    from semicyclic.choose.backtest import backtest as walk
    from semicyclic.show import backtest as show
    from semicyclic.show import terminal
    from semicyclic.show.drawing import check_installed as check_drawing

    check_drawing()
    told = dict(locals())
    started = time.perf_counter()
    delay = units.length("--label-delay", label_delay)
    console = Console(stderr=True)
    with folder(out), terminal.progress(console) as tell:
        asked = collected(told, lambda share, what: tell(0.2 * share, what))
        first = rows_before(warm_up, asked[2].clock)
        asked = (*asked[:2], asked[2].scaled(first))
        how: dict[str, Any] = {"delay": delay, "freeze": freeze, "warm_up": first}
        peers, missing = _peers(baselines, asked)
        answered = walk(
            asked[2],
            asked[0].schedule,
            **how,
            peers=peers,
            memory=asked[0].memory,
            tell=lambda share, what: tell(0.2 + 0.7 * share, what),
        )
        tell(0.95, "drawing")
        results = judgement(asked, answered, **how) | {"not_installed": missing}
        show.write(out, results)
    show.said(Console(), results, out, time.perf_counter() - started)


def diagnose(
    files: Files,
    /,
    *,
    when: When,
    label: Label,
    out: Out,
    zone: Zone = "UTC",
    label_delay: Delay = "0",
    seed: Annotated[int, Parameter(help="Seed of the draws of days behind the confidence.")] = 0,
    columns: Columns = NO_COLUMNS,
) -> None:
    """Does the rhythm hurt me? What follows the clock in a file, what it costs, and what to do about it.

    Looks for daily and weekly rhythms in labels and in what features say about them, in several numbers of
    blocks; for drift; for how much the recent past foretells; and walks through the rows to see what one
    model loses. Ends in a verdict. Writes report.html, its figures and results.json.

    Example: semicyclic diagnose flights.parquet --when when --label late --zone America/New_York --out why
    """
    check_installed()
    from semicyclic.choose.backtest import backtest as walk
    from semicyclic.show import diagnose as show
    from semicyclic.show import terminal
    from semicyclic.show.drawing import check_installed as check_drawing

    check_drawing()
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    told = {**locals(), "schedule": "daily:24"}
    started = time.perf_counter()
    delay = units.length("--label-delay", label_delay)
    console = Console(stderr=True)
    with folder(out), terminal.progress(console) as tell:
        asked = collected(told, lambda share, what: tell(0.2 * share, what))
        tell(0.2, "looking for rhythms")
        if len(asked[2].clock) < FEWEST:
            raise ValueError(f"there are {len(asked[2].clock)} rows: a diagnosis needs at least {FEWEST}")
        recent = asked[2].last(RECENT)
        recent = recent.scaled(int(0.3 * len(recent.clock)))
        answered = walk(
            recent,
            asked[0].schedule,
            delay=delay,
            warm_up=int(0.3 * len(recent.clock)),
            memory=asked[0].memory,
            tell=lambda share, what: tell(0.4 + 0.5 * share, what),
        )
        results = diagnosis(asked, answered, recent.units, delay=delay, seed=seed)
        tell(0.95, "drawing")
        show.write(out, results)
    show.said(Console(), results, out, time.perf_counter() - started)


def what_if(
    run: Annotated[Path, Parameter(help="The folder of a run.")],
    /,
    *,
    blocks: Annotated[
        list[int] | None,
        Parameter(consume_multiple=True, negative=(), help="Numbers of blocks, made of whole ones."),
    ] = None,
    readout: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True, negative=(), help="mean, last, last-cycle, tail, tail:5, fading, fading:5."
        ),
    ] = None,
    until: Annotated[int | None, Parameter(help="As of so many cycles before the end.")] = None,
    data: Annotated[
        list[str] | None,
        Parameter(consume_multiple=True, negative=(), help="Files with labels, to score the models on."),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Folder for the models and results.json.")] = None,
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None, Parameter(help="Where the files' names do not tell.")
    ] = None,
    encoding: Annotated[str, Parameter(help="Encoding of CSV and JSON lines.")] = "utf-8",
) -> None:
    """What if I had fewer blocks, or another read-out? Models from the log of a run, without its data.

    The log has what one chain was in every visit, as far back as --memory of the training went; so every mean
    of it, by any blocks that are made of whole ones, is there in seconds. With --data the models are scored.

    Example: semicyclic what-if late --blocks 6 --readout tail --data next-month.parquet --out other
    """
    check_installed()
    from semicyclic.files import read
    from semicyclic.show import whatif as show
    from semicyclic.show.output import write_json
    from semicyclic.store.modelfile import save
    from semicyclic.stream.whatif import Wanted, check_read_out, model_for, opened, scored

    started = time.perf_counter()
    log = opened(run)
    wanted = [
        Wanted(count, check_read_out(each), until)
        for count in (blocks if blocks else (None,))
        for each in (readout or ["mean", "tail", "last-cycle", "last"])
    ]
    models = [model_for(log, each) for each in wanted]
    made = time.perf_counter() - started
    results: dict[str, Any] = {
        "run": log.job.method,
        "cycles_kept": log.cycles,
        "seconds": made,
        "models": [],
    }
    label = log.job.wish.label
    rows = None if data is None else read(data, like=models[0], label=label, format=format, encoding=encoding)
    with folder(out) if out is not None else nullcontext():
        for each, model in zip(wanted, models, strict=True):
            held: dict[str, Any] = {"blocks": model.blocks, "read_out": each.read_out}
            held["never_visited"] = len(model.fallback)
            if rows is not None:
                held["scores"] = scored(model, rows)
            if out is not None:
                held["file"] = f"{each.name}.safetensors"
                save(model, out / held["file"])
            results["models"].append(held)
        if out is not None:
            write_json(out / "results.json", results)
    show.said(Console(), results, out)


def judgement(
    asked: "Asked", answered: "Backtest", *, delay: int, freeze: str, warm_up: int
) -> dict[str, Any]:
    """What a backtest says."""
    from semicyclic.choose.judged import judged

    return {
        **_about(*asked),
        "warm_up": warm_up,
        "label_delay": delay,
        "freeze": freeze,
        "not_installed": [],
        **judged(answered, asked[0].schedule, asked[2].units),
    }


def diagnosis(
    asked: "Asked", answered: "Backtest", scale: tuple[float, float], *, delay: int, seed: int
) -> dict[str, Any]:
    """What a diagnosis says."""
    import numpy as np

    from semicyclic.choose.diagnose import costs, diagnosed

    job, _, stream = asked
    found = diagnosed(stream, job.schedule.zone, np.random.default_rng(seed))
    spent = costs(answered, job.schedule, scale)
    return {**_about(*asked), **found, "label_delay": delay, "costs": spent}


def _peers(baselines: str, asked: "Asked") -> tuple[dict[str, Any], list[str]]:
    """What others would do, as far as they are installed."""
    if baselines != "all":
        return {}, []
    from semicyclic.adapters.peers import peers

    return peers(asked[1].table, asked[1].reading.columns.kinds, asked[0].schedule)


def _about(job: "Job", found: "Collected", stream: "Stream") -> dict[str, Any]:
    """What was asked of which rows."""
    from semicyclic.experiments.reproduce import versions

    reading = found.reading
    return {
        "task": "classification" if reading.labels.classes else "regression",
        "loss": stream.loss.name,
        "label": reading.columns.label,
        "classes": list(reading.labels.classes),
        "rows": len(stream.clock),
        "first": int(stream.clock[0]),
        "last": int(stream.clock[-1]),
        "zone": job.schedule.zone,
        "schedule": job.schedule.to_json(),
        "blocks": list(job.schedule.labels),
        "versions": versions(),
    }
