"""`ClockedStrategy`: any Flower strategy on a simulated clock, as a baseline."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.clock import Clock
from semicyclic.adapters.flower.subset_grid import min_nodes

# Number of consecutive clock steps with too few devices after which a run gives up.
MAX_CLOCK_STEPS = 10_000


class ClockedStrategy(Strategy):
    """Flower strategy `inner`, unchanged, with a clock that advances in every round.

    A simulated clock advances only when a strategy reads it, and Flower's strategies do not. Without this
    wrapper all rounds would happen at the same simulated time. If too few devices are connected, the clock
    advances until enough are.

    Parameters
    ----------
    inner : flwr.serverapp.strategy.Strategy
        Strategy to run.
    clock : Clock
        Clock to advance, usually shared with an `InProcessGrid`.
    """

    def __init__(self, inner: Strategy, clock: Clock) -> None:
        self.inner, self.clock = inner, clock
        self.ticks = 0

    def summary(self) -> None:
        """Log the summary of `inner`."""
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Advance the clock until enough nodes are connected, then return the messages of `inner`.

        Raises
        ------
        TimeoutError
            If too few nodes are connected in 10,000 clock steps.
        """
        for _ in range(MAX_CLOCK_STEPS):
            self.ticks += 1
            self.clock.now(self.ticks)
            nodes = list(grid.get_node_ids())
            if len(nodes) >= min_nodes(self.inner):
                return self.inner.configure_train(server_round, arrays, config, grid)
        raise TimeoutError(
            f"round {server_round}: {type(self.inner).__name__} waits for {min_nodes(self.inner)} nodes, "
            f"but fewer were connected in {MAX_CLOCK_STEPS} clock steps: lower its min_train_nodes or "
            "min_available_nodes"
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the aggregate of `inner`."""
        return self.inner.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the evaluation messages of `inner`."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the aggregate of `inner`."""
        return self.inner.aggregate_evaluate(server_round, replies)
