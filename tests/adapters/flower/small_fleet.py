"""Small federated runs in this process, for tests."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

import semicyclic as sc
from semicyclic.adapters.flower import (
    BlockResult,
    Chains,
    InProcessGrid,
    PluralisticStrategy,
    RoundClock,
    Selection,
)
from semicyclic.types import Array as NDArray

logging.getLogger("flwr").setLevel(logging.ERROR)

START = datetime(2024, 1, 1, tzinfo=UTC)
HOURS = timedelta(hours=2)
SCHEDULE = sc.Schedule.daily(4)
WIDTH = 4

Reply = Callable[[Message, dict[str, NDArray]], RecordDict]


def told(message: Message, key: str) -> int:
    """What a server tells a client."""
    content: Any = message.content
    return int(content["config"][key])


def sent(message: Message) -> dict[str, NDArray]:
    """The model that a server sends."""
    content: Any = message.content
    return {name: array.numpy() for name, array in content["arrays"].items()}


def fedavg(**how: Any) -> FedAvg:
    return FedAvg(**{"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1, **how})


def pull(device: int, number: int) -> NDArray:
    """Where a device pulls the model in a round."""
    return np.random.default_rng([device, number]).normal(size=WIDTH)


def client(
    odd: Mapping[int, Reply] | None = None, *, evaluates: bool = False, mods: list[Any] | None = None
) -> ClientApp:
    """Devices that move the model a little way to where they want it; some of them reply in an odd way."""
    app = ClientApp(mods=mods)

    if evaluates:

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            aim = pull(int(context.node_config["partition-id"]), 1000 + told(message, "server-round"))
            loss = float(np.mean((np.resize(sent(message)["w"], WIDTH) - aim) ** 2))
            metrics = MetricRecord({"num-examples": 7, "eval_loss": loss})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        device = int(context.node_config["partition-id"])
        number = told(message, "server-round")
        arrays = sent(message)
        if odd and device in odd:
            return Message(odd[device](message, arrays), reply_to=message)
        return Message(honest(device, number, arrays), reply_to=message)

    return app


def honest(device: int, number: int, arrays: Mapping[str, NDArray]) -> RecordDict:
    aim = pull(device, number)
    moved = {
        name: value + 0.3 * (aim[: value.size].reshape(value.shape) - value) for name, value in arrays.items()
    }
    loss = float(np.mean((np.resize(arrays["w"], WIDTH) - aim) ** 2))
    metrics = MetricRecord({"num-examples": 1 + device, "loss-before": loss})
    return RecordDict({"arrays": ArrayRecord({k: Array(v) for k, v in moved.items()}), "metrics": metrics})


def initial() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(WIDTH)), "b": Array(np.ones((2, 1)))})


def strategy(inner: Strategy | None = None, **how: Any) -> PluralisticStrategy:
    return PluralisticStrategy(
        fedavg() if inner is None else inner,
        SCHEDULE,
        how.pop("clock", None) or RoundClock(START, HOURS),
        seed=how.pop("seed", 5),
        **how,
    )


def run(
    found: PluralisticStrategy, rounds: int, grid: InProcessGrid | None = None, **how: Any
) -> BlockResult:
    return found.start(grid or InProcessGrid(client(), 6), initial(), rounds, timeout=60.0, **how)


__all__ = [
    "Chains",
    "InProcessGrid",
    "PluralisticStrategy",
    "RoundClock",
    "Selection",
    "client",
    "run",
    "strategy",
]
