"""`semicyclic diagnose`: detect daily and weekly rhythms in a file, and their cost."""

import time
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic import evaluation, reports, specs
from semicyclic.cli.options import (
    NO_COLUMNS,
    ColumnOptions,
    Delay,
    Files,
    Label,
    LoadedStream,
    Out,
    When,
    Zone,
    describe_stream,
    load_stream,
)
from semicyclic.cli.output_dir import output_dir

# The walk of a diagnosis goes through so many rows, the last ones.
RECENT = 200_000


FEWEST = 100


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
    columns: ColumnOptions = NO_COLUMNS,
) -> None:
    """Does the rhythm hurt me? What follows the clock in a file, what it costs, and what to do about it.

    Looks for daily and weekly rhythms in labels and in what features say about them, in several numbers of
    blocks; for drift; for how much the recent past foretells; and walks through the rows to see what one
    model loses. Ends in a verdict. Writes report.html, its figures and results.json.

    Example: semicyclic diagnose flights.parquet --when when --label late --zone America/New_York --out why
    """

    reports.plot.check_installed()
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    told = {**locals(), "schedule": "daily:24"}
    started = time.perf_counter()
    delay = specs.parse_duration("--label-delay", label_delay)
    console = Console(stderr=True)
    with output_dir(out), reports.terminal.progress(console) as tell:
        asked = load_stream(told, lambda share, what: tell(0.2 * share, what))
        tell(0.2, "looking for rhythms")
        if len(asked.stream.clock) < FEWEST:
            raise ValueError(f"there are {len(asked.stream.clock)} rows: a diagnosis needs at least {FEWEST}")
        recent = asked.stream.last(RECENT)
        recent = recent.scale_targets(int(0.3 * len(recent.clock)))
        answered = evaluation.backtest.backtest(
            recent,
            asked.config.schedule,
            delay=delay,
            warm_up=int(0.3 * len(recent.clock)),
            memory=asked.config.memory,
            tell=lambda share, what: tell(0.4 + 0.5 * share, what),
        )
        results = diagnosis(asked, answered, recent.units, delay=delay, seed=seed)
        tell(0.95, "drawing")
        reports.diagnose.write(out, results)
    reports.diagnose.print_report(Console(), results, out, time.perf_counter() - started)


def diagnosis(
    asked: LoadedStream,
    answered: "evaluation.backtest.Backtest",
    scale: tuple[float, float],
    *,
    delay: int,
    seed: int,
) -> dict[str, Any]:
    """What a diagnosis says."""
    import numpy as np

    job, _, stream = asked
    found = evaluation.diagnose.diagnose(stream, job.schedule.zone, np.random.default_rng(seed))
    spent = evaluation.diagnose.costs(answered, job.schedule, scale)
    return {**describe_stream(*asked), **found, "label_delay": delay, "costs": spent}
