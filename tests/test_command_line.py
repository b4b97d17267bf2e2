"""The command line, tested as command lines."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import semicyclic as sc
from semicyclic import cli

COMMAND = [sys.executable, "-m", "semicyclic.cli"]


def call(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=300, check=False, env=environment
    )


def test_the_demo_prints_every_block_and_writes_its_results(tmp_path: Path) -> None:
    done = call("demo", "--seed", "3", "--out", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    shown = re.sub(r"\d+\.\d+", "#", done.stdout)
    for label in sc.Schedule.daily(6).labels:
        assert re.search(rf"{label} │ +# │ +# │ +# │ +# │ +# │", shown)
    assert "120,000 rows over 10 days, a made-up stream (seed 3)" in done.stdout
    results = json.loads((tmp_path / "new" / "results.json").read_text())
    assert results["seed"] == 3
    assert set(results["by_block"]) == set(results["overall"])
    # What the paper says, on the stream it says it of.
    overall = results["overall"]
    assert overall["pluralistic"] < overall["i.i.d. ideal"] < overall["consensus, last"]
    assert overall["pluralistic"] < overall["separate"]
    assert abs(overall["consensus"] - overall["i.i.d. ideal"]) < 0.005
    again = call("demo", "--seed", "3", "--out", str(tmp_path / "again"))
    assert again.returncode == 0
    first, second = (tmp_path / name / "results.json" for name in ("new", "again"))
    assert first.read_bytes() == second.read_bytes()


def test_the_demo_runs_in_memory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a terminal would see it: with a line that says what is being done."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", "--out", str(tmp_path)])
    assert end.value.code in (0, None)
    assert "i.i.d." in capsys.readouterr().out
    assert (tmp_path / "results.json").exists()
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", "--seed", "-5"])
    assert end.value.code == 1
    assert capsys.readouterr().err == "semicyclic: --seed -5: must be 0 or more\n"


def test_help_has_an_example() -> None:
    assert "Example: semicyclic demo" in call("demo", "--help").stdout
    assert "demo" in call("--help").stdout
    assert call("--version").stdout.strip() == sc.__version__


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("demo", "--seed", "-1"), 1, "semicyclic: --seed -1: must be 0 or more\n"),
        (("demo", "--seed", "x"), 2, "Invalid value for --seed"),
        (("demo", "--out", "/dev/null/x"), 1, "semicyclic: "),
        (("dance",), 2, "dance"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    done = call(*words)
    assert done.returncode != 0
    assert done.returncode == code or code == 2
    assert sentence in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
