"""The demo: the main job on real flights, and a report."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic.commands.places import folder
from semicyclic.files import check_installed

if TYPE_CHECKING:
    from semicyclic.method.schedule import Schedule
    from semicyclic.show.terminal import Tell


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
    check_installed()
    from semicyclic.experiments import flights
    from semicyclic.experiments.reproduce import versions
    from semicyclic.show import terminal
    from semicyclic.show.demo import summary
    from semicyclic.show.drawing import check_installed as check_drawing
    from semicyclic.show.output import write_demo

    check_drawing()
    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    if repetitions < 2:
        raise ValueError(f"--repetitions {repetitions}: must be at least 2, or no difference has an error")
    console = Console()
    started = time.perf_counter()
    with folder(out), terminal.progress(console) as tell:
        tell(0.0, "reading the flights")
        schedule = flights.day()
        how: dict[str, Any] = {"repetitions": repetitions, "seed": seed}
        with _training(schedule, out / "model") as trained:
            data = flights.load(schedule)
            # The hedge, whose kernel takes longest to compile, comes when the training beside has done that.
            first = [name for name in flights.PAPER if name != "hedged"]
            paper = flights.paper_losses(data, first, **how, tell=_part(tell, 0.1, 0.35))
            calendar = flights.calendar_losses(
                data, {*flights.CALENDAR} - {"hedged"}, tell=_part(tell, 0.35, 0.55)
            )
            tell(0.55, "training a model")
            training, model = trained()
        paper |= flights.paper_losses(data, ["hedged"], **how, tell=_part(tell, 0.55, 0.6))
        calendar |= flights.calendar_losses(data, ["hedged"], tell=_part(tell, 0.6, 0.65))
        questions = _questions(out, seed, _part(tell, 0.65, 0.95))
        results = {
            "data": flights.about(data),
            "paper": flights.paper_results(data, paper, seed=seed),
            "calendar": flights.calendar_results(data, calendar),
            "questions": questions,
            "training": training,
            "model": model,
            "versions": versions(),
        }
        tell(0.95, "drawing")
        write_demo(out, results)
    console.print(summary(results))
    for question, answer in questions["answers"].items():
        console.print(f"{question} {answer}", highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{time.perf_counter() - started:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True
    )


def _questions(out: Path, seed: int, tell: "Tell") -> dict[str, Any]:
    """`semicyclic diagnose` and `semicyclic backtest` on the same file, from one walk through it."""
    from semicyclic.choose.backtest import backtest
    from semicyclic.commands.asked import Columns, collected, warm_up
    from semicyclic.commands.questions import diagnosis, judgement
    from semicyclic.experiments.flights import ZONE, data_path
    from semicyclic.show import backtest as show_backtest
    from semicyclic.show import diagnose as show_diagnose

    told = {"files": [data_path()], "when": ["when"], "label": "late", "zone": ZONE, "schedule": "daily:24"}
    asked = collected(
        {**told, "columns": Columns(lateness="1d")}, lambda share, what: tell(0.2 * share, what)
    )
    how: dict[str, Any] = {"delay": 0, "freeze": "day", "warm_up": warm_up("30%", asked[2].clock)}
    walked = backtest(
        asked[2], asked[0].schedule, **how, tell=lambda share, what: tell(0.2 + 0.5 * share, what)
    )
    tell(0.7, "looking for rhythms")
    found = diagnosis(asked, walked, asked[2].units, delay=0, seed=seed)
    held = judgement(asked, walked, **how)
    tell(0.9, "drawing")
    for name, write, results in (
        ("diagnose", show_diagnose.write, found),
        ("backtest", show_backtest.write, held),
    ):
        (out / name).mkdir(exist_ok=True)
        write(out / name, results)
    explained, said = show_diagnose.words(found), show_backtest.words(held)
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


def _part(tell: "Tell", low: float, high: float) -> "Tell":
    return lambda done, what: tell(low + (high - low) * done, what)


@contextmanager
def _training(
    schedule: "Schedule", out: Path
) -> Iterator[Callable[[], tuple[dict[str, Any], dict[str, Any]]]]:
    """`semicyclic train` on the same file, at work beside; when called it gives the results."""
    from semicyclic.experiments.flights import ZONE, data_path
    from semicyclic.store.modelfile import load
    from semicyclic.stream.folder import MODEL, RESULTS, holds_run
    from semicyclic.stream.inspecting import described

    if holds_run(out):
        shutil.rmtree(out)  # a model of an earlier demo
    starts = ",".join(str(start // 3_600_000_000) for start in schedule.starts)
    words = ["train", data_path(), "--when", "when", "--label", "late", "--zone", ZONE, "--schedule"]
    words += [f"daily:{starts}", "--label-delay", "1d", "--out", str(out)]
    beside = subprocess.Popen(
        [sys.executable, "-m", "semicyclic", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def finished() -> tuple[dict[str, Any], dict[str, Any]]:
        _, errors = beside.communicate()
        if beside.returncode:
            raise ValueError(errors.strip().removeprefix("semicyclic: ") or "the training was stopped")
        return json.loads((out / RESULTS).read_text(encoding="utf-8")), described(load(out / MODEL), top=8)

    try:
        yield finished
    finally:
        if beside.poll() is None:
            beside.kill()
            beside.communicate()
