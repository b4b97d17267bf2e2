"""`InProcessGrid`: a fleet in this process that runs Flower's apps and messages without a network.

The same seed gives the same bits: messages are answered one after the other, in the order of arrival that
the fleet has for them.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from semicyclic.adapters.flower.client_selection import WaitClock
from semicyclic.adapters.flower.clock import Clock

# Flower's number for an error that an app raised.
RAISED = 2
# Devices are numbered from 0, nodes from here: Flower's server is node 1.
FIRST = 2

Arrival = Callable[[int, Message], float | None]


def at_once(device: int, message: Message) -> float:  # noqa: ARG001
    """Every device answers without delay."""
    return 0.0


class InProcessGrid(Grid):
    """A grid whose nodes are devices 0, 1, ... of this process, all running one ClientApp.

    devices: how many there are; each finds its number in its context as `partition-id`.
    online: the devices that are connected now; all, if it is not given. With a clock it is called with the
        time of the round, a datetime in UTC, and otherwise without arguments.
    clock: the clock of the strategy, or of `Timed` around a strategy that has none.
    arrival: after how many seconds the reply of a device to a message comes, None for never; at once, if it
        is not given. These seconds are counted, not waited for.
    config: what the ClientApp finds in `context.run_config`.
    """

    def __init__(
        self,
        app: ClientApp,
        devices: int,
        *,
        online: Callable[..., Sequence[int]] | None = None,
        clock: Clock | None = None,
        arrival: Arrival | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        _identify()
        self.app, self.devices = app, devices
        self.clock = clock
        self.online = online
        self.arrival: Arrival = arrival or at_once
        self.config = dict(config or {})
        self.seconds = 0.0
        self.pace = WaitClock(lambda: self.seconds, self._wait, self._forget)
        self._sent = 0
        self._states: dict[int, RecordDict] = {}
        self._waiting: dict[str, tuple[float, int, Message]] = {}
        self._run: Any = None

    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        if self.online is None:
            return list(range(FIRST, FIRST + self.devices))
        now = () if self.clock is None else (self.clock.time,)
        there: list[int] = (np.asarray(self.online(*now), np.int64) + FIRST).tolist()
        return there

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Take messages; each is answered when it is pulled, if its reply has arrived by then."""
        ids = []
        for message in messages:
            self._sent += 1
            message_id = str(self._sent)
            message.metadata.__dict__["_message_id"] = message_id
            device = message.metadata.dst_node_id - FIRST
            if not 0 <= device < self.devices:
                raise ValueError(f"node {message.metadata.dst_node_id}: there is no such node")
            seconds = self.arrival(device, message)
            if seconds is not None:
                self._waiting[message_id] = (self.seconds + seconds, self._sent, message)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The replies that have arrived, in order of arrival."""
        there: list[tuple[float, int, str]] = []
        for message_id in message_ids:
            held = self._waiting.get(message_id)
            if held is not None and held[0] <= self.seconds:
                heapq.heappush(there, (held[0], held[1], message_id))
        replies = []
        while there:
            _, _, message_id = heapq.heappop(there)
            replies.append(self._answer(self._waiting.pop(message_id)[2]))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        ids = self.push_messages(messages)
        end = float("inf") if timeout is None else self.seconds + timeout
        coming = [self._waiting[each][0] for each in ids if each in self._waiting]
        self.seconds = max([self.seconds, *(at for at in coming if at <= end)])
        return self.pull_messages(ids)

    def _forget(self, message_ids: Iterable[str]) -> None:
        for message_id in message_ids:
            self._waiting.pop(message_id, None)

    def _wait(self, most: float) -> None:
        """Let time pass until the next reply arrives, at most so long."""
        coming = [at for at, _, _ in self._waiting.values() if at > self.seconds]
        self.seconds = min([self.seconds + most, *coming])

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        context = Context(
            run_id=message.metadata.run_id,
            node_id=node,
            node_config={"partition-id": node - FIRST, "num-partitions": self.devices},
            state=self._states.get(node) or RecordDict(),
            run_config=self.config,
        )
        try:
            reply: object = self.app(message, context)
        except Exception as error:
            # As Flower does: what an app raises is its node's failure, not the server's.
            return Message(Error(RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
        if not isinstance(reply, Message):
            return Message(Error(RAISED, f"the app returned {reply!r}, not a message"), reply_to=message)
        if context.state:
            self._states[node] = context.state
        return reply


def _identify() -> None:
    """Let this process make messages, which Flower allows its own processes only."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return  # a version that does not ask who makes a message
    if vars(TaskIdentity).get("_run_id") is None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
