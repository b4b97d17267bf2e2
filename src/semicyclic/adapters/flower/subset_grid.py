"""`SubsetGrid`: a grid restricted to the nodes selected for a round."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

# Flower's strategies look again every second while nodes are missing.
AGAIN = 0.9


class TooFewNodes(Exception):
    """A strategy waits for more nodes than take part in a round."""


def least_nodes(strategy: Strategy) -> int:
    """How many nodes a strategy of Flower's own waits for before it trains."""
    inside = [least_nodes(each) for each in vars(strategy).values() if isinstance(each, Strategy)]
    own = [getattr(strategy, name, 1) for name in ("min_train_nodes", "min_available_nodes")]
    return max([1, *inside, *(each for each in own if isinstance(each, int))])


def check_enough(strategy: Strategy, nodes: Sequence[int], name: str) -> None:
    """Say at once what a strategy of Flower's own would wait for."""
    inside = [each for each in vars(strategy).values() if isinstance(each, Strategy)]
    for each in inside:
        check_enough(each, nodes, name)
    # A fraction of 0 switches it off, and its least number with it.
    if not getattr(strategy, name, 0):
        return
    for wanted in (name, "min_available_nodes"):
        least = getattr(strategy, wanted, 0)
        if isinstance(least, int) and least > len(nodes) > 0:
            raise TooFewNodes(
                f"{len(nodes)} node(s) take part, and {wanted} of {type(strategy).__name__} is {least}: "
                "lower it"
            )


class SubsetGrid(Grid):
    """`grid`, of which `nodes` are seen.

    Flower's strategies wait without end for the least number of nodes they are told. The nodes of a round do
    not become more by waiting, so a strategy that looks again after a while is answered with TooFew.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int], now: Callable[[], float] = time.monotonic) -> None:
        self.grid, self.nodes = grid, list(nodes)
        self._now = now
        self._first: float | None = None

    def get_node_ids(self) -> list[int]:
        if not self.nodes:
            raise TooFewNodes("no node is available")
        if self._first is None:
            self._first = self._now()
        elif self._now() - self._first > AGAIN:
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
