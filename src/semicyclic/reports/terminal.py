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
    """Yield a callback that updates a progress bar; without a terminal it does nothing."""
    if not console.is_terminal:
        yield lambda _, __: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        # The total is unknown before the first progress report, and for input from a pipe.
        task = bar.add_task("starting", total=None)

        def report_progress(share: float, stage: str) -> None:
            # A new stage is shown immediately, however short it is.
            is_new_stage = stage != bar.tasks[0].description
            total = 1.0 if share > 0 else None
            bar.update(task, total=total, completed=share, description=stage, refresh=is_new_stage)

        yield report_progress


def reproduction(results: Results) -> Table:
    """Return a table of all approaches of `reproduce`, best first."""
    accuracy, loss = results["accuracy"], results["log_loss"]
    data = "stand-in data" if results["data"]["stand_in"] else "the file's data"
    count = results["settings"]["repetitions"]
    table = Table(title=f"Accuracy and log loss, {data}, mean of {count} repetition(s)")
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
    """Return a table of every method's excess against the number of steps per block."""
    against, cycles = results["lipschitz_against_steps"], results["settings"]["cycles"]
    table = Table(title=f"Excess over the best single model, Lipschitz instance, K = {cycles}")
    table.add_column("method")
    for steps in against["at"]:
        table.add_column(f"n = {steps:,}", justify="right", no_wrap=True)
    for name, values in against["excess"].items():
        table.add_row(name, *(f"{value:+.4f}" for value in values))
    return table


def bounds(title: str, lines: list[tuple[str, Any, str]]) -> Table:
    """Return a table of bounds, as stated and as corrected, with the conditions under which they hold."""
    table = Table("quantity", title=title, title_justify="left")
    table.add_column("paper", justify="right", no_wrap=True)
    table.add_column("corrected", justify="right", no_wrap=True)
    table.add_column("holds")
    for name, bound, holds in lines:
        table.add_row(name, _format_number(bound.paper), _format_number(bound.corrected), holds)
    return table


def _format_number(value: float) -> str:
    """Return a number for display, or a dash for NaN."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
