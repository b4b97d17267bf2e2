"""Client selection: which available nodes take part in a round, and how long a round waits."""

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

# A node that does not answer is asked so many times what it is like.
TRIES = 2
# How often a server looks for replies, in seconds.
LOOK = 0.1


@dataclass(frozen=True)
class Selection:
    """How a round chooses its nodes.

    clients_per_round: k, the replies that end a round. All available nodes are asked if it is None.
    invited_per_round: n >= k, how many are asked, so that stragglers are not missed; k if not given.
    deadline_seconds: how long a round waits for replies; the loop's own time limit if None.
    min_connected, wait_seconds: a round begins when this many nodes are connected, or after this many seconds
        with those that are. Nodes that are queried have as long to answer.
    min_interval: the least time between two participations of a node, by the run's clock.
    query_availability: ask new nodes for their availability (`app.query()`) and choose nodes in each block in
        proportion to it. Otherwise all connected nodes count alike.
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
                "at least 1 node, at least 0 seconds"
            )


class ClientProfile(NamedTuple):
    """What a node says of itself: its availability over blocks, its zone, and a number that names it.

    The number outlives a restart of the server, which node ids may not; replies are put into its order.
    """

    availability: Array
    zone: str
    device: int


class WaitClock(NamedTuple):
    """How time passes while a server waits: really, or as a simulated fleet has it.

    now: seconds. wait: until something may have happened, at most so many seconds. forget: replies to these
    messages will not be asked for any more.
    """

    now: Callable[[], float]
    wait: Callable[[float], None]
    forget: Callable[[Iterable[str]], None]


def _sleep(most: float) -> None:
    time.sleep(min(LOOK, most))


def _nothing(message_ids: Iterable[str]) -> None:
    """Flower forgets by itself."""


REAL = WaitClock(time.monotonic, _sleep, _nothing)


class ClientDirectory:
    """Whom the server knows, and when they took part last."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.profiles: dict[int, ClientProfile] = {}
        self.refused: set[int] = set()
        self.tries: dict[int, int] = {}
        # By device: node ids change when a server is started again.
        self.latest: dict[int, int] = {}
        # Whether someone was met since this was last put to disk.
        self.changed = False

    def name(self, node: int) -> int:
        """The number of a node: what it says itself, or else its id."""
        known = self.profiles.get(node)
        return node if known is None else known.device

    def meet(self, grid: Grid, nodes: Iterable[int], deadline: float) -> list[RejectedReply]:
        """Ask nodes that are new for their profiles; those that are wrong are refused."""
        there = list(nodes)
        new = [
            node
            for node in there
            if node not in self.profiles and node not in self.refused and self.tries.get(node, 0) < TRIES
        ]
        if not new:
            return []
        content = RecordDict({"config": ConfigRecord({"blocks": self.blocks})})
        asked = [Message(content, node, MessageType.QUERY) for node in new]
        for node in new:
            self.tries[node] = self.tries.get(node, 0) + 1
        rejected = []
        for reply in gather(grid, asked, None, deadline):
            node = reply.metadata.src_node_id
            if reply.has_error():
                # An app without a query: available whenever it is connected.
                self.tries[node] = TRIES
                continue
            try:
                found = _profile(reply.content, self.blocks, node)
            except Exception as error:
                # Whatever a client sends, it is the client that is left out.
                self.refused.add(node)
                rejected.append(RejectedReply(node, "profile", str(error)))
                continue
            others = {self.profiles[each].device for each in there if each in self.profiles}
            if found.device in others:
                # A number that someone else has who is here: it names nobody.
                found = found._replace(device=node)
            self.profiles[node] = found
        self.changed = True
        return rejected

    def pick(
        self, nodes: Sequence[int], how: Selection, place: tuple[int, int], rng: np.random.Generator
    ) -> list[int]:
        """The nodes of a round that begins at an instant, in a block: `place` is (instant, block)."""
        instant, block = place
        apart = 0 if how.min_interval is None else how.min_interval // timedelta(microseconds=1)
        rested = list(nodes)
        if apart:
            rested = [
                node
                for node in rested
                if instant - self.latest.get(self.name(node), instant - apart) >= apart
            ]
        if self.refused:
            rested = [node for node in rested if node not in self.refused]
        rested.sort(key=self.name if self.profiles else None)
        count = how.invited_per_round or how.clients_per_round
        if how.query_availability:
            chance = np.array([self.availability(node)[block] for node in rested])
            rested = [node for node, share in zip(rested, chance, strict=True) if share > 0]
            chance = chance[chance > 0]
        if count is None or count >= len(rested):
            return rested
        if not how.query_availability:
            picked = rng.choice(len(rested), count, replace=False)
        else:
            picked = rng.choice(len(rested), count, replace=False, p=chance / chance.sum())
        return [rested[i] for i in sorted(picked)]

    def availability(self, node: int) -> Array:
        """What a node says of itself, or all blocks alike."""
        known = self.profiles.get(node)
        return uniform(self.blocks) if known is None else known.availability

    def took_part(self, nodes: Iterable[int], instant: int, separation: timedelta | None) -> None:
        """Remember when nodes were last asked to work, as long as that matters."""
        if separation is None:
            return
        since = instant - separation // timedelta(microseconds=1)
        self.latest = {device: at for device, at in self.latest.items() if at > since}
        for node in nodes:
            self.latest[self.name(node)] = instant


