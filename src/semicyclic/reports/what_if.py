"""Report of `what-if`: terminal table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def print_report(console: Console, results: Mapping[str, Any], out: Path | None) -> None:
    """Print a table with a line per model, and the time taken."""
    models = results["models"]
    measures = list(models[0].get("scores", {}))
    table = Table(title=f"From the log of one chain, {results['cycles_kept']:,} cycles kept")
    table.add_column("blocks", justify="right")
    table.add_column("read-out", no_wrap=True)
    for name in measures:
        table.add_column(name.replace("_", " "), justify="right")
    if out is not None:
        table.add_column("file", no_wrap=True)
    for model in models:
        scores = [f"{model['scores'][name]:.4f}" for name in measures]
        table.add_row(
            str(model["blocks"]), model["read_out"], *scores, *([model["file"]] if out is not None else [])
        )
    console.print(table)
    never_visited = max(model["never_visited"] for model in models)
    if never_visited:
        console.print(
            f"blocks that were never visited, and have the mean of all: up to {never_visited}",
            highlight=False,
        )
    target = f" Models: {out}" if out is not None else ""
    text = f"{results['seconds']:.2f} s for {len(models)} models.{target}"
    console.print(text, highlight=False, soft_wrap=True, markup=False)
