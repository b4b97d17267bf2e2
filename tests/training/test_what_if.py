"""`what-if`: models from the log of a run."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss

import semicyclic as sc
from semicyclic.training.what_if import open_run
from tests.cli.test_command_line import here
from tests.evaluation.reversing_rows import ASK, made, write_rows


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logged")
    path = write_rows(folder / "rows.csv", made(4000, 30))
    words = (*ASK, "--schedule", "daily:12", "--bits", "8")
    assert here("train", str(path), *words, "--out", str(folder / "auto")) == 0
    assert here("train", str(path), *words, "--method", "separate", "--out", str(folder / "separate")) == 0
    return folder


def test_other_models_of_a_log_are_those_of_the_run(logged: Path, tmp_path: Path) -> None:
    words = (
        "--blocks",
        "6",
        "1",
        "--read-out",
        "tail:5",
        "last",
        "fading:3",
        "--data",
        str(logged / "rows.csv"),
    )
    assert here("what-if", str(logged / "auto"), *words, "--out", str(tmp_path / "out")) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(results["models"]) == 6
    run = open_run(logged / "auto").chain.run
    assert len(np.unique(run.log.table().cycle)) == 30
    coarse = run.coarser(sc.Schedule.daily(6))
    for name, model in (
        ("tail-5", coarse.tail(5)),
        ("last", coarse.last()),
        ("fading-3", coarse.fading(3.0)),
    ):
        found = sc.load(tmp_path / "out" / f"6-{name}.safetensors")
        assert np.allclose(found.weights, model.weights, atol=1e-6)
        assert isinstance(found.schedule, sc.Schedule)
        assert found.schedule.starts == sc.Schedule.daily(6).starts
    rows = sc.read(logged / "rows.csv", like=sc.load(tmp_path / "out" / "6-last.safetensors"), label="y")
    chance = sc.load(tmp_path / "out" / "6-last.safetensors").predict_proba(rows)[:, 1]
    own = next(each for each in results["models"] if each["blocks"] == 6 and each["read_out"] == "last")
    assert own["scores"]["log_loss"] == pytest.approx(
        log_loss(np.asarray(rows.labels).astype(str), chance), rel=1e-4
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--blocks", "5"), "choose from 1, 2, 3, 4, 6"),
        (("--read-out", "median"), "--read-out median"),
        (("--until", "99"), "the log has"),
    ],
)
def test_what_cannot_be_otherwise_is_said(
    logged: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert here("what-if", str(logged / "auto"), *words) == 1
    assert sentence in capsys.readouterr().err


def test_only_one_chain_can_be_cut_anew(logged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert here("what-if", str(logged / "separate"), "--read-out", "mean", "last") == 0
    assert here("what-if", str(logged / "separate"), "--blocks", "6") == 1
    assert "only the single chain can be cut anew" in capsys.readouterr().err
    assert here("what-if", str(logged)) == 1


def test_a_log_of_few_changes_fits_into_little_memory(tmp_path: Path) -> None:
    """Records hold what has changed: 2^14 columns, 300 visits, and nothing is dropped."""
    path = write_rows(tmp_path / "rows.csv", made(3000, 25))
    words = (*ASK, "--schedule", "daily:12", "--method", "pluralistic", "--bits", "14", "--save-every", "0s")
    for name, memory in (("wide", "1GB"), ("narrow", "64MB")):
        assert here("train", str(path), *words, "--memory", memory, "--out", str(tmp_path / name)) == 0
    wide, narrow = sc.load_run(tmp_path / "wide"), sc.load_run(tmp_path / "narrow")
    assert narrow.log.past is None
    assert narrow.log.size < 2**14 * 4 * 300 / 10
    both = [[run.tail(4), run.last(), run.mean(), run.fading(2)] for run in (wide, narrow)]
    for one, other in zip(*both, strict=True):
        assert np.array_equal(one.weights, other.weights)
