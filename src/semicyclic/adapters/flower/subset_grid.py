"""`SubsetGrid`: a grid restricted to the nodes selected for a round."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

# Flower's strategies poll every second while nodes are missing. A second call of `get_node_ids` after more
# than this many seconds is such a poll.
POLL_THRESHOLD_SECONDS = 0.9


class TooFewNodes(Exception):
    """A strategy requires more nodes than take part in the round."""


def min_nodes(strategy: Strategy) -> int:
    """Return the number of nodes that a Flower strategy, or one nested in it, requires for training."""
    nested = [min_nodes(value) for value in vars(strategy).values() if isinstance(value, Strategy)]
    limits = [getattr(strategy, name, 1) for name in ("min_train_nodes", "min_available_nodes")]
    return max([1, *nested, *(limit for limit in limits if isinstance(limit, int))])


def check_enough(strategy: Strategy, nodes: Sequence[int], name: str) -> None:
    """Raise TooFewNodes if a Flower strategy would wait for more nodes; `name` is its setting to check."""
    nested = [value for value in vars(strategy).values() if isinstance(value, Strategy)]
    for inner in nested:
        check_enough(inner, nodes, name)
    # Flower sets the minimum to 0 if the fraction of nodes is 0, which disables this step.
    if not getattr(strategy, name, 0):
        return
    for setting in (name, "min_available_nodes"):
        minimum = getattr(strategy, setting, 0)
        if isinstance(minimum, int) and minimum > len(nodes) > 0:
            raise TooFewNodes(
                f"{len(nodes)} node(s) take part, and {setting} of {type(strategy).__name__} is {minimum}: "
                "lower it"
            )


class SubsetGrid(Grid):
    """View of `grid` that shows only `nodes`.

    Flower's strategies wait without a time limit for their minimum number of nodes. The nodes of a round are
    fixed, so a strategy that polls again gets TooFewNodes. now: returns the time in seconds.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int], now: Callable[[], float] = time.monotonic) -> None:
        self.grid, self.nodes = grid, list(nodes)
        self._now = now
        self._first: float | None = None

    def get_node_ids(self) -> list[int]:
        """Return the nodes of the round; raise TooFewNodes if there are none or a strategy polls again."""
        if not self.nodes:
            raise TooFewNodes("no node is available")
        if self._first is None:
            self._first = self._now()
        elif self._now() - self._first > POLL_THRESHOLD_SECONDS:
            raise TooFewNodes(
                f"{len(self.nodes)} node(s) take part, and the strategy waits for more: lower its "
                "min_train_nodes, min_evaluate_nodes and min_available_nodes"
            )
        return list(self.nodes)

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.grid.send_and_receive(messages, timeout=timeout)
