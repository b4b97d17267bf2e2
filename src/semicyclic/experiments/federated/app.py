"""Flower app of the simulated fleet: a ClientApp and a ServerApp.

Both run in this process (`InProcessGrid`), in Flower's simulation, and on a SuperLink with SuperNodes.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from semicyclic.adapters.flower import BlockClock, Chains, InProcessGrid, PluralisticStrategy, Selection
from semicyclic.adapters.flower.serialization import decode, record
from semicyclic.experiments.federated.fleet import START, Fleet, FleetSettings, make_fleet
from semicyclic.experiments.federated.kernels.client_sgd import log_loss, loss_before, scores, train_weights
from semicyclic.store.atomic import write_text
from semicyclic.types import Array

WEIGHTS = "weights"

client = ClientApp()
server = ServerApp()


def _mine(context: Context) -> tuple[Fleet, int]:
    """The fleet this node belongs to, and its number in it."""
    world = make_fleet(FleetSettings.from_config(context.run_config))
    return world, int(context.node_config["partition-id"]) % world.population.devices


def _number(message: Message) -> int:
    told = message.content["config"]
    assert isinstance(told, ConfigRecord)
    return int(told["server-round"])  # type: ignore[arg-type]


def _weights(message: Message) -> Array:
    sent = message.content["arrays"]
    assert isinstance(sent, ArrayRecord)
    # A copy: Numba takes long to recognise an array that may not be written to.
    return decode(sent[WEIGHTS]).copy()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Learn from the device's own rows, beginning with the weights that were sent."""
    world, device = _mine(context)
    settings, population = world.settings, world.population
    weights = _weights(message)
    number = _number(message)
    begin, end = int(population.first[device]), int(population.first[device + 1])
    cells = population.rows.indptr, population.rows.indices, population.rows.values
    # The same rows for every model of a round, so that their losses can be compared.
    draw = np.random.default_rng((settings.seed << 64) + (device << 32) + number)
    order = draw.integers(begin, end, (settings.local_steps, min(settings.batch_size, end - begin)))
    before = loss_before(cells, population.labels, weights, begin, end)
    after = train_weights(cells, population.labels, weights, order, settings.rate)
    content = RecordDict(
        {
            "arrays": record({WEIGHTS: after}),
            "metrics": MetricRecord({"num-examples": end - begin, "loss-before": before}),
        }
    )
    return Message(content, reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """How good the weights that were sent are on the device's own rows for validation."""
    world, device = _mine(context)
    population = world.population
    weights = _weights(message)
    begin, end = np.searchsorted(population.test_device, (device, device + 1))
    if begin == end:
        raise ValueError(f"device {device} has no rows to validate with")
    cells = population.test.indptr, population.test.indices, population.test.values
    # Every second row; the others are for the comparison in the end.
    score = scores(cells, weights, int(begin), int(end))[::2]
    truth = population.test_labels[begin:end:2]
    right = float(np.mean((score > 0) == (truth > 0)))
    loss = log_loss(score, truth)
    metrics = MetricRecord({"num-examples": len(truth), "eval_loss": loss, "accuracy": right})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@client.query()
def query(message: Message, context: Context) -> Message:
    """When this device is available, where it is, and its number."""
    world, device = _mine(context)
    told = {
        "profile": world.profiles[device].tolist(),
        "zone": world.population.zone[device],
        "device": device,
    }
    return Message(RecordDict({"availability": ConfigRecord(told)}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train the fleet; leave the models and what happened in the folder that `out` names."""
    settings = FleetSettings.from_config(context.run_config)
    world = make_fleet(settings)
    chains = Chains[str(context.run_config.get("chains", "split")).upper()]
    out = Path(str(context.run_config.get("out", "fleet")))
    rounds = int(context.run_config.get("rounds", world.rounds))
    strategy = strategy_of(world, chains=chains, ask=True)
    run(strategy, grid, world, rounds, checkpoint=out)
    write_text(out / "lost.json", json.dumps(strategy.reply_counts()))
    strategy.best().save(out / "models.safetensors")


def strategy_of(
    world: Fleet,
    *,
    chains: Chains = Chains.SHARED,
    evaluators: int | None = None,
    ask: bool = False,
    inner: Strategy | None = None,
    clock: BlockClock | None = None,
) -> PluralisticStrategy:
    """FedAvg on a fleet, wrapped.

    ask: choose devices by the availability they tell; otherwise among those that are connected.
    """
    settings = world.settings
    # Whoever was chosen takes part: how many that are is the selection's business.
    base = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    return PluralisticStrategy(
        base if inner is None else inner,
        world.population.schedule,
        clock_of(world) if clock is None else clock,
        chains=chains,
        evaluators=evaluators,
        selection=Selection(
            clients_per_round=settings.per_round,
            invited_per_round=settings.invited,
            deadline_seconds=settings.deadline,
            min_interval=_hours(settings.separation),
            query_availability=ask,
        ),
        seed=settings.seed,
    )


def clock_of(world: Fleet) -> BlockClock:
    """The same number of rounds in every block."""
    return BlockClock(world.population.schedule, START, world.settings.rounds_per_block)


def fleet_grid(world: Fleet, clock: BlockClock, *, uniform: bool = False) -> InProcessGrid:
    """The fleet in this process: who is there depends on the clock; with `uniform`, all always are."""
    settings = world.settings

    def online() -> Any:
        return world.availability.online(clock.instant, settings.seed)

    def arrival(device: int, message: Message) -> float | None:
        if "query" in message.metadata.message_type:
            return 0.0
        return world.arrival(device, _number(message))

    everyone = None if uniform else online
    return InProcessGrid(
        client, world.population.devices, online=everyone, arrival=arrival, config=settings.config()
    )


def run(
    strategy: PluralisticStrategy,
    grid: Grid,
    world: Fleet,
    rounds: int,
    *,
    checkpoint: Path | None = None,
    measure: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    on_round: Callable[[Any], None] | None = None,
) -> Result:
    """All rounds, from weights that are zero."""
    initial = record({WEIGHTS: np.zeros(world.width)})
    return strategy.start(
        grid,
        initial,
        rounds,
        timeout=world.settings.deadline,
        evaluate_fn=measure,
        checkpoint=checkpoint,
        on_round=on_round,
    )


def _hours(hours: float) -> timedelta | None:
    return timedelta(hours=hours) if hours else None
