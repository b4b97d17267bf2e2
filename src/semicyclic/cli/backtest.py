"""`semicyclic backtest`: compare the automatic choice with candidates and baselines on past data."""

import time
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import evaluation, reports, specs
from semicyclic.cli.load_stream import LoadedStream, describe_stream, load_stream
from semicyclic.cli.options import (
    DEFAULT_COLUMNS,
    ColumnOptions,
    Files,
    Horizon,
    InputOptions,
    LabelDelay,
    Memory,
    ReportDir,
    ScheduleSpec,
    parse_warm_up,
)
from semicyclic.cli.output_dir import output_dir


def backtest(
    files: Files,
    /,
    *,
    inputs: InputOptions,
    out: ReportDir,
    schedule: ScheduleSpec = "daily:24",
    label_delay: LabelDelay = "0",
    warm_up: Annotated[
        str, Parameter(help="First rows, learned from but not scored: 30%, 5000 (rows) or 14d.")
    ] = "30%",
    horizon: Horizon = "1d",
    freeze: Annotated[
        Literal["day", "visit"],
        Parameter(help="Freeze time of walk-forward models: a local midnight, or the start of each visit."),
    ] = "day",
    baselines: Annotated[
        Literal["simple", "all"],
        Parameter(help="all: also compare with LightGBM and Vowpal Wabbit, if they are installed."),
    ] = "simple",
    memory: Memory = "1GB",
    columns: ColumnOptions = DEFAULT_COLUMNS,
) -> None:
    """Compare method auto with its candidates and with baselines on past data.

    The file is replayed as a stream: hundreds of candidates learn each label once it is known, and auto mixes
    them by recent loss. Progressive scores are for models that learn while they serve, walk-forward scores
    for models that are frozen at midnight and serve for --horizon. The baselines are the running rate, the
    previous label, a constant per block, one SGD model, SGD with the hour as a feature, and one model per
    block. Writes report.html, its figures and results.json.

    Example: semicyclic backtest flights.parquet --when when --label late --zone America/New_York --out judged
    """

    reports.plot.check_installed()
    started = time.perf_counter()
    delay = specs.parse_duration("label_delay", label_delay)
    console = Console(stderr=True)
    with output_dir(out), reports.terminal.progress(console) as report_progress:
        source = load_stream(
            files,
            lambda share, stage: report_progress(0.2 * share, stage),
            inputs,
            columns,
            schedule=schedule,
            memory=memory,
            horizon=horizon,
        )
        warm_up_rows = parse_warm_up(warm_up, source.stream.clock)
        source = source._replace(stream=source.stream.scale_targets(warm_up_rows))
        settings: dict[str, Any] = {
            "delay": delay, "freeze": freeze, "horizon": source.config.horizon, "warm_up": warm_up_rows,
        }  # fmt: skip
        peers, not_installed = _external_baselines(baselines, source)
        outcome = evaluation.backtest.backtest(
            source.stream,
            source.config.schedule,
            **settings,
            peers=peers,
            memory=source.config.budget(source.stream.loss.outputs).candidates,
            report_progress=lambda share, stage: report_progress(0.2 + 0.7 * share, stage),
        )
        report_progress(0.95, "drawing")
        results = backtest_results(source, outcome, **settings) | {"not_installed": not_installed}
        reports.backtest.write(out, results)
    reports.backtest.print_report(Console(), results, out, time.perf_counter() - started)


def backtest_results(
    source: LoadedStream,
    outcome: "evaluation.backtest.Backtest",
    *,
    delay: int,
    freeze: str,
    horizon: int,
    warm_up: int,
) -> dict[str, Any]:
    """Return the contents of the backtest's `results.json`.

    delay: label delay in microseconds. horizon: days that a frozen model is used for.
    warm_up: rows that are learned from but not scored.
    """

    return {
        **describe_stream(*source),
        "warm_up": warm_up,
        "label_delay": delay,
        "freeze": freeze,
        "horizon": horizon,
        "not_installed": [],
        **evaluation.backtest_results.summarize_backtest(
            outcome, source.config.schedule, source.stream.units
        ),
    }


def _external_baselines(baselines: str, source: LoadedStream) -> tuple[dict[str, Any], list[str]]:
    """Return the baselines from other libraries by name, and the names of those that are not installed."""
    if baselines != "all":
        return {}, []

    return evaluation.external_baselines.external_baselines(
        source.loaded.table, source.loaded.reading.columns.kinds, source.config.schedule
    )
