"""Report of `inspect`: a model on the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from semicyclic.reports.format import (
    add_loss_rows,
    format_list,
    format_row_counts,
    format_span,
    format_time_form,
    rows_heading,
)
from semicyclic.reports.train import TITLES
from semicyclic.tables.labels import class_name
from semicyclic.types import Results

if TYPE_CHECKING:
    pass


def print_model(console: Console, path: Path, found: Results) -> None:
    """A model for a person."""
    provenance = found["provenance"] if isinstance(found["provenance"], dict) else {}
    zone = found["schedule"]["zone"] if isinstance(found["schedule"], dict) else ""
    chosen = provenance.get("chosen")

    def say(text: str) -> None:
        # Names of columns may look like markup.
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    say(
        f"{path}: {len(found['blocks'])} blocks, {found['columns']:,} columns, loss {found['loss']}"
        + (
            f", classes {', '.join(class_name(each) for each in found['classes'])}"
            if found["classes"]
            else ""
        )
    )
    if found["progressive"] is not None:
        table = Table(title=TITLES["model" if chosen is None else chosen["by"]])
        table.add_column(f"block ({zone})" if zone else "block", no_wrap=True)
        for head in (rows_heading(chosen), "loss", "± 95 %"):
            table.add_column(head, justify="right", no_wrap=True)
        add_loss_rows(table, found["progressive"].get("blocks", found["blocks"]), found["progressive"])
        console.print(table)
    else:
        say("blocks: " + ", ".join(found["blocks"]))
    if found["never_visited"]:
        say(f"never visited, and given the mean of all: {format_list(found['never_visited'])}")
    if chosen is not None:
        table = Table(title=f"What was chosen, of {chosen['candidates']} candidates")
        table.add_column("in", no_wrap=True)
        table.add_column("candidates with the most weight, and their loss there")
        for label, block in chosen["blocks"].items():
            if block["rows"]:
                parts = [
                    f"{each['name']} {each['weight']:.0%} ({each['loss']:.4f})"
                    for each in block["candidates"]
                ]
                table.add_row(label, escape("; ".join(parts)))
        console.print(table)
    if found["differences"]:
        table = Table(title="What differs most between blocks")
        for head in ("feature", "highest in", "weight", "lowest in", "weight"):
            table.add_column(head, justify="right" if head == "weight" else "left")
        for each in found["differences"]:
            high, low = each["highest"], each["lowest"]
            name = each["feature"] + (f" ({class_name(each['class'])})" if "class" in each else "")
            table.add_row(
                escape(name), high["block"], f"{high['weight']:+.4f}", low["block"], f"{low['weight']:+.4f}"
            )
        console.print(table)
    if found["features"] is not None:
        kinds: dict[str, list[str]] = {}
        for name, kind in found["features"]["kinds"].items():
            kinds.setdefault(kind, []).append(name)
        for kind in sorted(kinds):
            say(f"{kind}: {', '.join(kinds[kind])}")
        when = found["features"]["when"]
        say(
            f"times: {' and '.join(when['columns'])}, {format_time_form(when)}; "
            f"label: {found['features']['label']}"
        )
    if "rows" in provenance:
        rows = provenance["rows"]
        if isinstance(rows, dict):
            say(format_row_counts(rows))
        if "first" in provenance:
            how = "" if chosen is not None else f", read out as {provenance['read_out']}"
            say(f"learnt by {provenance['method']}{how}; {format_span(provenance, zone)}")
    if "semicyclic" in provenance:
        say(f"written by semicyclic {provenance['semicyclic']}")
