"""A strategy of Flower's on a simulated clock: the baseline that a model for each block is compared with."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.clock import Clock


class Timed(Strategy):
    """`inner` as it is, and a clock that moves on with every round.

    Without it a simulated clock stands still: nobody asks it for the time, and the devices of one hour are
    there in all rounds.
    """

    def __init__(self, inner: Strategy, clock: Clock) -> None:
        self.inner, self.clock = inner, clock

    def summary(self) -> None:
        """What `inner` logs."""
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the round begin, by the clock and by `inner`."""
        self.clock.now(server_round)
        return self.inner.configure_train(server_round, arrays, config, grid)

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
