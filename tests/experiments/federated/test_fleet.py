"""The fleet: who is there when, what they hold, and `semicyclic federate`."""

import contextlib
import io
import json
import logging
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import semicyclic as sc
from semicyclic.adapters.flower import BlockModels, InProcessGrid
from semicyclic.cli import main
from semicyclic.experiments.federated import availability as available
from semicyclic.experiments.federated.app import WEIGHTS, client, clock_of, fleet_grid, run, strategy_of
from semicyclic.experiments.federated.compare import compare, run_repetition
from semicyclic.experiments.federated.fleet import FleetSettings, make_fleet
from semicyclic.experiments.federated.held_out import HeldOutRows
from semicyclic.experiments.federated.kernels.client_sgd import loss_before, train_weights
from semicyclic.experiments.federated.population import flights, synthetic, tweets
from semicyclic.types import Array
from tests.reports.browser import CHROMIUM, shown_width

SHARED = Path(__file__).parents[4] / "shared" / "data"
SMALL = FleetSettings(devices=60, days=2, rounds_per_block=2, per_round=5, invited=6)
DAY = sc.Schedule.daily(6)
WORDS = ["--devices", "60", "--days", "2", "--rounds-per-block", "2", "--per-round", "5"]


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command(*words: str) -> Done:
    """`semicyclic federate`, in this process."""
    said, wrong = io.StringIO(), io.StringIO()
    level = logging.getLogger("flwr").level
    code = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        try:
            main.main(["federate", *words])
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            logging.getLogger("flwr").setLevel(level)
    return Done(code, said.getvalue(), wrong.getvalue())


# ----------------------------------------------------------------------------- availability


def _all_models(home: Array) -> dict[str, available.Availability]:
    return {
        "flat": available.flat(len(home), "UTC"),
        "cosine": available.cosine(home, "UTC"),
        "linear": available.linear(home, "UTC"),
        "label-cycle": available.label_cycle(home, DAY),
    }


def test_profiles_are_distributions_and_most_available_is_at_home() -> None:
    home = np.array([0.25, 5.5, 11.9, 23.5])
    for name, found in _all_models(home).items():
        assert (found.table >= 0).all(), name
        assert (found.table <= 1).all(), name
        profiles = found.profiles(DAY)
        np.testing.assert_allclose(profiles.sum(axis=1), 1.0)
        if name != "flat":
            best = found.table.argmax(axis=0) / 2
            apart = np.abs((best - home + 12) % 24 - 12)
            assert (apart <= (0.5 if name != "label-cycle" else 4.0)).all(), name
    np.testing.assert_array_equal(_all_models(home)["label-cycle"].profiles(DAY).argmax(axis=1), [0, 1, 2, 5])
    assert (_all_models(home)["label-cycle"].profiles(DAY).max(axis=1) == 1.0).all()


def test_who_is_online_follows_the_chance_and_the_seed() -> None:
    found = available.cosine(np.linspace(0, 24, 4000, endpoint=False), "UTC")
    noon = 1_704_110_400_000_000
    share = np.bincount(found.online(noon, 1), minlength=4000)
    chance = found.chance(noon)
    assert abs(share[chance > 0.8].mean() - chance[chance > 0.8].mean()) < 0.05
    assert abs(share[chance < 0.1].mean() - chance[chance < 0.1].mean()) < 0.05
    np.testing.assert_array_equal(found.online(noon, 1), found.online(noon + 60_000_000, 1))
    assert found.online(noon, 1).tolist() != found.online(noon, 2).tolist()


def test_the_night_of_a_zone_moves_with_daylight_saving() -> None:
    """At 02:00 in New York, winter and summer: 07:00 and 06:00 UTC."""
    found = available.label_cycle(np.array([2.0]), sc.Schedule.daily(24, zone="America/New_York"))
    winter, summer = 1_704_092_400_000_000, 1_719_813_600_000_000
    assert found.chance(winter) == 1.0
    assert found.chance(summer) == 1.0
    assert found.chance(summer + 3_600_000_000) == 0.0


