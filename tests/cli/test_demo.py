"""`semicyclic demo`: its results, its words, its report."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import semicyclic as sc
from semicyclic.reports.demo import findings
from semicyclic.training.open_model import MODEL
from semicyclic.training.run_dir import RESULTS
from tests.cli.test_command_line import here


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    assert here("demo", "--out", str(out), "--repetitions", "2") == 0
    return out


def test_the_demo_finds_what_the_paper_proves_and_says_where_it_ends(shown: Path) -> None:
    results = json.loads((shown / RESULTS).read_text())
    paper = {name: float(np.mean(values)) for name, values in results["paper"]["weighted"].items()}
    assert paper["pluralistic"] < paper["iid"] - 0.01
    assert paper["pluralistic"] < paper["consensus"] - 0.01
    assert paper["consensus_last"] > paper["consensus"] + 0.01
    # As measured before by others on the same flights.
    assert paper["pluralistic"] == pytest.approx(0.491, abs=0.006)
    assert paper["separate"] == pytest.approx(0.490, abs=0.006)
    assert paper["iid"] == pytest.approx(0.517, abs=0.006)
    assert paper["consensus"] == pytest.approx(0.521, abs=0.006)
    calendar = results["calendar"]["all"]
    assert calendar["separate"] < calendar["pluralistic"] - 0.01
    assert calendar["hour"] < calendar["pluralistic"] - 0.01
    data = results["data"]
    assert min(data["by_block"]["share"]) >= 0.01
    assert data["rows"] == 327_346
    assert results["training"]["rows"]["read"] == 336_776
    # Six blocks, of which the last reaches into the next day, on each of seven days.
    assert sc.load(shown / "model" / MODEL).blocks == 24 * 7
    questions = results["questions"]
    assert len(questions["answers"]) == 4
    for key in ("progressive", "walk_forward"):
        held = questions["scores"][key]
        assert held["auto"]["log_loss"] < 1.01 * held["best"]["log_loss"]
    for name in ("diagnose", "backtest"):
        assert (shown / name / "report.html").is_file()
    page = (shown / "report.html").read_text()
    assert "why not just add the hour as a feature?" in page
    assert f"{paper['pluralistic']:.4f}" in page
    assert "http" not in re.sub(
        r"http://www\.w3\.org\S*|http://purl\.org\S*|http://creativecommons\S*", "", page
    )


def test_the_words_of_the_demo_follow_its_numbers(shown: Path) -> None:
    results = json.loads((shown / RESULTS).read_text())
    words = findings(results)
    assert "better than the i.i.d. ideal" in words["paper"]
    assert "worse than separate chains" in words["calendar"]
    assert "it is not beaten by an average over the year" in words["hour"]
    gaps = results["calendar"]["differences"]
    for gap in (*gaps.values(), *results["paper"]["differences"].values()):
        gap.update(mean=-gap["mean"], clear=True)
    scores = results["calendar"]["all"]
    scores["pluralistic"] = 0.1
    turned = findings(results)
    assert "worse than the i.i.d. ideal" in turned["paper"]
    assert "better than separate chains" in turned["calendar"]
    assert "It is the best of them in this order too" in turned["calendar"]
    assert "does not replace a model for every block" in turned["hour"]
    for gap in results["paper"]["differences"].values():
        gap.update(clear=False)
    assert "about as well as" in findings(results)["paper"]


def test_only_clear_differences_are_bold(shown: Path) -> None:
    results = json.loads((shown / RESULTS).read_text())
    page = (shown / "report.html").read_text()
    gaps = [*results["paper"]["differences"].values(), *results["calendar"]["differences"].values()]
    assert {gap["clear"] for gap in gaps} == {True, False}
    for gap in gaps:
        cell = re.search(rf'<td class="([^"]*)">\{gap["mean"]:+.4f}'.replace("\\-", "-"), page)
        assert cell is not None
        assert ("clear" in cell[1]) == gap["clear"]
