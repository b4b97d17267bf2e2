"""Which model to deploy in each block: chosen by losses that clients report, right under any strategy."""

import json
import logging
import math
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as known
from flwr.serverapp.strategy import FedAvg, Strategy
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.adapters.flower import BlockModels, ClockedStrategy, PluralisticStrategy, Storage
from semicyclic.adapters.flower.candidate_scores import Candidate, CandidateScores, mean_losses
from tests.adapters.flower import day_night
from tests.adapters.flower.small_fleet import (
    START,
    WIDTH,
    Chains,
    InProcessGrid,
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

ALONE: dict[str, Any] = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}
INNER: dict[str, Any] = {
    "FedAvg": lambda: known.FedAvg(**ALONE),
    "FedAvgM": lambda: known.FedAvgM(**ALONE, server_momentum=0.9),
    "FedAdam": lambda: known.FedAdam(**ALONE, eta=0.1),
    "FedYogi": lambda: known.FedYogi(**ALONE),
}
# In `make test`; the others are run by `make test-slow`.
QUICK = {("FedAvg", 0.01), ("FedAvgM", 0.1), ("FedAdam", 0.03), ("FedYogi", 0.5)}
GRID = [
    pytest.param(name, step, marks=() if (name, step) in QUICK else pytest.mark.slow)
    for name in INNER
    for step in (0.01, 0.03, 0.1, 0.5)
]


@pytest.mark.parametrize(("name", "step"), GRID)
def test_the_model_deployed_is_right_whatever_the_strategy_and_the_step(name: str, step: float) -> None:
    """Within .02 of the best read-out in hindsight in each block, and never below the mean of all rounds."""
    found = day_night.trained(INNER[name](), step)
    best, whole = found.best(), found.consensus()
    read = [found.mean(of=kind) for kind in ("shared", "own", "hedged")]
    read += [found.tail(2, of=kind) for kind in ("shared", "own", "hedged")]
    read += [found.last(of=kind) for kind in ("shared", "own")]
    if step == 0.01:
        # The shared chain is of no use: the hedge has found out.
        assert found.hedge_shares()[:, 1].min() > 0.9
    for block in range(2):
        ours = day_night.accuracy(best.models[block]["w"], block)
        hindsight = max(day_night.accuracy(each.models[block]["w"], block) for each in read)
        assert ours >= hindsight - 0.02
        assert ours >= day_night.accuracy(whole["w"], block)
        assert ours > 0.75


def test_where_blocks_are_alike_nothing_is_lost() -> None:
    found = day_night.trained(INNER["FedAvg"](), 0.1, alike=True)
    whole = found.consensus()
    for block in range(2):
        ours = day_night.accuracy(found.best().models[block]["w"], block, alike=True)
        assert ours >= day_night.accuracy(whole["w"], block, alike=True) - 0.005


def test_a_shared_chain_that_lags_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """With momentum the mean of the day is the night's model: warned of at the start, flagged in the end."""
    with caplog.at_level(logging.WARNING, "flwr"):
        found = day_night.trained(INNER["FedAvgM"](), 0.01, chains=Chains.SHARED)
        best = found.best()
    assert "FedAvgM carries momentum or adaptive state" in caplog.text
    assert "a model of another block has a smaller loss than the block's own mean" in caplog.text
    for block in range(2):
        assert day_night.accuracy(found.mean().models[block]["w"], block) < 0.4
        assert day_night.accuracy(best.models[block]["w"], block) > 0.7
    rows = [row for row in found.evaluation() if row["block"] == "06:00-18:00"]
    assert rows[0]["difference"] < -0.1
    assert min(row["rounds"] for row in rows) > 1


@pytest.mark.parametrize("name", INNER)
def test_state_on_a_shared_chain_is_warned_of(name: str, caplog: pytest.LogCaptureFixture) -> None:
    for chains, wrap in ((Chains.SHARED, False), (Chains.SHARED, True), (Chains.SPLIT, False)):
        caplog.clear()
        inner = INNER[name]()
        if wrap:
            inner = known.DifferentialPrivacyClientSideFixedClipping(inner, 0.0, 100.0, 6)
        with caplog.at_level(logging.WARNING, "flwr"):
            run(strategy(inner, chains=chains), 1)
        assert ("carries momentum" in caplog.text) == (name != "FedAvg" and chains is Chains.SHARED)


# ------------------------------------------------------------------------------- without evidence


