"""train, predict and inspect as command lines; the demo; the tutorial."""

import csv
import gzip
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import semicyclic as sc
from semicyclic.training.open_model import MODEL
from semicyclic.training.run_dir import RESULTS
from tests.cli.test_command_line import GOLDEN, call, here
from tests.tables.small_tables import rows_of, write, write_csv, write_jsonl

ROOT = Path(__file__).parents[2]
TRAIN = ("--when", "at", "--label", "y")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in it, and the rows it was made of in three formats."""
    folder = tmp_path_factory.mktemp("trained")
    rows = rows_of(3000, days=8)
    for form in ("csv", "jsonl", "parquet"):
        write(folder, rows, form)
    assert here("train", str(folder / "rows.csv"), *TRAIN, "--out", str(folder / "run")) == 0
    return folder


def test_sample_rows_is_how_far_classes_are_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(300)
    rows[200]["y"] = "maybe"
    command = ("train", str(write(tmp_path, rows)), *TRAIN, "--method", "pluralistic", "--out")
    assert here(*command, str(tmp_path / "few"), "--sample-rows", "150") == 1
    assert "label 'maybe' is new, the classes are 'no', 'yes'" in capsys.readouterr().err
    assert here(*command, str(tmp_path / "all"), "--sample-rows", "300") == 0
    assert sc.load(tmp_path / "all" / MODEL).classes == ("maybe", "no", "yes")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def plain(text: str) -> str:
    """Without what differs by machine: times and speeds, folders."""
    text = re.sub(r"\d+\.\d s, [\d,]+ rows/s", "# s, # rows/s", text)
    return re.sub(r"/\S*/", "", text)


@pytest.mark.parametrize("command", ["train", "inspect"])
def test_what_people_see_is_what_it_was(trained: Path, tmp_path: Path, command: str) -> None:
    if command == "train":
        done = call("train", str(trained / "rows.parquet"), *TRAIN, "--out", str(tmp_path / "out"))
    else:
        done = call("inspect", str(trained / "run"), "--top", "3")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    shown = re.sub(r"\d\.\d{4}", "#", plain(done.stdout))
    golden = GOLDEN / f"{command}.txt"
    if os.environ.get("SEMICYCLIC_GOLDEN"):
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
def test_predictions_are_those_of_the_model(trained: Path, tmp_path: Path, form: str, to: str) -> None:
    out = tmp_path / f"out.{to}"
    assert here("predict", str(trained / "run"), str(trained / f"rows.{form}"), "--out", str(out)) == 0
    if to == "parquet":
        found = pq.read_table(out).to_pylist()
    elif to == "jsonl":
        found = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        found = read_csv(out)
    model = sc.load(trained / "run" / MODEL)
    rows = rows_of(3000, days=8)
    new = sc.read(trained / "rows.csv", like=model)
    chance = model.predict_proba(new)[:, 1]
    assert isinstance(model.schedule, sc.Schedule)
    block = model.schedule.locate([row["at"] for row in rows]).block
    labels = model.schedule.labels
    assert len(found) == len(rows)
    for k in range(0, 3000, 97):
        assert float(found[k]["probability"]) == pytest.approx(float(chance[k]), abs=1e-6)
        assert found[k]["prediction"] == ("yes" if chance[k] > 0.5 else "no")
        assert found[k]["block"] == labels[block[k]]
        assert int(found[k]["at"]) == rows[k]["at"]
        assert found[k]["note"] == rows[k]["note"]
    if form == to == "jsonl":
        assert isinstance(found[0]["z"], float)


def test_every_loss_has_its_answers(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    cases = {
        "many": ((), ["block", "prediction", "probability"]),
        "number": (("--loss", "absolute"), ["block", "prediction"]),
        "two": (
            ("--loss", "hinge", "--method", "hedged", "--step-size", ".1"),
            ["block", "prediction", "score"],
        ),
        "boolean": ((), ["block", "prediction", "probability"]),
    }
    for label, (more, columns) in cases.items():
        rows = rows_of(400, label=label)
        path = write(tmp_path, rows, name=label)
        assert here("train", str(path), *TRAIN, "--out", str(tmp_path / label), *more) == 0
        capsysbinary.readouterr()
        assert here("predict", str(tmp_path / label), str(path)) == 0
        lines = capsysbinary.readouterr().out.decode().splitlines()
        found = list(csv.DictReader(lines))
        assert list(found[0])[-len(columns) :] == columns
        answers = {row["prediction"] for row in found}
        if label == "boolean":
            assert answers == {"true", "false"}
        elif label == "many":
            assert answers <= {"low", "mid", "high"}
            assert all(float(row["probability"]) >= 1 / 3 - 1e-6 for row in found)
        elif label == "number":
            assert 900 < np.mean([float(answer) for answer in answers]) < 1100


def test_rows_without_an_answer_are_counted(
    trained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows: list[Any] = rows_of(20)
    rows[3] = {**rows[3], "at": "never"}
    rows[4] = {**rows[4], "x": "many"}
    path = write_csv(tmp_path / "odd.csv", [{**row, "block": "mine"} for row in rows])
    with path.open("a") as file:
        file.write("1,2\n")
    assert here("predict", str(trained / "run"), str(path), "--out", str(tmp_path / "out.csv")) == 1
    assert "odd.csv, row 4: column 'at': 'never' is no time in epoch s" in capfd.readouterr().err
    assert not (tmp_path / "out.csv").exists()
    assert (
        here(
            "predict",
            str(trained / "run"),
            str(path),
            "--out",
            str(tmp_path / "out.csv"),
            "--on-error",
            "skip",
        )
        == 0
    )
    assert "20 rows, 2 of them without an answer, and 1 left out" in capfd.readouterr().err
    found = read_csv(tmp_path / "out.csv")
    assert [k for k, row in enumerate(found) if row["prediction"] == ""] == [3, 4]
    assert found[0]["block"] == "mine"
    assert found[0]["block_model"].endswith(":00")


def test_a_model_from_python_answers_files_too(trained: Path, tmp_path: Path) -> None:
    rows = sc.read(trained / "rows.parquet", when="at", label="y", ignore=["note"])
    run = sc.train.separate(rows, sc.Schedule.daily(4), step_size=sc.step.adagrad(0.2))
    sc.save(run.mean(), tmp_path / "model.safetensors")
    out = tmp_path / "out.parquet"
    assert (
        here("predict", str(tmp_path / "model.safetensors"), str(trained / "rows.csv"), "--out", str(out))
        == 0
    )
    found = pq.read_table(out).column("probability").to_numpy()
    assert np.allclose(found, run.mean().predict_proba(rows)[:, 1], atol=1e-6)
    bare = sc.train.pluralistic(sc.Rows(np.eye(4), [0, 1, 0, 1], block=[0, 0, 0, 0]), 1, batch_size=2)
    sc.save(bare.mean(), tmp_path / "bare.safetensors")
    done = call("predict", str(tmp_path / "bare.safetensors"), str(trained / "rows.csv"))
    assert "was not trained from a file" in done.stderr
    assert here("inspect", str(tmp_path / "bare.safetensors")) == 0


def test_inspect_tells_programs_everything(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert here("inspect", str(trained / "run"), "--json", "--top", "4") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["progressive"]["blocks"] == list(sc.Schedule.daily(6).labels)
    assert len(found["blocks"]) == 24 * 7
    assert found["provenance"]["chosen"]["candidates"] >= 40
    assert set(found["provenance"]["chosen"]["blocks"]) == set(found["progressive"]["blocks"])
    assert found["classes"] == ["no", "yes"]
    assert len(found["progressive"]["margin"]) == 6
    assert found["provenance"]["rows"]["used"] == 3000
    model = sc.load(trained / "run" / MODEL)
    span = (model.weights.max(axis=0) - model.weights.min(axis=0))[0]
    first = found["differences"][0]
    assert first["difference"] == pytest.approx(float(span.max()), rel=1e-6)
    assert len(found["differences"]) == 4
    # What the stream was made of: the sign of x follows the hour.
    assert any(each["feature"].split(" ")[0] == "x" for each in found["differences"])


def test_standard_input_and_zipped_files_give_the_same_model(trained: Path, tmp_path: Path) -> None:
    data = (trained / "rows.csv").read_bytes()
    expected = (trained / "run" / MODEL).read_bytes()
    words = [sys.executable, "-m", "semicyclic", "train", "-", *TRAIN, "--out", str(tmp_path / "pipe")]
    subprocess.run(words, input=data, check=True, capture_output=True)
    assert (tmp_path / "pipe" / MODEL).read_bytes() == expected
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(data))
    assert here("train", str(tmp_path / "rows.csv.gz"), *TRAIN, "--out", str(tmp_path / "gz")) == 0
    assert (tmp_path / "gz" / MODEL).read_bytes() == expected


def test_progress_is_shown_on_a_terminal(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("semicyclic.training.train_files.PROGRESS_SECONDS", 0.0)
    assert here("train", str(trained / "rows.csv"), *TRAIN, "--out", str(tmp_path / "out")) == 0
    shown = capsys.readouterr().err
    assert "rows" in shown
    assert "loss 0." in shown
    assert "block " in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "none.csv", *TRAIN, "--out", "o"), "none.csv: there is no such file or folder"),
        (
            ("train", "ROWS", "--when", "t", "--label", "y", "--out", "o"),
            "rows.csv: there is no column 't': the columns",
        ),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--schedule", "hourly:3"),
            "--schedule hourly:3: write daily:6",
        ),
        (("train", "ROWS", *TRAIN, "--out", "o", "--schedule", "daily:0"), "--schedule daily:0: blocks=0"),
        (("train", "ROWS", *TRAIN, "--out", "o", "--zone", "Mars"), "--zone Mars: unknown time zone"),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--lateness", "soon"),
            "--lateness soon: write a length of time",
        ),
        (("train", "ROWS", *TRAIN, "--out", "o", "--memory", "1"), "--memory 1: must be at least 64MB"),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--memory", "much"),
            "--memory much: write a size, such as 1GB",
        ),
        (("train", "ROWS", *TRAIN, "--out", "o", "--step-size", "big"), "--step-size big: write normalized"),
        (("train", "ROWS", *TRAIN, "--out", "o", "--step-size", "-1"), "--step-size"),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--read-out", "tail:"),
            "--read-out tail:: write mean, last, last-cycle, tail, tail:5",
        ),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--sample-rows", "0"),
            "--sample-rows 0: must be at least 1",
        ),
        (("train", "ROWS", *TRAIN, "--out", "o", "--loss", "cubic"), "unknown loss 'cubic'"),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--batch-size", "0"),
            "--batch-size 0: must be a whole number, at least 1",
        ),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--read-out", "last"),
            "--read-out last: --method auto does not take it",
        ),
        (("train", "ROWS", *TRAIN, "--out", "o", "--bins", "0"), "--bins 0: must be from 1 to 1000"),
        (("train", "ROWS", *TRAIN, "--out", "o", "--bits", "40"), "--bits 40: must be from 4 to 24"),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--number", "x", "--text", "x"),
            "column 'x' is named twice",
        ),
        (
            ("train", "ROWS", "--when", "a,b,c", "--label", "y", "--out", "o"),
            "--when a b c: give one column, or two",
        ),
        (
            ("train", "ROWS", *TRAIN, "--out", "o", "--when-format", "iso"),
            "--when-format iso: write it with % signs",
        ),
        (
            ("train", "ROWS", *TRAIN, "--out", "RUN"),
            "there is a run in this folder: go on with it (--resume)",
        ),
        (("train", "-", "-", *TRAIN, "--out", "o"), "standard input can be read once only"),
        (("predict", "none", "ROWS"), "none: there is no such file"),
        (("predict", "RUN", "ROWS", "--out", "x.xlsx"), "--out x.xlsx: name it .csv, .jsonl or .parquet"),
        (("predict", "RUN", "ROWS", "--out", "no/x.csv"), "--out no/x.csv: there is no folder no"),
        (("predict", "ROWS", "ROWS"), "rows.csv: not a safetensors file, or a damaged one"),
        (("inspect", "."), ".: there is no model in this folder yet"),
        (("inspect", "RUN", "--top", "-1"), "--top -1: must be 0 or more"),
        (("demo", "--repetitions", "1"), "--repetitions 1: must be at least 2"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    trained: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"ROWS": str(trained / "rows.csv"), "RUN": str(trained / "run")}
    assert here(*(places.get(word, word) for word in words)) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("semicyclic: ")
    assert sentence in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_columns_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, rows_of(300))
    out = tmp_path / "out"
    assert here("train", str(path), *TRAIN, "--out", str(out), "--ignore", "note", "--ignore", "kind") == 0
    results = json.loads((out / RESULTS).read_text())
    assert results["columns"]["kinds"] == {"open": "boolean", "x": "number", "z": "number"}
    assert results["columns"]["ignored"] == {"note": "as asked", "kind": "as asked"}
    assert here("predict", str(out), str(path), "--out", str(tmp_path / "p.csv")) == 0


def test_names_that_look_like_markup_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"at": row["at"], "x [kWh]": row["x"], "y": row["y"]} for row in rows_of(300)]
    path = write(tmp_path, rows)
    assert here("train", str(path), *TRAIN, "--out", str(tmp_path / "out"), "--method", "separate") == 0
    assert "number: x [kWh]" in capsys.readouterr().out
    assert here("inspect", str(tmp_path / "out")) == 0
    assert "│ x [kWh]" in capsys.readouterr().out


# ---------------------------------------------------------------------------- the tutorial


def test_the_commands_of_the_tutorial_work(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    assert script.count("semicyclic ") >= 11
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    whole = sc.load(tmp_path / "again" / MODEL)
    assert whole.provenance["rows"]["used"] == 327_346
    assert "odd.csv, row 3: column 'when': 'yesterday' is not a time" in done.stderr
    assert (tmp_path / "predictions.csv").read_text().count("\n") == 336_777
    assert json.loads((tmp_path / "stream" / RESULTS).read_text())["rows"]["used"] == 3


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    rows = rows_of(2000)
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    words = [
        sys.executable,
        "-m",
        "semicyclic",
        "train",
        str(path),
        *TRAIN,
        "--out",
        str(tmp_path / "out"),
        "--follow",
    ]
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(300):
            if (tmp_path / "out" / "lock").exists():
                break
            threading.Event().wait(0.1)
        threading.Event().wait(0.5)
        second = subprocess.run(
            [*words, "--resume"], capture_output=True, text=True, check=False, timeout=120
        )
        assert second.returncode == 1
        assert "another run is working in this folder" in second.stderr
    finally:
        first.kill()
        first.communicate()


def test_remedies_are_options_of_the_command_that_runs(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in the examples of refused rows; `predict` cannot read a column as another type."""
    rows = rows_of(3000, days=8)
    rows[50]["z"] = "GET text=[abc]"
    bad = write(tmp_path, rows, "csv")
    assert here("train", str(bad), *TRAIN, "--method", "pluralistic", "--out", str(tmp_path / "a")) == 1
    stopped = capsys.readouterr().err
    assert "column 'z': 'GET text=[abc]' is not a number" in stopped
    assert "(or --category z); or skip such rows with --on-error skip" in stopped
    words = ("train", str(bad), *TRAIN, "--method", "pluralistic", "--on-error", "skip")
    assert here(*words, "--out", str(tmp_path / "b")) == 0
    assert "(or --category z)" in capsys.readouterr().out.replace("\n", " ")
    assert here("predict", str(trained / "run"), str(bad), "--out", str(tmp_path / "c.csv")) == 1
    refused = capsys.readouterr().err
    assert "category" not in refused
    assert "or leave its prediction empty with --on-error skip" in refused
