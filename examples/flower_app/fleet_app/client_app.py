"""A client like any other: logistic regression on the rows of its own device, in plain NumPy.

It answers one question more, `query`: when it is available. A client that does not is chosen at any time.
`evaluate` holds some rows back; by what it reports the server chooses a model for each block.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from semicyclic.experiments.federated.fleet import FleetSettings, make_fleet

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Some steps of SGD from the weights that were sent; `hedged` chains want their loss before them too."""
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
    """The loss on rows that are not trained on."""
    X, y, _ = my_rows(context, slice(0, 1))
    loss = log_loss(X @ message.content["arrays"]["weights"].numpy(), y)
    metrics = MetricRecord({"num-examples": len(y), "eval_loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.query()
def query(message: Message, context: Context) -> Message:
    """A distribution over the blocks of the schedule, a zone, and a number that outlives a restart."""
    _, _, profile = my_rows(context, slice(None))
    told = {"profile": profile, "zone": "UTC", "device": context.node_config["partition-id"]}
    return Message(RecordDict({"availability": ConfigRecord(told)}), reply_to=message)


def log_loss(score: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0.0, score) - y * score))


def my_rows(context: Context, fifths: slice) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Features with a constant column, labels, and availability of this device in a made-up fleet.

    fifths: which of every five rows, such as slice(1, None) for all but the first.
    """
    world = make_fleet(FleetSettings.from_config(context.run_config))
    people, device = world.population, context.node_config["partition-id"]
    begin, end = people.first[device], people.first[device + 1]
    rows = people.rows[begin:end]
    X = np.ones((end - begin, rows.width + 1))
    X[np.repeat(np.arange(end - begin), np.diff(rows.indptr)), rows.indices] = rows.values
    chosen = np.flatnonzero(np.isin(np.arange(end - begin) % 5, np.arange(5)[fifths]))
    return X[chosen], people.labels[begin:end][chosen], world.profiles[device].tolist()
