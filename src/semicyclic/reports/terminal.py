"""Terminal tables and progress bars."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from semicyclic.reports.reproduce import NAMES
from semicyclic.types import ReportProgress, Results


@contextmanager
def progress(console: Console) -> Iterator[ReportProgress]:
    """A bar on a terminal, silence in a pipe: told how much is done, and of what."""
    if not console.is_terminal:
        yield lambda _, __: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        # What has not begun, or comes from a pipe, is of unknown length.
        task = bar.add_task("starting", total=None)

        def tell(done: float, what: str) -> None:
            # A new stage is shown at once, however short it is.
            new = what != bar.tasks[0].description
            total = 1.0 if done > 0 else None
            bar.update(task, total=total, completed=done, description=what, refresh=new)

        yield tell


def reproduction(results: Results) -> Table:
    """Every approach, the best first."""
    accuracy, loss = results["accuracy"], results["log_loss"]
    what = "stand-in data" if results["data"]["stand_in"] else "the file's data"
    count = results["settings"]["repetitions"]
    table = Table(title=f"Accuracy and log loss, {what}, mean of {count} repetition(s)")
    table.add_column("approach", no_wrap=True)
    for head in ("day 1", "last day", "sd", "log loss", "step"):
        table.add_column(head, justify="right", no_wrap=True)
    for key in sorted(accuracy, key=lambda key: -accuracy[key]["mean"][-1]):
        mean, std = accuracy[key]["mean"], accuracy[key]["std"]
        steps = ", ".join(f"{size:g}" for size in results["step_sizes"][key])
        spread = f"{std[-1]:.4f}"[1:] if count > 1 else "-"
        scores = f"{mean[0]:.4f}", f"{mean[-1]:.4f}", spread, f"{loss[key]['mean'][-1]:.4f}"
        table.add_row(NAMES[key], *scores, steps)
    return table


def hardness(results: Results) -> Table:
    """The excess of every method as blocks grow longer."""
    against, cycles = results["lipschitz_against_steps"], results["settings"]["cycles"]
    table = Table(title=f"Excess over the best single model, Lipschitz instance, K = {cycles}")
    table.add_column("method")
    for steps in against["at"]:
        table.add_column(f"n = {steps:,}", justify="right", no_wrap=True)
    for name, values in against["excess"].items():
        table.add_row(name, *(f"{value:+.4f}" for value in values))
    return table


def bounds(title: str, lines: list[tuple[str, Any, str]]) -> Table:
    """Quantities as the paper states them and as corrected, and when they hold."""
    table = Table("quantity", title=title, title_justify="left")
    table.add_column("paper", justify="right", no_wrap=True)
    table.add_column("corrected", justify="right", no_wrap=True)
    table.add_column("holds")
    for name, bound, holds in lines:
        table.add_row(name, _figure(bound.paper), _figure(bound.corrected), holds)
    return table


def _figure(value: float) -> str:
    """A number for people; a dash where there is none."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
