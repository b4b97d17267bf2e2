"""Client selection: choice of the nodes of a round, and collection of their replies."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from semicyclic.adapters.flower.block_models import distribution, uniform
from semicyclic.adapters.flower.reply_validation import RejectedReply
from semicyclic.types import Array

# Number of times that a node is queried for its profile before it counts as having none.
MAX_PROFILE_QUERIES = 2
# Interval between two polls for replies, in seconds.
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Selection:
    """Selection of the nodes that take part in a round.

    Parameters
    ----------
    clients_per_round : int, optional
        Number of replies k that ends a round. By default all available nodes are invited.
    invited_per_round : int, optional
        Number of invited nodes n >= k, so that stragglers do not delay the round. Default: k.
    deadline_seconds : float, optional
        Maximum time that a round waits for replies, in seconds. Default: the `timeout` of `start`.
    min_connected : int, default 1
        Number of connected nodes that a round waits for before it starts.
    wait_seconds : float, default 30.0
        Maximum wait for `min_connected` nodes, in seconds; then the round starts with those connected. Also
        the time limit for nodes to answer an availability query, and the pause before a round without
        participants is repeated.
    min_interval : timedelta, optional
        Minimum time between two participations of a node, by the clock of the run.
    query_availability : bool, default False
        Query new nodes for their availability (`app.query()`) and select nodes in each block in proportion to
        it. Otherwise all connected nodes have equal probability.

    Raises
    ------
    ValueError
        If a count is less than 1, `invited_per_round` is less than `clients_per_round` or given without it,
        `deadline_seconds` is not positive, or `wait_seconds` is negative.
    """

    clients_per_round: int | None = None
    invited_per_round: int | None = None
    deadline_seconds: float | None = None
    min_connected: int = 1
    wait_seconds: float = 30.0
    min_interval: timedelta | None = None
    query_availability: bool = False

    def __post_init__(self) -> None:
        if self.clients_per_round is not None and self.clients_per_round < 1:
            raise ValueError(f"clients_per_round={self.clients_per_round}: must be at least 1")
        if self.invited_per_round is not None and (
            self.clients_per_round is None or self.invited_per_round < self.clients_per_round
        ):
            raise ValueError(
                f"invited_per_round={self.invited_per_round}: must be at least "
                f"clients_per_round={self.clients_per_round}"
            )
        if self.deadline_seconds is not None and not self.deadline_seconds > 0:
            raise ValueError(f"deadline_seconds={self.deadline_seconds}: must be positive, in seconds")
        if self.min_connected < 1 or not self.wait_seconds >= 0:
            raise ValueError(
                f"min_connected={self.min_connected}, wait_seconds={self.wait_seconds}: "
                "must be at least 1 node and at least 0 seconds"
            )


class ClientProfile(NamedTuple):
    """Profile that a node reports: availability per block, time zone and device number.

    The device number survives a restart of the server; node ids may not. Replies are sorted by it.
    """

    availability: Array
    zone: str
    device: int


class WaitClock(NamedTuple):
    """Real or simulated time while a server waits.

    now: returns the time in seconds. wait: waits until a reply may have arrived, at most the given number of
    seconds. forget: drops pending replies to these message ids, which will not be pulled.
    """

    now: Callable[[], float]
    wait: Callable[[float], None]
    forget: Callable[[Iterable[str]], None]


def _sleep(max_seconds: float) -> None:
    time.sleep(min(POLL_SECONDS, max_seconds))


def _keep_messages(message_ids: Iterable[str]) -> None:
    """Do nothing: Flower itself drops messages that are no longer needed."""


REAL_TIME = WaitClock(time.monotonic, _sleep, _keep_messages)


class ClientDirectory:
    """Known nodes: their profiles, and when each last took part."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.profiles: dict[int, ClientProfile] = {}
        self.refused: set[int] = set()
        self.tries: dict[int, int] = {}
        # By device number: node ids change when a server restarts.
        self.latest: dict[int, int] = {}
        # True if nodes were queried since the last checkpoint.
        self.changed = False

    def name(self, node: int) -> int:
        """Return the device number of a node, or its id if it reported none."""
        profile = self.profiles.get(node)
        return node if profile is None else profile.device

    def query(self, grid: Grid, nodes: Iterable[int], deadline: float) -> list[RejectedReply]:
        """Query new nodes for their profiles, within `deadline` seconds; return the invalid answers."""
        connected = list(nodes)
        new = [
            node
            for node in connected
            if node not in self.profiles
            and node not in self.refused
            and self.tries.get(node, 0) < MAX_PROFILE_QUERIES
        ]
        if not new:
            return []
        content = RecordDict({"config": ConfigRecord({"blocks": self.blocks})})
        queries = [Message(content, node, MessageType.QUERY) for node in new]
        for node in new:
            self.tries[node] = self.tries.get(node, 0) + 1
        rejected = []
        for reply in gather(grid, queries, None, deadline):
            node = reply.metadata.src_node_id
            if reply.has_error():
                # The app has no query handler: it counts as available whenever it is connected.
                self.tries[node] = MAX_PROFILE_QUERIES
                continue
            try:
                profile = _parse_profile(reply.content, self.blocks, node)
            except Exception as error:
                # Whatever a client sends, only that client is excluded.
                self.refused.add(node)
                rejected.append(RejectedReply(node, "profile", str(error)))
                continue
            devices = {self.profiles[other].device for other in connected if other in self.profiles}
            if profile.device in devices:
                # Another connected node has this number, so it identifies no device: use the node id.
                profile = profile._replace(device=node)
            self.profiles[node] = profile
        self.changed = True
        return rejected

    def pick(
        self, nodes: Sequence[int], how: Selection, when: tuple[int, int], rng: np.random.Generator
    ) -> list[int]:
        """Return the nodes of a round; `when` is (instant in microseconds since the epoch, block)."""
        instant, block = when
        interval = 0 if how.min_interval is None else how.min_interval // timedelta(microseconds=1)
        eligible = list(nodes)
        if interval:
            eligible = [
                node
                for node in eligible
                if instant - self.latest.get(self.name(node), instant - interval) >= interval
            ]
        if self.refused:
            eligible = [node for node in eligible if node not in self.refused]
        eligible.sort(key=self.name if self.profiles else None)
        count = how.invited_per_round or how.clients_per_round
        if how.query_availability:
            probability = np.array([self.availability(node)[block] for node in eligible])
            eligible = [node for node, share in zip(eligible, probability, strict=True) if share > 0]
            probability = probability[probability > 0]
        if count is None or count >= len(eligible):
            return eligible
        if not how.query_availability:
            picked = rng.choice(len(eligible), count, replace=False)
        else:
            picked = rng.choice(len(eligible), count, replace=False, p=probability / probability.sum())
        return [eligible[i] for i in sorted(picked)]

    def availability(self, node: int) -> Array:
        """Return the availability that a node reported, or a uniform one."""
        profile = self.profiles.get(node)
        return uniform(self.blocks) if profile is None else profile.availability

    def record_participation(
        self, nodes: Iterable[int], instant: int, min_interval: timedelta | None
    ) -> None:
        """Record that nodes were invited at `instant`; drop entries older than `min_interval`."""
        if min_interval is None:
            return
        since = instant - min_interval // timedelta(microseconds=1)
        self.latest = {device: at for device, at in self.latest.items() if at > since}
        for node in nodes:
            self.latest[self.name(node)] = instant


