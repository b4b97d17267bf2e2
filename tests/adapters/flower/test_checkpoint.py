"""A federated server that is killed goes on to the same result."""

import importlib
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import strategy as known
from flwr.serverapp.strategy import Strategy

import semicyclic as sc
from semicyclic.adapters.flower import FastClock
from semicyclic.adapters.flower.checkpoint import FORMAT
from semicyclic.store.sealed import read_sealed, read_sealed_json, write_sealed
from tests.adapters.flower.small_fleet import (
    START,
    Chains,
    InProcessGrid,
    PluralisticStrategy,
    RoundClock,
    Selection,
    client,
    fedavg,
    honest,
    run,
    strategy,
    told,
)
from tests.adapters.flower.test_strategy import BAD, INNER, Odd, _asked

ROUNDS = 17


class Killed(BaseException):
    """What no code of ours catches."""


def state_in(folder: Path) -> dict[str, Any]:
    return read_sealed_json(folder / "state.json", FORMAT)


def files(place: Path) -> dict[str, bytes]:
    """What a run leaves: all that counts, by name."""
    return {path.name: path.read_bytes() for path in sorted(place.iterdir()) if not path.name.startswith(".")}


def measure(number: int, arrays: ArrayRecord) -> MetricRecord | None:
    return MetricRecord({"norm": float(np.sum(arrays["w"].numpy() ** 2))}) if number % 3 == 0 else None


def made(inner: Callable[[], Strategy], chains: Chains) -> PluralisticStrategy:
    how = Selection(3, 4, deadline_seconds=20.0, min_interval=timedelta(hours=3))
    return strategy(inner(), chains=chains, selection=how)


def grid() -> InProcessGrid:
    return InProcessGrid(client(evaluates=True), 12, arrival=lambda device, _: 3.0 * (device % 5))


@pytest.mark.parametrize(
    ("name", "chains"),
    [
        *((name, chains) for name in ("FedAvg", "FedAdam", "FedAvgM") for chains in Chains),
        # A hedge inside differential privacy is refused.
        ("adaptive", Chains.SHARED),
        ("adaptive", Chains.SEPARATE),
    ],
)
def test_stopped_after_any_round_it_ends_in_the_same_bytes(name: str, chains: Chains, tmp_path: Path) -> None:
    whole = made(INNER[name], chains)
    result = run(whole, ROUNDS, grid(), checkpoint=tmp_path / "whole", evaluate_fn=measure)
    stops = range(1, ROUNDS) if name == "FedAdam" and chains.is_hedged else (1, 7, 13)
    for stop in stops:
        place = tmp_path / f"stop-{stop}"

        def kill(this: Any, stop: int = stop) -> None:
            if this.number == stop:
                raise Killed

        with pytest.raises(Killed):
            run(
                made(INNER[name], chains),
                ROUNDS,
                grid(),
                checkpoint=place,
                evaluate_fn=measure,
                on_round=kill,
            )
        again = made(INNER[name], chains)
        after = run(again, ROUNDS, grid(), checkpoint=place, evaluate_fn=measure)
        assert files(place) == files(tmp_path / "whole")
        for ours, theirs in ((again.mean(), whole.mean()), (again.last(), whole.last())):
            for left, right in zip(ours.models, theirs.models, strict=True):
                assert all(np.array_equal(left[key], right[key]) for key in right)
        assert again.reply_counts() == whole.reply_counts()
        assert str(after) == str(result)
        shutil.rmtree(place)


