"""`InProcessGrid`: a simulated fleet that runs Flower apps in this process, without a network.

Runs with the same seed are bit-identical: messages are processed one at a time, in order of simulated
arrival.
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

# Flower's error code for an exception in a ClientApp.
CLIENT_APP_ERROR = 2
# Node id of device 0. Flower's server is node 1.
FIRST_NODE_ID = 2

Arrival = Callable[[int, Message], float | None]


def at_once(device: int, message: Message) -> float:  # noqa: ARG001
    """Return an arrival delay of 0 seconds for every device."""
    return 0.0


class InProcessGrid(Grid):
    """Grid whose nodes are simulated devices 0, 1, ... in this process, all running one ClientApp.

    Parameters
    ----------
    app : ClientApp
        App that every device runs.
    devices : int
        Number of devices. Each finds its number in `context.node_config["partition-id"]`.
    online : callable, optional
        Returns the numbers of the connected devices. With a clock it is called with the time of the round, a
        datetime in UTC, otherwise without arguments. By default all devices are connected.
    clock : Clock, optional
        Clock of the strategy, or of the `ClockedStrategy` around a strategy without a clock.
    arrival : callable, optional
        `arrival(device, message)` returns the delay of the reply in simulated seconds, or None if no reply
        arrives. By default replies arrive immediately. The process does not sleep for these seconds.
    config : mapping, optional
        Run configuration, available to the ClientApp as `context.run_config`.
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
        _set_task_identity()
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
        """Set the Flower run."""
        self._run = run

    @property
    def run(self) -> Any:
        """Flower run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to one node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the ids of the connected nodes: device number plus 2."""
        if self.online is None:
            return list(range(FIRST_NODE_ID, FIRST_NODE_ID + self.devices))
        now = () if self.clock is None else (self.clock.time,)
        connected: list[int] = (np.asarray(self.online(*now), np.int64) + FIRST_NODE_ID).tolist()
        return connected

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Queue messages and return their ids; the app runs when a reply that has arrived is pulled.

        Raises
        ------
        ValueError
            If a message is for a node that does not exist.
        """
        ids = []
        for message in messages:
            self._sent += 1
            message_id = str(self._sent)
            message.metadata.__dict__["_message_id"] = message_id
            device = message.metadata.dst_node_id - FIRST_NODE_ID
            if not 0 <= device < self.devices:
                raise ValueError(
                    f"node {message.metadata.dst_node_id} does not exist: this grid has {self.devices} "
                    f"node(s), numbered from {FIRST_NODE_ID}"
                )
            seconds = self.arrival(device, message)
            if seconds is not None:
                self._waiting[message_id] = (self.seconds + seconds, self._sent, message)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived, in order of arrival."""
        arrived: list[tuple[float, int, str]] = []
        for message_id in message_ids:
            pending = self._waiting.get(message_id)
            if pending is not None and pending[0] <= self.seconds:
                heapq.heappush(arrived, (pending[0], pending[1], message_id))
        replies = []
        while arrived:
            _, _, message_id = heapq.heappop(arrived)
            replies.append(self._run_app(self._waiting.pop(message_id)[2]))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages, advance simulated time to the last reply within `timeout` seconds, pull replies."""
        ids = self.push_messages(messages)
        end = float("inf") if timeout is None else self.seconds + timeout
        arrivals = [self._waiting[message_id][0] for message_id in ids if message_id in self._waiting]
        self.seconds = max([self.seconds, *(at for at in arrivals if at <= end)])
        return self.pull_messages(ids)

    def _forget(self, message_ids: Iterable[str]) -> None:
        for message_id in message_ids:
            self._waiting.pop(message_id, None)

    def _wait(self, max_seconds: float) -> None:
        """Advance simulated time to the next reply, at most by `max_seconds`."""
        arrivals = [at for at, _, _ in self._waiting.values() if at > self.seconds]
        self.seconds = min([self.seconds + max_seconds, *arrivals])

    def _run_app(self, message: Message) -> Message:
        """Run the ClientApp on a message and return its reply, or an error reply."""
        node = message.metadata.dst_node_id
        context = Context(
            run_id=message.metadata.run_id,
            node_id=node,
            node_config={"partition-id": node - FIRST_NODE_ID, "num-partitions": self.devices},
            state=self._states.get(node) or RecordDict(),
            run_config=self.config,
        )
        try:
            reply: object = self.app(message, context)
        except Exception as error:
            # As in Flower: an exception in the app is a failure of its node, not of the server.
            return Message(Error(CLIENT_APP_ERROR, f"{type(error).__name__}: {error}"), reply_to=message)
        if not isinstance(reply, Message):
            return Message(
                Error(CLIENT_APP_ERROR, f"the app returned {reply!r}, not a message"), reply_to=message
            )
        if context.state:
            self._states[node] = context.state
        return reply


def _set_task_identity() -> None:
    """Give this process a Flower task identity, which some versions require to create messages."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return  # this version has no such check
    if vars(TaskIdentity).get("_run_id") is None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
