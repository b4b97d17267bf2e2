"""`backtest` on files: every task, schedule and delay, and what its report says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semicyclic import datasets
from tests.cli.test_command_line import here
from tests.evaluation.reversing_rows import ASK, made, write_rows
from tests.reports.browser import CHROMIUM, shown_width


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("judged")
    path = write_rows(folder / "rows.csv", made(3000, 20))
    assert here("backtest", str(path), *ASK, "--out", str(folder / "out")) == 0
    return {"folder": folder, **json.loads((folder / "out" / "results.json").read_text())}


def test_a_backtest_says_what_was_promised(judged: dict[str, Any]) -> None:
    for key in ("progressive", "walk_forward"):
        held = judged[key]
        assert set(held["auto"]) == {"log_loss", "auc", "accuracy"}
        assert len(held["candidates"]) >= 40
        assert all(set(each) == set(held["auto"]) for each in held["candidates"].values())
        assert {
            "running rate",
            "previous label",
            "constant per block",
            "one SGD model",
            "SGD with hour and weekday",
            "one model per block",
        } <= set(held["baselines"])
        blocks = held["by_block"]
        rows = np.array([each["rows"] for each in blocks.values()])
        assert rows.sum() == judged["rows"] - judged["warm_up"] == 2100
        for name in ("auto",):
            mean = rows @ np.array([each[name]["log_loss"] for each in blocks.values()]) / rows.sum()
            assert mean == pytest.approx(held[name]["log_loss"], rel=1e-5)
        # What the stream was made of: half a day says the opposite of the other.
        assert held["auto"]["log_loss"] < held["baselines"]["one SGD model"]["log_loss"] - 0.05
        best = min(each["log_loss"] for each in held["candidates"].values())
        assert held["auto"]["log_loss"] < 1.05 * best
        assert held["intervals"]["auto"][0] < held["auto"]["log_loss"] < held["intervals"]["auto"][1]
    assert sum(judged["choice"]["walk_forward"]["chains"][name][-1] for name in
               judged["choice"]["walk_forward"]["chains"]) == pytest.approx(1, abs=0.01)  # fmt: skip
    out = judged["folder"] / "out"
    assert {each.name for each in out.iterdir()} == {
        "report.html", "results.json", "gain.svg", "gain.png", "blocks.svg", "blocks.png", "choice.svg",
        "choice.png",
    }  # fmt: skip
    text = (out / "report.html").read_text()
    assert "Why not just add the hour and the weekday as features?" in text
    assert f"{judged['walk_forward']['auto']['log_loss']:.4f}" in text


MEASURES = {"number": {"mse", "mae"}, "three": {"log_loss", "auc", "accuracy"}}
HOW = [("--schedule", "weekly:168"), ("--label-delay", "6h"), ("--freeze", "visit")]


@pytest.mark.parametrize("kind", MEASURES)
@pytest.mark.parametrize("how", HOW)
def test_all_tasks_schedules_and_delays(tmp_path: Path, kind: str, how: tuple[str, ...]) -> None:
    path = write_rows(tmp_path / "rows.csv", made(1200, 25, kind=kind))
    assert here("backtest", str(path), *ASK, *how, "--out", str(tmp_path / "out")) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    for key in ("progressive", "walk_forward"):
        held = results[key]
        assert set(held["auto"]) == MEASURES[kind]
        name = "mse" if kind == "number" else "log_loss"
        assert held["auto"][name] < held["baselines"]["one SGD model"][name]
        assert held["auto"][name] < held["baselines"]["running rate"][name]
    if "--freeze" in how:
        assert results["freeze"] == "visit"


@pytest.mark.parametrize("words", [("--warm-up", "100%"), ("--warm-up", "9999999"), ("--warm-up", "x")])
def test_a_warm_up_must_leave_something(
    judged: dict[str, Any], capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    path = judged["folder"] / "rows.csv"
    assert here("backtest", str(path), *ASK, *words, "--out", str(judged["folder"] / "none")) == 1
    assert "--warm-up" in capsys.readouterr().err
    assert not (judged["folder"] / "none").exists()


@pytest.mark.slow
def test_flights_are_judged_as_promised(tmp_path: Path) -> None:
    """The choice against every candidate in hindsight, and against fixed ones at their best step."""
    words = ("--when", "when", "--label", "late", "--zone", "America/New_York", "--lateness", "1d")
    assert here("backtest", datasets.flights.data_path(), *words, "--out", str(tmp_path / "out")) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    for key in ("progressive", "walk_forward"):
        held = results[key]
        scores = {name: each["log_loss"] for name, each in held["candidates"].items()}
        own = held["auto"]["log_loss"]
        print(key, own, min(scores.values()))
        assert own <= 1.01 * min(scores.values())
    held = results["progressive"]
    own = held["auto"]["log_loss"]
    for kind in ("single, ", "separate, ", "block as a feature, "):
        live = [each["log_loss"] for name, each in held["candidates"].items()
                if name.startswith(kind) and name.endswith("live")]  # fmt: skip
        assert own < min(live)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_report_fits_a_phone(judged: dict[str, Any], tmp_path: Path) -> None:
    assert shown_width(judged["folder"] / "out" / "report.html", 360, tmp_path) <= 360
