"""`ClockedStrategy`: any Flower strategy on a simulated clock, as a baseline."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.clock import Clock
from semicyclic.adapters.flower.subset_grid import least_nodes

# Number of rounds with too few devices after which a run gives up.
TRIES = 10_000


class ClockedStrategy(Strategy):
    """`inner` as it is, and a clock that moves on with every round, and on where too few devices are there.

    A simulated clock only moves when a strategy asks it for the time, which Flower's strategies do not do:
    without this wrapper all rounds take place in the same hour.
    """

    def __init__(self, inner: Strategy, clock: Clock) -> None:
        self.inner, self.clock = inner, clock
        self.ticks = 0

    def summary(self) -> None:
        """What `inner` logs."""
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the round begin, by the clock and by `inner`."""
        for _ in range(TRIES):
            self.ticks += 1
            self.clock.now(self.ticks)
            nodes = list(grid.get_node_ids())
            if len(nodes) >= least_nodes(self.inner):
                return self.inner.configure_train(server_round, arrays, config, grid)
        raise TimeoutError(
            f"round {server_round}: {type(self.inner).__name__} waits for {least_nodes(self.inner)} nodes, "
            f"and in {TRIES} tries there were fewer"
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What `inner` makes of the replies."""
        return self.inner.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What `inner` sends for evaluation."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """What `inner` makes of the replies."""
        return self.inner.aggregate_evaluate(server_round, replies)
