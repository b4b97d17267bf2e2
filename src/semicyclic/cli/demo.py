"""`semicyclic demo`: train, diagnose and backtest on real flights, and write a report."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic import datasets, evaluation, experiments, reports, training
from semicyclic.cli.backtest import backtest_results
from semicyclic.cli.diagnose import diagnosis, suggested_options
from semicyclic.cli.load_stream import load_stream
from semicyclic.cli.options import ColumnOptions, InputOptions, parse_warm_up
from semicyclic.cli.output_dir import output_dir
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import ReportProgress

# Shown in the report: how to do the same with other data.
TRAIN_COMMANDS = (
    "semicyclic train FILE --when COLUMN --label COLUMN --zone ZONE --out DIR",
    "semicyclic predict DIR NEW-FILE",
)


def demo(
    *,
    out: Annotated[Path, Parameter(help="Output folder for the report, the model and results.json.")] = Path(
        "demo"
    ),
    seed: Annotated[int, Parameter(help="Random seed for train-test splits and row orders.")] = 0,
    repetitions: Annotated[int, Parameter(help="Repetitions of the paper's experiment, at least 2.")] = 3,
) -> None:
    """Predict late flights with one model per block of the day, and write a report.

    Uses all flights from New York in 2013, which are part of the package. Compares the paper's approaches
    first on shuffled rows, as in the paper, then on the same rows in time order. Then runs `diagnose`,
    `train` and `backtest` on the flights. Writes report.html, its figures, results.json, and the folders
    model, diagnose and backtest.

    Example: semicyclic demo --out demo
    """

    reports.plot.check_installed()
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    if repetitions < 2:
        raise ValueError(f"--repetitions {repetitions}: must be at least 2, or no difference has an error")
    console = Console()
    started = time.perf_counter()
    with output_dir(out), reports.terminal.progress(console) as report_progress:

        def stage_progress(low: float, high: float) -> ReportProgress:
            return _rescale_progress(report_progress, low, high)

        report_progress(0.0, "reading the flights")
        schedule = datasets.flights.day()
        settings: dict[str, Any] = {"repetitions": repetitions, "seed": seed}
        with _train_in_background(schedule, out / "model") as wait_for_training:
            data = datasets.flights.load(schedule)
            # The hedge has the kernel that takes longest to compile. It runs last, when the background
            # training has compiled and cached that kernel.
            unhedged = [name for name in experiments.flights.PAPER if name != "hedged"]
            paper = experiments.flights.paper_losses(
                data, unhedged, **settings, report_progress=stage_progress(0.1, 0.35)
            )
            calendar = experiments.flights.calendar_losses(
                data, {*experiments.flights.CALENDAR} - {"hedged"}, report_progress=stage_progress(0.35, 0.55)
            )
            report_progress(0.55, "training a model")
            training_results, model = wait_for_training()
        paper |= experiments.flights.paper_losses(
            data, ["hedged"], **settings, report_progress=stage_progress(0.55, 0.6)
        )
        calendar |= experiments.flights.calendar_losses(
            data, ["hedged"], report_progress=stage_progress(0.6, 0.65)
        )
        questions = _diagnose_and_backtest(out, seed, stage_progress(0.65, 0.95))
        results = {
            "data": experiments.flights.about(data),
            "paper": experiments.flights.paper_results(data, paper, seed=seed),
            "calendar": experiments.flights.calendar_results(data, calendar),
            "questions": questions,
            "training": training_results,
            "model": model,
            "versions": experiments.reproduce.run.versions(),
        }
        report_progress(0.95, "drawing")
        reports.demo.write(out, results, TRAIN_COMMANDS)
    console.print(reports.demo.summary(results))
    for question, answer in questions["answers"].items():
        console.print(f"{question} {answer}", highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{time.perf_counter() - started:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True
    )


def _diagnose_and_backtest(out: Path, seed: int, report_progress: ReportProgress) -> dict[str, Any]:
    """Write the reports of `diagnose` and `backtest`, from a single backtest, and return their findings."""

    source = load_stream(
        [datasets.flights.data_path()],
        _rescale_progress(report_progress, 0.0, 0.2),
        InputOptions(["when"], "late", datasets.flights.ZONE),
        ColumnOptions(lateness="1d"),
        schedule="daily:24",
        memory="1GB",
    )
    warm_up_rows = parse_warm_up("30%", source.stream.clock)
    settings: dict[str, Any] = {"delay": 0, "freeze": "day", "horizon": 1, "warm_up": warm_up_rows}
    outcome = evaluation.backtest.backtest(
        source.stream,
        source.config.schedule,
        **settings,
        memory=source.config.budget(source.stream.loss.outputs).candidates,
        report_progress=_rescale_progress(report_progress, 0.2, 0.7),
    )
    report_progress(0.7, "looking for rhythms")
    diagnosed = diagnosis(source, outcome, source.stream.units, delay=0, seed=seed)
    backtested = backtest_results(source, outcome, **settings)
    report_progress(0.9, "drawing")
    for name in ("diagnose", "backtest"):
        (out / name).mkdir(exist_ok=True)
    suggested = suggested_options(diagnosed["verdict"])
    reports.diagnose.write(out / "diagnose", diagnosed, suggested)
    reports.backtest.write(out / "backtest", backtested)
    diagnose_text = reports.diagnose.sentences(diagnosed, suggested)
    backtest_text = reports.backtest.sentences(backtested)
    return {
        "verdict": diagnosed["verdict"],
        "scores": {
            key: {
                "auto": backtested[key]["auto"],
                "best": backtested[key]["candidates"][backtested[key]["best"]],
                "baselines": backtested[key]["baselines"],
            }
            for key in ("progressive", "walk_forward")
        },
        "answers": {
            "Does the rhythm hurt?": f"{diagnose_text[0]} {diagnose_text[3]}",
            "What should be deployed?": diagnose_text[2],
            "Was it right?": " ".join(backtest_text[:3]),
            "And why not just add the hour as a feature?": backtest_text[3].removeprefix(
                "Why not just add the hour and the weekday as features? "
            ),
        },
    }


def _rescale_progress(report_progress: ReportProgress, low: float, high: float) -> ReportProgress:
    """Return a callback that maps the shares 0 to 1 of one stage to `low` to `high` of the command."""
    return lambda share, stage: report_progress(low + (high - low) * share, stage)


@contextmanager
def _train_in_background(
    schedule: Schedule, out: Path
) -> Iterator[Callable[[], tuple[dict[str, Any], dict[str, Any]]]]:
    """Run `semicyclic train` on the flights in a subprocess.

    Yields a function that waits for the end and returns the training's results and the model's description.
    """

    if training.run_dir.holds_run(out):
        shutil.rmtree(out)  # the model of an earlier demo
    starts = ",".join(str(start // 3_600_000_000) for start in schedule.starts)
    words = [
        "train",
        datasets.flights.data_path(),
        "--when",
        "when",
        "--label",
        "late",
        "--zone",
        datasets.flights.ZONE,
        "--schedule",
    ]
    words += [f"daily:{starts}", "--label-delay", "1d", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "semicyclic", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def wait_for_results() -> tuple[dict[str, Any], dict[str, Any]]:
        _, errors = process.communicate()
        if process.returncode:
            raise ValueError(errors.strip().removeprefix("semicyclic: ") or "the training was stopped")
        return json.loads(
            (out / training.run_dir.RESULTS).read_text(encoding="utf-8")
        ), training.inspect.describe_model(training.open_model.load(out), top=8)

    try:
        yield wait_for_results
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
