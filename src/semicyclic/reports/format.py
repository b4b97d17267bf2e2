"""Formatting of times, durations, lists and counts for terminal output and reports."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from rich.table import Table

from semicyclic.types import Results


def format_horizon(days: int) -> str:
    """Return how long a model is used, in words."""
    return "a day" if days == 1 else f"{days} days"


def loss_title(chosen: Results) -> str:
    """Return the title of the loss table of the automatic choice."""
    if chosen["by"] == "progressive":
        return "Progressive loss"
    if chosen["horizon"] == 1:
        return "Loss of the models of the last midnight"
    return f"Loss of models frozen for up to {format_horizon(chosen['horizon'])}"


def rows_heading(chosen: Results | None) -> str:
    """Return the heading of the row counts.

    With candidates (`chosen` is not None), a long stream scores only a sample of its rows.
    """
    return "rows" if chosen is None else "rows asked"


def format_list(names: list[str], most: int = 8) -> str:
    """Return the first `most` names, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def add_loss_rows(table: Table, blocks: list[str], progressive: Results) -> None:
    """Add a row per block with its row count, loss and margin of error, and a row for all blocks."""
    rows = progressive["rows"]
    for block, count, loss, margin in zip(
        blocks, rows, progressive["by_block"], progressive["margin"], strict=True
    ):
        table.add_row(
            block,
            f"{count:,}",
            "-" if loss is None else f"{loss:.4f}",
            "-" if margin is None else f"{margin:.4f}",
        )
    table.add_section()
    overall = progressive["all"]
    table.add_row("all", f"{sum(rows):,}", "-" if overall is None else f"{overall:.4f}", "")


def format_row_counts(rows: Results) -> str:
    """Return the numbers of rows read, used, refused, late and so on; zeros are left out."""
    words = [f"rows: {rows['read']:,} read, {rows['used']:,} used"]
    for name, what in (
        ("refused", "refused"),
        ("late_dropped", "late and dropped"),
        ("late_kept", "late and kept"),
        ("without_label", "without a label"),
        ("waiting", "waiting for their labels or the rows to come"),
        ("shifted", "moved out of an hour that the clock skipped"),
    ):
        if rows[name]:
            words.append(f"{rows[name]:,} {what}")
    return ", ".join(words)


def format_span(results: Results, zone: str) -> str:
    """Return the times of the first and the last row."""
    return f"from {format_time(results['first'], zone)} to {format_time(results['last'], zone)} ({zone})"


def format_time(ticks: int, zone: str) -> str:
    """Return a time in microseconds since 1970 as local date and time."""
    try:
        return datetime.fromtimestamp(ticks / 1e6, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return str(ticks)


def format_time_form(when: Mapping[str, Any]) -> str:
    """Describe the format of the time columns."""
    epochs = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    if when["form"] in epochs:
        return f"{epochs[when['form']]} since 1970"
    return {"local": f"local time of {when['zone']}", "zoned": "with their zone"}.get(
        when["form"], f"{when['form']} in {when['zone']}"
    )


def format_duration(ticks: int) -> str:
    """Return a duration in microseconds in its largest fitting unit, such as 1.5h."""
    seconds = ticks / 1e6
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:g}s"
