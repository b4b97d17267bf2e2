"""Report files, written with atomic rename."""

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
    """Write a file atomically: to a temporary name first, then renamed."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    os.replace(temporary, path)


def write_json(path: Path, results: Results) -> None:
    """Write results as standard JSON; raise if they contain NaN or infinity."""
    write(path, json.dumps(results, indent=1, allow_nan=False) + "\n")


def write_reproduction(
    out: Path, results: Results, pictures: Sequence[Picture], commands: Mapping[str, str]
) -> None:
    """Write the figures, report.html and results.csv of `reproduce`, then results.json.

    commands: for the reader to copy: `text` and `script` choose a protocol, `file` and `download` real data.
    """
    _write_pictures(out, pictures)
    write(out / "report.html", reproduce_page(results, pictures, commands))
    write(out / "results.csv", _scores_csv(results["repetitions"]))
    write_json(out / "results.json", results)


def write_report(out: Path, results: Results, pictures: Sequence[Picture], text: str) -> None:
    """Write the figures, then `text` as report.html, then results.json."""
    _write_pictures(out, pictures)
    write(out / "report.html", text)
    write_json(out / "results.json", results)


def write_demo(out: Path, results: Results, commands: tuple[str, str]) -> None:
    """Write the figures and report.html of `demo`, then results.json.

    commands: to train and to predict with other data, for the reader to copy.
    """
    pictures = draw_demo(results)
    _write_pictures(out, pictures)
    write(out / "report.html", demo_page(results, pictures, commands))
    write_json(out / "results.json", results)


def write_hard(out: Path, results: Results) -> None:
    """Write the figures and report.html of the hard instances, then results.json."""
    pictures = draw_hard(results)
    _write_pictures(out, pictures)
    write(out / "report.html", hard_page(results, pictures))
    write_json(out / "results.json", results)


def _write_pictures(out: Path, pictures: Sequence[Picture]) -> None:
    for picture in pictures:
        write(out / f"{picture.name}.svg", picture.svg)
        write(out / f"{picture.name}.png", picture.png)


def _scores_csv(scores: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> str:
    """Return CSV with a line for every approach, repetition and day, and a column for every score."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["approach", "repetition", "day", *scores])
    for approach, repetitions in scores["accuracy"].items():
        for number, days in enumerate(repetitions):
            for day in range(len(days)):
                values = (by_approach[approach][number][day] for by_approach in scores.values())
                writer.writerow([approach, number + 1, day + 1, *values])
    return text.getvalue()
