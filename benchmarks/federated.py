"""Benchmarks with Flower: overhead of the strategy wrapper, speed of a simulated fleet, server memory."""

import logging
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.timing import Figure, Peer, at_least, at_most, best_of, no_goal, note

PARAMETERS, CLIENTS = 10_000_000, 20
DEVICES, PER_ROUND, ROUNDS = 10_000, 20, 1000


def _client(*, evaluates: bool = False) -> Any:
    """Return a client that does almost no work, so the server and its messages dominate the time."""
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001
        content: Any = message.content
        moved = {name: Array(0.99 * array.numpy()) for name, array in content["arrays"].items()}
        metrics = MetricRecord({"num-examples": 10, "loss": 0.5})
        return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message)

    if evaluates:

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:  # noqa: ARG001
            metrics = MetricRecord({"num-examples": 10, "eval_loss": 0.5})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def fed_wrap() -> list[Figure]:
    """Time of a round of wrapped Federated Averaging, relative to an unwrapped one."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    from semicyclic import Schedule
    from semicyclic.adapters.flower import Chains, InProcessGrid, PluralisticStrategy, RoundClock

    logging.getLogger("flwr").setLevel(logging.ERROR)
    app = _client()
    layers = np.split(np.random.default_rng(0).normal(size=PARAMETERS).astype(np.float32), 10)
    arrays = ArrayRecord({f"layer{i}": Array(layer.reshape(1000, -1)) for i, layer in enumerate(layers)})
    clock = RoundClock(datetime(2024, 1, 1, tzinfo=UTC), timedelta(hours=2))
    bare = FedAvg(fraction_evaluate=0.0)

    def wrapped() -> None:
        # One chain: the only work in addition to a bare run is averaging.
        inner = FedAvg(fraction_evaluate=0.0)
        strategy = PluralisticStrategy(inner, Schedule.daily(6), clock, chains=Chains.SHARED, evaluators=0)
        strategy.start(InProcessGrid(app, CLIENTS), arrays, 3)

    seconds = best_of(
        5,
        bare=Peer(lambda: bare.start(InProcessGrid(app, CLIENTS), arrays, 3)),
        wrapped=wrapped,
    )
    return [
        at_most("wrapped / bare", seconds["wrapped"] / seconds["bare"], 1.1),
        no_goal("seconds a bare round", seconds["bare"] / 3),
    ]


FLEET = f"""
import logging, time
from semicyclic.experiments.federated.app import clock_of, fleet_grid, run, strategy_of
from semicyclic.experiments.federated.fleet import FleetSettings, make_fleet
logging.getLogger("flwr").setLevel(logging.ERROR)
settings = FleetSettings(devices={DEVICES}, per_round={PER_ROUND}, invited={PER_ROUND}, local_steps=1)
world = make_fleet(settings)
clock = clock_of(world)
run(strategy_of(world, clock=clock, evaluators=0), fleet_grid(world, clock), world, 5)
best = 0.0
for _ in range(3):
    begin = time.perf_counter()
    run(strategy_of(world, clock=clock, evaluators=0), fleet_grid(world, clock), world, {ROUNDS})
    best = max(best, {ROUNDS} / (time.perf_counter() - begin))
# getrusage would include the peak of the parent process.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(best, int(peak.split()[1]) / 1e6)
"""


def fed_scale() -> list[Figure]:
    """Rounds per second and peak memory for 10,000 devices in one process, 20 per round, linear model."""
    done = subprocess.run([sys.executable, "-c", FLEET], capture_output=True, text=True, check=True)
    rounds, gigabytes = map(float, done.stdout.split())
    note("seconds a round", 1 / rounds)
    note("GB", gigabytes)
    return [at_least("rounds a second", rounds, 100.0), at_most("GB at most", gigabytes, 1.0)]


MEMORY = """
import gc, logging, sys, tracemalloc
from datetime import UTC, datetime, timedelta
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from benchmarks.federated import _client
from semicyclic import Schedule
from semicyclic.adapters.flower import Chains, InProcessGrid, PluralisticStrategy, RoundClock, Storage
logging.getLogger("flwr").setLevel(logging.ERROR)
size, chains, tail = int(sys.argv[1]), Chains[sys.argv[2]], int(sys.argv[3])
precision, folder = sys.argv[4:6]
traced = []
tracemalloc.start()
for blocks in (2, 10):
    clock = RoundClock(datetime(2024, 1, 1, tzinfo=UTC), timedelta(days=1) / blocks)
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy = PluralisticStrategy(
        inner, Schedule.daily(blocks), clock, chains=chains, tail=tail,
        storage=Storage(precision, folder or None), evaluators=1 if chains is Chains.SPLIT else 0)
    arrays = ArrayRecord({"w": Array(np.ones(size, np.float32))})
    # Four visits to every block, so that the state of each block is complete.
    strategy.start(InProcessGrid(_client(evaluates=True), 4), arrays, 4 * blocks + 1)
    gc.collect()
    traced.append(tracemalloc.get_traced_memory()[0])
    del strategy, arrays
    gc.collect()
    traced[-1] -= tracemalloc.get_traced_memory()[0]
print((traced[1] - traced[0]) / 8 / (4 * size))
"""


def fed_memory() -> list[Figure]:
    """Memory per additional block, in models of single precision, against the documented formula."""
    from semicyclic.adapters.flower import Chains
    from semicyclic.adapters.flower.server_state import models_per_block

    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for chains, tail, precision, storage in (
            ("SHARED", 2, "full", ""),
            ("SHARED", 0, "full", ""),
            ("SHARED", 2, "half", ""),
            ("SHARED", 2, "full", folder),
            ("SEPARATE", 2, "full", ""),
            ("SPLIT", 2, "full", ""),
            ("SPLIT", 1, "half", ""),
        ):
            command = [sys.executable, "-c", MEMORY, str(1_000_000), chains, str(tail), precision, storage]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            measured = float(done.stdout)
            expected = models_per_block(Chains[chains], tail, half=precision == "half", on_disk=bool(storage))
            name = f"{chains.lower()}, tail={tail}, {precision}{', on disk' if storage else ''}"
            note(name, measured)
            figures.append(no_goal(f"{name}: models a block", measured))
            figures.append(at_most(f"{name}: off the formula", abs(measured / expected - 1.0), 0.05))
    return figures
