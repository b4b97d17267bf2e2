"""A federated server that is killed goes on to the same result."""

import importlib
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower import FastClock
from tests.fleets import START, Chains, InProcess, Pluralistic, Selection, client, run, strategy
from tests.test_flower import INNER

ROUNDS = 17


class Killed(BaseException):
    """What no code of ours catches."""


def files(place: Path) -> dict[str, bytes]:
    """What a run leaves: all that counts, by name."""
    return {path.name: path.read_bytes() for path in sorted(place.iterdir()) if not path.name.startswith(".")}


def measure(number: int, arrays: ArrayRecord) -> MetricRecord | None:
    return MetricRecord({"norm": float(np.sum(arrays["w"].numpy() ** 2))}) if number % 3 == 0 else None


def made(inner: Callable[[], Strategy], chains: Chains) -> Pluralistic:
    how = Selection(3, 4, deadline=20.0, separation=timedelta(hours=3))
    return strategy(inner(), chains=chains, selection=how)


def grid() -> InProcess:
    return InProcess(client(), 12, arrival=lambda device, _: 3.0 * (device % 5))


@pytest.mark.parametrize("name", ["FedAvg", "FedAdam", "FedAvgM", "adaptive"])
@pytest.mark.parametrize("chains", Chains)
def test_stopped_after_any_round_it_ends_in_the_same_bytes(name: str, chains: Chains, tmp_path: Path) -> None:
    whole = made(INNER[name], chains)
    result = run(whole, ROUNDS, grid(), checkpoint=tmp_path / "whole", evaluate_fn=measure)
    stops = range(1, ROUNDS) if (name, chains) == ("FedAdam", Chains.HEDGED) else (1, 7, 13)
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
        for ours, theirs in ((again.models(), whole.models()), (again.lasts(), whole.lasts())):
            for left, right in zip(ours.models, theirs.models, strict=True):
                assert all(np.array_equal(left[key], right[key]) for key in right)
        assert again.lost() == whole.lost()
        assert str(after) == str(result)
        shutil.rmtree(place)


@pytest.mark.parametrize("moment", ["models", "sums", "blocks", "rounds", "state", "tidy"])
def test_killed_while_it_writes_nothing_is_lost(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step of keeping a round, before and after its file is in place."""
    keeping: Any = importlib.import_module("semicyclic.adapters.flower.keeping")

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

            if moment in ("models", "sums", "blocks"):
                patch.setattr(
                    keeping, "put", dying(keeping.put, lambda path, *_: path.name.startswith(moment))
                )
            elif moment == "state":
                patch.setattr(keeping, "put_text", dying(keeping.put_text, lambda *_: True))
            else:
                name = {"rounds": "_log", "tidy": "_tidy"}[moment]
                patch.setattr(keeping.Keeper, name, dying(getattr(keeping.Keeper, name), lambda *_: True))
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
        InProcess(client(), 6, online=lambda: pytest.fail("nobody is to be asked")),
        checkpoint=tmp_path,
    )
    assert files(tmp_path) == before
    assert again.models().models[0]["w"].tolist() == first.models().models[0]["w"].tolist()
    run(strategy(), 8, checkpoint=tmp_path)
    more = strategy()
    run(more, 8)
    assert json.loads((tmp_path / "state.json").read_text())["round"] == 8
    resumed = strategy()
    run(resumed, 8, checkpoint=tmp_path)
    assert resumed.models().models[1]["w"].tolist() == more.models().models[1]["w"].tolist()


def test_a_run_without_a_seed_keeps_the_one_it_drew(tmp_path: Path) -> None:
    """Else a resumed run would choose other nodes; with the drawn seed another run is the same."""
    found = strategy(seed=None, selection=Selection(2))
    found.seed = None
    run(found, 4, checkpoint=tmp_path / "a")
    drawn = json.loads((tmp_path / "a" / "state.json").read_text())["seed"]
    again = strategy(seed=drawn, selection=Selection(2))
    run(again, 4)
    assert again.lasts().models[0]["w"].tolist() == found.lasts().models[0]["w"].tolist()


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
    (tmp_path / "models-2.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"models-2.safetensors: it cannot be read"):
        run(strategy(), 4, checkpoint=tmp_path)
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(ValueError, match="not the state of a federated run"):
        run(strategy(), 4, checkpoint=tmp_path)
