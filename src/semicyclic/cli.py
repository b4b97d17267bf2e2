"""The command line: each command reads, calls and writes."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from semicyclic import __version__

app = App(
    name="semicyclic",
    version=__version__,
    help="Learn from data that arrives in a daily or weekly rhythm: one model for every block.",
)


@app.command
def demo(
    *,
    seed: Annotated[int, Parameter(help="Seed of the stream.")] = 0,
    out: Annotated[Path | None, Parameter(help="Folder for results.json.")] = None,
) -> None:
    """Run the paper's approaches on a small stream whose labels follow the clock.

    Ten days of short texts, made by the package; two thirds are positive at midnight and one
    third at noon. Every day is scored by the models of the days before, then learnt from.

    Example: semicyclic demo --seed 1 --out demo
    """
    from semicyclic.experiments.demo import run_demo

    if seed < 0:
        raise ValueError(f"--seed {seed}: must be 0 or more")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    console = Console()
    started = time.perf_counter()
    if console.is_terminal:
        with console.status("starting") as status:
            result = run_demo(seed, progress=status.update)
    else:
        result = run_demo(seed)
    table = Table(title="Progressive log loss by block of the day (lower is better)")
    table.add_column("block (UTC)")
    for name in result.overall:
        table.add_column(name, justify="right")
    for index, label in enumerate(result.labels):
        table.add_row(label, *(f"{losses[index]:.4f}" for losses in result.by_block.values()))
    table.add_section()
    table.add_row("all rows", *(f"{loss:.4f}" for loss in result.overall.values()))
    console.print(table)
    console.print(
        f"{result.rows:,} rows over {result.days} days, a made-up stream (seed {seed}), scored from the "
        "second day on.",
        highlight=False,
    )
    console.print(
        "'pluralistic' is one chain like 'consensus', averaged per block of the day. It knows the hour, "
        "so it may beat even the i.i.d. ideal, whose one model must serve every hour.",
        highlight=False,
    )
    console.print(f"{time.perf_counter() - started:.1f} s", highlight=False)
    if out is not None:
        path = out / "results.json"
        path.write_text(json.dumps({"seed": seed, **result._asdict()}, indent=2) + "\n")
        console.print(f"written: {path}", highlight=False)


def main(words: list[str] | None = None) -> None:
    """Run a command; say what went wrong in one sentence and exit with 1."""
    try:
        app(sys.argv[1:] if words is None else words)
    except (ValueError, OSError, ArithmeticError) as error:
        print(f"semicyclic: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
