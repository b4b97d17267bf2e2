"""Which replies may be learnt from. One bad client must not end a round, nor reach an average."""

from collections import Counter
from collections.abc import Iterable
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, Message, MetricRecord

from semicyclic.adapters.flower.averages import Layout
from semicyclic.adapters.flower.coding import decode, remember

NDArray = npt.NDArray[Any]


# Below this many values a look at each is as quick as a sum.
SMALL = 1 << 14


class Rejected(NamedTuple):
    """A reply that is not used: whose, and why, in a word to count by and in a sentence."""

    node: int
    reason: str
    sentence: str


class Bad(Exception):
    """Why a reply cannot be used."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason, self.sentence = reason, sentence


class Screen(NamedTuple):
    """What replies must look like.

    weight: the metric that replies are weighted by; most: the largest it may be.
    """

    layout: Layout
    weight: str
    most: float

    def trained(self, replies: Iterable[Message]) -> tuple[list[Message], list[Rejected]]:
        """The replies to training that can be used, and the others."""
        return self._sift(replies, arrays=True)

    def evaluated(self, replies: Iterable[Message]) -> tuple[list[Message], list[Rejected]]:
        """The replies to evaluation that can be used, and the others."""
        return self._sift(replies, arrays=False)

    def _sift(self, replies: Iterable[Message], *, arrays: bool) -> tuple[list[Message], list[Rejected]]:
        fine: list[tuple[Message, object]] = []
        rejected = []
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                fine.append((reply, self._checked(reply, arrays=arrays)))
            except Bad as bad:
                rejected.append(Rejected(node, bad.reason, bad.sentence))
        # Flower refuses a whole round over one reply whose metrics have other names: the most are right.
        usual = Counter(shape for _, shape in fine).most_common(1)
        kept = []
        for reply, shape in fine:
            if shape == usual[0][0]:
                kept.append(reply)
            else:
                words = "its records or metrics are named otherwise than those of most others"
                rejected.append(Rejected(reply.metadata.src_node_id, "names", words))
        return kept, rejected

    def _checked(self, reply: Message, *, arrays: bool) -> object:
        """How a reply is made up, if it can be used."""
        if reply.has_error():
            raise Bad("failed", reply.error.reason or f"error {reply.error.code}")
        # Once through: Flower makes a new dictionary whenever it is asked for records of a kind.
        models: dict[str, ArrayRecord] = {}
        measured: dict[str, MetricRecord] = {}
        for name, each in reply.content.items():
            if isinstance(each, ArrayRecord):
                models[name] = each
            elif isinstance(each, MetricRecord):
                measured[name] = each
        if arrays:
            if len(models) != 1:
                raise Bad("records", f"it has {len(models)} records of arrays, not one")
            self._check_arrays(next(iter(models.values())))
        if len(measured) != 1:
            raise Bad("records", f"it has {len(measured)} records of metrics, not one")
        ((name, metrics),) = measured.items()
        return tuple(models) if arrays else (), name, self._shape_of(metrics)

    def _check_arrays(self, record: Any) -> None:
        if set(record) != set(self.layout.names):
            missing = sorted(set(self.layout.names) - set(record))
            more = sorted(set(record) - set(self.layout.names))
            words = " and ".join(
                f"{word} {', '.join(map(repr, names[:3]))}"
                for word, names in (("lacks", missing), ("adds", more))
                if names
            )
            raise Bad("names", f"it {words} among its arrays")
        if tuple(record) != self.layout.names:
            # Some of Flower's strategies go by the order of arrays, not by their names.
            for name in self.layout.names:
                record[name] = record.pop(name)
        for name, shape, dtype in zip(*self.layout, strict=True):
            array = record[name]
            try:
                value = decode(array)
            except ValueError as error:
                raise Bad("unreadable", f"array {name!r}: {error}") from None
            if value.shape != shape:
                raise Bad("shape", f"array {name!r} has shape {value.shape}, not {shape}")
            if value.dtype.kind not in "biuf":
                raise Bad("type", f"array {name!r} holds {value.dtype}, not numbers such as {dtype}")
            if not finite(value):
                raise Bad("not finite", f"array {name!r} holds values that are not finite")
            remember(array, value)

    def _shape_of(self, metrics: MetricRecord) -> object:
        """The names of metrics and how many numbers each has; their values are checked."""
        weight = metrics.get(self.weight)
        if weight is None:
            raise Bad("count", f"it does not tell {self.weight!r}")
        if isinstance(weight, list) or not 0 < weight <= self.most:
            raise Bad(
                "count", f"its {self.weight!r} is {weight!r}: from above 0 to {self.most:,g} is expected"
            )
        shape = []
        for name, value in metrics.items():
            if not _all_finite(value):
                raise Bad("not finite", f"its metric {name!r} is {value!r}")
            shape.append((name, len(value) if isinstance(value, list) else -1))
        return tuple(sorted(shape))


def finite(value: NDArray) -> bool:
    """Whether all values are finite; one pass, as a sum is not finite if any of its terms is not."""
    if value.dtype.kind != "f":
        return True
    if value.size < SMALL:
        return bool(np.isfinite(value).all())
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(value.sum()):
            return True
    # A sum may overflow without any value being infinite.
    return bool(np.isfinite(value).all())


def _all_finite(value: object) -> bool:
    try:
        if isinstance(value, list):
            return all(map(isfinite, value))
        return isfinite(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError):
        return False
