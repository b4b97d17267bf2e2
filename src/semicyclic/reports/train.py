"""Report of `train`: progress and results on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.table import Table

from semicyclic import training
from semicyclic.reports import terminal
from semicyclic.reports.format import (
    add_loss_rows,
    format_duration,
    format_row_counts,
    format_span,
    format_time_form,
    rows_heading,
)
from semicyclic.tables.labels import class_name
from semicyclic.types import Results

TITLES = {
    "trained": "Progressive loss of the chain",
    "model": "Progressive loss of its chain",
    "forward": "Loss of the models of the last midnight",
    "progressive": "Progressive loss",
}


def _most(chosen: Results) -> str:
    """The candidates that weigh most over all blocks."""
    total: dict[str, float] = {}
    for block in chosen["blocks"].values():
        for each in block["candidates"]:
            total[each["name"]] = total.get(each["name"], 0.0) + each["weight"] * block["rows"]
    return "; ".join(sorted(total, key=lambda name: -total[name])[:3])


@contextmanager
def progress(console: Console) -> Iterator[Callable[["training.train_files.TrainProgress"], None]]:
    """Rows a second, progressive loss and the block that the stream is in."""
    with terminal.progress(console) as tell:

        def news(now: "training.train_files.TrainProgress") -> None:
            words = [now.what]
            if now.rows:
                words = [f"{now.rows:,} rows", f"{now.rows / max(now.seconds, 1e-9):,.0f}/s"]
                if isfinite(now.loss):
                    words.append(f"loss {now.loss:.4f}")
                words.append(f"block {now.block}" if now.block else now.what)
            tell(now.share, "  ".join(words))

        yield news


def print_results(console: Console, results: Results, out: Path, seconds: float) -> None:
    """What a run has done, and what was decided for the user."""
    job, rows, memory = results["job"], results["rows"], results["memory"]
    zone = job["zone"]
    kinds: dict[str, list[str]] = {}
    for name, kind in results["columns"]["kinds"].items():
        kinds.setdefault(kind, []).append(name)
    for name, why in results["columns"]["ignored"].items():
        kinds.setdefault(f"left out ({why})", []).append(name)

    def say(text: str) -> None:
        # Names of columns may look like markup.
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    table = Table(title=TITLES["trained" if results["chosen"] is None else results["chosen"]["by"]])
    table.add_column(f"block ({zone})", no_wrap=True)
    for head in (rows_heading(results["chosen"]), "loss", "± 95 %"):
        table.add_column(head, justify="right", no_wrap=True)
    add_loss_rows(table, results["blocks"], results["progressive"])
    console.print(table)
    when = "when it came, by what was known then" if job["label_delay"] else "before it was learnt from"
    if results["chosen"] is None:
        say(
            f"loss: {results['loss']}, every row scored {when}. It is that of the chain while it learns, "
            f"which follows the last rows; the model that is saved is its {job['read_out']}"
        )
    else:
        say(
            f"loss: {results['loss']}, every row scored {when}. The model that is saved mixes "
            f"{results['chosen']['candidates']} candidates, in each block by what they lost there and "
            f"lately: most weight has now {_most(results['chosen'])}"
        )
    for kind in sorted(kinds):
        say(f"{kind}: {', '.join(kinds[kind])}")
    if results["classes"]:
        say(f"classes: {', '.join(class_name(each) for each in results['classes'])}")
    when = results["columns"]["when"]
    say(f"times: {' and '.join(when['columns'])}, {format_time_form(when)}; {format_span(results, zone)}")
    size = memory["bytes"] / 1e6
    say(
        f"memory up to {size:,.0f} MB: room for {memory['columns']:,} columns, "
        f"{memory['record_bytes'] / 1e6:,.0f} MB "
        "of visits kept, "
        f"up to {memory['waiting_bytes'] / 1e6:,.0f} MB of rows that wait"
    )
    say(format_row_counts(rows))
    for example in results["refused_examples"]:
        say(f"  refused: {example}")
    if rows["late_dropped"] or rows["late_kept"]:
        late = rows["late_dropped"] + rows["late_kept"]
        say(
            f"late rows: {late:,}, the latest by {format_duration(results['latest_by'])}: "
            "a --lateness of that would take them in at their place"
        )
    speed = rows["used"] / max(seconds, 1e-9)
    say(f"{seconds:.1f} s, {speed:,.0f} rows/s. Look at it: semicyclic inspect {out}")
