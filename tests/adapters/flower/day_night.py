"""Day and night: clients whose labels follow different rules, available at different hours; for tests."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy

import semicyclic as sc
from semicyclic.adapters.flower import InProcessGrid, PluralisticStrategy, RoundClock, Selection
from semicyclic.types import Array as NDArray

CLIENTS, FEATURES, STEPS, BATCH = 60, 20, 10, 16
SCHEDULE = sc.Schedule.daily(edges=[6, 18])
ROUNDS = 480


class Rows(NamedTuple):
    """Features with a constant last, and labels."""

    X: NDArray
    y: NDArray


def drawn(rng: np.random.Generator, count: int, sign: float) -> Rows:
    """Label 1 where x0 x1 + s (.8 x2 + .5) + noise is positive: opposite by day (s = 1) and night (-1)."""
    X = rng.normal(size=(count, FEATURES))
    score = X[:, 0] * X[:, 1] + sign * (0.8 * X[:, 2] + 0.5) + 0.3 * rng.normal(size=count)
    return Rows(np.c_[X, np.ones(count)], (score > 0).astype(float))


@cache
def clients(seed: int = 0, alike: bool = False) -> tuple[tuple[Rows, Rows], ...]:
    """Each client's rows to train on and to evaluate on; the first half of the clients are there by day."""
    rng = np.random.default_rng(seed)
    found = []
    for device in range(CLIENTS):
        sign = 1.0 if alike or device < CLIENTS // 2 else -1.0
        count = int(rng.integers(60, 161))
        found.append((drawn(rng, count, sign), drawn(rng, 20, sign)))
    return tuple(found)


@cache
def held_out(alike: bool) -> tuple[Rows, Rows]:
    """Rows of the day and of the night that no client has."""
    rng = np.random.default_rng(99)
    return drawn(rng, 20_000, 1.0), drawn(rng, 20_000, 1.0 if alike else -1.0)


def app(step: float, seed: int = 0, *, alike: bool = False, evaluates: bool = True) -> ClientApp:
    """Logistic regression: ten steps on minibatches of 16."""
    made = ClientApp()

    def loss(rows: Rows, w: NDArray) -> float:
        score = rows.X @ w
        return float(np.mean(np.logaddexp(0.0, score) - rows.y * score))

    @made.train()
    def train(message: Message, context: Context) -> Message:
        device = int(context.node_config["partition-id"])
        rows = clients(seed, alike)[device][0]
        content: Any = message.content
        w = content["arrays"]["w"].numpy().copy()
        before = loss(rows, w)
        rng = np.random.default_rng([seed, device, int(content["config"]["server-round"])])
        for _ in range(STEPS):
            some = rng.integers(0, len(rows.y), BATCH)
            X = rows.X[some]
            w -= step * X.T @ (1 / (1 + np.exp(-X @ w)) - rows.y[some]) / BATCH
        metrics = MetricRecord({"num-examples": len(rows.y), "loss-before": before})
        arrays = ArrayRecord({"w": Array(w)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    if evaluates:

        @made.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            rows = clients(seed, alike)[int(context.node_config["partition-id"])][1]
            content: Any = message.content
            found = loss(rows, content["arrays"]["w"].numpy())
            metrics = MetricRecord({"num-examples": len(rows.y), "eval_loss": found})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return made


def trained(
    inner: Strategy, step: float, *, rounds: int = ROUNDS, seed: int = 0, **how: Any
) -> PluralisticStrategy:
    """A run of the task, a round an hour."""
    alike, evaluates = how.pop("alike", False), how.pop("evaluates", True)
    clock = RoundClock(datetime(2026, 1, 1, 6, tzinfo=UTC), timedelta(hours=1))

    def online(time: datetime) -> range:
        return range(CLIENTS // 2) if 6 <= time.hour < 18 else range(CLIENTS // 2, CLIENTS)

    strategy = PluralisticStrategy(
        inner, SCHEDULE, clock, selection=Selection(clients_per_round=10), seed=seed, **how
    )
    grid = InProcessGrid(
        app(step, seed, alike=alike, evaluates=evaluates), CLIENTS, online=online, clock=clock
    )
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(FEATURES + 1))}), rounds)
    return strategy


def accuracy(w: NDArray, block: int, *, alike: bool = False) -> float:
    """Of a model in a block: 0 by day, 1 by night."""
    rows = held_out(alike)[block]
    return float(np.mean((rows.X @ w > 0) == (rows.y > 0)))