def present(grid: Grid, least: int, patience: float) -> list[int]:
    """The nodes that are connected, when there are so many of them or the time is up."""
    pace: WaitClock = getattr(grid, "pace", REAL)
    end = pace.now() + patience
    while len(there := list(grid.get_node_ids())) < least:
        left = end - pace.now()
        if left <= 0:
            break
        pace.wait(left)
    return there


def is_simulated(grid: Grid) -> bool:
    """Whether time passes on a grid as its devices have it, and not really."""
    return hasattr(grid, "pace")


def rest(grid: Grid, seconds: float) -> None:
    """Let time pass."""
    pace: WaitClock = getattr(grid, "pace", REAL)
    end = pace.now() + seconds
    while (left := end - pace.now()) > 0:
        pace.wait(left)


def gather(grid: Grid, messages: Iterable[Message], wanted: int | None, deadline: float) -> list[Message]:
    """Send messages and return what has come when each group has `wanted` replies (all, if None).

    Groups are the chains of a run. After the deadline, in seconds, nothing more is waited for.
    """
    pace: WaitClock = getattr(grid, "pace", REAL)
    asked = list(messages)
    groups = Counter(message.metadata.group_id for message in asked)
    missing = {group: count if wanted is None else min(wanted, count) for group, count in groups.items()}
    whose = [(message.metadata.group_id, message.metadata.dst_node_id) for message in asked]
    sent = {str(each) for each in grid.push_messages(asked) if each}
    waiting = {message.metadata.message_id: each for message, each in zip(asked, whose, strict=True)}
    waiting = {number: each for number, each in waiting.items() if number in sent}
    end = pace.now() + deadline
    replies: list[Message] = []
    while waiting and any(count > 0 for count in missing.values()):
        for reply in grid.pull_messages(set(waiting)):
            question = waiting.pop(reply.metadata.reply_to_message_id, None)
            if question is None:
                continue
            # Who replies to what is known from the question, whatever a reply says of itself.
            group, node = question
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


def _profile(content: RecordDict, blocks: int, node: int) -> ClientProfile:
    """The profile in a node's answer."""
    records = list(content.config_records.values())
    if len(records) != 1:
        raise ValueError(f"it answered with {len(records)} records, not one")
    told = records[0]
    profile, zone, device = told.get("profile"), told.get("zone", "UTC"), told.get("device", node)
    if not isinstance(profile, list) or any(isinstance(each, str | bytes) for each in profile):
        raise ValueError(f"its profile is {profile!r}: a list of numbers is expected")
    if not isinstance(zone, str) or not isinstance(device, int) or isinstance(device, bool):
        raise ValueError(f"its zone is {zone!r} and its device {device!r}: a name and a number are expected")
    return ClientProfile(distribution(profile, blocks), zone, device)


def split_evenly(nodes: Sequence[int], rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Two random halves of the nodes, each in their order."""
    order = rng.permutation(len(nodes))
    halves = np.sort(order[: len(nodes) // 2]), np.sort(order[len(nodes) // 2 :])
    # Which half has one node more is left to chance.
    first = int(rng.integers(2))
    return [nodes[k] for k in halves[first]], [nodes[k] for k in halves[1 - first]]
