"""Small timestamped tables, and the same rows in every format."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
WORDS = ("rain", "sun", "Wind", "snow", "fog", "naïve", "heat", "ice")


def rows_of(n: int, seed: int = 0, *, days: float = 6.0, label: str = "two") -> list[Row]:
    """Rows in the order of time whose label depends on the hour; with numbers, categories, prose, gaps."""
    rng = np.random.default_rng(seed)
    when = np.sort(rng.integers(1_700_000_000, 1_700_000_000 + int(days * 86_400), n))
    rows = []
    for at in when.tolist():
        x, z = round(float(rng.normal()), 3), round(float(rng.normal(50, 20)), 1)
        kind = str(rng.choice(["a", "b", "c d", 'é,"q"']))
        note = " ".join(rng.choice(WORDS, rng.integers(3, 7)).tolist()) + f" {rng.integers(0, 1000)}!"
        score = (1 if at // 3600 % 24 < 12 else -1) * x + (kind == "a") + rng.normal()
        labels = {
            "two": "yes" if score > 0 else "no",
            "many": ("low", "mid", "high")[int(np.clip(score + 1.5, 0, 2.99))],
            "number": round(float(1000 + 50 * score), 2),
            "boolean": bool(score > 0),
        }
        rows.append(
            {
                "at": at,
                "x": None if rng.random() < 0.05 else x,
                "z": z,
                "kind": None if rng.random() < 0.05 else kind,
                "open": bool(rng.random() < 0.5),
                "note": note,
                "y": labels[label],
            }
        )
    return rows


def write_csv(path: Path, rows: Sequence[Row], *, header: bool = True, mode: str = "w") -> Path:
    """As most programs would write it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    with open(path, mode, encoding="utf-8", newline="") as file:
        file.write(text.getvalue())
    return path


def write_jsonl(path: Path, rows: Sequence[Row]) -> Path:
    """A missing value is a key that is not there, or a null, in turn."""
    lines = []
    for number, row in enumerate(rows):
        held = {name: value for name, value in row.items() if value is not None or number % 2}
        lines.append(json.dumps(held, ensure_ascii=number % 3 == 0))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_parquet(path: Path, rows: Sequence[Row], *, group: int = 100) -> Path:
    """With types, in small row groups."""
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]})
    pq.write_table(table, path, row_group_size=group)
    return path


WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}


def write(folder: Path, rows: Sequence[Row], form: str = "csv", name: str = "rows") -> Path:
    """The rows in one of the formats."""
    return WRITERS[form](folder / f"{name}.{form}", rows)
