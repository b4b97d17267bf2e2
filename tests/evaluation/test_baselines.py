"""Baselines: their definitions, and what they may know."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semicyclic.evaluation import baselines
from semicyclic.method import loss as losses
from semicyclic.schedule.label_delay import known_before
from tests.cli.test_command_line import here
from tests.evaluation.reversing_rows import ASK, made, write_rows


def test_baselines_are_their_definitions() -> None:
    """Naive loops: what was known, counted anew for every row."""
    rng = np.random.default_rng(2)
    clock = np.sort(rng.integers(0, 300, 200))
    block = rng.integers(0, 3, 200)
    for loss in (losses.logistic, losses.softmax(3), losses.squared):
        if loss.classes:
            code = rng.integers(0, loss.classes, 200)
            target = 2.0 * code - 1 if loss.outputs == 1 else code.astype(float)
        else:
            target = rng.normal(size=200)
        for delay in (0, 25):
            known = known_before(clock, clock, delay)
            found = baselines.simple(loss, target, block, known)
            for row in range(0, 200, 7):
                seen = [k for k in range(200) if clock[k] + delay < clock[row]]
                assert known[row] == len(seen)
                own = [k for k in seen if block[k] == block[row]]
                for name, rows in ((baselines.RATE, seen), (baselines.BLOCK, own)):
                    assert found[name][row] == pytest.approx(answer(loss, target, rows, seen), abs=1e-9)
                after = [k for k in seen if known[k] > 0 and known[row] > 0
                         and target[known[k] - 1] == target[known[row] - 1]]  # fmt: skip
                if loss.classes:
                    expected = answer(loss, target, after, []) if seen else answer(loss, target, [], [])
                else:
                    expected = np.array([target[known[row] - 1] if seen else 0.0])
                assert found[baselines.PREVIOUS][row] == pytest.approx(expected, abs=1e-9)


def test_others_answer_by_what_was_known(tmp_path: Path) -> None:
    """LightGBM and Vowpal Wabbit on the same rows: both learn, and pure chance teaches them nothing."""
    rows = made(2500, 30)
    chance = np.random.default_rng(5).integers(0, 2, len(rows))
    for name, drawn in (("real", None), ("chance", chance)):
        for number, row in enumerate(rows):
            row["y"] = row["y"] if drawn is None else int(drawn[number])
        path = write_rows(tmp_path / f"{name}.csv", rows)
        words = ("--baselines", "all", "--label-delay", "2h", "--out", str(tmp_path / name))
        assert here("backtest", str(path), *ASK, *words) == 0
        results = json.loads((tmp_path / name / "results.json").read_text())
        assert results["not_installed"] == []
        for key in ("progressive", "walk_forward"):
            held = {peer: each["log_loss"] for peer, each in results[key]["baselines"].items()}
            others = [value for peer, value in held.items() if peer.startswith(("LightGBM", "Vowpal"))]
            assert len(others) == 4
            if drawn is None:
                assert min(others) < held["running rate"] - 0.02
            else:
                assert min(others) > 0.68


def answer(loss: Any, target: Any, rows: list[int], whole: list[int]) -> Any:
    if loss.classes == 0:
        rows = rows or whole
        return np.array([np.mean(target[rows]) if rows else 0.0])
    code = (target > 0).astype(int) if loss.outputs == 1 else target.astype(int)
    share = np.log(np.bincount(code[rows], minlength=loss.classes) + 0.5)
    share -= np.log(np.exp(share).sum())
    return share if loss.outputs > 1 else share[1:] - share[:1]