def wait_for_nodes(grid: Grid, min_connected: int, wait_seconds: float) -> list[int]:
    """Return the connected nodes once there are `min_connected`, or after `wait_seconds`."""
    pace: WaitClock = getattr(grid, "pace", REAL_TIME)
    end = pace.now() + wait_seconds
    while len(connected := list(grid.get_node_ids())) < min_connected:
        left = end - pace.now()
        if left <= 0:
            break
        pace.wait(left)
    return connected


def is_simulated(grid: Grid) -> bool:
    """Return whether a grid runs on simulated time."""
    return hasattr(grid, "pace")


def pause(grid: Grid, seconds: float) -> None:
    """Wait for a number of seconds, in the grid's real or simulated time."""
    pace: WaitClock = getattr(grid, "pace", REAL_TIME)
    end = pace.now() + seconds
    while (left := end - pace.now()) > 0:
        pace.wait(left)


def gather(grid: Grid, messages: Iterable[Message], wanted: int | None, deadline: float) -> list[Message]:
    """Send messages and return the replies once each group has `wanted` of them (all, if None).

    Groups are the chains of a run. Replies with an error do not count towards `wanted`. The wait ends after
    `deadline` seconds.
    """
    pace: WaitClock = getattr(grid, "pace", REAL_TIME)
    to_send = list(messages)
    groups = Counter(message.metadata.group_id for message in to_send)
    missing = {group: count if wanted is None else min(wanted, count) for group, count in groups.items()}
    recipients = [(message.metadata.group_id, message.metadata.dst_node_id) for message in to_send]
    sent = {str(message_id) for message_id in grid.push_messages(to_send) if message_id}
    pairs = zip(to_send, recipients, strict=True)
    waiting = {message.metadata.message_id: recipient for message, recipient in pairs}
    waiting = {message_id: recipient for message_id, recipient in waiting.items() if message_id in sent}
    end = pace.now() + deadline
    replies: list[Message] = []
    while waiting and any(count > 0 for count in missing.values()):
        for reply in grid.pull_messages(set(waiting)):
            recipient = waiting.pop(reply.metadata.reply_to_message_id, None)
            if recipient is None:
                continue
            # Take group and node from the message that was sent; a client may forge those of its reply.
            group, node = recipient
            reply.metadata.group_id = group
            reply.metadata.__dict__["_src_node_id"] = node
            replies.append(reply)
            if not reply.has_error():
                missing[group] -= 1
        left = end - pace.now()
        if left <= 0:
            break
        if waiting and any(count > 0 for count in missing.values()):
            pace.wait(left)
    pace.forget(waiting)
    return replies


def _parse_profile(content: RecordDict, blocks: int, node: int) -> ClientProfile:
    """Return the profile in a node's answer; raise if it is invalid."""
    records = list(content.config_records.values())
    if len(records) != 1:
        raise ValueError(f"it answered with {len(records)} config records, expected one")
    answer = records[0]
    profile, zone, device = answer.get("profile"), answer.get("zone", "UTC"), answer.get("device", node)
    if not isinstance(profile, list) or any(isinstance(value, str | bytes) for value in profile):
        raise ValueError(f"its profile is {profile!r}, expected a list of numbers")
    if not isinstance(zone, str) or not isinstance(device, int) or isinstance(device, bool):
        raise ValueError(f"its zone is {zone!r} and its device {device!r}, expected a string and an integer")
    return ClientProfile(distribution(profile, blocks), zone, device)


def split_evenly(nodes: Sequence[int], rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Return two random halves of the nodes, each in the original order."""
    order = rng.permutation(len(nodes))
    halves = np.sort(order[: len(nodes) // 2]), np.sort(order[len(nodes) // 2 :])
    # If the count is odd, which half goes first is random, so neither chain is favored.
    first = int(rng.integers(2))
    return [nodes[k] for k in halves[first]], [nodes[k] for k in halves[1 - first]]
