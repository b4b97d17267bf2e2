"""`semicyclic backtest`: compare the automatic choice with candidates and baselines on past data."""

import time
from typing import Annotated, Any, Literal

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
    Plan,
    When,
    Zone,
    describe_stream,
    load_stream,
)
from semicyclic.cli.options import parse_warm_up as rows_before
from semicyclic.cli.output_dir import output_dir


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
    columns: ColumnOptions = NO_COLUMNS,
) -> None:
    """Was it right? Go through a file as if it came today, to compare the automatic choice with the rest.

    Hundreds of candidates learn from the rows as their labels become known; the choice mixes them by what
    they lost lately. Progressive scores are for those who learn while they serve, the walk forward for models
    that are made at midnight and used for a day. Beside them what else could be done: the running rate, the
    previous label, a constant for each block, one SGD model, the hour as a feature, one model for each block.
    Writes report.html, its figures and results.json.

    Example: semicyclic backtest flights.parquet --when when --label late --zone America/New_York --out judged
    """

    reports.plot.check_installed()
    told = dict(locals())
    started = time.perf_counter()
    delay = specs.parse_duration("--label-delay", label_delay)
    console = Console(stderr=True)
    with output_dir(out), reports.terminal.progress(console) as tell:
        asked = load_stream(told, lambda share, what: tell(0.2 * share, what))
        first = rows_before(warm_up, asked.stream.clock)
        asked = asked._replace(stream=asked.stream.scale_targets(first))
        how: dict[str, Any] = {"delay": delay, "freeze": freeze, "warm_up": first}
        peers, missing = _peers(baselines, asked)
        answered = evaluation.backtest.backtest(
            asked.stream,
            asked.config.schedule,
            **how,
            peers=peers,
            memory=asked.config.memory,
            tell=lambda share, what: tell(0.2 + 0.7 * share, what),
        )
        tell(0.95, "drawing")
        results = judgement(asked, answered, **how) | {"not_installed": missing}
        reports.backtest.write(out, results)
    reports.backtest.print_report(Console(), results, out, time.perf_counter() - started)


def judgement(
    asked: LoadedStream, answered: "evaluation.backtest.Backtest", *, delay: int, freeze: str, warm_up: int
) -> dict[str, Any]:
    """What a backtest says."""

    return {
        **describe_stream(*asked),
        "warm_up": warm_up,
        "label_delay": delay,
        "freeze": freeze,
        "not_installed": [],
        **evaluation.backtest_results.summarize_backtest(answered, asked.config.schedule, asked.stream.units),
    }


def _peers(baselines: str, asked: LoadedStream) -> tuple[dict[str, Any], list[str]]:
    """What others would do, as far as they are installed."""
    if baselines != "all":
        return {}, []

    return evaluation.external_baselines.external_baselines(
        asked.loaded.table, asked.loaded.reading.columns.kinds, asked.config.schedule
    )