def test_a_trace_in_fedscales_layout_is_followed(tmp_path: Path) -> None:
    """Two clients of two days; the second is inactive in its night, and both are turned to their home."""
    hours = 3600
    told = {
        "1": {
            "duration": 1,
            "active": [0, 30 * hours],
            "inactive": [6 * hours, 40 * hours],
            "finish_time": 172800,
        },
        "2": {
            "duration": 1,
            "active": [3 * hours],
            "inactive": [5 * hours],
            "finish_time": 172800,
            "model": "x",
        },
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(told))
    found = available.from_trace(path, np.array([4.0] * 50), "UTC", np.random.default_rng(1))
    columns = {tuple(column) for column in found.table.T}
    first = [1.0] * 12 + [0.0] * 48 + [1.0] * 20 + [0.0] * 16
    second = [0.0] * 6 + [1.0] * 4 + [0.0] * 86
    assert columns == {tuple(first), tuple(second)}
    later = available.from_trace(path, np.array([6.0] * 50), "UTC", np.random.default_rng(1))
    np.testing.assert_array_equal(np.roll(found.table, 4, axis=0), later.table)


def test_an_interval_across_the_end_of_a_trace_goes_on_at_its_beginning(tmp_path: Path) -> None:
    told = {"1": {"active": [22 * 3600], "inactive": [3 * 3600], "finish_time": 86_400}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(told))
    found = available.from_trace(path, np.array([4.0]), "UTC", np.random.default_rng(1))
    assert found.table[:, 0].tolist() == [1.0] * 6 + [0.0] * 38 + [1.0] * 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"1": {"active": [NaN], "inactive": [2], "finish_time": 9}}', "times that are not finite"),
        ("[]", "a trace names clients"),
        ("{", "not a JSON file"),
        ('{"1": {"active": [1]}}', "client 0 has no active, inactive and finish_time"),
        ('{"1": {"active": [1], "inactive": [2, 3], "finish_time": 9}}', "1 active and 2 inactive times"),
    ],
)
def test_traces_that_are_none_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        available.from_trace(path, np.zeros(3), "UTC", np.random.default_rng(1))


def test_a_damaged_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    np.savez(path, A=np.ones((48, 3), np.int8), step_minutes=30)
    assert available.from_trace(path, np.zeros(3), "UTC", np.random.default_rng(1)).table.all()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"trace.npz: not a trace"):
        available.from_trace(path, np.zeros(3), "UTC", np.random.default_rng(1))


@pytest.mark.skipif(not (SHARED / "phone-availability.npz").exists(), reason="no real phones at hand")
def test_real_phones_are_there_mostly_at_night() -> None:
    found = available.from_trace(
        SHARED / "phone-availability.npz", np.full(5000, 4.0), "UTC", np.random.default_rng(1)
    )
    curve = found.curve()
    assert len(found.table) == 240
    assert 3.0 <= curve.argmax() / 2 <= 6.0
    assert 0.09 < curve.max() < 0.16
    assert 0.03 < curve.min() < 0.08


# ------------------------------------------------------------------------------- populations


def test_labels_of_the_synthetic_population_follow_the_zone() -> None:
    found = synthetic(3000, np.random.default_rng(1), skew=0.35, ties=0.5)
    device = np.repeat(np.arange(3000), np.diff(found.first))
    chance = 0.5 + 0.35 * np.cos(2 * np.pi * found.home / 24)
    for low, high in ((0.15, 0.25), (0.4, 0.6), (0.75, 0.86)):
        mine = (chance[device] >= low) & (chance[device] <= high)
        assert abs(found.labels[mine].mean() - chance[device][mine].mean()) < 0.02
    counts = np.diff(found.first)
    night, noon = np.cos(found.phase) > 0.9, np.cos(found.phase) < -0.9
    assert counts[night].mean() > 2 * counts[noon].mean()
    assert set(found.zone) <= {"Etc/GMT", *(f"Etc/GMT{n:+d}" for n in range(-12, 12))}
    # Etc/GMT-9 is nine hours ahead of UTC, so its night is at 17:00 UTC.
    tokyo = found.zone.index("Etc/GMT-9")
    assert found.home[tokyo] == 17.0