def test_clients_that_do_not_evaluate_make_the_default_the_shared_chain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        found, shared = strategy(), strategy(chains=Chains.SHARED, evaluators=0)
        run(found, 30)
        run(shared, 30)
        assert found.chains is Chains.SPLIT
        assert "no client reports a loss on held-out rows" in caplog.text
        assert caplog.text.count("no client reports") == 1
        for ours, theirs in zip(found.mean().models, shared.mean().models, strict=True):
            assert ours["w"].tolist() == theirs["w"].tolist()
        best = shared.best()
    assert "no client has reported losses" in caplog.text
    assert best.chosen == ("shared/all/0",) * 4
    for model in best.models:
        np.testing.assert_allclose(model["w"], shared.consensus()["w"])
    # Nothing is known of any chain: what cannot be another block's model.
    assert set(found.best().chosen) == {"shared/all/0"}


def test_clients_without_an_evaluation_are_not_asked_for_ever() -> None:
    asked: list[str] = []

    class Counting(InProcessGrid):
        def push_messages(self, messages: Any) -> list[str]:
            some = list(messages)
            asked.extend(message.metadata.message_type for message in some)
            return super().push_messages(some)

    run(strategy(), 20, Counting(client(), 6))
    assert asked.count("evaluate") == 3 * 6  # all six clients in three rounds
    asked.clear()
    run(strategy(evaluators=0), 20, Counting(client(), 6))
    assert "evaluate" not in asked


@pytest.mark.parametrize("loss", [math.nan, 1e7, [0.5], None])
def test_losses_that_cannot_be_believed_are_no_evidence(loss: Any) -> None:
    app = client()

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 0 and loss is not None:
            told = {"num-examples": 5, "eval_loss": loss}
        else:
            told = {"num-examples": 5} if loss is None else {"num-examples": 5, "eval_loss": 1.0}
        return Message(RecordDict({"metrics": MetricRecord(told)}), reply_to=message)

    found = strategy(evaluators=6)
    run(found, 40, InProcessGrid(app, 6))
    assert found.trials.reporting == (loss is not None)
    assert found.trials.reports(0) == (loss is not None)
    assert all(abs(row["difference"]) < 1e-9 for row in found.evaluation())


# --------------------------------------------------------------------------------- the evidence


def test_candidates_are_judged_as_they_were_before_the_visit() -> None:
    """A client whose loss is the model itself: what is compared are the models that the visit began with."""
    clock = RoundClock(START, timedelta(hours=3))
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001
        w = sent(message)["w"] + 1.0
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "m": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:  # noqa: ARG001
        loss = float(sent(message)["w"][0])
        metrics = MetricRecord({"num-examples": 1, "eval_loss": loss})
        return Message(RecordDict({"m": metrics}), reply_to=message)

    found = strategy(fedavg(), clock=clock, chains=Chains.SHARED)
    rounds: list[Any] = []
    grid = InProcessGrid(app, 3)
    found.start(grid, ArrayRecord({"w": Array(np.zeros(1))}), 36, on_round=rounds.append)
    # The model before round r is r - 1; a day has eight rounds, a block two.
    for this in rounds:
        for label, loss in this.losses.items():
            if label.startswith("in-force"):
                continue
            of = Candidate.of(label)
            begin = 8 * ((this.number - 1) // 8) + 2 * this.block
            mine = [r - 1 for r in range(1, begin + 1) if (r - 1) % 8 // 2 == of.block]
            expected = {
                "mean": np.mean(mine),
                "last": mine[-1] + 1,
                "tail": np.mean(mine[-4:]),
                "all": np.mean(range(begin)),
            }
            assert loss == pytest.approx(expected[of.read_out]), label
    assert {label.split("/")[1] for this in rounds for label in this.losses} >= {"mean", "last", "tail"}


def test_recent_visits_count_more_and_few_measurements_less() -> None:
    evidence = CandidateScores(1)
    early, late, rare = (Candidate("shared", "last", block) for block in (1, 2, 3))
    for cycle in range(20):
        evidence.visit(0, cycle)
        noise = 0.01 * (-1) ** cycle
        evidence.add(0, {early: noise + (0.2 if cycle >= 10 else -0.2), late: noise - 0.1})
    evidence.add(0, {rare: -0.11})
    assert evidence.best(0, Candidate("shared", "mean", 0)) == late
    scores = {score.candidate: score for score in evidence.scores(0)}
    assert scores[early].difference > 0.15
    assert scores[rare].error > 2 * scores[late].error
    assert scores[late].rounds == pytest.approx(sum(0.5 ** (k / 2) for k in range(20)))
    # Two rounds of one cycle weigh the same.
    again = CandidateScores(1)
    again.visit(0, 5)
    again.add(0, {late: 1.0})
    again.visit(0, 5)
    again.add(0, {late: 3.0})
    assert again.scores(0)[0].difference == 2.0
    assert again.best(0, rare) == rare


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.floats(-5, 5), st.integers(1, 9))))
def test_losses_are_compared_on_the_same_clients(reports: list[tuple[int, str, float, float]]) -> None:
    latest = {(client, name): (loss, count) for client, name, loss, count in reports}
    both = [c for c in range(5) if (c, "a") in latest and (c, "b") in latest]
    found = mean_losses(reports, ["a", "b"])
    if not both:
        assert found is None
        return
    assert found is not None
    counts = np.array([latest[c, "a"][1] for c in both])
    weights = np.minimum(counts, 4 * np.median(counts))
    for name in "ab":
        losses = np.array([latest[c, name][0] for c in both])
        reach = 4 * np.median(np.abs(losses - np.median(losses)))
        cut = np.clip(losses, np.median(losses) - reach, np.median(losses) + reach)
        assert found[name] == pytest.approx(np.average(cut, weights=weights), abs=1e-12)


