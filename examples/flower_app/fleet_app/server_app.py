"""Federated Averaging, wrapped; comments mark the changes to an existing server."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from semicyclic import Schedule
from semicyclic.adapters.flower import BlockClock, Chains, PluralisticStrategy, Selection

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)

    # Simulated days with a fixed number of rounds per block. A real fleet uses `WallClock()`.
    schedule = Schedule.daily(6)
    clock = BlockClock(schedule, datetime(2024, 1, 1, tzinfo=UTC), int(config["rounds-per-block"]))
    strategy = PluralisticStrategy(  # <- this was `inner` alone
        inner,
        schedule,
        clock,
        chains=Chains[str(config["chains"]).upper()],
        evaluators=2,  # clients per round that evaluate candidates: few, as each message is a process here
        selection=Selection(
            clients_per_round=int(config["per-round"]),
            invited_per_round=int(config["invited"]),
            deadline_seconds=float(config["deadline"]),
            min_connected=int(config["connected"]),
            query_availability=True,
            wait_seconds=float(config["patience"]),
        ),
        seed=int(config["seed"]),
    )

    out = Path(str(config["out"]))
    weights = ArrayRecord({"weights": Array(np.zeros(21))})
    # A killed server resumes from the checkpoint, which is written after every round.
    strategy.start(grid, weights, num_rounds=int(config["rounds"]), checkpoint=out)
    # Counts of missing and rejected replies.
    (out / "lost.json").write_text(json.dumps(strategy.reply_counts()))
    # New: for each block, the model with the lowest loss reported by clients.
    strategy.best().save(out / "models.safetensors")
