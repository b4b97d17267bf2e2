"""`semicyclic diagnose`: detect daily and weekly rhythms in a file, and their cost."""

import time
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic import evaluation, reports, specs
from semicyclic.cli.load_stream import LoadedStream, describe_stream, load_stream
from semicyclic.cli.options import (
    DEFAULT_COLUMNS,
    ColumnOptions,
    Files,
    InputOptions,
    LabelDelay,
    Memory,
    ReportDir,
)
from semicyclic.cli.output_dir import output_dir

# The backtest within a diagnosis uses at most this number of rows, the most recent ones.
MAX_BACKTEST_ROWS = 200_000
MIN_ROWS = 100


def diagnose(
    files: Files,
    /,
    *,
    inputs: InputOptions,
    out: ReportDir,
    label_delay: LabelDelay = "0",
    seed: Annotated[int, Parameter(help="Random seed for the subsets of days behind the confidence.")] = 0,
    memory: Memory = "1GB",
    columns: ColumnOptions = DEFAULT_COLUMNS,
) -> None:
    """Detect daily and weekly rhythms in a file, measure their cost, and suggest a method.

    Tests the labels, and their relation to the features, for drift and for rhythms with several numbers of
    blocks. Measures how well the recent past predicts the next rows. Backtests the latest rows to measure the
    cost of a single model. Prints a verdict and writes report.html, its figures and results.json.

    Example: semicyclic diagnose flights.parquet --when when --label late --zone America/New_York --out why
    """

    reports.plot.check_installed()
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    started = time.perf_counter()
    delay = specs.parse_duration("label_delay", label_delay)
    console = Console(stderr=True)
    with output_dir(out), reports.terminal.progress(console) as report_progress:
        source = load_stream(
            files,
            lambda share, stage: report_progress(0.2 * share, stage),
            inputs,
            columns,
            schedule="daily:24",
            memory=memory,
        )
        report_progress(0.2, "looking for rhythms")
        rows = len(source.stream.clock)
        if rows < MIN_ROWS:
            raise ValueError(f"there are {rows} rows: a diagnosis needs at least {MIN_ROWS}")
        recent = source.stream.last(MAX_BACKTEST_ROWS)
        warm_up_rows = int(0.3 * len(recent.clock))
        recent = recent.scale_targets(warm_up_rows)
        outcome = evaluation.backtest.backtest(
            recent,
            source.config.schedule,
            delay=delay,
            warm_up=warm_up_rows,
            memory=source.config.budget(recent.loss.outputs).candidates,
            report_progress=lambda share, stage: report_progress(0.4 + 0.5 * share, stage),
        )
        results = diagnosis(source, outcome, recent.units, delay=delay, seed=seed)
        report_progress(0.95, "drawing")
        suggested = suggested_options(results["verdict"])
        reports.diagnose.write(out, results, suggested)
    reports.diagnose.print_report(Console(), results, suggested, out, time.perf_counter() - started)


def suggested_options(verdict: dict[str, Any]) -> str:
    """Return the options of `train` that a verdict suggests."""
    text = f"--method {verdict['method']}"
    if verdict["period"] is not None and verdict["blocks"] > 1:
        text += f" --schedule {verdict['period']}:{verdict['blocks']}"
    return f"{text}; or --method auto, which tries all of them"


def diagnosis(
    source: LoadedStream,
    outcome: "evaluation.backtest.Backtest",
    scale: tuple[float, float],
    *,
    delay: int,
    seed: int,
) -> dict[str, Any]:
    """Return the contents of the diagnosis's `results.json`.

    outcome: backtest of the most recent rows. scale: `units` of the backtested stream.
    delay: label delay in microseconds.
    """
    import numpy as np

    config, _, stream = source
    rhythms = evaluation.diagnose.diagnose(stream, config.schedule.zone, np.random.default_rng(seed))
    costs = evaluation.diagnose.costs(outcome, config.schedule, scale)
    return {**describe_stream(*source), **rhythms, "label_delay": delay, "costs": costs}
