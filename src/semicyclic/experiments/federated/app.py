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
from semicyclic.experiments.federated.fleet import FIRST_DAY, Fleet, FleetSettings, make_fleet
from semicyclic.experiments.federated.kernels.client_sgd import log_loss, loss_before, scores, train_weights
from semicyclic.store.atomic import write_text
from semicyclic.types import Array

WEIGHTS = "weights"

client = ClientApp()
server = ServerApp()


def _fleet_and_device(context: Context) -> tuple[Fleet, int]:
    """Return the fleet this node belongs to, and the number of its device."""
    fleet = make_fleet(FleetSettings.from_config(context.run_config))
    return fleet, int(context.node_config["partition-id"]) % fleet.population.devices


def _round_number(message: Message) -> int:
    config = message.content["config"]
    assert isinstance(config, ConfigRecord)
    return int(config["server-round"])  # type: ignore[arg-type]


def _weights(message: Message) -> Array:
    sent = message.content["arrays"]
    assert isinstance(sent, ArrayRecord)
    # Copy the array: Numba takes long to dispatch on a read-only one.
    return decode(sent[WEIGHTS]).copy()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train the received weights on the device's rows."""
    fleet, device = _fleet_and_device(context)
    settings, population = fleet.settings, fleet.population
    weights = _weights(message)
    number = _round_number(message)
    begin, end = int(population.first[device]), int(population.first[device + 1])
    cells = population.rows.indptr, population.rows.indices, population.rows.values
    # All models of a round train on the same rows, so their losses are comparable.
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
    """Evaluate the received weights on the device's validation rows."""
    fleet, device = _fleet_and_device(context)
    population = fleet.population
    weights = _weights(message)
    begin, end = np.searchsorted(population.test_device, (device, device + 1))
    if begin == end:
        raise ValueError(f"device {device} has no validation rows")
    cells = population.test.indptr, population.test.indices, population.test.values
    # Every second row is for validation; the others are for the final comparison.
    score = scores(cells, weights, int(begin), int(end))[::2]
    truth = population.test_labels[begin:end:2]
    accuracy = float(np.mean((score > 0) == (truth > 0)))
    loss = log_loss(score, truth)
    metrics = MetricRecord({"num-examples": len(truth), "eval_loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@client.query()
def query(message: Message, context: Context) -> Message:
    """Report the device's availability by block, its time zone and its number."""
    fleet, device = _fleet_and_device(context)
    answer = {
        "profile": fleet.profiles[device].tolist(),
        "zone": fleet.population.zone[device],
        "device": device,
    }
    return Message(RecordDict({"availability": ConfigRecord(answer)}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train the fleet; write the models and the counts of replies to the folder `out`."""
    settings = FleetSettings.from_config(context.run_config)
    fleet = make_fleet(settings)
    chains = Chains[str(context.run_config.get("chains", "split")).upper()]
    out = Path(str(context.run_config.get("out", "fleet")))
    rounds = int(context.run_config.get("rounds", fleet.rounds))
    strategy = strategy_of(fleet, chains=chains, ask=True)
    run(strategy, grid, fleet, rounds, checkpoint=out)
    write_text(out / "lost.json", json.dumps(strategy.reply_counts()))
    strategy.best().save(out / "models.safetensors")


def strategy_of(
    fleet: Fleet,
    *,
    chains: Chains = Chains.SHARED,
    evaluators: int | None = None,
    ask: bool = False,
    inner: Strategy | None = None,
    clock: BlockClock | None = None,
) -> PluralisticStrategy:
    """Return FedAvg for a fleet, wrapped in `PluralisticStrategy`.

    evaluators: devices per round that evaluate candidate models; None for the strategy's default.
    ask: select devices by the availability they report; otherwise among the connected ones.
    inner: strategy to wrap instead of FedAvg.
    clock: clock of the rounds; by default `clock_of(fleet)`.
    """
    settings = fleet.settings
    # All selected devices take part: `Selection` decides how many, so FedAvg has no minimum.
    base = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    return PluralisticStrategy(
        base if inner is None else inner,
        fleet.population.schedule,
        clock_of(fleet) if clock is None else clock,
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


def clock_of(fleet: Fleet) -> BlockClock:
    """Return a clock with the same number of rounds in every block."""
    return BlockClock(fleet.population.schedule, FIRST_DAY, fleet.settings.rounds_per_block)


def fleet_grid(fleet: Fleet, clock: BlockClock, *, uniform: bool = False) -> InProcessGrid:
    """Return the fleet in this process, where devices are online by the clock; with `uniform`, always."""
    settings = fleet.settings

    def online() -> Any:
        return fleet.availability.online(clock.instant, settings.seed)

    def arrival(device: int, message: Message) -> float | None:
        if "query" in message.metadata.message_type:
            return 0.0
        return fleet.arrival(device, _round_number(message))

    online_now = None if uniform else online
    return InProcessGrid(
        client, fleet.population.devices, online=online_now, arrival=arrival, config=settings.config()
    )


def run(
    strategy: PluralisticStrategy,
    grid: Grid,
    fleet: Fleet,
    rounds: int,
    *,
    checkpoint: Path | None = None,
    measure: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    on_round: Callable[[Any], None] | None = None,
) -> Result:
    """Run all rounds, starting from zero weights."""
    initial = record({WEIGHTS: np.zeros(fleet.width)})
    return strategy.start(
        grid,
        initial,
        rounds,
        timeout=fleet.settings.deadline,
        evaluate_fn=measure,
        checkpoint=checkpoint,
        on_round=on_round,
    )


def _hours(hours: float) -> timedelta | None:
    """Convert hours to a timedelta; 0 becomes None."""
    return timedelta(hours=hours) if hours else None
