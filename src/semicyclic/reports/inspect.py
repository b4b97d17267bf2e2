"""Report of `inspect`: terminal tables that describe a model."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from semicyclic.reports.format import (
    add_loss_rows,
    format_horizon,
    format_list,
    format_row_counts,
    format_span,
    format_time_form,
    loss_title,
    rows_heading,
)
from semicyclic.tables.labels import class_name
from semicyclic.types import Results


def print_model(console: Console, path: Path, description: Results) -> None:
    """Print the description of a model: blocks, losses, candidates, features and training rows."""
    provenance = description["provenance"] if isinstance(description["provenance"], dict) else {}
    zone = description["schedule"]["zone"] if isinstance(description["schedule"], dict) else ""
    chosen = provenance.get("chosen")

    def print_line(text: str) -> None:
        # Column names may look like markup, so markup is off.
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    print_line(
        f"{path}: {len(description['blocks'])} blocks, {description['columns']:,} columns, "
        f"loss {description['loss']}"
        + (
            f", classes {', '.join(class_name(value) for value in description['classes'])}"
            if description["classes"]
            else ""
        )
    )
    if description["progressive"] is not None:
        table = Table(title="Progressive loss of its chain" if chosen is None else loss_title(chosen))
        table.add_column(f"block ({zone})" if zone else "block", no_wrap=True)
        for head in (rows_heading(chosen), "loss", "± 95 %"):
            table.add_column(head, justify="right", no_wrap=True)
        add_loss_rows(
            table, description["progressive"].get("blocks", description["blocks"]), description["progressive"]
        )
        console.print(table)
    else:
        print_line("blocks: " + ", ".join(description["blocks"]))
    if description["never_visited"]:
        print_line(f"never visited, and given the mean of all: {format_list(description['never_visited'])}")
    if chosen is not None:
        table = Table(
            title=f"What was chosen, of {chosen['candidates']} candidates, for a model that is used for "
            f"{format_horizon(chosen['horizon'])}"
        )
        table.add_column("in", no_wrap=True)
        table.add_column("candidates with the most weight, and their loss there")
        for label, block in chosen["blocks"].items():
            if block["rows"]:
                parts = [
                    f"{candidate['name']} {candidate['weight']:.0%} ({candidate['loss']:.4f})"
                    for candidate in block["candidates"]
                ]
                table.add_row(label, escape("; ".join(parts)))
        console.print(table)
    if description["differences"]:
        table = Table(title="What differs most between blocks")
        for head in ("feature", "highest in", "weight", "lowest in", "weight"):
            table.add_column(head, justify="right" if head == "weight" else "left")
        for difference in description["differences"]:
            high, low = difference["highest"], difference["lowest"]
            name = difference["feature"] + (
                f" ({class_name(difference['class'])})" if "class" in difference else ""
            )
            table.add_row(
                escape(name), high["block"], f"{high['weight']:+.4f}", low["block"], f"{low['weight']:+.4f}"
            )
        console.print(table)
    if description["features"] is not None:
        columns_by_type: dict[str, list[str]] = {}
        for name, column_type in description["features"]["kinds"].items():
            columns_by_type.setdefault(column_type, []).append(name)
        for column_type in sorted(columns_by_type):
            print_line(f"{column_type}: {', '.join(columns_by_type[column_type])}")
        when = description["features"]["when"]
        print_line(
            f"times: {' and '.join(when['columns'])}, {format_time_form(when)}; "
            f"label: {description['features']['label']}"
        )
    if "rows" in provenance:
        rows = provenance["rows"]
        if isinstance(rows, dict):
            print_line(format_row_counts(rows))
        if "first" in provenance:
            read_out = "" if chosen is not None else f", read out as {provenance['read_out']}"
            print_line(f"trained by {provenance['method']}{read_out}; {format_span(provenance, zone)}")
    if "semicyclic" in provenance:
        print_line(f"written by semicyclic {provenance['semicyclic']}")