@pytest.mark.parametrize("count", [1.0, 1e7])
@pytest.mark.parametrize("loss", [-1e6, 1e6])
def test_no_client_decides_alone(loss: float, count: float) -> None:
    """Ten clients around .5, and one that reports anything with any number of examples."""
    rng = np.random.default_rng(0)
    honest_reports = [(c, name, float(rng.normal(0.5, 0.1)), 20.0) for c in range(10) for name in "ab"]
    found = mean_losses([*honest_reports, (99, "a", loss, count), (99, "b", -loss, count)], ["a", "b"])
    assert found is not None
    assert abs(found["a"] - found["b"]) < 0.3


def test_one_measurement_is_no_evidence() -> None:
    evidence = CandidateScores(2)
    evidence.visit(0, 0)
    evidence.add(0, {Candidate("shared", "last", 1): -1.0})
    assert evidence.best(0, Candidate("shared", "mean", 0)) == Candidate("shared", "mean", 0)
    # Of many models of other blocks, all a little worse, none is deployed by chance.
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(50):
        evidence = CandidateScores(24)
        for cycle in range(20):
            evidence.visit(0, cycle)
            some = rng.permutation(np.arange(1, 24))[:4]
            evidence.add(0, {Candidate("shared", "last", int(j)): float(rng.normal(0.05, 0.1)) for j in some})
        wrong += evidence.best(0, Candidate("shared", "mean", 0)) != Candidate("shared", "mean", 0)
    assert wrong <= 2


# ------------------------------------------------------------------------------ chains inside


def test_clients_are_divided_between_the_chains() -> None:
    """Every client trains one model; both chains get half of them, whoever has one more left to chance."""
    shares: dict[str, list[int]] = {}
    app = client(evaluates=True)

    class Watching(InProcessGrid):
        def push_messages(self, messages: Any) -> list[str]:
            some = list(messages)
            groups: dict[str, list[int]] = {}
            for message in some:
                if message.metadata.message_type == "train":
                    name = message.metadata.group_id.partition("/")[2]
                    groups.setdefault(name, []).append(message.metadata.dst_node_id)
            nodes = [node for each in groups.values() for node in each]
            assert len(nodes) == len(set(nodes))
            for name, each in groups.items():
                shares.setdefault("shared" if name == "shared" else "own", []).append(len(each))
            for message in some:
                name = message.metadata.group_id.partition("/")[2]
                if message.metadata.message_type == "train" and name not in first:
                    # A block's own chain sets out from the shared model.
                    first.add(name)
                    shared = found.server.current["shared"].values["w"]
                    assert sent(message)["w"].tolist() == shared.tolist()
            return super().push_messages(some)

    first: set[str] = set()
    found = strategy(selection=Selection(5))
    run(found, 60, Watching(app, 12))
    assert sorted(set(shares["own"])) == [2, 3]
    assert shares["shared"][0] == 5  # nobody has reported a loss yet
    assert abs(sum(shares["own"]) - sum(shares["shared"][1:])) < 20
    # One client alone: the chains take turns.
    alone = strategy(selection=Selection(1))
    used: list[tuple[str, ...]] = []
    run(alone, 40, InProcessGrid(app, 4), on_round=lambda this: used.append(this.moved))
    assert {("shared",)} < set(used)
    assert any(moved != ("shared",) for moved in used[1:])
    assert all(len(moved) == 1 for moved in used)