def test_routes_of_flights_are_clients() -> None:
    found = flights(np.random.default_rng(1))
    assert found.devices == len(found.zone) == len(found.home)
    assert 200 < found.devices < 500
    assert np.diff(found.first).min() > 0
    assert len(found.rows) + len(found.test) > 300_000
    assert (np.diff(found.test_device) >= 0).all()
    # Late flights leave in the evening: so do the routes that fly then.
    late = np.add.reduceat(found.labels, found.first[:-1]) / np.diff(found.first)
    many = np.diff(found.first) > 300
    assert np.corrcoef(found.home[many], late[many])[0, 1] > 0.2


@pytest.mark.skipif(not (SHARED / "sentiment140-sample.csv").exists(), reason="no real tweets at hand")
def test_tweets_of_the_same_hours_are_a_client() -> None:
    found = tweets(SHARED / "sentiment140-sample.csv", np.random.default_rng(1))
    assert found.own is not None
    blocks = found.own.reshape(len(found.own), 6, 4).sum(axis=2)
    assert ((blocks > 0).sum(axis=1) == 1).all()
    assert np.diff(found.first).max() <= 20
    made = available.as_rows(found.own, found.schedule.zone).profiles(found.schedule)
    np.testing.assert_array_equal(made.argmax(axis=1), blocks.argmax(axis=1))


# --------------------------------------------------------------------------------- training


def test_local_steps_are_those_of_the_logistic_loss() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(20, 3)), (rng.random(20) < 0.5).astype(float)
    rows = sc.Rows(X, dtype=np.float64)
    order = rng.integers(0, 20, (5, 4))
    w = rng.normal(size=4)
    expected = w.copy()
    wide = np.c_[X, np.ones(20)]
    for batch in order:
        p = 1 / (1 + np.exp(-wide[batch] @ expected))
        expected = expected - 0.3 * wide[batch].T @ (p - y[batch]) / 4
    cells = rows.indptr, rows.indices, rows.values
    np.testing.assert_allclose(train_weights(cells, y, w, order, 0.3), expected, atol=1e-12)
    score = wide[3:9] @ w
    np.testing.assert_allclose(
        loss_before(cells, y, w, 3, 9), np.mean(np.logaddexp(0, score) - y[3:9] * score), atol=1e-12
    )


def test_devices_evaluate_on_their_own_rows() -> None:
    from flwr.serverapp.strategy import FedAvg

    world = make_fleet(
        FleetSettings(devices=12, availability="flat", per_round=6, invited=6, days=1, rounds_per_block=1)
    )
    clock = clock_of(world)
    inner = FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    found = strategy_of(world, inner=inner, clock=clock)
    result = run(found, fleet_grid(world, clock, uniform=True), world, 6)
    last = result.evaluate_metrics_clientapp[6]
    assert set(last) == {"eval_loss", "accuracy"}
    assert 0.4 < float(last["accuracy"]) <= 1.0  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_run_and_another_one_is_not() -> None:
    found = []
    for seed in (1, 1, 2):
        settings = FleetSettings(**{**vars(SMALL), "seed": seed})
        found.append(run_repetition(settings, None, lambda *_: None))
    first, again, other = (each.by_block["hedged"].tolist() for each in found)
    assert first == again
    assert first != other
    assert found[0].lost == found[1].lost


