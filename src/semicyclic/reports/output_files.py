"""Files of a report: figures, page, tables and results, each written atomically."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from semicyclic.reports.plot import Picture
from semicyclic.store.atomic import write_bytes, write_text
from semicyclic.types import Results


def write_json(path: Path, results: Results) -> None:
    """Write results as standard JSON; raise if they contain NaN or infinity."""
    write_text(path, json.dumps(results, indent=1, allow_nan=False) + "\n")


def write_report(
    out: Path,
    results: Results,
    pictures: Sequence[Picture],
    page: str,
    tables: Mapping[str, str] | None = None,
) -> None:
    """Write the figures as SVG and PNG, report.html, the tables by file name, and last results.json."""
    for picture in pictures:
        write_bytes(out / f"{picture.name}.svg", picture.svg)
        write_bytes(out / f"{picture.name}.png", picture.png)
    write_text(out / "report.html", page)
    for name, table in (tables or {}).items():
        write_text(out / name, table)
    write_json(out / "results.json", results)