@pytest.mark.parametrize("moment", ["model", "open", "block", "rounds", "state", "tidy"])
def test_killed_while_it_writes_nothing_is_lost(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step of keeping a round, before and after its file is in place."""
    keeping: Any = importlib.import_module("semicyclic.adapters.flower.checkpoint")

    whole = made(INNER["FedAdam"], Chains.HEDGED)
    run(whole, ROUNDS, grid(), checkpoint=tmp_path / "whole")
    for after in (False, True):
        place = tmp_path / f"{moment}-{after}"
        with monkeypatch.context() as patch:
            count = [0]

            def dying(
                real: Callable[..., Any],
                wanted: Callable[..., bool],
                count: list[int] = count,
                after: bool = after,
            ) -> Callable[..., Any]:
                def called(*words: Any) -> Any:
                    count[0] += wanted(*words)
                    stop = wanted(*words) and count[0] == 3
                    if stop and not after:
                        raise Killed
                    found = real(*words)
                    if stop:
                        raise Killed
                    return found

                return called

            if moment in ("model", "open", "block"):
                patch.setattr(
                    keeping,
                    "write_sealed",
                    dying(keeping.write_sealed, lambda path, *_: path.name.startswith(moment)),
                )
            elif moment == "state":
                patch.setattr(keeping, "write_sealed_json", dying(keeping.write_sealed_json, lambda *_: True))
            else:
                name = {"rounds": "_log", "tidy": "_tidy"}[moment]
                patch.setattr(
                    keeping.CheckpointDir, name, dying(getattr(keeping.CheckpointDir, name), lambda *_: True)
                )
            with pytest.raises(Killed):
                run(made(INNER["FedAdam"], Chains.HEDGED), ROUNDS, grid(), checkpoint=place)
        run(made(INNER["FedAdam"], Chains.HEDGED), ROUNDS, grid(), checkpoint=place)
        assert files(place) == files(tmp_path / "whole")


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = strategy()
    run(first, 5, checkpoint=tmp_path)
    before = files(tmp_path)
    again = strategy()
    run(
        again,
        5,
        InProcessGrid(client(), 6, online=lambda: pytest.fail("nobody is to be asked")),
        checkpoint=tmp_path,
    )
    assert files(tmp_path) == before
    assert again.mean().models[0]["w"].tolist() == first.mean().models[0]["w"].tolist()
    run(strategy(), 8, checkpoint=tmp_path)
    more = strategy()
    run(more, 8)
    assert state_in(tmp_path)["round"] == 8
    resumed = strategy()
    run(resumed, 8, checkpoint=tmp_path)
    assert resumed.mean().models[1]["w"].tolist() == more.mean().models[1]["w"].tolist()


def test_a_run_without_a_seed_keeps_the_one_it_drew(tmp_path: Path) -> None:
    """Else a resumed run would choose other nodes; with the drawn seed another run is the same."""
    found = strategy(seed=None, selection=Selection(2))
    run(found, 4, checkpoint=tmp_path / "a")
    state = state_in(tmp_path / "a")
    assert state["seed"] is None
    drawn = state["draws"]
    again = strategy(seed=drawn, selection=Selection(2))
    run(again, 4)
    assert again.last().models[0]["w"].tolist() == found.last().models[0]["w"].tolist()


def test_fast_time_goes_on_from_where_it_was(tmp_path: Path) -> None:
    ticks = [0.0]

    def clock() -> FastClock:
        return FastClock(START, 3600.0, time=lambda: ticks[0])

    def tick(_: Any) -> None:
        ticks[0] += 2.0

    run(strategy(clock=clock()), 4, checkpoint=tmp_path, on_round=tick)
    ticks[0] = 999.0
    found = strategy(clock=clock())
    seen: list[int] = []

    def look(this: Any) -> None:
        tick(this)
        seen.append(this.instant)

    run(found, 6, checkpoint=tmp_path, on_round=look)
    assert [(each - 1_704_067_200_000_000) / 3.6e9 for each in seen] == [6.0, 8.0]


def test_what_else_is_in_the_folder_stays(tmp_path: Path) -> None:
    others = ["model-00001-of-00002.safetensors", "block-models.safetensors", "notes.txt", ".hidden"]
    for name in others:
        (tmp_path / name).write_bytes(b"precious")
    left = tmp_path / ".model-shared-3.safetensors.123.abcd"
    left.write_bytes(b"half a model")
    run(strategy(), 9, checkpoint=tmp_path)
    assert all((tmp_path / name).read_bytes() == b"precious" for name in others)
    assert not left.exists()


def test_noise_for_privacy_cannot_be_repeated_from_what_is_kept(tmp_path: Path) -> None:
    found = strategy(INNER["private"](), seed=None)
    run(found, 2, checkpoint=tmp_path)
    drawn = state_in(tmp_path)["draws"]
    again = strategy(INNER["private"](), seed=drawn)
    run(again, 2)
    assert found.main().values["w"].tolist() != again.main().values["w"].tolist()


def test_settings_of_the_strategy_inside_may_be_others_when_a_run_goes_on(tmp_path: Path) -> None:
    """What it remembers is kept, not how it was made: the advice it gives can be followed."""
    with pytest.raises(TimeoutError, match="lower it"):
        run(strategy(fedavg(min_available_nodes=7)), 1, checkpoint=tmp_path)
    found = strategy(fedavg(min_available_nodes=3))
    run(found, 2, checkpoint=tmp_path)
    # Of many tries of one round in a row, some are kept.
    assert found.reply_counts() | {"rounds": 2, "rounds_without_participants": 5} == found.reply_counts()


def test_generators_and_notes_of_a_strategy_are_kept(tmp_path: Path) -> None:
    whole = Odd("none")
    run(strategy(whole), 6)
    run(strategy(Odd("none")), 3, checkpoint=tmp_path)
    again = Odd("none")
    run(strategy(again), 6, checkpoint=tmp_path)
    assert again.seen == whole.seen
    assert again.odd == whole.odd
    assert again.rng.random() == whole.rng.random()


def test_a_chain_that_did_not_move_is_kept_as_it_was(tmp_path: Path) -> None:
    """In round 13 the shared chain gets nothing that can be used; separate ones: the last block's counts."""

    def spoilt(message: Any, arrays: Any) -> Any:
        if told(message, "server-round") == 13 and message.metadata.group_id.endswith("shared"):
            return BAD["nan"][1](message, arrays)
        return honest(0, told(message, "server-round"), arrays)

    for chains in Chains:
        place = tmp_path / chains.name
        whole = strategy(chains=chains)
        result = run(whole, 13, InProcessGrid(client({0: spoilt}), 1), checkpoint=place)
        again = strategy(chains=chains)
        after = run(again, 13, InProcessGrid(client({0: spoilt}), 1), checkpoint=place)
        assert after.arrays["w"].numpy().tolist() == result.arrays["w"].numpy().tolist()
        for ours, theirs in zip(again.last().models, whole.last().models, strict=True):
            assert ours["w"].tolist() == theirs["w"].tolist()


def test_who_was_met_is_not_asked_again(tmp_path: Path) -> None:
    answers = {
        3: {"profile": [2.0]},
        4: {"profile": [0.7, 0.1, 0.1, 0.1], "zone": "Asia/Tokyo", "device": 44},
    }
    how = Selection(3, query_availability=True)
    run(strategy(selection=how), 6, InProcessGrid(_asked(answers), 6), checkpoint=tmp_path / "whole")
    run(strategy(selection=how), 3, InProcessGrid(_asked(answers), 6), checkpoint=tmp_path / "part")
    found = strategy(selection=how)
    run(found, 6, InProcessGrid(_asked({}), 6), checkpoint=tmp_path / "part")
    assert files(tmp_path / "part") == files(tmp_path / "whole")
    assert found.directory.profiles[6].zone == "Asia/Tokyo"


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    def second(_: Any) -> None:
        with pytest.raises(ValueError, match="another run is working in this folder"):
            run(strategy(), 2, checkpoint=tmp_path)

    run(strategy(), 1, checkpoint=tmp_path, on_round=second)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"inner": "DP of FedAdam"}, {"inner": "private"}, "another strategy"),
        (
            {"chains": Chains.HEDGED},
            {"chains": Chains.HEDGED, "hedge": sc.Prod(bound=9.0, steps=99)},
            "another hedge",
        ),
        ({}, {"clock": RoundClock(START, timedelta(hours=3))}, "another clock"),
    ],
)
def test_another_strategy_hedge_or_clock_does_not_go_on(
    first: Any, second: Any, words: str, tmp_path: Path
) -> None:
    def private_adam() -> Strategy:
        return known.DifferentialPrivacyServerSideFixedClipping(INNER["FedAdam"](), 0.1, 1.0, 6)

    made_by = {**INNER, "DP of FedAdam": private_adam}
    first, second = (
        {**each, "inner": made_by[each["inner"]]()} if "inner" in each else each for each in (first, second)
    )
    run(strategy(**first), 2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=words):
        run(strategy(**second), 4, checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"chains": Chains.SEPARATE}, "another chains"),
        ({"tail": 1}, "another tail"),
        ({"seed": 6}, "has seed 5, not 6"),
    ],
)
def test_another_run_does_not_go_on_with_a_folder(how: dict[str, Any], words: str, tmp_path: Path) -> None:
    run(strategy(), 2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=words):
        run(strategy(**how), 4, checkpoint=tmp_path)


