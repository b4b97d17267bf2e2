"""An ordinary client: logistic regression on the rows of one device, in plain NumPy.

In addition it implements `query`, which reports its availability. A client without it may be selected at any
time. `evaluate` uses rows that are not trained on; the server chooses a model for each block by its results.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from semicyclic.experiments.federated.fleet import FleetSettings, make_fleet

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Run some steps of SGD from the received weights; `hedged` chains also need the loss before them."""
    X, y, _ = my_rows(context, slice(1, None))
    w = message.content["arrays"]["weights"].numpy()
    number = message.content["config"]["server-round"]
    draw = np.random.default_rng([context.node_config["partition-id"], number])
    before = log_loss(X @ w, y)
    for _ in range(context.run_config["local-steps"]):
        rows = draw.integers(0, len(y), 10)
        w = w - 0.5 * X[rows].T @ (1 / (1 + np.exp(-X[rows] @ w)) - y[rows]) / 10
    metrics = MetricRecord({"num-examples": len(y), "loss-before": before})
    return Message(
        RecordDict({"arrays": ArrayRecord({"weights": Array(w)}), "metrics": metrics}), reply_to=message
    )


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return the loss of the received weights on rows that are not trained on."""
    X, y, _ = my_rows(context, slice(0, 1))
    loss = log_loss(X @ message.content["arrays"]["weights"].numpy(), y)
    metrics = MetricRecord({"num-examples": len(y), "eval_loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.query()
def query(message: Message, context: Context) -> Message:
    """Return a distribution over the blocks, a time zone, and a device number that survives a restart."""
    _, _, profile = my_rows(context, slice(None))
    availability = {"profile": profile, "zone": "UTC", "device": context.node_config["partition-id"]}
    return Message(RecordDict({"availability": ConfigRecord(availability)}), reply_to=message)


def log_loss(score: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0.0, score) - y * score))


def my_rows(context: Context, fifths: slice) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return features with a constant column, labels, and availability of this device of a simulated fleet.

    fifths: rows to take of every five, such as slice(1, None) for all but the first.
    """
    world = make_fleet(FleetSettings.from_config(context.run_config))
    population, device = world.population, context.node_config["partition-id"]
    begin, end = population.first[device], population.first[device + 1]
    rows = population.rows[begin:end]
    X = np.ones((end - begin, rows.width + 1))
    X[np.repeat(np.arange(end - begin), np.diff(rows.indptr)), rows.indices] = rows.values
    chosen = np.flatnonzero(np.isin(np.arange(end - begin) % 5, np.arange(5)[fifths]))
    return X[chosen], population.labels[begin:end][chosen], world.profiles[device].tolist()
