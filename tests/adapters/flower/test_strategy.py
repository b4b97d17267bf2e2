"""`PluralisticStrategy` equals the chain of the paper, whatever the inner strategy and the replies are."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as known
from flwr.serverapp.strategy import FedAvg, Strategy
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.adapters.flower import BlockClock, BlockModels, FastClock, WallClock
from semicyclic.adapters.flower.averages import ArraySpec, BlockAverages, Storage
from semicyclic.adapters.flower.serialization import decode, encode
from tests.adapters.flower.small_fleet import (
    HOURS,
    SCHEDULE,
    START,
    WIDTH,
    Chains,
    InProcessGrid,
    PluralisticStrategy,
    RoundClock,
    Selection,
    client,
    fedavg,
    honest,
    initial,
    run,
    sent,
    strategy,
    told,
)

ROUNDS = 60
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(ROUNDS, 5)), (RNG.random(ROUNDS) < 0.5).astype(float)


def one_row_a_round() -> ClientApp:
    """A client that makes one step of the logistic loss on the row of the round."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001
        row = told(message, "server-round") - 1
        w = sent(message)["w"]
        x = np.r_[X[row], 1.0]
        score = float(x @ w)
        loss = float(np.logaddexp(0.0, score) - Y[row] * score)
        after = w - 0.5 * (1 / (1 + np.exp(-score)) - Y[row]) * x
        metrics = MetricRecord({"num-examples": 1, "loss-before": loss})
        return Message(
            RecordDict({"arrays": ArrayRecord({"w": Array(after)}), "m": metrics}), reply_to=message
        )

    return app


@pytest.mark.parametrize(
    ("chains", "method"),
    [(Chains.SHARED, "pluralistic"), (Chains.SEPARATE, "separate"), (Chains.HEDGED, "hedged")],
)
def test_one_client_and_one_step_a_round_are_the_chain_of_the_paper(chains: Chains, method: str) -> None:
    rows = sc.Rows(X, Y, when=[START + HOURS * i for i in range(ROUNDS)], dtype=np.float64)
    whole = getattr(sc.train, method)(rows, SCHEDULE, loss=sc.loss.logistic, step_size=0.5, batch_size=1)
    found = strategy(chains=chains, selection=Selection(1), tail=3)
    found.start(InProcessGrid(one_row_a_round(), 7), ArrayRecord({"w": Array(np.zeros(6))}), ROUNDS)
    for ours, theirs in (
        (found.mean(), whole.mean()),
        (found.last(), whole.last()),
        (found.tail(3), whole.tail(cycles=3)),
        (found.tail(1), whole.tail(cycles=1)),
    ):
        np.testing.assert_allclose(np.stack([m["w"] for m in ours.models]), theirs.weights[:, 0], atol=1e-12)
    if chains is Chains.SHARED:
        single = sc.train.consensus(rows, SCHEDULE, loss=sc.loss.logistic, step_size=0.5, batch_size=1)
        np.testing.assert_allclose(found.consensus()["w"], single.mean().weights[0, 0], atol=1e-12)


# ------------------------------------------------------------------------------- averages


steps = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=25)


@given(steps, st.integers(1, 4), st.integers(0, 2**32))
def test_block_means_and_tails_are_what_their_names_say(places: list[Any], tail: int, seed: int) -> None:
    places = sorted(places, key=lambda place: place[0])
    averages = BlockAverages({"a": np.zeros((2, 1)), "n": np.zeros(3)}, 3, tail)
    rng = np.random.default_rng(seed)
    models = [{"a": rng.normal(size=(2, 1)), "n": rng.normal(size=3)} for _ in places]
    for place, model in zip(places, models, strict=True):
        averages.visit(place)
        averages.record([(0.25, model), (0.75, model)])
    assert all(len(parts) <= tail for parts in averages.recent)
    for block in range(3):
        mine = [(place[0], model) for place, model in zip(places, models, strict=True) if place[1] == block]
        mean, recent = averages.means()[block], averages.tails(tail)[block]
        if not mine:
            assert mean is None
            assert recent is None
            continue
        last = sorted({cycle for cycle, _ in mine})[-tail:]
        for found, chosen in ((mean, mine), (recent, [each for each in mine if each[0] in last])):
            assert found is not None
            assert found.weight == len(chosen)
            for name, value in averages.layout.unflatten(found.value).items():
                np.testing.assert_allclose(value, np.mean([m[name] for _, m in chosen], axis=0), atol=1e-12)


