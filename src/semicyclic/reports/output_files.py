"""Files of a report, written with atomic rename."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from semicyclic.reports.demo import demo_page, draw_demo
from semicyclic.reports.lower_bounds import draw_hard, hard_page
from semicyclic.reports.plot import Picture
from semicyclic.reports.reproduce import reproduce_page
from semicyclic.types import Results


def write(path: Path, data: bytes | str) -> None:
    """Write a file under another name, then give it its own."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    os.replace(part, path)


def write_json(path: Path, results: Results) -> None:
    """Results as JSON that other programs can read: no NaN, no infinity."""
    write(path, json.dumps(results, indent=1, allow_nan=False) + "\n")


def write_reproduction(out: Path, results: Results, pictures: Sequence[Picture]) -> None:
    """Figures, report, table and results of the experiment; the results last."""
    _write_pictures(out, pictures)
    write(out / "report.html", reproduce_page(results, pictures))
    write(out / "results.csv", _table(results["repetitions"]))
    write_json(out / "results.json", results)


def write_report(out: Path, results: Results, pictures: Sequence[Picture], text: str) -> None:
    """Figures, a page and results; the results last."""
    _write_pictures(out, pictures)
    write(out / "report.html", text)
    write_json(out / "results.json", results)


def write_demo(out: Path, results: Results) -> None:
    """Figures, report and results of the demo; the results last."""
    pictures = draw_demo(results)
    _write_pictures(out, pictures)
    write(out / "report.html", demo_page(results, pictures))
    write_json(out / "results.json", results)


def write_hard(out: Path, results: Results) -> None:
    """Figures, report and results of the lower bounds; the results last."""
    pictures = draw_hard(results)
    _write_pictures(out, pictures)
    write(out / "report.html", hard_page(results, pictures))
    write_json(out / "results.json", results)


def _write_pictures(out: Path, pictures: Sequence[Picture]) -> None:
    for picture in pictures:
        write(out / f"{picture.name}.svg", picture.svg)
        write(out / f"{picture.name}.png", picture.png)


def _table(scores: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> str:
    """A line for every approach, repetition and day."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["approach", "repetition", "day", *scores])
    for key, repetitions in scores["accuracy"].items():
        for number, days in enumerate(repetitions):
            for day in range(len(days)):
                writer.writerow(
                    [key, number + 1, day + 1, *(each[key][number][day] for each in scores.values())]
                )
    return text.getvalue()