@pytest.mark.parametrize("chains", Chains)
def test_each_chain_counts_its_own_rounds_and_clients_those_of_the_run(chains: Chains) -> None:
    seen: list[tuple[str, int]] = []

    class Counting(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            some = list(replies)
            seen.append((some[0].metadata.group_id, server_round))
            return super().aggregate_train(server_round, some)

    told_clients: list[int] = []
    app = client(evaluates=True)
    plain = app._registered_funcs["train.default"]

    def train(message: Message, context: Context) -> Message:
        told_clients.append(told(message, "server-round"))
        return plain(message, context)

    app._registered_funcs["train.default"] = train
    run(strategy(Counting(**ALONE), chains=chains), 36, InProcessGrid(app, 6))
    assert sorted(set(told_clients)) == list(range(1, 37))
    by_chain: dict[str, list[int]] = {}
    for group, number in seen:
        by_chain.setdefault(group.partition("/")[2], []).append(number)
    for numbers in by_chain.values():
        assert numbers == list(range(1, len(numbers) + 1))
    assert len(by_chain) == {Chains.SHARED: 1, Chains.SEPARATE: 4}.get(chains, 5)


WRAPPERS: dict[str, Any] = {
    "none": lambda inner: inner,
    "server, fixed": lambda inner: known.DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 0.5, 6),
    "client, fixed": lambda inner: known.DifferentialPrivacyClientSideFixedClipping(inner, 0.0, 0.5, 6),
    "server, adaptive": lambda inner: known.DifferentialPrivacyServerSideAdaptiveClipping(
        inner, noise_multiplier=0.1, num_sampled_clients=6
    ),
    "client, adaptive": lambda inner: known.DifferentialPrivacyClientSideAdaptiveClipping(
        inner, noise_multiplier=0.1, num_sampled_clients=6
    ),
}
# What these wrappers want clients to do.
MODS = {"client, fixed": [fixedclipping_mod], "client, adaptive": [adaptiveclipping_mod]}
TWELVE: dict[str, Any] = {
    **INNER,
    "FedAdagrad": lambda: known.FedAdagrad(**ALONE),
    "FedProx": lambda: known.FedProx(**ALONE, proximal_mu=0.1),
    "FedMedian": lambda: known.FedMedian(**ALONE),
    "FedTrimmedAvg": lambda: known.FedTrimmedAvg(**ALONE),
    "Krum": lambda: known.Krum(**ALONE, num_malicious_nodes=1),
    "MultiKrum": lambda: known.MultiKrum(**ALONE, num_malicious_nodes=1, num_nodes_to_select=3),
    "Bulyan": lambda: known.Bulyan(**ALONE, num_malicious_nodes=0),
    "QFedAvg": lambda: known.QFedAvg(client_learning_rate=0.1, q=0.2, train_loss_key="loss-before", **ALONE),
}
COMPOSED = [(name, "none") for name in TWELVE] + [("FedAvg", each) for each in WRAPPERS if each != "none"]


