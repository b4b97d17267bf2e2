"""One app, three ways to run: in this process, in Flower's simulation, and on a SuperLink with SuperNodes."""

import hashlib
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from semicyclic.adapters.flower import BlockModels, InProcessGrid
from semicyclic.experiments.federated.fleet import FleetSettings, make_fleet
from semicyclic.experiments.federated.held_out import HeldOutRows
from tests.adapters.flower.superlink import (
    APP,
    BIN,
    Deployment,
    deployed,
    end_all,
    free_port,
    surroundings,
    wait_until,
)

pytestmark = pytest.mark.slow

CONFIG: dict[str, Any] = {
    "rounds": 14,
    "chains": "hedged",
    "devices": 6,
    "per-round": 3,
    "invited": 3,
    "deadline": 60.0,
    "connected": 1,
    "patience": 60.0,
    "availability": "cosine",
    "local-steps": 10,
    "rounds-per-block": 2,
    "seed": 3,
}


def example() -> Any:
    """The ServerApp and ClientApp of the example."""
    found = []
    for name in ("server_app", "client_app"):
        spec = importlib.util.spec_from_file_location(f"example_{name}", APP / "fleet_app" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(module.app)
    return found


def in_process(out: Path) -> None:
    config = {**CONFIG, "out": str(out)}
    server, client = example()
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    server(InProcessGrid(client, CONFIG["devices"], config=config), context)


def test_flowers_simulation_gives_the_same_bits(tmp_path: Path) -> None:
    """`flwr run`, with a SuperLink of its own and Ray: all averages, chains and hedges, to the last bit."""
    in_process(tmp_path / "here")
    home = tmp_path / "home"
    home.mkdir()
    port = free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    env = {**surroundings(home), "RAY_USAGE_STATS_ENABLED": "0"}
    log = open(tmp_path / "superlink.log", "wb")  # noqa: SIM115
    words = [
        str(BIN / "flower-superlink"),
        "--insecure",
        "--simulation",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    link = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path)
    log.close()
    try:
        app, there = tmp_path / "app", tmp_path / "there"
        shutil.copytree(APP, app)
        told = " ".join(f"{key}={json.dumps(value)}" for key, value in {**CONFIG, "out": str(there)}.items())
        run = [str(BIN / "flwr"), "run", str(app), "-c", told, "--federation-config", "num-supernodes=6"]

        def submitted() -> bool:
            done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60, check=False)
            return "Successfully started run" in done.stdout + done.stderr

        wait_until(submitted, 60)
        wait_until((there / "models.safetensors").exists, 180)
    except BaseException:
        print((tmp_path / "superlink.log").read_text(errors="replace")[-5000:])
        raise
    finally:
        end_all(link)
    for name in ("models.safetensors", "rounds.jsonl"):
        assert (there / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name
    for path in (tmp_path / "here").glob("*.safetensors"):
        if path.name.startswith("nodes-"):
            continue  # Flower draws the numbers of nodes
        assert (there / path.name).read_bytes() == path.read_bytes(), path.name


# ------------------------------------------------------------------- SuperLink and SuperNodes


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("deployment"), 4) as found:
        yield found


def rounds(out: Path) -> list[dict[str, Any]]:
    """What happened so far."""
    path = out / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def held(out: Path) -> list[dict[str, Any]]:
    """The rounds with replies. A round that no node answers is tried again, under the same number."""
    return [each for each in rounds(out) if each["came"]]


def told(out: Path, **more: Any) -> dict[str, Any]:
    found = {key.replace("-", "_"): value for key, value in CONFIG.items()}
    return {**found, "chains": "shared", "devices": 4, "per_round": 4, "invited": 4, "out": str(out), **more}


def lost(out: Path) -> dict[str, Any]:
    """The report of what was lost."""
    found: dict[str, Any] = json.loads((out / "lost.json").read_text())
    return found


def usable(out: Path) -> float:
    """The accuracy of the models in a folder; they are finite and know their hours."""
    models = BlockModels.load(out / "models.safetensors")
    assert all(np.isfinite(model["weights"]).all() for model in models.models)
    world = make_fleet(
        FleetSettings(devices=4, availability="cosine", seed=3, per_round=4, invited=4, rounds_per_block=2)
    )
    return float(np.diag(HeldOutRows.of(world).matrix(models)).mean())


