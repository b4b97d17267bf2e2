"""diagnose, backtest and what-if: from files, as a person would ask."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import semicyclic as sc
from semicyclic import datasets
from semicyclic.datasets import regimes
from semicyclic.evaluation import baselines, regime, score_tests
from semicyclic.evaluation.scores import ScoreSums
from semicyclic.method import loss as losses
from semicyclic.method.rows import Rows
from semicyclic.training.what_if import open_run
from tests.pages import CHROMIUM, shown_width
from tests.test_command_line import here

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


def test_measures_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(size=(500, 3, 1)).astype(np.float32)
    y = np.where(rng.random(500) < 1 / (1 + np.exp(-score[:, 0, 0])), 1.0, -1.0)
    tally = ScoreSums.none(4, 5, 3, losses.logistic)
    block, cycle = rng.integers(0, 4, 500), rng.integers(0, 5, 500)
    for part in (slice(0, 123), slice(123, 500)):
        tally.add(losses.logistic, score[part], y[part], block[part], cycle[part])
    for k, found in enumerate(tally.overall((1.0, 1.0))):
        s = score[:, k, 0].astype(float)
        assert found["log_loss"] == pytest.approx(log_loss(y > 0, 1 / (1 + np.exp(-s))), rel=1e-5)
        assert found["accuracy"] == pytest.approx(accuracy_score(y > 0, s > 0))
        assert found["auc"] == pytest.approx(roc_auc_score(y > 0, s), abs=2e-4)
    scores = rng.normal(size=(400, 2, 3)).astype(np.float32)
    code = rng.integers(0, 3, 400).astype(float)
    tally = ScoreSums.none(1, 2, 2, losses.softmax(3))
    tally.add(losses.softmax(3), scores, code, np.zeros(400, int), rng.integers(0, 2, 400))
    for k, found in enumerate(tally.overall((1.0, 1.0))):
        chance = losses.softmax(3).link(scores[:, k].astype(float))
        assert found["log_loss"] == pytest.approx(log_loss(code, chance), rel=1e-5)
        assert found["accuracy"] == pytest.approx((chance.argmax(axis=1) == code).mean())
        assert found["auc"] == pytest.approx(roc_auc_score(code, chance, multi_class="ovr"), abs=2e-3)
    tally = ScoreSums.none(1, 2, 2, losses.squared)
    tally.add(losses.squared, scores[:, :, :1], code, np.zeros(400, int), rng.integers(0, 2, 400))
    for k, found in enumerate(tally.overall((9.0, 3.0))):
        miss = scores[:, k, 0].astype(float) - code
        assert found["mse"] == pytest.approx(9 * (miss**2).mean())
        assert found["mae"] == pytest.approx(3 * np.abs(miss).mean())


def test_margins_cover_the_mean_when_days_differ() -> None:
    """Losses that are higher on some days: 95 % intervals over cycles hold the true mean about as often."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(300):
        day = rng.normal(0, 0.3, 40)
        tally = ScoreSums.none(1, 40, 1, losses.squared)
        cycle = np.repeat(np.arange(40), 20)
        miss = np.sqrt(np.maximum(1 + day[cycle] + rng.normal(0, 0.1, 800), 0))
        tally.add(
            losses.squared, miss[:, None, None].astype(np.float32), np.zeros(800), np.zeros(800, int), cycle
        )
        mean = tally.overall((1.0, 1.0))[0]["mse"]
        hits += abs(mean - 1.0) < tally.margins(1.0)[0]
    assert 270 <= hits <= 296


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
            known = baselines.known_before(clock, clock, delay)
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


def answer(loss: Any, target: Any, rows: list[int], whole: list[int]) -> Any:
    if loss.classes == 0:
        rows = rows or whole
        return np.array([np.mean(target[rows]) if rows else 0.0])
    code = (target > 0).astype(int) if loss.outputs == 1 else target.astype(int)
    share = np.log(np.bincount(code[rows], minlength=loss.classes) + 0.5)
    share -= np.log(np.exp(share).sum())
    return share if loss.outputs > 1 else share[1:] - share[:1]


@pytest.mark.parametrize("words", [("--warm-up", "100%"), ("--warm-up", "9999999"), ("--warm-up", "x")])
def test_a_warm_up_must_leave_something(
    judged: dict[str, Any], capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    path = judged["folder"] / "rows.csv"
    assert here("backtest", str(path), *ASK, *words, "--out", str(judged["folder"] / "none")) == 1
    assert "--warm-up" in capsys.readouterr().err
    assert not (judged["folder"] / "none").exists()


# --------------------------------------------------------------------------------- real flights


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


# --------------------------------------------------------------------------------- diagnosis


def verdict_of(rows: Rows) -> str:
    assert rows.when is not None
    assert rows.labels is not None
    sample = score_tests.sample_of(rows, np.where(rows.labels, 1.0, -1.0), losses.logistic)
    cuts = regime.cuts_of(rows.when[sample.number], "UTC", sample.X.shape[1])
    return regime.regime_of(regime.evidence_of(sample, cuts))


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


# ---------------------------------------------------------------------------------- what if


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
    run = open_run(logged / "auto").state.run
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


# --------------------------------------------------------------------------- as people see it


@pytest.mark.parametrize("command", ["diagnose", "backtest", "what-if"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert here(command, "--help") == 0
    assert f"Example: semicyclic {command}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_report_fits_a_phone(judged: dict[str, Any], tmp_path: Path) -> None:
    assert shown_width(judged["folder"] / "out" / "report.html", 360, tmp_path) <= 360


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
