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

from semicyclic import datasets, evaluation, experiments, reports, store, training
from semicyclic.cli.backtest import judgement
from semicyclic.cli.diagnose import diagnosis
from semicyclic.cli.options import ColumnOptions, load_stream, parse_warm_up
from semicyclic.cli.output_dir import output_dir
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import ReportProgress


def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder for the report, the model and results.json.")] = Path("demo"),
    seed: Annotated[int, Parameter(help="Seed of splits and orders.")] = 0,
    repetitions: Annotated[int, Parameter(help="Repetitions of the paper's experiment.")] = 3,
) -> None:
    """Learn which flights will be late, for every block of the day, and report on it.

    All flights from New York in 2013, which are part of the package. First the paper's approaches as the
    paper compares them, then the same rows in the order of time. Then three questions: does the rhythm hurt
    (`diagnose`), what should be deployed (`train`), was it right (`backtest`)? Writes report.html, its
    figures, results.json, and the folders model, diagnose and backtest.

    Example: semicyclic demo --out demo
    """

    reports.plot.check_installed()
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    if repetitions < 2:
        raise ValueError(f"--repetitions {repetitions}: must be at least 2, or no difference has an error")
    console = Console()
    started = time.perf_counter()
    with output_dir(out), reports.terminal.progress(console) as tell:
        tell(0.0, "reading the flights")
        schedule = datasets.flights.day()
        how: dict[str, Any] = {"repetitions": repetitions, "seed": seed}
        with _training(schedule, out / "model") as trained:
            data = datasets.flights.load(schedule)
            # The hedge, whose kernel takes longest to compile, comes when the training beside has done that.
            first = [name for name in experiments.flights.PAPER if name != "hedged"]
            paper = experiments.flights.paper_losses(data, first, **how, tell=_part(tell, 0.1, 0.35))
            calendar = experiments.flights.calendar_losses(
                data, {*experiments.flights.CALENDAR} - {"hedged"}, tell=_part(tell, 0.35, 0.55)
            )
            tell(0.55, "training a model")
            training, model = trained()
        paper |= experiments.flights.paper_losses(data, ["hedged"], **how, tell=_part(tell, 0.55, 0.6))
        calendar |= experiments.flights.calendar_losses(data, ["hedged"], tell=_part(tell, 0.6, 0.65))
        questions = _questions(out, seed, _part(tell, 0.65, 0.95))
        results = {
            "data": experiments.flights.about(data),
            "paper": experiments.flights.paper_results(data, paper, seed=seed),
            "calendar": experiments.flights.calendar_results(data, calendar),
            "questions": questions,
            "training": training,
            "model": model,
            "versions": experiments.reproduce.run.versions(),
        }
        tell(0.95, "drawing")
        reports.output_files.write_demo(out, results)
    console.print(reports.demo.summary(results))
    for question, answer in questions["answers"].items():
        console.print(f"{question} {answer}", highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{time.perf_counter() - started:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True
    )


def _questions(out: Path, seed: int, tell: ReportProgress) -> dict[str, Any]:
    """`semicyclic diagnose` and `semicyclic backtest` on the same file, from one walk through it."""

    told = {
        "files": [datasets.flights.data_path()],
        "when": ["when"],
        "label": "late",
        "zone": datasets.flights.ZONE,
        "schedule": "daily:24",
    }
    asked = load_stream(
        {**told, "columns": ColumnOptions(lateness="1d")}, lambda share, what: tell(0.2 * share, what)
    )
    how: dict[str, Any] = {"delay": 0, "freeze": "day", "warm_up": parse_warm_up("30%", asked.stream.clock)}
    walked = evaluation.backtest.backtest(
        asked.stream, asked.config.schedule, **how, tell=lambda share, what: tell(0.2 + 0.5 * share, what)
    )
    tell(0.7, "looking for rhythms")
    found = diagnosis(asked, walked, asked.stream.units, delay=0, seed=seed)
    held = judgement(asked, walked, **how)
    tell(0.9, "drawing")
    for name, write, results in (
        ("diagnose", reports.diagnose.write, found),
        ("backtest", reports.backtest.write, held),
    ):
        (out / name).mkdir(exist_ok=True)
        write(out / name, results)
    explained, said = reports.diagnose.sentences(found), reports.backtest.sentences(held)
    return {
        "verdict": found["verdict"],
        "scores": {
            key: {
                "auto": held[key]["auto"],
                "best": held[key]["candidates"][held[key]["best"]],
                "baselines": held[key]["baselines"],
            }
            for key in ("progressive", "walk_forward")
        },
        "answers": {
            "Does the rhythm hurt?": f"{explained[0]} {explained[3]}",
            "What should be deployed?": explained[2],
            "Was it right?": " ".join(said[:3]),
            "And why not just add the hour as a feature?": said[3].removeprefix(
                "Why not just add the hour and the weekday as features? "
            ),
        },
    }


def _part(tell: ReportProgress, low: float, high: float) -> ReportProgress:
    return lambda done, what: tell(low + (high - low) * done, what)


@contextmanager
def _training(schedule: Schedule, out: Path) -> Iterator[Callable[[], tuple[dict[str, Any], dict[str, Any]]]]:
    """`semicyclic train` on the same file, at work beside; when called it gives the results."""

    if training.run_dir.holds_run(out):
        shutil.rmtree(out)  # a model of an earlier demo
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
    beside = subprocess.Popen(
        [sys.executable, "-m", "semicyclic", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def wait_for_results() -> tuple[dict[str, Any], dict[str, Any]]:
        _, errors = beside.communicate()
        if beside.returncode:
            raise ValueError(errors.strip().removeprefix("semicyclic: ") or "the training was stopped")
        return json.loads(
            (out / training.run_dir.RESULTS).read_text(encoding="utf-8")
        ), training.inspect.describe_model(store.model_file.load(out / training.run_dir.MODEL), top=8)

    try:
        yield wait_for_results
    finally:
        if beside.poll() is None:
            beside.kill()
            beside.communicate()