def test_blocks_are_scored_by_the_devices_that_are_there() -> None:
    """The yardstick against its definition, device by device."""
    world = make_fleet(FleetSettings(devices=40, availability="linear", seed=3))
    yard, population = HeldOutRows.of(world), world.population
    rng = np.random.default_rng(0)
    models = BlockModels(population.schedule, tuple({WEIGHTS: rng.normal(size=21)} for _ in range(6)))
    dense = np.zeros((len(population.test), 21))
    dense[:, 20] = 1.0
    row = np.repeat(np.arange(len(dense)), np.diff(population.test.indptr))
    dense[row, population.test.indices] = population.test.values
    matrix = yard.matrix(models)
    for i in range(6):
        right = (dense @ models.models[i][WEIGHTS] > 0) == (population.test_labels > 0)
        tests = ~population.validates
        by_device = np.array([right[tests & (population.test_device == c)].mean() for c in range(40)])
        for j in range(6):
            share = world.profiles[:, j] / world.profiles[:, j].sum()
            np.testing.assert_allclose(matrix[i, j], share @ by_device)
    soft = []
    for c in range(40):
        mine = (population.test_device == c) & ~population.validates
        w = models.personal(world.profiles[c])[WEIGHTS]
        soft.append(((dense[mine] @ w > 0) == (population.test_labels[mine] > 0)).mean())
    share = (world.profiles / world.profiles.sum(axis=0)).mean(axis=1)
    np.testing.assert_allclose(yard.memberships(models)["soft"], share @ np.array(soft))
    np.testing.assert_allclose(yard.memberships(models)["clock"], np.diag(matrix).mean())


def test_devices_that_are_slow_or_gone_are_counted() -> None:
    world = make_fleet(
        FleetSettings(devices=200, ties=1.0, deadline=4.0, days=1, rounds_per_block=4, availability="flat")
    )
    clock = clock_of(world)
    found = strategy_of(world, clock=clock)
    run(found, fleet_grid(world, clock), world, world.rounds)
    lost = found.reply_counts()
    assert lost["no_reply"] > 0
    assert lost["asked"] == 24 * 26
    assert lost["used"] + lost["no_reply"] == lost["asked"]
    assert found.participation.sum() == lost["used"]


