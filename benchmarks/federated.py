"""Flower: what wrapping a strategy costs, and how many rounds a second a simulated fleet makes."""

import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.timing import Figure, Peer, at_least, at_most, best_of, no_goal, note

PARAMETERS, CLIENTS = 10_000_000, 20
DEVICES, PER_ROUND, ROUNDS = 10_000, 20, 1000


def _client() -> Any:
    """A client that does next to nothing: what is left is the server's work and the messages'."""
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001
        content: Any = message.content
        moved = {name: Array(0.99 * array.numpy()) for name, array in content["arrays"].items()}
        metrics = MetricRecord({"num-examples": 10, "loss": 0.5})
        return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message)

    return app


def fed_wrap() -> list[Figure]:
    """A round of wrapped Federated Averaging, in times of a bare one's."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    from semicyclic import Schedule
    from semicyclic.adapters.flower import InProcess, Pluralistic, RoundClock

    logging.getLogger("flwr").setLevel(logging.ERROR)
    app = _client()
    layers = np.split(np.random.default_rng(0).normal(size=PARAMETERS).astype(np.float32), 10)
    arrays = ArrayRecord({f"layer{i}": Array(layer.reshape(1000, -1)) for i, layer in enumerate(layers)})
    clock = RoundClock(datetime(2024, 1, 1, tzinfo=UTC), timedelta(hours=2))
    bare = FedAvg(fraction_evaluate=0.0)

    def wrapped() -> None:
        strategy = Pluralistic(FedAvg(fraction_evaluate=0.0), Schedule.daily(6), clock)
        strategy.start(InProcess(app, CLIENTS), arrays, 3)

    taken = best_of(
        5,
        bare=Peer(lambda: bare.start(InProcess(app, CLIENTS), arrays, 3)),
        wrapped=wrapped,
    )
    return [
        at_most("wrapped / bare", taken["wrapped"] / taken["bare"], 1.1),
        no_goal("seconds a bare round", taken["bare"] / 3),
    ]


FLEET = f"""
import logging, time
from semicyclic.experiments.fleet.app import clock_of, fleet_grid, run, strategy_of
from semicyclic.experiments.fleet.world import Settings, make
logging.getLogger("flwr").setLevel(logging.ERROR)
world = make(Settings(devices={DEVICES}, per_round={PER_ROUND}, invited={PER_ROUND}, local_steps=1))
clock = clock_of(world)
run(strategy_of(world, clock=clock), fleet_grid(world, clock), world, 5)
best = 0.0
for _ in range(3):
    begin = time.perf_counter()
    run(strategy_of(world, clock=clock), fleet_grid(world, clock), world, {ROUNDS})
    best = max(best, {ROUNDS} / (time.perf_counter() - begin))
# Not by getrusage, which would tell the peak of the process that has started this one.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(best, int(peak.split()[1]) / 1e6)
"""


def fed_scale() -> list[Figure]:
    """Rounds a second and memory of 10,000 devices in one process, 20 a round, a linear model."""
    done = subprocess.run([sys.executable, "-c", FLEET], capture_output=True, text=True, check=True)
    rounds, gigabytes = map(float, done.stdout.split())
    note("seconds a round", 1 / rounds)
    note("GB", gigabytes)
    return [at_least("rounds a second", rounds, 100.0), at_most("GB at most", gigabytes, 1.0)]
