"""Validation of replies: a faulty client must neither end a round nor reach an average."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from semicyclic.adapters.flower.averages import ArraySpec, as_type
from semicyclic.adapters.flower.serialization import decode, encode, remember
from semicyclic.types import Array

# Below this many values a look at each is as quick as a sum.
# Reasons that suggest a client app that replies in the wrong form.
MISUNDERSTOOD = {"loss", "count", "names", "records", "shape", "type"}
SMALL = 1 << 14
# A mean loss of more is as absurd as a count of a million million.
WORST = 1e6


class RejectedReply(NamedTuple):
    """A reply that is not used: whose, and why, in a word to count by and in a sentence."""

    node: int
    reason: str
    sentence: str


class InvalidReply(Exception):
    """Why a reply cannot be used."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason, self.sentence = reason, sentence


class ReplyValidator(NamedTuple):
    """What replies must look like.

    weight: the metric that replies are weighted by; most: the largest it may be.
    largest: the largest value, by its size, that an array may hold: squares of larger ones overflow.
    loss: a metric that replies to training must have, one number of at most WORST.
    known: how replies of earlier rounds were made up, to tell who is odd among two.
    key: the name of the record that holds the model.
    """

    layout: ArraySpec
    weight: str
    most: float
    largest: float
    loss: str | None
    known: dict[bool, object]
    key: str = "arrays"

    def check_training(self, replies: Iterable[Message]) -> tuple[list[Message], list[RejectedReply]]:
        """The replies to training that can be used, and the others."""
        return self._sift(replies, arrays=True)

    def check_evaluation(self, replies: Iterable[Message]) -> tuple[list[Message], list[RejectedReply]]:
        """The replies to evaluation that can be used, and the others."""
        return self._sift(replies, arrays=False)

    def _sift(self, replies: Iterable[Message], *, arrays: bool) -> tuple[list[Message], list[RejectedReply]]:
        fine: list[tuple[Message, object]] = []
        rejected = []
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                fine.append((reply, self._check(reply, arrays=arrays)))
            except InvalidReply as bad:
                rejected.append(RejectedReply(node, bad.reason, bad.sentence))
            except Exception as error:
                # Whatever a client sends, it is the client that is left out.
                rejected.append(RejectedReply(node, "unreadable", f"{type(error).__name__}: {error}"))
        if not fine:
            return [], rejected
        # Flower refuses a whole round over one reply whose metrics have other names: the most are right.
        counts = Counter(shape for _, shape in fine)
        before = self.known.get(arrays)
        usual = max(counts, key=lambda shape: (counts[shape], shape == before, str(shape)))
        self.known[arrays] = usual
        kept = []
        for reply, shape in fine:
            if shape == usual:
                kept.append(reply)
            else:
                words = "its records or metrics have other names, or other lengths, than those of most others"
                rejected.append(RejectedReply(reply.metadata.src_node_id, "names", words))
        return kept, rejected

    def _check(self, reply: Message, *, arrays: bool) -> object:
        """How a reply is made up, if it can be used."""
        if reply.has_error():
            raise InvalidReply("failed", reply.error.reason or f"error {reply.error.code}")
        # Once through: Flower makes a new dictionary whenever it is asked for records of a kind.
        models: dict[str, ArrayRecord] = {}
        measured: dict[str, MetricRecord] = {}
        for name, each in reply.content.items():
            if isinstance(each, ArrayRecord):
                models[name] = each
            elif isinstance(each, MetricRecord):
                measured[name] = each
        if arrays:
            self._check_models(models)
        if len(measured) != 1:
            raise InvalidReply("records", f"it has {len(measured)} records of metrics, not one")
        ((name, metrics),) = measured.items()
        shape = self._shape_of(metrics)
        if arrays:
            self._check_loss(metrics)
        return tuple(sorted(models)) if arrays else (), name, shape

    def _check_models(self, models: Mapping[str, ArrayRecord]) -> None:
        """Some strategies have clients send more than a model: control variates, masks."""
        if not models:
            raise InvalidReply("records", "it has no record of arrays")
        name = self.key if self.key in models else next(iter(models))
        self._check_arrays(models[name])
        for other, record in models.items():
            for key, array in record.items() if other != name else ():
                value = decode(array)
                if value.dtype.kind not in "biuf" or not finite(value) or not self._is_small(value):
                    raise InvalidReply(
                        "not finite", f"array {key!r} of {other!r} holds values that cannot be used"
                    )

    def _check_arrays(self, record: Any) -> None:
        if set(record) != set(self.layout.names):
            missing = sorted(set(self.layout.names) - set(record))
            more = sorted(set(record) - set(self.layout.names))
            words = " and ".join(
                f"{word} {', '.join(map(repr, names[:3]))}"
                for word, names in (("lacks", missing), ("adds", more))
                if names
            )
            raise InvalidReply("names", f"it {words} among its arrays")
        if tuple(record) != self.layout.names:
            # Some of Flower's strategies go by the order of arrays, not by their names.
            for name in self.layout.names:
                record[name] = record.pop(name)
        for name, shape, dtype in zip(*self.layout, strict=True):
            array = record[name]
            try:
                value = decode(array)
            except ValueError as error:
                raise InvalidReply("unreadable", f"array {name!r}: {error}") from None
            if value.shape != shape:
                raise InvalidReply("shape", f"array {name!r} has shape {value.shape}, not {shape}")
            if value.dtype.kind not in "biuf":
                raise InvalidReply("type", f"array {name!r} holds {value.dtype}, not numbers such as {dtype}")
            if value.dtype != dtype:
                # In the model's own type from here on: a wider one would spread to the model.
                value = as_type(value, dtype)
                record[name] = array = encode(value)
            if not self._is_small(value):
                if not finite(value):
                    raise InvalidReply("not finite", f"array {name!r} holds values that are not finite")
                raise InvalidReply("too large", f"array {name!r} holds values beyond {self.largest:g}")
            remember(array, value)

    def _is_small(self, value: Array) -> bool:
        """Whether no value is beyond the largest; one pass, by the sum of squares, if that settles it."""
        if value.dtype.kind != "f" or not value.size:
            return True
        flat = value.reshape(-1)
        if value.size >= SMALL and value.dtype.itemsize >= 4:
            with np.errstate(over="ignore", invalid="ignore"):
                if np.dot(flat, flat) <= self.largest**2:
                    return True
        # As Python's numbers: in half precision the bound itself would be infinite.
        return max(float(flat.max()), -float(flat.min())) <= self.largest

    def _shape_of(self, metrics: MetricRecord) -> object:
        """The names of metrics and how many numbers each has; their values are checked."""
        weight = metrics.get(self.weight)
        if weight is None:
            raise InvalidReply("count", f"it does not tell {self.weight!r}")
        if isinstance(weight, list) or not 0 < weight <= self.most:
            raise InvalidReply(
                "count", f"its {self.weight!r} is {weight!r}: from above 0 to {self.most:,g} is expected"
            )
        shape = []
        for name, value in metrics.items():
            if not _all_finite(value):
                raise InvalidReply("not finite", f"its metric {name!r} is {value!r}")
            shape.append((name, len(value) if isinstance(value, list) else -1))
        return tuple(sorted(shape))

    def _check_loss(self, metrics: MetricRecord) -> None:
        if self.loss is None:
            return
        loss = metrics.get(self.loss)
        if loss is None:
            raise InvalidReply(
                "loss",
                f"it does not report {self.loss!r}, the loss of the model it was sent: a hedge needs it",
            )
        if isinstance(loss, list) or not abs(loss) <= WORST:
            raise InvalidReply(
                "loss", f"its {self.loss!r} is {loss!r}: one number of at most {WORST:g} is expected"
            )


def finite(value: Array) -> bool:
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


def unexpected_reply(reply: Message) -> RejectedReply:
    """Why a reply that belongs to no chain of the round is not used."""
    words = str(reply.error.reason) if reply.has_error() else "it replies to no chain of this round"
    return RejectedReply(reply.metadata.src_node_id, "failed" if reply.has_error() else "names", words)


def check_not_misunderstood(rejected: Sequence[RejectedReply]) -> None:
    """Raise if several clients, and no other, were rejected in the first round for how they reply.

    Then the clients are not faulty: their app does not know what is expected.
    """
    alike = {each.reason for each in rejected} <= MISUNDERSTOOD
    several = len({each.node for each in rejected}) > 1
    if alike and several:
        raise ValueError(
            f"all {len(rejected)} replies of the first round are left out. Node {rejected[0].node}: "
            f"{rejected[0].sentence}"
        )