@pytest.mark.parametrize("chains", [Chains.SHARED, Chains.SEPARATE])
@pytest.mark.parametrize(("name", "wrapper"), COMPOSED)
def test_a_chain_is_the_strategy_run_on_its_rounds_alone(name: str, wrapper: str, chains: Chains) -> None:
    """24 rounds across two blocks: each chain as the bare strategy that is fed the chain's rounds."""
    halves = sc.Schedule.daily(2)
    clock = RoundClock(START, timedelta(hours=1))

    def made() -> Any:
        return WRAPPERS[wrapper](TWELVE[name]())

    ours = PluralisticStrategy(made(), halves, clock, chains=chains, evaluators=0, seed=5)
    run(ours, 24, InProcessGrid(client(mods=MODS.get(wrapper)), 6))
    for chain in ours.inside:
        mine = [n for n in range(1, 25) if chain == "shared" or (n - 1) // 12 == int(chain)]
        bare, grid, arrays = made(), InProcessGrid(client(mods=MODS.get(wrapper)), 6), initial()
        for number, global_number in enumerate(mine, 1):
            messages = list(bare.configure_train(number, arrays, ConfigRecord(), grid))
            for message in messages:
                message.content["config"]["server-round"] = global_number
            # The noise of a round depends on the seed, the round and the chain.
            np.random.seed([5, global_number, 0 if chain == "shared" else 1 + int(chain)])  # noqa: NPY002
            arrays = bare.aggregate_train(number, grid.send_and_receive(messages))[0] or arrays
        for key, array in ours.server.current[chain].values.items():
            np.testing.assert_allclose(array, arrays[key].numpy(), rtol=0, atol=1e-12)


class Scaffold(FedAvg):
    """Clients send a control variate next to the model, as in SCAFFOLD."""

    def __init__(self) -> None:
        super().__init__(**ALONE)
        self.control = np.zeros(WIDTH)

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.content["control"] = ArrayRecord({"c": Array(self.control)})
        return messages

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        some = list(replies)
        self.control = self.control + np.mean([r.content["control"]["c"].numpy() for r in some], axis=0)
        for reply in some:
            del reply.content["control"]
        return super().aggregate_train(server_round, some)


def test_replies_may_hold_more_than_a_model() -> None:
    def reply(message: Message, arrays: dict[str, Any]) -> RecordDict:
        content = honest(1, told(message, "server-round"), arrays)
        extra: Any = message.content
        content["control"] = ArrayRecord({"c": Array(extra["control"]["c"].numpy() + 1.0)})
        return content

    def broken(message: Message, arrays: dict[str, Any]) -> RecordDict:
        content = reply(message, arrays)
        content["control"] = ArrayRecord({"c": Array(np.full(WIDTH, np.nan))})
        return content

    inner = Scaffold()
    found = strategy(inner, chains=Chains.SHARED)
    run(found, 5, InProcessGrid(client({0: reply, 1: reply, 2: broken}), 3))
    assert inner.control.tolist() == [2.0**5 - 1] * WIDTH
    assert found.reply_counts()["rejected"] == {"not finite": 5}


def test_a_start_of_its_own_is_refused() -> None:
    class Own(FedAvg):
        def start(self, *_args: Any, **_more: Any) -> Any:
            raise AssertionError

    with pytest.raises(ValueError, match=r"Own overrides start\(\)"):
        strategy(Own())


# -------------------------------------------------------------------------------------- privacy


@pytest.mark.parametrize("wrapper", [name for name in WRAPPERS if name != "none"])
def test_reported_losses_are_not_used_inside_differential_privacy(wrapper: str) -> None:
    """They are neither clipped nor noised: no hedge, no evidence; block means are post-processing."""
    private = WRAPPERS[wrapper](fedavg())
    found = strategy(private)
    assert found.chains is Chains.SHARED
    run(found, 8, InProcessGrid(client(evaluates=True, mods=MODS.get(wrapper)), 6))
    assert found.reply_counts()["rounds_without_a_step"] == 0
    assert found.evaluation() == []
    for how in ({"chains": Chains.SPLIT}, {"chains": Chains.HEDGED}, {"evaluators": 3}):
        with pytest.raises(ValueError, match="neither clipped nor noised"):
            strategy(WRAPPERS[wrapper](fedavg()), **how)


def test_block_means_are_a_function_of_the_models_that_were_sent() -> None:
    """Post-processing: whoever has seen the models of all rounds can compute every block's mean."""
    sent_models: list[tuple[int, Any]] = []
    private = known.DifferentialPrivacyServerSideFixedClipping(fedavg(), 0.3, 1.0, 6)
    found = strategy(private)

    class Watching(InProcessGrid):
        def push_messages(self, messages: Any) -> list[str]:
            some = list(messages)
            sent_models.append((found.this_round().block, sent(some[0])["w"]))
            return super().push_messages(some)

    run(found, 20, Watching(client(), 6))
    for block, model in enumerate(found.mean().models):
        if block not in found.mean().fallback:
            mine = [w for at, w in sent_models if at == block]
            np.testing.assert_allclose(model["w"], np.mean(mine, axis=0), atol=1e-12)


# ------------------------------------------------------------------------------- what is measured


def test_metrics_are_told_by_block(tmp_path: Path) -> None:
    served: list[BlockModels] = []

    def look(number: int, models: BlockModels) -> MetricRecord:
        served.append(models)
        return MetricRecord(
            {"norm": float(sum(np.sum(each["w"] ** 2) for each in models.models)), "n": number}
        )

    inner = known.FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    found = strategy(inner)
    result = run(
        found,
        30,
        InProcessGrid(client(evaluates=True), 6),
        evaluate_models=look,
        checkpoint=tmp_path / "run",
        tensorboard=tmp_path / "board",
    )
    assert sorted(result.by_block) == [0, 1, 2, 3]
    for block, parts in result.by_block.items():
        assert set(parts) == {"train", "evaluate", "losses"}
        assert parts["evaluate"]["eval_loss"] > 0
        assert f"shared/mean/{block}" in parts["losses"]
    # When a second and a third cycle begin, and in the end.
    assert sorted(result.evaluate_metrics_models) == [13, 25, 30]
    assert all(models.read_out == "best" for models in served)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["block"] == 1][-3:]
    mean = np.mean([line["evaluate"]["eval_loss"] for line in last])
    assert result.by_block[1]["evaluate"]["eval_loss"] == pytest.approx(mean)
    # Resumed, it is the same; the events can be read.
    again = run(strategy(inner), 30, InProcessGrid(client(evaluates=True), 6), checkpoint=tmp_path / "run")
    assert again.by_block == result.by_block
    assert sorted(again.evaluate_metrics_models) == [13, 25, 30]
    tags = _tags(next((tmp_path / "board").glob("events*")))
    assert "evaluate/06_00-12_00/eval_loss" in tags
    assert "models/00_00-06_00/norm" in tags
    assert any(tag.startswith("losses/00_00-06_00/shared/") for tag in tags)


