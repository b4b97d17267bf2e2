"""Day and night: a small PyTorch network with batch normalization, trained with Flower in one process.

Of sixty clients, half are available by day and half by night, and their labels follow different rules. One
model for all hours cannot fit both; the current model of Federated Averaging fits only the last few hours.
Run it with `python examples/flower_torch.py`; it needs `pip install 'semicyclic[flower]' torch`.
"""

import logging
from datetime import UTC, datetime, timedelta

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from semicyclic import Schedule
from semicyclic.adapters.flower import InProcessGrid, PluralisticStrategy, RoundClock, Selection

CLIENTS, FEATURES, ROUNDS = 60, 20, 144
torch.set_num_threads(1)
logging.getLogger("flwr").setLevel(logging.ERROR)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))


def rows(seed: int, count: int, sign: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw rows with label 1 where x0 x1 + s (.8 x2 + .5) + noise > 0; s is 1 by day, -1 by night."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, FEATURES))
    score = x[:, 0] * x[:, 1] + sign * (0.8 * x[:, 2] + 0.5) + 0.3 * rng.normal(size=count)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(score > 0).long()


def side(client: int) -> float:
    """Sign of a client: 1 if it is available by day, -1 by night."""
    return 1.0 if client < CLIENTS // 2 else -1.0


app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    client = context.node_config["partition-id"]
    x, y = rows(client, 100, side(client))
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1000 * client + message.content["config"]["server-round"])
    model.train()
    for _ in range(10):
        batch = torch.randint(len(y), (16,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(y)})
    arrays = ArrayRecord(model.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return the loss on rows not used for training; the server chooses the model of each block by it."""
    client = context.node_config["partition-id"]
    x, y = rows(10_000 + client, 30, side(client))
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.eval()
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(model(x), y))
    metrics = MetricRecord({"num-examples": len(y), "eval_loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def accuracy(state: dict[str, torch.Tensor], sign: float) -> float:
    x, y = rows(99_999, 5_000, sign)
    model = network()
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def main() -> None:
    clock = RoundClock(datetime(2026, 1, 1, 6, tzinfo=UTC), every=timedelta(hours=1))

    def online(time: datetime) -> range:
        """Clients that are online: 0 to 29 by day, the others by night."""
        return range(CLIENTS // 2) if 6 <= time.hour < 18 else range(CLIENTS // 2, CLIENTS)

    strategy = PluralisticStrategy(
        FedAvg(fraction_evaluate=0.0),
        Schedule.daily(edges=[6, 18]),
        clock,
        selection=Selection(clients_per_round=10),
        seed=1,
    )
    grid = InProcessGrid(app, CLIENTS, online=online, clock=clock)
    result = strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=ROUNDS)

    models = strategy.best()
    current = result.arrays.to_torch_state_dict()
    for block, (name, sign) in enumerate((("day", 1.0), ("night", -1.0))):
        print(
            f"{name:>5}: best {accuracy(models.state_dict(block), sign):.3f} ({models.chosen[block]}), "
            f"current model {accuracy(current, sign):.3f}"
        )
    models.save("models.safetensors")


if __name__ == "__main__":
    main()
