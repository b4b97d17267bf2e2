"""Rows whose labelling rule reverses at noon, as CSV files."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

DAY = 86_400_000_000


ASK = ("--when", "when", "--label", "y")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def made(count: int, days: int, *, kind: str = "two", seed: int = 0, grain: int = 1) -> list[dict[str, Any]]:
    """Rows whose label turns round at noon."""
    rng = np.random.default_rng(seed)
    when = np.sort(rng.integers(0, days * 86_400, count)) // grain * grain + 1_700_438_400
    x, z = rng.normal(size=count), rng.normal(size=count)
    sign = np.where(when % 86_400 < 43_200, 1.0, -1.0)
    score = 2 * sign * x + 0.5 * z
    label: Any = (rng.random(count) < 1 / (1 + np.exp(-score))).astype(int)
    if kind == "number":
        label = np.round(100 + 10 * score + rng.normal(size=count), 3)
    if kind == "three":
        label = np.where(score > 1, "high", np.where(score < -1, "low", "middle"))
    group = rng.choice(["a", "b", "c"], count)
    cells = (when, x, z, group, label)
    return [
        {"when": int(t), "x": f"{a:.5f}", "z": f"{b:.5f}", "group": g, "y": y}
        for t, a, b, g, y in zip(*cells, strict=True)
    ]