def _tags(path: Path) -> set[str]:
    """The names of the scalars in a file of TensorBoard's events."""
    from tensorboardX.proto.event_pb2 import Event

    data, at, found = path.read_bytes(), 0, set()
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        event = Event.FromString(data[at + 12 : at + 12 + length])
        found |= {value.tag for value in event.summary.value}
        at += 16 + length
    return found


def test_an_unwrapped_strategy_moves_with_a_simulated_clock() -> None:
    clock = RoundClock(START, timedelta(hours=1))
    hours: list[int] = []

    def online(time: datetime) -> range:
        hours.append(time.hour)
        return range(6)

    grid = InProcessGrid(client(), 6, online=online, clock=clock)
    ClockedStrategy(fedavg(), clock).start(grid, initial(), 48)
    assert sorted(set(hours)) == list(range(24))
    assert clock.time == datetime(2024, 1, 2, 23, tzinfo=UTC)
    bare = fedavg()
    expected = bare.start(InProcessGrid(client(), 6), initial(), 5).arrays
    got = ClockedStrategy(fedavg(), clock).start(InProcessGrid(client(), 6), initial(), 5).arrays
    np.testing.assert_allclose(got["w"].numpy(), expected["w"].numpy(), atol=1e-12)


# --------------------------------------------------------------------------------- large models


def _wide(dtype: Any = np.float32) -> ArrayRecord:
    return ArrayRecord(
        {
            "w": Array(np.zeros(WIDTH, dtype)),
            "head.a": Array(np.zeros(3, dtype)),
            "head.b": Array(np.zeros(1, dtype)),
        }
    )


def test_only_the_arrays_named_are_kept_for_each_block() -> None:
    whole = strategy(chains=Chains.SHARED)
    heads = strategy(per_block=["head.*"])
    assert heads.chains is Chains.SHARED
    for each in (whole, heads):
        each.start(InProcessGrid(client(), 6), _wide(), 20)
    for block in range(4):
        ours, theirs = heads.mean().models[block], whole.mean().models[block]
        assert list(ours) == list(theirs)
        for name in ("head.a", "head.b"):
            np.testing.assert_array_equal(ours[name], theirs[name])
        np.testing.assert_allclose(ours["w"], whole.consensus()["w"], rtol=1e-5)
        last, now = heads.last().models[block], whole.last().models[block]
        np.testing.assert_array_equal(last["head.a"], now["head.a"])
        np.testing.assert_array_equal(last["w"], heads.main().values["w"])
    for patterns, words in ((["tail.*"], "none"), (["*"], "all")):
        with pytest.raises(ValueError, match=words):
            strategy(per_block=patterns).start(InProcessGrid(client(), 6), _wide(), 1)


@pytest.mark.parametrize("per_block", [(), ("head.*",)])
@pytest.mark.parametrize("precision", ["full", "half"])
def test_means_on_disk_are_those_in_memory(tmp_path: Path, precision: str, per_block: Any) -> None:
    held = []
    for folder in (None, tmp_path):
        storage = Storage(precision=precision, folder=folder)
        found = strategy(storage=storage, chains=Chains.SHARED, per_block=per_block, tail=3)
        place = tmp_path / f"run-{folder is None}"
        found.start(InProcessGrid(client(), 6), _wide(), 31, checkpoint=place)
        again = strategy(storage=storage, chains=Chains.SHARED, per_block=per_block, tail=3)
        again.start(InProcessGrid(client(), 6), _wide(), 70, checkpoint=place)
        held.append((found, again))
    for (a, b), read in [(pair, read) for pair in zip(*held, strict=True) for read in ("mean", "tail")]:
        ours, theirs = (getattr(each, read)().models for each in (a, b))
        for x, y in zip(ours, theirs, strict=True):
            for name, value in x.items():
                assert value.tolist() == y[name].tolist()
                assert value.dtype == np.float32
                assert not isinstance(y[name], np.memmap)
    exact = strategy(chains=Chains.SHARED, per_block=per_block)
    exact.start(InProcessGrid(client(), 6), _wide(), 70)
    for x, y in zip(held[1][1].mean().models, exact.mean().models, strict=True):
        np.testing.assert_allclose(x["head.a"], y["head.a"], atol=1e-6)
    recent = held[1][1].server.averages["shared"].recent[0][0].mean.value
    assert recent.dtype == (np.float32 if precision == "full" else np.float16)


