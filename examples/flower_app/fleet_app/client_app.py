"""A client like any other: logistic regression on the rows of its own device, in plain NumPy.

It answers one question more, `query`: when it is available. A client that does not is chosen at any time.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from semicyclic.experiments.fleet.world import Settings, make

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Some steps of SGD from the weights that were sent; a hedge wants their loss before them too."""
    X, y, _ = my_rows(context)
    w = message.content["arrays"]["weights"].numpy()
    number = message.content["config"]["server-round"]
    draw = np.random.default_rng([context.node_config["partition-id"], number])
    score = X @ w
    before = float(np.mean(np.logaddexp(0.0, score) - y * score))
    for _ in range(context.run_config["local-steps"]):
        rows = draw.integers(0, len(y), 10)
        w = w - 0.5 * X[rows].T @ (1 / (1 + np.exp(-X[rows] @ w)) - y[rows]) / 10
    metrics = MetricRecord({"num-examples": len(y), "loss-before": before})
    return Message(
        RecordDict({"arrays": ArrayRecord({"weights": Array(w)}), "metrics": metrics}), reply_to=message
    )


@app.query()
def query(message: Message, context: Context) -> Message:
    """A distribution over the blocks of the schedule, a zone, and a number that outlives a restart."""
    _, _, profile = my_rows(context)
    told = {"profile": profile, "zone": "UTC", "device": context.node_config["partition-id"]}
    return Message(RecordDict({"availability": ConfigRecord(told)}), reply_to=message)


def my_rows(context: Context) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Features with a constant column, labels, and availability of this device in a made-up fleet."""
    world = make(Settings.told(context.run_config))
    people, device = world.population, context.node_config["partition-id"]
    begin, end = people.first[device], people.first[device + 1]
    rows = people.rows[begin:end]
    X = np.ones((end - begin, rows.width + 1))
    X[np.repeat(np.arange(end - begin), np.diff(rows.indptr)), rows.indices] = rows.values
    return X, people.labels[begin:end], world.profiles[device].tolist()
