"""Report of `train`: progress and results on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.table import Table

from semicyclic import auto, training
from semicyclic.reports import terminal
from semicyclic.reports.format import (
    add_loss_rows,
    format_duration,
    format_horizon,
    format_row_counts,
    format_span,
    format_time_form,
    loss_title,
    rows_heading,
)
from semicyclic.tables.labels import class_name


def _top_candidates(chosen: "auto.export.Choice") -> str:
    """Return the names of the three candidates with the most weight over all blocks, weighted by rows."""
    total: dict[str, float] = {}
    for block in chosen["blocks"].values():
        for candidate in block["candidates"]:
            name = candidate["name"]
            total[name] = total.get(name, 0.0) + candidate["weight"] * block["rows"]
    return "; ".join(sorted(total, key=lambda name: -total[name])[:3])


@contextmanager
def progress(console: Console) -> Iterator[Callable[["training.train_files.TrainProgress"], None]]:
    """Yield a callback that shows rows per second, progressive loss and the current block."""
    with terminal.progress(console) as report_progress:

        def show(now: "training.train_files.TrainProgress") -> None:
            words = [now.what]
            if now.rows:
                words = [f"{now.rows:,} rows", f"{now.rows / max(now.seconds, 1e-9):,.0f}/s"]
                if isfinite(now.loss):
                    words.append(f"loss {now.loss:.4f}")
                words.append(f"block {now.block}" if now.block else now.what)
            report_progress(now.share, "  ".join(words))

        yield show


def print_results(
    console: Console,
    results: "training.results.TrainResults",
    out: Path,
    seconds: float,
    translate: Callable[[str], str],
) -> None:
    """Print the losses by block, the settings chosen automatically, the row counts and the speed.

    translate: replaces names of arguments in a message by what the reader would write.
    """
    config, rows, memory = results["job"], results["rows"], results["memory"]
    zone = config["zone"]
    columns_by_type: dict[str, list[str]] = {}
    for name, column_type in results["columns"]["kinds"].items():
        columns_by_type.setdefault(column_type, []).append(name)
    for name, reason in results["columns"]["ignored"].items():
        columns_by_type.setdefault(f"left out ({reason})", []).append(name)

    def print_line(text: str) -> None:
        # Column names may look like markup, so markup is off.
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    chosen = results["chosen"]
    table = Table(title="Progressive loss of the chain" if chosen is None else loss_title(chosen))
    table.add_column(f"block ({zone})", no_wrap=True)
    for head in (rows_heading(chosen), "loss", "± 95 %"):
        table.add_column(head, justify="right", no_wrap=True)
    add_loss_rows(table, results["blocks"], results["progressive"])
    console.print(table)
    scored = "when it came, by what was known then" if config["label_delay"] else "before it was learned from"
    if chosen is None:
        print_line(
            f"loss: {results['loss']}, every row scored {scored}. It is that of the chain while it learns, "
            f"which follows the last rows; the model that is saved is its {config['read_out']}"
        )
    else:
        print_line(
            f"loss: {results['loss']}, every row scored {scored}. The model that is saved, to be used for "
            f"{format_horizon(chosen['horizon'])}, mixes {chosen['candidates']} candidates, in each block by "
            f"what they lost there and lately: most weight has now {_top_candidates(chosen)}"
        )
    for column_type in sorted(columns_by_type):
        print_line(f"{column_type}: {', '.join(columns_by_type[column_type])}")
    if results["classes"]:
        print_line(f"classes: {', '.join(class_name(value) for value in results['classes'])}")
    when = results["columns"]["when"]
    print_line(
        f"times: {' and '.join(when['columns'])}, {format_time_form(when)}; {format_span(results, zone)}"
    )
    size = memory["bytes"] / 1e6
    print_line(
        f"memory up to {size:,.0f} MB: room for {memory['columns']:,} columns, "
        f"{memory['record_bytes'] / 1e6:,.0f} MB "
        "of visits kept, "
        f"up to {memory['waiting_bytes'] / 1e6:,.0f} MB of rows that wait"
    )
    print_line(format_row_counts(rows))
    for example in results["refused_examples"]:
        print_line(f"  refused: {translate(example)}")
    if rows["late_dropped"] or rows["late_kept"]:
        late = rows["late_dropped"] + rows["late_kept"]
        print_line(
            f"late rows: {late:,}, the latest by {format_duration(results['latest_by'])}: "
            "a lateness of that length would sort them in"
        )
    speed = rows["used"] / max(seconds, 1e-9)
    print_line(f"{seconds:.1f} s, {speed:,.0f} rows/s. Look at it: semicyclic inspect {out}")