def test_models_read_from_disk_do_not_change_with_the_run(tmp_path: Path) -> None:
    found = strategy(storage=Storage(folder=tmp_path), chains=Chains.SHARED)
    read: list[Any] = []

    def look(this: Any) -> None:
        if this.number == 13:
            models = found.mean().models
            read.append((models, [model["w"].copy() for model in models]))

    found.start(InProcessGrid(client(), 6), _wide(), 40, on_round=look)
    for model, before in zip(*read[0], strict=True):
        np.testing.assert_array_equal(model["w"], before)


def test_storage_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'full' or 'half'"):
        Storage(precision="quarter")
    with pytest.raises(ValueError, match="no such folder"):
        Storage(folder=tmp_path / "nowhere")


@pytest.mark.parametrize("value", [np.inf, np.nan, -np.inf])
def test_half_precision_models_leave_out_infinities_without_a_warning(value: float) -> None:
    def broken(message: Message, arrays: dict[str, Any]) -> RecordDict:
        content = honest(0, told(message, "server-round"), arrays)
        bad = {name: np.full(array.shape, value, np.float16) for name, array in arrays.items()}
        content["arrays"] = ArrayRecord({name: Array(array) for name, array in bad.items()})
        return content

    found = strategy(chains=Chains.SHARED)
    found.start(InProcessGrid(client({2: broken}), 6), _wide(np.float16), 8)
    assert found.reply_counts()["rejected"] == {"not finite": 8}
    assert found.reply_counts()["rounds_without_a_step"] == 0
    assert found.mean().models[0]["w"].dtype == np.float16


# ------------------------------------------------------------------------------ getting them out


def test_models_are_handed_out_as_copies(tmp_path: Path) -> None:
    import torch

    found = strategy(chains=Chains.SHARED)
    found.start(InProcessGrid(client(), 6), _wide(), 6)
    models = found.mean()
    before = models.models[0]["w"].copy()
    state = models.state_dict(0)
    assert isinstance(state["w"], torch.Tensor)
    state["w"] += 1.0
    models.arrays(0)["w"][:] = 7.0
    record = models.record(0)
    assert record["w"].numpy().tolist() == before.tolist()
    assert models.models[0]["w"].tolist() == before.tolist()
    assert repr(found) == "PluralisticStrategy(FedAvg, 4 blocks, Chains.SHARED, 6 rounds done)"
    best = found.best()
    best.save(tmp_path / "best.safetensors")
    again = BlockModels.load(tmp_path / "best.safetensors")
    assert again.chosen == best.chosen
    assert again.read_out == "best"


def test_strategies_of_flower_are_all_tried() -> None:
    """Whatever Flower adds is looked at: strategies for arrays are in the list above."""
    names = {name for name in known.__all__ if isinstance(getattr(known, name), type)}
    names = {name for name in names if issubclass(getattr(known, name), Strategy)}
    assert names - {"Strategy", "FedXgbBagging", "FedXgbCyclic"} == {
        *TWELVE,
        *(type(make(fedavg())).__name__ for key, make in WRAPPERS.items() if key != "none"),
    }


def test_a_block_whose_clients_do_not_evaluate_does_not_silence_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Night clients raise: the day is judged all the same, the night is named and asked again later."""
    app = day_night.app(0.1)
    plain = app._registered_funcs["evaluate.default"]
    asked: list[int] = []

    def evaluate(message: Message, context: Context) -> Message:
        asked.append(int(context.node_config["partition-id"]))
        if asked[-1] >= day_night.CLIENTS // 2:
            raise RuntimeError("no rows to evaluate on")
        return plain(message, context)

    app._registered_funcs["evaluate.default"] = evaluate
    for hour in (6, 18):
        asked.clear()
        caplog.clear()
        clock = RoundClock(datetime(2026, 1, 1, hour, tzinfo=UTC), timedelta(hours=1))
        found = PluralisticStrategy(
            INNER["FedAvg"](), day_night.SCHEDULE, clock, selection=Selection(clients_per_round=10), seed=1
        )
        half = day_night.CLIENTS // 2

        def online(time: datetime, half: int = half) -> range:
            return range(half) if 6 <= time.hour < 18 else range(half, 2 * half)

        grid = InProcessGrid(app, day_night.CLIENTS, online=online, clock=clock)
        with caplog.at_level(logging.WARNING, "flwr"):
            found.start(grid, ArrayRecord({"w": Array(np.zeros(day_night.FEATURES + 1))}), 120)
        if hour == 6:
            assert "block 18:00-06:00: no client reports a loss" in caplog.text
            assert found.trials.reports(0)
            assert {row["block"] for row in found.evaluation()} == {"06:00-18:00"}
            night = [device for device in asked if device >= half]
            assert 0 < len(night) < len(asked) / 3
            assert day_night.accuracy(found.best().models[0]["w"], 0) > 0.75


def test_the_mean_of_all_rounds_is_deployed_where_nothing_is_known() -> None:
    """Under momentum the means of blocks are another block's model: not what an unknown run deploys."""
    found = day_night.trained(INNER["FedAvgM"](), 0.1, evaluates=False, rounds=120)
    assert found.best().chosen == ("shared/all/0",) * 2
    with pytest.raises(ValueError, match="no round was run yet"):
        strategy().best()