def test_large_single_precision_models_are_averaged_well() -> None:
    size = 100_003
    model = {"w": np.zeros(size, np.float32)}
    averages, total, rng = BlockAverages(model, 2, 1), np.zeros(size), np.random.default_rng(1)
    for step in range(40):
        w = (1000 + rng.normal(size=size)).astype(np.float32)
        averages.visit((step // 4, 0))
        averages.record([(1.0, {"w": w})])
        total += w
    mean = averages.means()[0]
    assert mean is not None
    np.testing.assert_allclose(mean.value, total / 40, rtol=3e-7)


def test_whole_numbers_and_truth_values_are_averaged_as_such() -> None:
    with pytest.raises(ValueError, match="cannot be averaged"):
        ArraySpec.of({"w": np.zeros(2, np.longdouble)})
    model = {"count": np.array(7, np.int64), "mask": np.array([True, False]), "w": np.zeros(2, np.float16)}
    averages = BlockAverages(model, 1, 0)
    averages.visit((0, 0))
    averages.record([(1.0, model)])
    averages.visit((0, 0))
    averages.record([(1.0, {**model, "count": np.array(8, np.int64)})])
    averages.visit((0, 0))
    averages.record([(1.0, {**model, "count": np.array(8, np.int64)})])
    mean = averages.means()[0]
    assert mean is not None
    found = averages.layout.unflatten(mean.value)
    assert found["count"] == 8
    assert found["count"].dtype == np.int64
    assert found["mask"].tolist() == [True, False]
    assert found["w"].dtype == np.float16


def test_models_of_any_byte_order_are_saved(tmp_path: Path) -> None:
    model = {"w": np.arange(3, dtype=">f4")}
    BlockModels(sc.Schedule.daily(1), (model,)).save(tmp_path / "models")
    assert BlockModels.load(tmp_path / "models").models[0]["w"].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("precision", ["full", "half"])
def test_large_integers_are_stored_exactly(precision: str) -> None:
    model: dict[str, Any] = {"id": np.array([2**40 + 1, 5000]), "w": np.ones(2, np.float32)}
    averages = BlockAverages(model, 1, 2, Storage(precision))
    for cycle in range(3):
        averages.visit((cycle, 0))
        averages.record([(1.0, model)])
    for mean in (averages.means()[0], averages.tails(2)[0]):
        assert mean is not None
        assert averages.layout.unflatten(mean.value)["id"].tolist() == model["id"].tolist()


# ----------------------------------------------------------------------- any strategy inside


INNER: dict[str, Callable[[], Strategy]] = {
    "FedAvg": fedavg,
    "FedAdam": lambda: known.FedAdam(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
    "FedYogi": lambda: known.FedYogi(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
    "FedAvgM": lambda: known.FedAvgM(
        fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, server_momentum=0.5
    ),
    "FedProx": lambda: known.FedProx(
        fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, proximal_mu=0.1
    ),
    "FedMedian": lambda: known.FedMedian(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
    "private": lambda: known.DifferentialPrivacyServerSideFixedClipping(fedavg(), 0.1, 1.0, 6),
    "adaptive": lambda: known.DifferentialPrivacyServerSideAdaptiveClipping(
        fedavg(), noise_multiplier=0.1, num_sampled_clients=6
    ),
}


@pytest.mark.parametrize("name", INNER)
def test_any_strategy_goes_its_own_way_inside(name: str) -> None:
    """Flower's own loop around our strategy, and around the bare one: the same models, sample by sample."""
    seen: dict[int, Any] = {}

    def look(number: int, arrays: ArrayRecord) -> None:
        seen[number] = {key: array.numpy() for key, array in arrays.items()}

    seed = None if name in ("private", "adaptive") else 5
    found = strategy(INNER[name](), seed=seed)
    Strategy.start(found, InProcessGrid(client(), 6), initial(), 24, evaluate_fn=look)
    wrapped = dict(seen)
    for block in range(4):
        # The model in force in round r is the one after round r - 1.
        mine = [wrapped[number - 1] for number in range(1, 25) if (2 * (number - 1) % 24) // 6 == block]
        for key in ("w", "b"):
            np.testing.assert_allclose(
                found.mean().models[block][key], np.mean([each[key] for each in mine], axis=0), atol=1e-12
            )
    if seed is None:
        return
    INNER[name]().start(InProcessGrid(client(), 6), initial(), 24, evaluate_fn=look)
    for number in range(25):
        for key in ("w", "b"):
            np.testing.assert_allclose(wrapped[number][key], seen[number][key], atol=1e-12)


def test_blocks_have_the_servers_state_for_themselves() -> None:
    """Separate chains with momentum: each as if its rounds were the only ones."""
    found = strategy(INNER["FedAvgM"](), chains=Chains.SEPARATE)
    run(found, 24)
    for block in range(4):
        app = client()
        mine = [number for number in range(1, 25) if (2 * (number - 1) % 24) // 6 == block]
        grid, arrays = InProcessGrid(app, 6), initial()
        inner = INNER["FedAvgM"]()
        for number in mine:
            asked = inner.configure_train(number, arrays, ConfigRecord(), grid)
            arrays = inner.aggregate_train(number, grid.send_and_receive(asked))[0] or arrays
        np.testing.assert_allclose(found.last().models[block]["w"], arrays["w"].numpy(), atol=1e-12)


def test_the_seed_decides_whom_a_strategy_inside_draws() -> None:
    found = [strategy(fedavg(fraction_train=0.5), seed=seed) for seed in (3, 3, 4)]
    for each in found:
        run(each, 10)
    same, again, other = (each.last().models[0]["w"].tolist() for each in found)
    assert same == again
    assert same != other


# ------------------------------------------------------------------------------ bad clients


def _with(**changes: Any) -> Callable[[Message, dict[str, Any]], RecordDict]:
    """What an honest client would send, with other arrays, metrics or records."""

    def reply(message: Message, arrays: dict[str, Any]) -> RecordDict:
        number = told(message, "server-round")
        content: Any = honest(2, number, arrays)
        metrics = dict(content["metrics"]) | changes.get("metrics", {})
        for name in changes.get("without", ()):
            metrics.pop(name)
        values = {key: array.numpy() for key, array in content["arrays"].items()}
        values = {**values, **changes.get("arrays", {})}
        for name in changes.get("drop", ()):
            values.pop(name)
        made: dict[str, Any] = {"arrays": ArrayRecord({key: Array(value) for key, value in values.items()})}
        made |= changes.get("records", {})
        return RecordDict({**made, changes.get("named", "metrics"): MetricRecord(metrics)})

    return reply


def _raises(message: Message, arrays: dict[str, Any]) -> RecordDict:  # noqa: ARG001
    raise RuntimeError("out of battery")


def _garbage(message: Message, arrays: dict[str, Any]) -> RecordDict:
    content: Any = _with()(message, arrays)
    content["arrays"]["w"] = Array("float64", (WIDTH,), "numpy.ndarray", b"\x93NUMPY\x01\x00nonsense")
    changed: RecordDict = content
    return changed


def _short_of_bytes(message: Message, arrays: dict[str, Any]) -> RecordDict:
    content: Any = _with()(message, arrays)
    whole = content["arrays"]["w"]
    content["arrays"]["w"] = Array("float64", (WIDTH,), "numpy.ndarray", whole.data[:-3])
    changed: RecordDict = content
    return changed


def _bytes(data: bytes) -> Callable[[Message, dict[str, Any]], RecordDict]:
    """An array of these bytes, that says it is one."""

    def reply(message: Message, arrays: dict[str, Any]) -> RecordDict:
        content: Any = _with()(message, arrays)
        content["arrays"]["w"] = Array("float64", (WIDTH,), "numpy.ndarray", data)
        changed: RecordDict = content
        return changed

    return reply


def _head(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(32)


BAD: dict[str, tuple[str, Any]] = {
    "magic alone": ("unreadable", _bytes(b"\x93NUMPY")),
    "a shape without end": (
        "unreadable",
        _bytes(_head(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000000000,), }\n")),
    ),
    "brackets": ("unreadable", _bytes(_head(b"(" * 900))),
    "quotes": ("unreadable", _bytes(_head(b"'''\n"))),
    "a deep expression": ("unreadable", _bytes(_head(b"-" * 3000 + b"1\n"))),
    "a long header": ("unreadable", _bytes(_head(b"-" * 8000 + b"1\n"))),
    "a dictionary by lists": ("unreadable", _bytes(_head(b"{[]:1}\n"))),
    "objects": ("unreadable", _bytes(_head(b"{'descr': '|O', 'fortran_order': False, 'shape': (4,), }\n"))),
    "values beyond any model": ("too large", _with(arrays={"w": np.full(WIDTH, -1e200)})),
    "nan": ("not finite", _with(arrays={"w": np.array([0.0, np.nan, 0.0, 0.0])})),
    "infinity": ("not finite", _with(arrays={"w": np.array([0.0, -np.inf, 0.0, 0.0])})),
    "opposite infinities": ("not finite", _with(arrays={"w": np.array([np.inf, -np.inf, 0.0, 0.0])})),
    "wrong shape": ("shape", _with(arrays={"w": np.zeros(WIDTH + 1)})),
    "a shape that broadcasts": ("shape", _with(arrays={"w": np.zeros(1)})),
    "another name": ("names", _with(arrays={"v": np.zeros(WIDTH)}, drop=["w"])),
    "an array more": ("names", _with(arrays={"v": np.zeros(WIDTH)})),
    "an array less": ("names", _with(drop=["b"])),
    "complex numbers": ("type", _with(arrays={"w": np.zeros(WIDTH, complex)})),
    "no count": ("count", _with(without=["num-examples"])),
    "a count of zero": ("count", _with(metrics={"num-examples": 0})),
    "a negative count": ("count", _with(metrics={"num-examples": -5})),
    "a count that is nan": ("count", _with(metrics={"num-examples": float("nan")})),
    "an absurd count": ("count", _with(metrics={"num-examples": 10**15})),
    "a count beyond all floats": ("count", _with(metrics={"num-examples": 10**400})),
    "a list of counts": ("count", _with(metrics={"num-examples": [1, 2]})),
    "a metric that is nan": ("not finite", _with(metrics={"loss-before": float("nan")})),
    "a metric more": ("names", _with(metrics={"other": 1.0})),
    "metrics under another name": ("names", _with(named="numbers")),
    "two models": ("names", _with(records={"second": ArrayRecord({"w": Array(np.zeros(WIDTH))})})),
    "an app that raises": ("failed", _raises),
    "garbage": ("unreadable", _garbage),
    "cut short": ("unreadable", _short_of_bytes),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("chains", [Chains.SHARED, Chains.HEDGED])
def test_a_bad_client_is_as_if_it_were_not_there(name: str, chains: Chains) -> None:
    reason, reply = BAD[name]
    found, without = strategy(chains=chains), strategy(chains=chains)
    run(found, 8, InProcessGrid(client({2: reply}), 6))
    run(without, 8, InProcessGrid(client(), 6, online=lambda: [0, 1, 3, 4, 5]))
    per_round = 2 if chains is Chains.HEDGED else 1
    assert found.reply_counts()["rejected"] == {reason: 8 * per_round}
    assert found.reply_counts()["rounds_without_a_step"] == 0
    for ours, theirs in zip(found.mean().models, without.mean().models, strict=True):
        for key in ("w", "b"):
            assert np.isfinite(ours[key]).all()
            np.testing.assert_array_equal(ours[key], theirs[key])


def test_single_precision_models_stay_what_they_are() -> None:
    """Wider replies are taken in the model's own type: what is infinite there is not finite."""

    def wide(message: Message, arrays: dict[str, Any]) -> RecordDict:
        value = (
            np.full(WIDTH, 1e41) if told(message, "server-round") == 2 else arrays["w"].astype(np.longdouble)
        )
        metrics = MetricRecord({"num-examples": 1, "loss-before": 1.0})
        return RecordDict({"arrays": ArrayRecord({"w": Array(value)}), "metrics": metrics})

    found = strategy()
    start = ArrayRecord({"w": Array(np.zeros(WIDTH, np.float32))})
    found.start(InProcessGrid(client({0: wide}), 6), start, 20)
    assert found.reply_counts()["rejected"] == {"not finite": 1}
    for model in (*found.mean().models, found.main().values):
        assert model["w"].dtype == np.float32
        assert np.isfinite(model["w"]).all()


@pytest.mark.parametrize(
    ("value", "reason"),
    [(np.nan, "not finite"), (np.inf, "not finite"), (2e9, "too large"), (-2e9, "too large"), (1e8, None)],
)
def test_one_value_among_many_is_found(value: float, reason: str | None) -> None:
    """By a sum of squares, which settles most models in one pass, and only them."""
    size = 50_000
    odd = np.ones(size, np.float32)
    odd[12_345] = value

    def reply(message: Message, arrays: dict[str, Any]) -> RecordDict:  # noqa: ARG001
        metrics = MetricRecord({"num-examples": 1})
        return RecordDict({"arrays": ArrayRecord({"w": Array(odd)}), "metrics": metrics})

    found = strategy(largest=1e9)
    start = ArrayRecord({"w": Array(np.zeros(size, np.float32))})
    found.start(InProcessGrid(client({0: reply}), 1), start, 2)
    assert found.reply_counts()["rejected"] == ({} if reason is None else {reason: 2})
    assert np.isfinite(found.main().values["w"]).all()


def test_what_a_reply_says_of_itself_is_not_believed() -> None:
    """Neither which chain it is for nor who sent it."""

    def liar(message: Message, arrays: dict[str, Any]) -> RecordDict:
        message.metadata.group_id = "elsewhere"
        return honest(2, told(message, "server-round"), arrays)

    for chains in (Chains.SHARED, Chains.HEDGED):
        found, plain = strategy(chains=chains), strategy(chains=chains)
        run(found, 6, InProcessGrid(client({2: liar}), 6))
        run(plain, 6)
        assert found.reply_counts() == plain.reply_counts()
        assert found.mean().models[0]["w"].tolist() == plain.mean().models[0]["w"].tolist()


class Odd(FedAvg):
    """A strategy with a fault in some rounds, and something that it remembers."""

    def __init__(self, fault: str) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        self.fault, self.memory, self.rng = fault, np.zeros(2), np.random.default_rng(3)
        self.seen: dict[int, int] = {}
        self.odd: set[int] = set()

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.memory = self.memory + 1.0
        self.seen[server_round] = len(list(replies))
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round % 3 == 2:
            self.odd = self.odd | {server_round}
            if self.fault == "raises":
                raise RuntimeError("a bad day")
            if self.fault == "state":
                self.memory = np.array([0.0, np.inf])
            if self.fault == "names":
                return ArrayRecord({"w": arrays["w"]}), metrics  # type: ignore[index]
        assert arrays is not None
        noise = self.rng.normal(size=WIDTH)
        arrays["w"] = Array(arrays["w"].numpy() + 0.01 * noise + self.memory[0])
        return arrays, metrics


@pytest.mark.parametrize("fault", ["raises", "state", "names"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_round_that_the_strategy_inside_spoils_did_not_happen(fault: str, wrapped: bool) -> None:
    odd = Odd(fault)
    inner = known.DifferentialPrivacyClientSideFixedClipping(odd, 0.0, 100.0, 6) if wrapped else odd
    found = strategy(inner)
    notes = []
    run(found, 9, on_round=lambda this: notes.append(this.note))
    assert found.reply_counts()["rounds_without_a_step"] == 3
    assert [bool(note) for note in notes] == [False, True, False] * 3
    assert odd.memory.tolist() == [6.0, 6.0]
    assert odd.odd == set()


def test_what_is_left_out_is_logged_with_the_reason() -> None:
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, ear = logging.getLogger("flwr"), Listener()
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.addHandler(ear)
    try:
        run(strategy(), 1, InProcessGrid(client({2: BAD["wrong shape"][1]}), 6))
    finally:
        logger.removeHandler(ear)
        logger.setLevel(level)
    assert "round 1: reply of node 4 rejected: array 'w' has shape (5,), not (4,)" in lines


@pytest.mark.parametrize("name", ["FedAvg", "FedAvgM"])
def test_arrays_may_come_in_any_order(name: str) -> None:
    def turned(message: Message, arrays: dict[str, Any]) -> RecordDict:
        content: Any = honest(0, told(message, "server-round"), arrays)
        back = ArrayRecord({key: content["arrays"][key] for key in ("b", "w")})
        return RecordDict({"arrays": back, "metrics": content["metrics"]})

    found, plain = strategy(INNER[name]()), strategy(INNER[name]())
    run(found, 8, InProcessGrid(client({0: turned}), 6))
    run(plain, 8)
    for ours, theirs in zip(found.mean().models, plain.mean().models, strict=True):
        np.testing.assert_array_equal(ours["w"], theirs["w"])


def test_a_round_of_bad_clients_alone_changes_nothing() -> None:
    only = dict.fromkeys(range(6), BAD["nan"][1])
    found = strategy()
    run(found, 3, InProcessGrid(client(only), 6))
    assert found.reply_counts()["rounds_without_a_step"] == 3
    assert found.last().models[0]["w"].tolist() == [0.0] * WIDTH
    with pytest.raises(ValueError, match="no round has changed the model yet"):
        found.mean()


def test_a_strategy_that_makes_infinities_is_taken_back_with_its_state() -> None:
    """Finite replies can add up to more than a float holds."""
    huge = _with(arrays={"w": np.full(WIDTH, 1.7e308)}, metrics={"num-examples": 3})
    inner = known.FedAvgM(
        fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1, server_momentum=0.9
    )
    found = strategy(inner)
    app = client(dict.fromkeys(range(6), huge))
    run(found, 2, InProcessGrid(client(), 6))
    with np.errstate(all="ignore"):
        grid = InProcessGrid(app, 6)
        for number in (3, 4, 5):
            asked = found.configure_train(number, found.main().record, ConfigRecord(), grid)
            found.aggregate_train(number, grid.send_and_receive(asked))
    assert all(np.isfinite(each["w"]).all() for each in found.mean().models)
    assert np.isfinite(found.main().values["w"]).all()


# ---------------------------------------------------------------------------------- profiles


def _asked(answers: dict[int, Any]) -> ClientApp:
    app = client()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        device = int(context.node_config["partition-id"])
        answer = answers.get(device, {"profile": [0.25] * 4, "zone": "UTC", "device": device})
        return Message(RecordDict({"availability": ConfigRecord(answer)}), reply_to=message)

    return app


WRONG = {
    "too short": {"profile": [1.0]},
    "not a distribution": {"profile": [0.5, 0.5, 0.5, 0.5]},
    "negative": {"profile": [-0.5, 0.5, 0.5, 0.5]},
    "nan": {"profile": [float("nan"), 0.5, 0.5, 0.0]},
    "words": {"profile": ["a", "b", "c", "d"]},
    "none": {"zone": "UTC"},
    "a zone that is a number": {"profile": [0.25] * 4, "zone": 3},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_profile_is_refused_and_counted_and_the_rounds_go_on(name: str) -> None:
    found = strategy(selection=Selection(query_availability=True))
    run(found, 5, InProcessGrid(_asked({3: WRONG[name]}), 6))
    assert found.reply_counts()["rejected"] == {"profile": 1}
    assert found.reply_counts()["used"] == 25
    assert found.reply_counts()["rounds_without_a_step"] == 0


def test_an_availability_next_to_nothing_is_none() -> None:
    answers = {d: {"profile": [1.0, 0.0, 0.0, 0.0]} for d in range(4)}
    answers |= {d: {"profile": [5e-324, 1.0, 0.0, 0.0]} for d in (4, 5)}
    found = strategy(selection=Selection(5, query_availability=True))
    run(found, 4, InProcessGrid(_asked(answers), 6))
    assert found.reply_counts()["used"] == 3 * 4 + 2


def test_two_nodes_do_not_share_a_number() -> None:
    """Else one could bar another from taking part, or take its place."""
    answers = {d: {"profile": [0.25] * 4, "device": 0} for d in range(6)}
    found = strategy(selection=Selection(2, query_availability=True, min_interval=timedelta(hours=5)))
    used: list[int] = []
    run(found, 9, InProcessGrid(_asked(answers), 6), on_round=lambda this: used.append(this.used))
    assert used == [2] * 9


def test_of_two_the_one_that_is_as_before_is_right() -> None:
    odd = _with(metrics={"other": 1.0})

    def later(message: Message, arrays: dict[str, Any]) -> RecordDict:
        return (odd if told(message, "server-round") > 2 else _with())(message, arrays)

    for arrival in (lambda device, _: float(device), lambda device, _: 9.0 - device):
        found = strategy()
        run(found, 5, InProcessGrid(client({2: later}), 6, online=lambda: [2, 3], arrival=arrival))
        assert found.reply_counts()["rejected"] == {"names": 3}
        alone = strategy()
        run(alone, 5, InProcessGrid(client(), 6, online=lambda: [3]))
        assert found.last().models[1]["w"].tolist() != alone.last().models[0]["w"].tolist()


def test_nodes_are_chosen_in_proportion_to_their_availability() -> None:
    """Device 0 comes in block 0 alone, device 1 three times as often in block 1 as elsewhere."""
    answers = {
        0: {"profile": [1.0, 0.0, 0.0, 0.0], "device": 0},
        1: {"profile": [1 / 6, 1 / 2, 1 / 6, 1 / 6], "device": 1},
    }
    found = strategy(selection=Selection(1, query_availability=True))
    chosen: dict[int, list[int]] = {block: [] for block in range(4)}
    grid = InProcessGrid(_asked(answers), 3)
    run(found, 1200, grid, on_round=lambda this: chosen[this.block].extend(n - 2 for n in this.nodes))
    assert 0 not in chosen[1] + chosen[2] + chosen[3]
    share = np.mean(np.array(chosen[0]) == 0)
    assert abs(share - 1 / (1 + 1 / 6 + 1 / 4)) < 0.1
    share = np.mean(np.array(chosen[1]) == 1)
    assert abs(share - (1 / 2) / (1 / 2 + 1 / 4)) < 0.1


def test_clients_that_know_no_query_are_chosen_like_any() -> None:
    found = strategy(selection=Selection(2, query_availability=True))
    run(found, 6, InProcessGrid(client(), 4))
    assert found.reply_counts()["used"] == 12
    assert found.reply_counts()["rejected"] == {}


# --------------------------------------------------------------------------------- selection


def test_a_round_takes_k_of_n_and_waits_for_nobody_beyond_the_deadline() -> None:
    """Device d needs 10 d seconds: of six asked the first three come; later only as many as are in time."""
    slow = InProcessGrid(client(), 6, arrival=lambda device, message: 10.0 * device)
    found = strategy(selection=Selection(3, 6, deadline_seconds=45.0), evaluators=0)
    run(found, 4, slow)
    assert found.reply_counts() | {"used": 12, "no_reply": 12} == found.reply_counts()
    assert slow.seconds == 4 * 20.0
    found = strategy(selection=Selection(6, deadline_seconds=25.0), evaluators=0)
    run(found, 4, slow)
    assert found.reply_counts()["used"] == 12
    assert found.reply_counts()["rounds_without_a_step"] == 0


def test_replies_are_summed_up_in_the_order_of_devices() -> None:
    """Whoever is first: sums of floats depend on their order."""
    found = []
    for arrival in (lambda device, _: float(device), lambda device, _: 9.0 - device):
        each = strategy()
        run(each, 12, InProcessGrid(client(), 6, arrival=arrival))
        found.append([model["w"].tobytes() for model in each.mean().models])
    assert found[0] == found[1]


def test_dropouts_and_late_joiners_are_normal() -> None:
    clock = RoundClock(START, HOURS)

    def online() -> list[int]:
        return list(range(6)) if clock.instant >= 1704153600_000000 else [0, 1]  # from the second day on

    gone = InProcessGrid(client(), 6, online=online, arrival=lambda device, _: None if device == 1 else 1.0)
    found = strategy(clock=clock)
    used: list[int] = []
    run(found, 14, gone, on_round=lambda this: used.append(this.used))
    assert used == [1] * 12 + [5] * 2


def test_rounds_in_which_nobody_takes_part_do_not_count() -> None:
    clock = RoundClock(START, HOURS)
    empty = InProcessGrid(
        client(), 6, online=lambda: [0] if clock.instant % 86_400_000_000 < 43_200_000_000 else []
    )
    found = strategy(clock=clock)
    told: list[Any] = []
    run(found, 24, empty, on_round=told.append)
    assert found.reply_counts() | {"rounds": 24, "rounds_without_a_step": 0} == found.reply_counts()
    # Six rounds by day, six empty ones by night; the last night is not reached.
    assert found.reply_counts()["rounds_without_participants"] == 18
    assert [this.number for this in told if this.counts] == list(range(1, 25))
    assert found.mean().fallback == (2, 3)
    np.testing.assert_allclose(found.mean().models[2]["w"], found.consensus()["w"])


def test_a_strategy_that_waits_for_more_nodes_than_there_are_is_not_waited_for() -> None:
    found = strategy(known.FedAvg(fraction_evaluate=0.0, min_available_nodes=50))
    begin = time.monotonic()
    notes = []
    with pytest.raises(TimeoutError, match="min_available_nodes of FedAvg is 50"):
        run(found, 2, on_round=lambda this: notes.append(this.note))
    assert time.monotonic() - begin < 10
    assert set(notes) == {"6 node(s) take part, and min_available_nodes of FedAvg is 50: lower it"}
    # After eight cycles without anybody the run ends: a day has twelve rounds here.
    assert found.reply_counts() | {"rounds": 0, "rounds_without_participants": 98} == found.reply_counts()


def test_a_strategy_of_ones_own_that_waits_is_not_waited_for_either() -> None:
    class Waits(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            while len(list(grid.get_node_ids())) < 50:
                time.sleep(0.5)
            return super().configure_train(server_round, arrays, config, grid)

    found = strategy(Waits(fraction_evaluate=0.0))
    notes = []
    # The strategy waits a second in every try: a day of four rounds.
    found.clock = RoundClock(START, 4 * HOURS * 6)
    with pytest.raises(TimeoutError, match="the strategy waits for more"):
        run(found, 1, on_round=lambda this: notes.append(this.note))
    assert "the strategy waits for more" in notes[0]


def test_clients_that_all_misunderstand_are_told_at_once() -> None:
    silent = dict.fromkeys(range(6), _with(without=["num-examples"]))
    with pytest.raises(ValueError, match=r"all 6 replies of the first .* does not report 'num-examples'"):
        run(strategy(), 3, InProcessGrid(client(silent), 6))
    one = strategy()
    run(one, 3, InProcessGrid(client(silent), 6, online=lambda: [2]))
    assert one.reply_counts()["rejected"] == {"count": 3}


def test_an_app_that_returns_nothing_is_its_nodes_failure() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            return None  # type: ignore[return-value]
        return Message(honest(0, told(message, "server-round"), sent(message)), reply_to=message)

    found = strategy()
    run(found, 2, InProcessGrid(app, 6))
    assert found.reply_counts()["failed"] == 2
    assert found.reply_counts()["used"] == 10


def test_a_node_rests_between_two_participations() -> None:
    found = strategy(selection=Selection(1, min_interval=timedelta(hours=6)))
    chosen: list[list[int]] = []
    run(found, 20, InProcessGrid(client(), 4), on_round=lambda this: chosen.append(this.nodes))
    for number, nodes in enumerate(chosen):
        assert nodes
        assert not set(nodes) & {node for earlier in chosen[max(number - 2, 0) : number] for node in earlier}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"clients_per_round": 0}, "clients_per_round=0: must be at least 1"),
        (
            {"clients_per_round": 3, "invited_per_round": 2},
            "invited_per_round=2: must be at least clients_per_round=3",
        ),
        ({"invited_per_round": 2}, "invited_per_round=2: must be at least clients_per_round=None"),
        ({"deadline_seconds": 0.0}, "deadline_seconds=0.0: must be positive"),
        ({"min_connected": 0}, "min_connected=0"),
    ],
)
def test_selections_that_cannot_be_are_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Selection(**how)


# ------------------------------------------------------------------------------------ hedges


def test_a_hedge_learns_from_the_losses_that_clients_report() -> None:
    """The blocks' own chains lose less here: their shares grow, and so do the mixtures towards them."""

    def opposite(message: Message, arrays: dict[str, Any]) -> RecordDict:
        block = told(message, "block")
        aim = np.full(WIDTH, 2.0 if block % 2 else -2.0)
        moved = {"w": arrays["w"] + 0.5 * (aim - arrays["w"]), "b": arrays["b"]}
        loss = float(np.mean((arrays["w"] - aim) ** 2))
        metrics = MetricRecord({"num-examples": 1, "loss-before": loss})
        return RecordDict({"a": ArrayRecord({k: Array(v) for k, v in moved.items()}), "m": metrics})

    for hedge in (None, sc.Prod(bound=20.0, steps=600)):
        found = strategy(chains=Chains.HEDGED, hedge=hedge)
        run(found, 240, InProcessGrid(client({0: opposite}), 1))
        before = 0.5 if hedge is None else strategy(chains=Chains.HEDGED, hedge=hedge).hedge_shares()[:, 1]
        assert (found.hedge_shares()[:, 1] > (0.9 if hedge is None else 2 * before)).all()
    own, mixed = found.mean(of="own").models[1]["w"], found.mean().models[1]["w"]
    shared = found.mean(of="shared").models[1]["w"]
    assert (shared < mixed).all()
    assert (mixed < own).all()


def test_a_hedge_without_losses_says_what_is_missing() -> None:
    quiet = {device: _with(without=["loss-before"]) for device in range(6)}
    with pytest.raises(
        ValueError, match=r"all 6 replies of the first round .* does not report 'loss-before'"
    ):
        run(strategy(chains=Chains.HEDGED), 1, InProcessGrid(client(quiet), 6))


@pytest.mark.parametrize("loss", [None, [1.0, 2.0], 1e300, -1e300])
def test_losses_that_cannot_be_believed_do_not_reach_the_hedge(loss: Any) -> None:
    odd = _with(without=["loss-before"]) if loss is None else _with(metrics={"loss-before": loss})
    for how in ({"selection": Selection(1)}, {}, {"hedge": sc.Prod(rate=0.1, steps=100)}):
        found = strategy(chains=Chains.HEDGED, **how)
        run(found, 40, InProcessGrid(client({2: odd}), 6))
        assert set(found.reply_counts()["rejected"]) == {"loss"}
        assert np.isfinite(found.mean().models[0]["w"]).all()
        without = strategy(chains=Chains.HEDGED, **how)
        if "selection" not in how:
            run(without, 40, InProcessGrid(client(), 6, online=lambda: [0, 1, 3, 4, 5]))
            np.testing.assert_array_equal(found.hedge_shares(), without.hedge_shares())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"inner": known.FedXgbBagging()}, "FedXgbBagging trains trees"),
        ({"hedge": sc.AdaHedge(), "chains": Chains.SHARED}, "hedge= requires chains=Chains.SPLIT"),
        ({"chains": Chains.SPLIT, "evaluators": 0}, "needs clients that evaluate"),
        ({"evaluators": -1}, "must be 0 or more"),
        ({"per_block": ["w"], "chains": Chains.SEPARATE}, "do not share a body"),
        ({"chains": Chains.HEDGED, "hedge": sc.Prod(bound=1.0)}, "steps"),
        ({"chains": Chains.HEDGED, "hedge": sc.AdaHedge(np.random.default_rng(1))}, "leave coin= out"),
        ({"tail": -1}, "tail=-1"),
    ],
)
def test_settings_that_cannot_be_are_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        strategy(**how)
    with pytest.raises(TypeError, match=r"give Chains\.SHARED"):
        strategy(chains="hedged")
    with pytest.raises(TypeError, match="give a Schedule"):
        PluralisticStrategy(fedavg(), 6)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give a strategy"):
        PluralisticStrategy("FedAvg", SCHEDULE)  # type: ignore[arg-type]


def test_failures_are_not_counted_twice() -> None:
    broken = dict.fromkeys(range(6), _raises)
    for chains in Chains:
        found = strategy(chains=chains)
        run(found, 3, InProcessGrid(client(broken), 6))
        assert (
            found.reply_counts() | {"failed": 18, "no_reply": 0, "asked": 18, "used": 0}
            == found.reply_counts()
        )
    found = strategy(known.FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1))
    run(found, 3)  # an app that knows no evaluation
    assert (
        found.reply_counts() | {"failed": 0, "no_reply": 0, "used": 18, "rejected": {"failed": 18}}
        == found.reply_counts()
    )


def test_a_strategy_runs_once() -> None:
    found = strategy()
    run(found, 2)
    with pytest.raises(ValueError, match="has run already"):
        run(found, 2)
    with pytest.raises(ValueError, match="has no arrays"):
        strategy().start(InProcessGrid(client(), 6), ArrayRecord(), 2)
    with pytest.raises(ValueError, match="num_rounds=0"):
        run(strategy(), 0)


# ---------------------------------------------------------------------------------- read-outs


def test_models_are_kept_in_a_file_and_answer_by_the_clock(tmp_path: Path) -> None:
    found = strategy(chains=Chains.SHARED)
    run(found, 20)
    models = found.mean()
    models.save(tmp_path / "models.safetensors")
    again = BlockModels.load(tmp_path / "models.safetensors")
    assert again.schedule == SCHEDULE
    assert again.read_out == "mean"
    for ours, theirs in zip(models.models, again.models, strict=True):
        for key in ("w", "b"):
            np.testing.assert_array_equal(ours[key], theirs[key])
    at_seven = again.at(datetime(2025, 5, 5, 7, 0, tzinfo=UTC))
    np.testing.assert_array_equal(at_seven["w"], models.models[1]["w"])
    mixed = again.personal([0.5, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(mixed["w"], (models.models[0]["w"] + models.models[1]["w"]) / 2)
    with pytest.raises(ValueError, match="a profile sums to 2"):
        again.personal([1.0, 1.0, 0.0, 0.0])
    (tmp_path / "other").write_bytes(b"no model")
    with pytest.raises(sc.Unreadable, match="not a safetensors file"):
        BlockModels.load(tmp_path / "other")
    sc.save(sc.Pluralistic(np.ones((1, 1, 2)), sc.Numbered(1), sc.loss.logistic), tmp_path / "other")
    with pytest.raises(sc.Unreadable, match="not a file of block models"):
        BlockModels.load(tmp_path / "other")
    with pytest.raises(ValueError, match="the means of the last 2 cycles"):
        found.tail(5)
    with pytest.raises(ValueError, match="this run has shared"):
        found.mean(of="own")


def test_models_that_were_read_do_not_change_with_the_run() -> None:
    """In the middle of a visit, whose mean goes on."""
    read: list[Any] = []

    def look(this: Any) -> None:
        if this.number == 2:
            for models in (found.mean(), found.tail(1)):
                read.extend((model["w"], model["w"].copy()) for model in models.models)

    found = strategy()
    run(found, 9, on_round=look)
    assert len(read) == 8
    for now, then in read:
        np.testing.assert_array_equal(now, then)


def test_personal_models_round_whole_numbers() -> None:
    model = {"count": np.array([10, 7, 3]), "mask": np.array([True, False])}
    others = {"count": np.array([10, 7, 3]), "mask": np.array([False, False])}
    mixed = BlockModels(SCHEDULE, (model, others, others, others)).personal([0.1, 0.2, 0.3, 0.4])
    assert mixed["count"].tolist() == [10, 7, 3]
    assert mixed["mask"].tolist() == [False, False]


def test_the_block_mean_is_sent_to_evaluation_if_asked_for() -> None:
    seen: list[Any] = []

    def app() -> ClientApp:
        found = client()

        @found.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            seen.append(sent(message)["w"])
            bad = int(context.node_config["partition-id"]) == 1
            metrics: Any = {"num-examples": 2, "accuracy": float("nan") if bad else 0.5}
            return Message(RecordDict({"m": MetricRecord(metrics)}), reply_to=message)

        return found

    inner = known.FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    found = strategy(inner, evaluate_means=True)
    result = run(found, 5, InProcessGrid(app(), 3))
    np.testing.assert_allclose(seen[-1], found.mean().models[1]["w"])
    assert found.reply_counts()["rejected"] == {"not finite": 5}
    assert {key: dict(value) for key, value in result.evaluate_metrics_clientapp.items()} == {
        number: {"accuracy": 0.5} for number in range(1, 6)
    }


# ------------------------------------------------------------------------------------ coding


kinds = st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_, ">f8"])


@given(kinds, st.lists(st.integers(0, 4), max_size=3), st.integers(0, 2**31))
@settings(max_examples=60)
def test_arrays_are_written_and_read_as_flower_does(kind: Any, shape: list[int], seed: int) -> None:
    value = np.random.default_rng(seed).integers(0, 2, shape).astype(kind)
    theirs = Array(value)
    ours = encode(value)
    assert (ours.dtype, ours.shape, ours.stype, ours.data) == (
        theirs.dtype,
        theirs.shape,
        theirs.stype,
        theirs.data,
    )
    read = decode(theirs)
    assert read.dtype == value.dtype
    np.testing.assert_array_equal(read, value)


def test_arrays_in_fortran_order_are_read() -> None:
    value = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    np.testing.assert_array_equal(decode(Array(value)), value)
    np.testing.assert_array_equal(encode(value).numpy(), value)


# ------------------------------------------------------------------------------------- clocks


def test_clocks_tell_the_time_they_are_made_for() -> None:
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    ticks = [100.0]
    fast = FastClock(noon, 1440.0, time=lambda: ticks[0])
    begin = fast.now(1)
    ticks[0] += 60.0
    assert fast.now(2) - begin == 86_400_000_000
    later = fast.instant
    fast.resume(later)
    ticks[0] = 5.0
    assert fast.now(3) == later
    assert WallClock(lambda: 12.5).now(1) == 12_500_000
    rounds = RoundClock(noon, timedelta(hours=1))
    assert rounds.now(25) - rounds.now(1) == 86_400_000_000
    with pytest.raises(ValueError, match="add a time zone"):
        RoundClock(datetime(2024, 1, 1), timedelta(hours=1))
    with pytest.raises(ValueError, match="must be positive"):
        FastClock(noon, 0.0)


@pytest.mark.parametrize(
    "schedule",
    [
        sc.Schedule.daily(6),
        sc.Schedule.daily(edges=[5, 7, 13, 22], zone="America/New_York"),
        sc.Schedule.weekly(14, zone="Europe/Paris"),
        sc.Schedule.every(timedelta(hours=5), 3),
    ],
)
def test_every_block_has_the_same_number_of_rounds(schedule: sc.Schedule) -> None:
    """Unequal blocks, weeks, odd periods, and across the days on which clocks are changed."""
    clock = BlockClock(schedule, datetime(2024, 3, 1, tzinfo=UTC), 3)
    rounds = 3 * schedule.blocks * 12
    when = np.array([clock.now(number) for number in range(1, rounds + 1)])
    assert (np.diff(when) > 0).all()
    found = schedule.place(when)
    assert (np.bincount(found.block) == 36).all()
    assert (found.block.reshape(-1, 3) == found.block.reshape(-1, 3)[:, :1]).all()


# ------------------------------------------------------------------------------------- quiet


def test_nothing_is_sent_looked_up_or_installed_unless_asked_for() -> None:
    code = (
        "import os, semicyclic.adapters.flower as f\n"
        "print(*(os.environ[n] for n in ('FLWR_TELEMETRY_ENABLED', 'FLWR_DISABLE_UPDATE_CHECK',"
        " 'FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION')))\n"
        "from flwr.supercore import telemetry\nprint(telemetry.FLWR_TELEMETRY_ENABLED)\n"
    )
    for asked, expected in (({}, "0 1 1\n0\n"), ({"FLWR_TELEMETRY_ENABLED": "1"}, "1 1 1\n1\n")):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**plain, **asked}, capture_output=True, text=True, check=True
        )
        assert done.stdout == expected
