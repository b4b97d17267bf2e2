"""The examples, run as a reader would run them: in a folder of their own, with what they print and draw."""

import os
import re
import subprocess
import sys
from pathlib import Path

from matplotlib.image import imread

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_flights_are_told_by_the_hour(tmp_path: Path) -> None:
    """A model for each hour from one pass is better than one model, and than one classifier per hour."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "flights_sklearn.py")],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loss = {
        name.strip(): float(value) for name, value in re.findall(r"^(.+?) log loss (\S+)", done.stdout, re.M)
    }
    ours = loss["SemiCyclicClassifier"]
    assert ours < loss["one SGDClassifier"] - 0.01
    assert ours < loss["one SGDClassifier per hour"] - 0.01
    assert abs(ours - loss["the hour as a feature"]) < 0.003
    assert loss["both"] < ours
    assert "Warning" not in done.stderr
    drawn = imread(tmp_path / "flights.png")
    assert drawn.shape[1] > 800
    assert drawn.std() > 0.05


def test_day_and_night_with_pytorch(tmp_path: Path) -> None:
    """A network with batch normalisation: right by day and by night; the current model, in one of them."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "flower_torch.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(day|night): best (\S+) \((\S+)\), current model (\S+)", done.stdout)
    assert [name for name, *_ in found] == ["day", "night"]
    assert min(float(best) for _, best, _, _ in found) > 0.75
    assert min(float(current) for *_, current in found) < 0.6
    assert (tmp_path / "models.safetensors").exists()
