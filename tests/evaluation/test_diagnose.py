"""The diagnosis: regimes are named, and odd files are diagnosed or refused."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from semicyclic.datasets import regimes
from semicyclic.evaluation import regime, score_tests
from semicyclic.method import loss as losses
from semicyclic.method.rows import Rows
from tests.cli.test_command_line import here
from tests.evaluation.reversing_rows import ASK, made, write_rows


@pytest.mark.parametrize("regime", regimes.NAMES)
def test_the_regime_is_named(regime: str) -> None:
    named: Counter[str] = Counter()
    for seed in range(10):
        rows = regimes.stream(regime, seed).rows
        named[verdict_of(rows)] += 1
    assert named[regime] >= 9, named


def test_streams_without_a_rhythm_are_seldom_called_cyclic() -> None:
    called = Counter(
        verdict_of(stream.rows)
        for seed in range(50)
        for stream in (regimes.stream("none", 1000 + seed, rows=4000, days=28),
                       regimes.stream("none", 2000 + seed, rows=12_000, days=40, columns=5))
    )  # fmt: skip
    assert sum(called.values()) - called["none"] <= 5, called


def test_a_diagnosis_says_what_was_promised(tmp_path: Path) -> None:
    stream = regimes.stream("opposite", 3, rows=8000)
    rows = stream.rows
    assert rows.when is not None
    X = np.zeros((len(rows), rows.width))
    X[np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), rows.indices] = rows.values
    lines = [
        {"when": int(t) // 1_000_000, **{f"x{k}": f"{v:.4f}" for k, v in enumerate(x)}, "y": int(y)}
        for t, x, y in zip(rows.when, X, np.asarray(rows.labels), strict=True)
    ]
    path = write_rows(tmp_path / "rows.csv", lines)
    assert here("diagnose", str(path), *ASK, "--out", str(tmp_path / "out")) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    found = results["verdict"]
    assert set(found) == {"regime", "method", "blocks", "period", "confidence"}
    assert found["regime"] == "opposite"
    assert found["method"] == "separate"
    assert found["period"] == "daily"
    assert found["blocks"] >= 2
    assert found["confidence"] > 0.8
    assert len(results["labels"]["hours"]) == 24
    assert all(
        each["interval"][0] <= each["rate"] <= each["interval"][1] for each in results["labels"]["hours"]
    )
    assert results["costs"]["auto"] < results["costs"]["last_iterate"]
    table = np.array(results["models"]["cosines"], float)
    sixth = len(table) // 6
    assert table[sixth, 2 * sixth] > 0.8
    assert table[sixth, 5 * sixth] < -0.8
    assert "opposite" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("kind", ["few", "constant", "three", "number", "words", "one hour"])
def test_odd_files_are_diagnosed_or_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    rows = made(40 if kind == "few" else 600, 10, kind=kind if kind in ("three", "number") else "two")
    for row in rows:
        if kind == "constant":
            row.update(x="1", z="2", group="a")
        if kind == "words":
            row.update(x="some words " + row["group"], z="")
        if kind == "one hour":
            row["when"] = row["when"] // 86_400 * 86_400 + row["when"] % 3600
    rows.sort(key=lambda row: row["when"])
    path = write_rows(tmp_path / "rows.csv", rows)
    code = here("diagnose", str(path), *ASK, "--out", str(tmp_path / "out"))
    if code:
        assert "Traceback" not in capsys.readouterr().err
    else:
        results = json.loads((tmp_path / "out" / "results.json").read_text())
        assert results["verdict"]["regime"] in regimes.NAMES


def test_the_week_is_seen_behind_the_hours() -> None:
    """Numbers that the hour changes by far more than the weekday does."""
    rng = np.random.default_rng(4)
    count = 24 * 7 * 30
    when = 1_700_438_400 + 3600.0 * np.arange(count)
    hour, weekday = np.arange(count) % 24, np.arange(count) // 24 % 7
    X = rng.normal(size=(count, 2))
    y = 20 * rng.normal(size=24)[hour] + 1.5 * (weekday >= 5) + X[:, 0] + rng.normal(size=count)
    rows = Rows(X, y, when=when)
    assert rows.when is not None
    sample = score_tests.sample_of(rows, y, losses.squared)
    found = regime.evidence_of(sample, regime.cuts_of(rows.when, "UTC", sample.X.shape[1]))
    assert found.hour.intercept_chance < 1e-6
    assert found.weekday.intercept_chance < 1e-6


def verdict_of(rows: Rows) -> str:
    assert rows.when is not None
    assert rows.labels is not None
    sample = score_tests.sample_of(rows, np.where(rows.labels, 1.0, -1.0), losses.logistic)
    cuts = regime.cuts_of(rows.when[sample.number], "UTC", sample.X.shape[1])
    return regime.regime_of(regime.evidence_of(sample, cuts))