def test_a_strategy_that_cannot_be_copied_has_one_chain(caplog: pytest.LogCaptureFixture) -> None:
    import threading

    class Locked(FedAvg):
        def __init__(self) -> None:
            super().__init__(**ALONE)
            self.lock = threading.Lock()

    with caplog.at_level(logging.WARNING, "flwr"):
        found = strategy(Locked())
    assert found.chains is Chains.SHARED
    assert "Locked cannot be copied" in caplog.text
    run(found, 3)
    with pytest.raises(TypeError, match=r"use chains=Chains\.SHARED"):
        strategy(Locked(), chains=Chains.SEPARATE)


def test_a_run_in_this_process_does_not_wait_for_ever() -> None:
    """With the real clock and too few devices, and with a clock that moves."""
    with pytest.raises(TimeoutError, match="min_train_nodes of FedAvg is 2: lower it"):
        PluralisticStrategy(FedAvg(), sc.Schedule.daily(4)).start(InProcessGrid(client(), 1), initial(), 3)
    clock = RoundClock(START, timedelta(hours=1))
    grid = InProcessGrid(client(), 6, online=lambda time: [] if time.hour == 4 else [0, 1, 2], clock=clock)
    ClockedStrategy(fedavg(), clock).start(grid, initial(), 30)
    assert clock.time == START + timedelta(hours=31)  # two hours at four were left out


def test_flowers_own_loop_counts_rounds_too() -> None:
    found = strategy()
    Strategy.start(found, InProcessGrid(client(), 6), initial(), 8)
    assert found.reply_counts() | {"rounds": 8, "used": 48} == found.reply_counts()
    assert found.participation.sum() == 48
    with pytest.raises(ValueError, match="has run already"):
        run(found, 2)


def test_who_is_odd_among_two_is_remembered(tmp_path: Path) -> None:
    """Two clients with other metrics than each other: the one that is as before is right."""

    def more(message: Message, arrays: dict[str, Any]) -> RecordDict:
        content = honest(1, told(message, "server-round"), arrays)
        metrics = MetricRecord({"num-examples": 2, "loss-before": 1.0, "zeal": 1.0})
        content["metrics"] = metrics
        return content

    held = []
    for stops in ((12,), (4, 12)):
        place = tmp_path / str(len(stops))
        for stop in stops:
            clock = RoundClock(START, timedelta(hours=2))
            late = START + timedelta(hours=3)

            def online(time: datetime, late: datetime = late) -> list[int]:
                return [0] if time < late else [0, 1]

            found = strategy(clock=clock, chains=Chains.SHARED)
            run(
                found, stop, InProcessGrid(client({1: more}), 2, online=online, clock=clock), checkpoint=place
            )
        held.append([model["w"].tolist() for model in found.mean().models])
    assert held[0] == held[1]


def test_integers_are_kept_whole_in_half_precision() -> None:
    def counts(message: Message, arrays: dict[str, Any]) -> RecordDict:  # noqa: ARG001
        moved = ArrayRecord({"w": Array(arrays["w"]), "n": Array(np.asarray(arrays["n"] + 100_000))})
        return RecordDict({"arrays": moved, "metrics": MetricRecord({"num-examples": 1})})

    start = ArrayRecord({"w": Array(np.zeros(WIDTH, np.float32)), "n": Array(np.array(0, np.int64))})
    found = strategy(chains=Chains.SHARED, storage=Storage("half"))
    found.start(InProcessGrid(client({0: counts}), 1), start, 24)
    assert found.mean().models[0]["n"] == (0 + 1 + 2 + 12 + 13 + 14) * 100_000 // 6
    assert found.tail(1).models[0]["n"] == 13 * 100_000