def test_the_apps_of_the_fleet_run_in_process_as_anywhere(tmp_path: Path) -> None:
    """The very ServerApp, with availability asked for by query."""
    from flwr.app import Context, RecordDict

    from semicyclic.experiments.federated.app import main

    settings = FleetSettings(
        devices=12, per_round=4, invited=4, rounds_per_block=1, days=2, availability="cosine"
    )
    config = settings.config() | {"out": str(tmp_path / "out"), "chains": "hedged"}
    grid = InProcessGrid(client, 12, config=config)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    main(grid, context)
    models = BlockModels.load(tmp_path / "out" / "models.safetensors")
    assert all(np.isfinite(model[WEIGHTS]).all() for model in models.models)
    lines = (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()
    assert len(lines) == 12
    assert sum(json.loads(line)["used"] for line in lines) == 48


# ---------------------------------------------------------------------------------- command


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fleet") / "out"
    done = command(
        *WORDS,
        "--availability",
        "linear",
        "--repetitions",
        "2",
        "--local-steps",
        "1",
        "10",
        "--out",
        str(out),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "pluralistic" in done.stdout
    assert f"Open {out}/report.html" in done.stdout.replace("\n", "")
    return out


def test_a_fleet_leaves_what_was_promised(made: Path) -> None:
    results = json.loads((made / "results.json").read_text())
    keys = {"fedavg_last", "fedavg_average", "pluralistic", "separate", "hedged", "uniform", "best"}
    keys |= {"fedavg_block_last", "fedavg_block_before"}
    assert set(results["accuracy"]) == keys
    for score in results["accuracy"].values():
        assert set(score) == {"mean", "std", "by_block"}
        assert len(score["by_block"]) == 6
        np.testing.assert_allclose(score["mean"], np.mean(score["by_block"]))
        assert 0.4 < score["mean"] < 1.0
        assert score["std"] >= 0
    assert set(results["local_steps"]) == {"1", "10"}
    assert results["local_steps"]["1"]["accuracy"] == results["accuracy"]
    assert np.array(results["matrix"]).shape == (6, 6)
    np.testing.assert_allclose(np.mean(results["matrix"]), results["accuracy"]["fedavg_last"]["mean"])
    assert len(results["availability"]) == 48
    assert len(results["over_days"]["pluralistic"]) == 2
    np.testing.assert_allclose(
        results["over_days"]["pluralistic"][-1], results["accuracy"]["pluralistic"]["by_block"]
    )
    assert set(results["membership"]) == {"clock", "hard", "soft"}
    assert results["settings"]["seed"] == 0
    assert BlockModels.load(made / "models.safetensors").schedule == DAY
    assert not (made / "state").exists()
    text = (made / "report.html").read_text()
    for word in ("Who is there", "Day by day", "used at other hours", "Hard or soft", "What was lost"):
        assert word in text
    assert "http" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")


@pytest.mark.skipif(CHROMIUM is None, reason="no browser at hand")
def test_the_fleets_report_fits_a_phone(made: Path, tmp_path: Path) -> None:
    assert shown_width(made / "report.html", 360, tmp_path) <= 360


def test_killed_at_any_moment_a_fleet_ends_in_the_same_bytes(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [
        *WORDS,
        "--availability",
        "linear",
        "--repetitions",
        "2",
        "--local-steps",
        "1",
        "10",
        "--out",
        str(out),
    ]
    called = [sys.executable, "-m", "semicyclic.cli.main", "federate", *words]
    rng, kills = np.random.default_rng(1), 0
    for _ in range(4):
        process = subprocess.Popen(called, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait = time.monotonic() + 60
        seen = len(list(out.glob("state/**/rounds.jsonl")))
        while time.monotonic() < wait and process.poll() is None:
            if len(list(out.glob("state/**/rounds.jsonl"))) > seen:
                break
            time.sleep(0.02)
        time.sleep(float(rng.uniform(0.0, 0.3)))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait(30)
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert kills >= 2
    for name in ("results.json", "models.safetensors", "days.svg", "report.html"):
        assert (out / name).read_bytes() == (made / name).read_bytes(), name


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.csv"], "nowhere.csv: choose synthetic, flights, or a file of tweets that exists"),
        (["--availability", "sometimes"], "--availability sometimes: choose label-cycle, cosine, linear"),
        (["--availability", "rows"], "--availability rows: the synthetic population's rows have no hours"),
        (["--local-steps", "1", "1"], "--local-steps 1 1: different numbers, each at least 1"),
        (["--devices", "0"], "--devices 0: must be at least 1"),
        (["--per-round", "9", "--invited", "5"], "--invited 5: must be at least --per-round 9"),
        (["--skew", ".7"], "--skew 0.7: must be from 0 to below .5"),
        (["--repetitions", "0"], "--repetitions 0: must be at least 1"),
        (["--deadline", "-1"], "--deadline -1.0: must be positive"),
        (["--seed", "-1"], "--seed -1: must be 0 or more"),
        (["--invited", "0"], "--invited 0: must be at least --per-round 20"),
        (["--turn", "nan"], "--turn nan: must be 0 or more"),
        ([*WORDS, "--deadline", ".001"], "no round had a reply in time: give a longer --deadline"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    done = command(*words, "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"semicyclic: {sentence}"), done.stderr
    assert not (tmp_path / "out" / "results.json").exists()
    if "--deadline" not in words:
        assert not (tmp_path / "out").exists()


def test_other_words_do_not_go_on_with_an_unfinished_run(tmp_path: Path) -> None:
    state = tmp_path / "out" / "state"
    state.mkdir(parents=True)
    (state / "asked.json").write_text(json.dumps({"data": "synthetic", "availability": "flat"}))
    done = command(*WORDS, "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "an unfinished run with availability flat, not label-cycle" in done.stderr.replace("\n", " ")


def test_flights_and_their_own_hours_make_a_fleet(tmp_path: Path) -> None:
    few = ["--days", "1", "--rounds-per-block", "2", "--repetitions", "1", "--per-round", "5"]
    done = command("flights", "--availability", "rows", *few, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["population"]["name"] == "flights"
    assert results["zone"] == "America/New_York"
    assert results["accuracy"]["pluralistic"]["mean"] > 0.6
    assert min(results["participation"]) >= 5
    # Rounds in which nobody was there are made up for on the next day.
    assert max(results["participation"]) <= 15
    assert results["never_trained"] == []
    assert results["settings"]["devices"] == results["population"]["devices"] < 500
    shutil.rmtree(tmp_path / "out")


# -------------------------------------------------------------------------- what it is good for


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 10, 400])
@pytest.mark.parametrize("kind", ["label-cycle", "flat"])
def test_a_model_for_each_block_helps_where_availability_is_cyclic_and_costs_nothing_where_not(
    kind: str, steps: int
) -> None:
    """Ten fleets: better than Federated Averaging in each, not below the ideal; on a par if all are there."""
    settings = FleetSettings(
        devices=300, days=8, rounds_per_block=5, per_round=12, invited=15, availability=kind
    )
    settings = replace(settings, step_size=2 / np.sqrt(steps))
    results, _ = compare(
        settings, repetitions=10, local_steps=(steps,), out=None, report_progress=lambda *_: None
    )
    last, average, ideal = (
        results["differences"][key] for key in ("fedavg_last", "fedavg_average", "uniform")
    )
    if kind == "label-cycle":
        assert last["better_in"] == 10
        assert average["better_in"] == 10
        assert ideal["mean"] > -2 * ideal["std"] / np.sqrt(10)
    else:
        # The mean of a block has a sixth of the rounds: that noise, and no more, may be lost.
        assert average["mean"] > -max(2 * average["std"], 0.003)
        assert ideal["mean"] > -max(2 * ideal["std"], 0.003)
        assert last["mean"] > -0.003
    print(kind, steps, {key: score["mean"] for key, score in results["accuracy"].items()})


@pytest.mark.slow
def test_the_default_needs_no_tuning_of_the_step() -> None:
    """Ten fleets, every approach at its own best step: as good as the best baseline; and so at every step."""
    settings = FleetSettings(devices=300, days=8, rounds_per_block=5, per_round=12, invited=15)
    results, models = compare(
        settings, repetitions=10, local_steps=(10,), out=None, report_progress=lambda *_: None
    )
    assert results["gain"]["mean"] > -2 * results["gain"]["std"] / np.sqrt(10) - 0.003
    assert models.read_out == "best"
    spread = {
        key: np.ptp([each["accuracy"] for each in results["validation"][key]])
        for key in ("best", "pluralistic", "fedavg_last")
    }
    assert spread["best"] < 0.01
    assert spread["pluralistic"] > 0.02
    assert spread["fedavg_last"] > 0.02


def test_a_pickled_trace_is_named_with_how_to_convert_it(tmp_path: Path) -> None:
    """As FedScale publishes it; the advice is followed."""
    import pickle

    trace = {1: {"duration": 3, "active": [0], "inactive": [43_200], "finish_time": 86_400}}
    path = tmp_path / "client_behave_trace"
    path.write_bytes(pickle.dumps(trace))
    done = command(*WORDS, "--availability", str(path), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "a pickle, as FedScale's client_behave_trace" in done.stderr
    assert "docs/federated.md" in " ".join(done.stderr.split())
    page = (Path(__file__).parents[3] / "docs" / "federated.md").read_text()
    code = page.partition('python -c "')[2].partition('"')[0]
    subprocess.run([sys.executable, "-c", code, str(path)], cwd=tmp_path, check=True)
    found = available.from_trace(tmp_path / "trace.json", np.array([2.0]), "UTC", np.random.default_rng(0))
    assert found.table.mean() == 0.5
