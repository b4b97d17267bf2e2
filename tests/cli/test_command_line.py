"""The command line, tested as command lines."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import semicyclic as sc
from semicyclic.cli import main
from semicyclic.datasets import synthetic_tweets
from semicyclic.jit import NOTICE
from semicyclic.reports.lower_bounds import check_claims
from tests.datasets.tweet_csv import csv_bytes

COMMAND = [sys.executable, "-m", "semicyclic.cli.main"]


def call(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=300, check=False, env=environment
    )


COMMANDS = (
    "backtest", "demo", "diagnose", "federate", "inspect",
    "predict", "reproduce", "theory", "train", "what-if",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert here(command, "--help") == 0
    assert f"Example: semicyclic {command}" in " ".join(capsys.readouterr().out.split())


def test_the_commands_are_listed_and_the_version_is_told() -> None:
    listed = call("--help").stdout
    assert all(command in listed for command in COMMANDS)
    assert call("--version").stdout.strip() == sc.__version__


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("demo", "--seed", "-1"), 1, "semicyclic: --seed -1: must be 0 or more\n"),
        (("demo", "--seed", "x"), 2, "Invalid value for --seed"),
        (("demo", "--out", "/dev/null/x"), 1, "--out /dev/null/x: the folder cannot be made"),
        (("reproduce", "--out", "/dev/null"), 1, "semicyclic: --out /dev/null: this is a file, and a folder"),
        (("reproduce", "--out", "/dev/null/x"), 1, "--out /dev/null/x: the folder cannot be made: Not a dir"),
        (("dance",), 2, "dance"),
        (("reproduce", "/none.csv"), 1, "semicyclic: /none.csv: No such file or directory\n"),
        (("reproduce", "x.csv", "--download"), 1, "semicyclic: give either FILE or --download, not both\n"),
        (("reproduce", "x.csv", "--rows", "10"), 1, "--rows is the size of the stand-in"),
        (("reproduce", "--grid", "--step-size", "1"), 1, "give either --grid or --step-size, not both\n"),
        (("reproduce", "--step-size", "1", "0"), 1, "semicyclic: --step-size 0: must be a positive number\n"),
        (("reproduce", "--as", "song"), 2, 'Invalid value "song" for --as'),
        (("reproduce", "--rows", "300"), 1, "row(s) to be tested on: choose fewer --blocks"),
        (("reproduce", "--step-size"), 1, "semicyclic: --step-size needs at least one number\n"),
        (("theory", "--K", "0"), 1, "semicyclic: --K 0: must be at least 1\n"),
        (
            ("theory", "--epsilon", "0"),
            1,
            "semicyclic: --epsilon 0: must be between 1e-100 and 1e100\n",
        ),
        (("theory", "--B", "1e200"), 1, "semicyclic: --B 1e+200: must be between 1e-100 and 1e100\n"),
        (
            ("theory", "--hard", "--B", "100"),
            1,
            "semicyclic: --B 100: must be positive and at most 16 K = 32",
        ),
        (("theory", "--seed", "-5"), 1, "semicyclic: --seed -5: must be 0 or more\n"),
        (("theory", "--hard", "--m", "6"), 1, "the hard instances have two blocks: leave out --m"),
        (("theory", "--hard", "--n", "0"), 1, "semicyclic: --n 0: must be at least 1\n"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    done = call(*words)
    assert done.returncode != 0
    assert done.returncode == code or code == 2
    assert sentence in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------------------ golden

GOLDEN = Path(__file__).parent / "golden"


def masked(text: str) -> str:
    """Without figures, and rows of the table in the order of their words: scores differ by machine."""
    lines = [re.sub(r"[\d.,]*\d", "#", line) for line in text.splitlines()]
    return "\n".join(re.sub(r" +", " ", line).rstrip() for line in sorted(lines)) + "\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("theory", ()),
        ("theory-small", ("--B", "2", "--K", "3", "--m", "5", "--n", "40", "--epsilon", "0.05")),
    ],
)
def test_theory_prints_what_it_always_did(
    name: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert here("theory", *words) == 0
    assert capsys.readouterr().out == (GOLDEN / f"{name}.txt").read_text()
    if not words:
        assert call("theory").stdout == (GOLDEN / f"{name}.txt").read_text()


def here(*words: str) -> int:
    """The same in this process."""
    with pytest.raises(SystemExit) as end:
        main.main([*words])
    return int(end.value.code or 0)


def test_what_fails_leaves_no_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert here("reproduce", str(tmp_path / "none.csv"), "--out", str(tmp_path / "new")) == 1
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    assert here("reproduce", str(tmp_path / "none.csv"), "--out", str(tmp_path / "old")) == 1
    assert (tmp_path / "old").exists()
    assert "none.csv: No such file" in capsys.readouterr().err


def test_theory_knows_odd_and_single_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert here("theory", "--m", "1") == 0
    assert "With one block the data are i.i.d.: there is no lower bound." in capsys.readouterr().out
    assert here("theory", "--m", "3") == 0
    assert "from 81,920 steps a cycle on" in capsys.readouterr().out.replace("\n", " ")


def test_a_chain_that_leaves_the_numbers_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rows", "12000", "--repetitions", "1", "--step-size", "1e38", "--out", str(tmp_path)]
    assert here("reproduce", *words) == 1
    assert (
        capsys.readouterr().err
        == "semicyclic: a chain left the finite numbers: choose a smaller --step-size\n"
    )


def test_theory_writes_its_bounds(tmp_path: Path) -> None:
    assert here("theory", "--epsilon", "0.001", "--out", str(tmp_path)) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["settings"] == {"B": 1.0, "K": 5, "m": 6, "n": 50_000, "epsilon": 0.001}
    assert results["bounds"]["lower bound, Lipschitz"]["corrected"] == pytest.approx(3 / (256 * 5))
    assert results["cycles"]["one model, cyclic data"]["corrected"] == 12
    assert results["steps"]["step of a block's own chain"]["paper"] is None


def test_reproduce_prints_what_it_always_did(tmp_path: Path) -> None:
    """On a file in Sentiment140's layout, so on the way a user goes."""
    file = tmp_path / "small.csv"
    file.write_bytes(csv_bytes(synthetic_tweets.make(12_000, vocabulary=4096)))
    done = call("reproduce", str(file), "--out", str(tmp_path / "out"), "--repetitions", "2", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert done.stderr.replace(f"{NOTICE}\n", "") == ""
    shown = done.stdout.replace(str(tmp_path), "DIR")
    assert masked(shown) == (GOLDEN / "reproduce.txt").read_text()
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["data"] == {
        "name": "small.csv",
        "stand_in": False,
        "rows": 12_000,
        "positive": 6_000,
    }
    assert "Stand-in" not in (tmp_path / "out" / "report.html").read_text()
    table = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert table[0] == "approach,repetition,day,accuracy,log_loss"
    assert len(table) == 1 + 14 * 2 * 10


@pytest.mark.parametrize(
    "options",
    [
        ("--as", "script", "--batch-size", "32"),
        ("--skew", "none", "--blocks", "2", "--passes", "2"),
        ("--grid",),
    ],
)
def test_reproduce_has_other_ways(options: tuple[str, ...], tmp_path: Path) -> None:
    done = call(
        "reproduce",
        "--rows",
        "12000",
        "--repetitions",
        "1",
        "--cycles",
        "3",
        "--out",
        str(tmp_path),
        *options,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert all(len(values["mean"]) == 3 for values in results["accuracy"].values())
    if options[0] == "--as":
        assert results["settings"]["skew"] == "drop"
        assert results["choices"][0]["here"] == "as the script"
    if options[0] == "--grid":
        tried = [steps[0] for steps in results["settings"]["step_sizes"]]
        assert tried == pytest.approx([0.2, 0.43, 0.928, 2.0, 4.3])
    if options[0] == "--skew":
        assert results["labels"]["raw"] == results["labels"]["skewed"]
        assert results["settings"]["block_labels"] == ["00:00-12:00", "12:00-24:00"]


def test_hard_shows_the_bound_that_one_model_cannot_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here("theory", "--hard", "--n", "25", "--out", str(tmp_path)) == 0
    assert "One model on cyclic data stays above the lower bound" in capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    for kind in ("lipschitz", "smooth"):
        for against in ("steps", "cycles"):
            excess = results[f"{kind}_against_{against}"]["excess"]
            for name in (*results["methods"], "each block minimised"):
                assert all(e >= b for e, b in zip(excess[name], excess["lower bound"], strict=True)), name
            assert excess["pluralistic average"][-1] < excess["lower bound"][-1]
        n = results[f"{kind}_against_steps"]["excess"]
        assert (
            n["pluralistic average, step of Theorem 3"][-1] < n["pluralistic average, step of Theorem 3"][0]
        )
    cases = results["section4"]["cases"]
    for reader in ("pluralistic average", "separate average"):
        assert cases["orthogonal"][reader]["mean"] == pytest.approx(
            cases["orthogonal"]["pluralistic average"]["mean"]
        )
    assert (
        cases["opposite"]["separate average"]["mean"][-1]
        < 0.2 * cases["opposite"]["pluralistic average"]["mean"][-1]
    )
    assert (
        cases["identical"]["pluralistic average"]["mean"][-1]
        < 0.5 * cases["identical"]["separate average"]["mean"][-1]
    )
    assert results["lipschitz_against_steps"]["at"] == [10, 25, 30, 100]
    page = (tmp_path / "report.html").read_text()
    assert "stays above the bound as n grows" in page
    assert "Shuffled data do not know the bound" in page
    said = check_claims(results)
    assert said == {"above": True, "below": True}
    results["smooth_against_steps"]["excess"]["Adam"][0] = 0.0
    results["smooth_against_steps"]["excess"]["i.i.d. average"][-1] = 1.0
    assert check_claims(results) == {"above": False, "below": False}
    assert page.count("<svg") == 6
    for name in ("lipschitz-steps", "lipschitz-cycles", "smooth-steps", "smooth-cycles", "phi", "section4"):
        assert (tmp_path / f"{name}.svg").exists()
        assert (tmp_path / f"{name}.png").exists()


def test_without_the_extra_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for words in (["reproduce"], ["theory", "--hard"]):
        with pytest.raises(SystemExit) as end:
            main.main([*words, "--out", str(tmp_path / "none")])
        assert end.value.code == 1
        assert "pip install 'semicyclic[report]'" in capsys.readouterr().err
        assert not (tmp_path / "none").exists()


def test_progress_is_shown_on_a_terminal_and_stopping_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from semicyclic.experiments.reproduce import run

    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(SystemExit):
        main.main(["reproduce", "--rows", "12000", "--repetitions", "1", "--out", str(tmp_path)])
    assert "training and testing" in capsys.readouterr().out

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_experiment", stop)
    with pytest.raises(SystemExit) as end:
        main.main(["reproduce", "--rows", "12000", "--out", str(tmp_path)])
    assert end.value.code == 130