def test_damaged_states_are_named(tmp_path: Path) -> None:
    run(strategy(), 2, checkpoint=tmp_path)
    log = (tmp_path / "rounds.jsonl").read_bytes()
    (tmp_path / "rounds.jsonl").write_bytes(log[:-20])
    with pytest.raises(ValueError, match=r"rounds.jsonl: cannot be read"):
        run(strategy(), 4, checkpoint=tmp_path)
    (tmp_path / "rounds.jsonl").write_bytes(log)
    for name in ("model-shared-2.safetensors", "open-2.safetensors", "state.json"):
        good = (tmp_path / name).read_bytes()
        for damaged in (b"no", b"{}", good[:-3], good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(sc.Unreadable, match=name):
                run(strategy(), 4, checkpoint=tmp_path)
        (tmp_path / name).write_bytes(good)
    older = (tmp_path / "state.json").read_text().replace('"version":4', '"version":3')
    (tmp_path / "state.json").write_text(older)
    with pytest.raises(sc.Unreadable, match="of a federated run in format 3, but this version reads 4"):
        run(strategy(), 4, checkpoint=tmp_path)


def test_a_checkpoint_with_nan_is_refused(tmp_path: Path) -> None:
    run(strategy(), 2, checkpoint=tmp_path)
    path = tmp_path / "model-shared-2.safetensors"
    arrays, _ = read_sealed(path, FORMAT)
    write_sealed(path, FORMAT, {name: np.full_like(value, np.nan) for name, value in arrays.items()}, {})
    with pytest.raises(sc.Unreadable, match="has NaN"):
        run(strategy(), 4, checkpoint=tmp_path)
    state = (tmp_path / "state.json").read_text()
    (tmp_path / "state.json").write_text(state.replace('"draws":', '"draws":NaN,"drawn":'))
    with pytest.raises(sc.Unreadable, match="it has NaN"):
        run(strategy(), 4, checkpoint=tmp_path)


def test_a_strategy_may_remember_what_is_no_number(tmp_path: Path) -> None:
    class Remembers(known.FedAvg):
        def aggregate_train(self, *given: Any) -> Any:
            self.worst = float("inf")
            return super().aggregate_train(*given)

    run(strategy(Remembers(fraction_evaluate=0.0)), 2, checkpoint=tmp_path)
    again = strategy(Remembers(fraction_evaluate=0.0))
    run(again, 3, checkpoint=tmp_path)
    assert state_in(tmp_path)["insides"]["shared"]["worst"] == {"is": "float", "of": "inf"}