def test_a_fleet_of_real_nodes_is_trained(fleet: Deployment) -> None:
    out = fleet.place / "whole"
    fleet.run(**told(out, rounds=3))
    wait_until((out / "models.safetensors").exists, 180, fleet)
    assert [each["used"] for each in held(out)] == [4, 4, 4]
    assert lost(out) == {
        "rounds": 3,
        "rounds_without_a_step": 0,
        "rounds_without_participants": 0,
        "asked": 12,
        "no_reply": 0,
        "failed": 0,
        "used": 12,
        "rejected": {},
    }
    assert usable(out) > 0.55


def test_the_server_is_killed_and_goes_on(fleet: Deployment) -> None:
    out = fleet.place / "server"
    fleet.run(**told(out, rounds=4))
    wait_until(lambda: len(held(out)) >= 2, 180, fleet)
    fleet.kill_server()
    before = len(held(out))
    assert not (out / "models.safetensors").exists()
    fleet.run(**told(out, rounds=4))
    wait_until((out / "models.safetensors").exists, 180, fleet)
    assert [each["number"] for each in held(out)] == [1, 2, 3, 4]
    assert before < 4
    assert lost(out)["rounds"] == 4
    assert usable(out) > 0.55


def test_a_node_is_killed_in_mid_round_and_the_rest_go_on(fleet: Deployment) -> None:
    out = fleet.place / "node"
    fleet.run(**told(out, rounds=4, deadline=20.0))
    wait_until(lambda: len(rounds(out)) >= 1, 180, fleet)
    fleet.kill("node-3")
    wait_until((out / "models.safetensors").exists, 240, fleet)
    found = held(out)
    assert found[0]["used"] == 4
    assert min(each["used"] for each in found[1:]) == 3
    assert all(each["moved"] for each in found)
    assert lost(out)["no_reply"] >= 1
    assert lost(out)["rounds_without_a_step"] == 0
    assert usable(out) > 0.55


# ---------------------------------------------------------------- kills, with a SuperLink of their own


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Deployment]:
    with deployed(tmp_path, 3) as found:
        yield found


def small(out: Path, **more: Any) -> dict[str, Any]:
    three = {"devices": 3, "per_round": 3, "invited": 3, "rounds_per_block": 1, "rounds": 4}
    return told(out, **three, **more)


def digest(out: Path) -> str:
    return hashlib.sha256((out / "models.safetensors").read_bytes()).hexdigest()


def test_killed_server_and_killed_superlink_end_in_the_same_bytes(three: Deployment, tmp_path: Path) -> None:
    """kill -9 of the process that runs the server, then of the SuperLink: as a run that was not killed.

    Nodes try a SuperLink that has gone less and less often: they may be away for more than a minute. Every
    round waits for all of them, since a round with fewer replies makes another model.
    """
    patient = {"connected": 3, "patience": 300.0, "deadline": 300.0}
    whole = tmp_path / "whole"
    config = {key.replace("_", "-"): value for key, value in small(whole, **patient).items()}
    server, client = example()
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    server(InProcessGrid(client, 3, config=config), context)

    out = tmp_path / "killed"
    three.run(**small(out, **patient))
    wait_until(lambda: len(rounds(out)) >= 1, 180, three)
    three.kill_server()
    three.run(**small(out, **patient))
    wait_until(lambda: len(rounds(out)) >= 2, 600, three)
    three.kill("superlink")
    assert not (out / "models.safetensors").exists()
    three.start_link()
    wait_until(lambda: _submitted(three, small(out, **patient)), 120, three)
    wait_until((out / "models.safetensors").exists, 600, three)
    assert [each["number"] for each in held(out)] == [1, 2, 3, 4]
    assert digest(out) == digest(whole)


def _submitted(deployment: Deployment, config: dict[str, Any]) -> bool:
    try:
        deployment.run(**config)
    except (AssertionError, ValueError, subprocess.TimeoutExpired):
        return False
    return True


def test_an_outage_costs_no_round(three: Deployment, tmp_path: Path) -> None:
    """All nodes go for three tries of a round and come back: all rounds have taken place."""
    out = tmp_path / "outage"
    three.run(**small(out, deadline=15.0, patience=2.0))
    wait_until(lambda: len(rounds(out)) >= 1, 180, three)
    for number in range(3):
        three.kill(f"node-{number}")
    wait_until(lambda: sum(each["came"] == 0 for each in rounds(out)) >= 3, 240, three)
    for number in range(3):
        three.join(number, 3)
    wait_until((out / "models.safetensors").exists, 300, three)
    assert [each["number"] for each in held(out)] == [1, 2, 3, 4]
    assert lost(out)["rounds"] == 4
    assert lost(out)["rounds_without_participants"] >= 3
