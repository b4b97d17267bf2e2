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
    paper compares them, then the same rows in the order of time, then a model trained and saved as
    `semicyclic train` does it. Writes report.html, its figures, results.json and the folder model.

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
            paper = flights.paper_losses(data, first, **how, tell=_part(tell, 0.1, 0.4))
            calendar = flights.calendar_losses(
                data, {*flights.CALENDAR} - {"hedged"}, tell=_part(tell, 0.4, 0.7)
            )
            tell(0.7, "training a model")
            training, model = trained()
        paper |= flights.paper_losses(data, ["hedged"], **how, tell=_part(tell, 0.75, 0.85))
        calendar |= flights.calendar_losses(data, ["hedged"], tell=_part(tell, 0.85, 0.95))
        results = {
            "data": flights.about(data),
            "paper": flights.paper_results(data, paper, seed=seed),
            "calendar": flights.calendar_results(data, calendar),
            "training": training,
            "model": model,
            "versions": versions(),
        }
        tell(0.95, "drawing")
        write_demo(out, results)
    console.print(summary(results))
    console.print(
        f"{time.perf_counter() - started:.1f} s. Open {out / 'report.html'}", highlight=False, soft_wrap=True
    )


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
    words += [f"daily:{starts}", "--method", "hedged", "--label-delay", "1d", "--out", str(out)]
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
