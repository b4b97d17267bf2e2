"""Validation of replies: a faulty client must neither end a round nor reach an average."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from semicyclic.adapters.flower.averages import ArraySpec, as_type
from semicyclic.adapters.flower.serialization import cache_decoded, decode, encode
from semicyclic.types import Array

# Reasons for rejection that suggest a client app with the wrong reply format.
FORMAT_REASONS = {"loss", "count", "names", "records", "shape", "type"}
# Number of values below which checking each one is as fast as a sum.
MIN_VALUES_FOR_SUM = 1 << 14
# Largest absolute mean loss that is accepted from a client.
MAX_LOSS = 1e6


class RejectedReply(NamedTuple):
    """Rejected reply: its node, the reason as a short key for counting, and an explanation."""

    node: int
    reason: str
    sentence: str


class InvalidReply(Exception):
    """A reply that cannot be used: the reason as a short key, and an explanation."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason, self.sentence = reason, sentence


class ReplyValidator(NamedTuple):
    """Validator of client replies.

    layout: names, shapes and dtypes of the model's arrays.
    weight: metric that weights replies; most: its largest accepted value.
    largest: largest accepted absolute value in an array; squares of larger values overflow.
    loss: metric that training replies must have, one number of absolute value at most MAX_LOSS; None if none.
    known: by kind of reply (True for training), the usual record and metric names of earlier rounds, which
        break a tie between two clients.
    key: name of the record that holds the model.
    """

    layout: ArraySpec
    weight: str
    most: float
    largest: float
    loss: str | None
    known: dict[bool, object]
    key: str = "arrays"

    def check_training(self, replies: Iterable[Message]) -> tuple[list[Message], list[RejectedReply]]:
        """Return the usable replies to training, and the rejected ones."""
        return self._split_usable(replies, arrays=True)

    def check_evaluation(self, replies: Iterable[Message]) -> tuple[list[Message], list[RejectedReply]]:
        """Return the usable replies to evaluation, and the rejected ones."""
        return self._split_usable(replies, arrays=False)

    def _split_usable(
        self, replies: Iterable[Message], *, arrays: bool
    ) -> tuple[list[Message], list[RejectedReply]]:
        """Return usable and rejected replies; with `arrays`, check models and losses of training too."""
        valid: list[tuple[Message, object]] = []
        rejected = []
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                valid.append((reply, self._check(reply, arrays=arrays)))
            except InvalidReply as invalid:
                rejected.append(RejectedReply(node, invalid.reason, invalid.sentence))
            except Exception as error:
                # Whatever a client sends, only that client is excluded.
                rejected.append(RejectedReply(node, "unreadable", f"{type(error).__name__}: {error}"))
        if not valid:
            return [], rejected
        # Flower fails the entire round if metric names differ between replies: keep those of the majority.
        counts = Counter(shape for _, shape in valid)
        before = self.known.get(arrays)
        usual = max(counts, key=lambda shape: (counts[shape], shape == before, str(shape)))
        self.known[arrays] = usual
        kept = []
        for reply, shape in valid:
            if shape == usual:
                kept.append(reply)
            else:
                sentence = (
                    "names or lengths of its records or metrics differ from those of most other replies"
                )
                rejected.append(RejectedReply(reply.metadata.src_node_id, "names", sentence))
        return kept, rejected

    def _check(self, reply: Message, *, arrays: bool) -> object:
        """Return the record and metric names of a reply and the metric lengths; raise if it is invalid."""
        if reply.has_error():
            raise InvalidReply("failed", reply.error.reason or f"error {reply.error.code}")
        # One pass: Flower's accessors for a type of record build a new dictionary on every call.
        models: dict[str, ArrayRecord] = {}
        measured: dict[str, MetricRecord] = {}
        for name, record in reply.content.items():
            if isinstance(record, ArrayRecord):
                models[name] = record
            elif isinstance(record, MetricRecord):
                measured[name] = record
        if arrays:
            self._check_models(models)
        if len(measured) != 1:
            raise InvalidReply("records", f"it has {len(measured)} metric records, expected one")
        ((name, metrics),) = measured.items()
        shape = self._shape_of(metrics)
        if arrays:
            self._check_loss(metrics)
        return tuple(sorted(models)) if arrays else (), name, shape

    def _check_models(self, models: Mapping[str, ArrayRecord]) -> None:
        """Check the model and other array records, such as control variates or masks; raise if invalid."""
        if not models:
            raise InvalidReply("records", "it has no array record")
        name = self.key if self.key in models else next(iter(models))
        self._check_arrays(models[name])
        for other, record in models.items():
            for key, array in record.items() if other != name else ():
                value = decode(array)
                if value.dtype.kind not in "biuf" or not is_finite(value) or not self._is_small(value):
                    raise InvalidReply("not finite", f"array {key!r} of {other!r} has invalid values")

    def _check_arrays(self, record: Any) -> None:
        """Check the arrays of a model and cast them to the run's dtypes, in place; raise if invalid."""
        if set(record) != set(self.layout.names):
            missing = sorted(set(self.layout.names) - set(record))
            extra = sorted(set(record) - set(self.layout.names))
            differences = " and ".join(
                f"{word} {', '.join(map(repr, names[:3]))}"
                for word, names in (("missing", missing), ("unexpected", extra))
                if names
            )
            raise InvalidReply("names", f"its array names are wrong: {differences}")
        if tuple(record) != self.layout.names:
            # Some Flower strategies match arrays by position, not by name.
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
                raise InvalidReply("type", f"array {name!r} has dtype {value.dtype}, not {dtype}")
            if value.dtype != dtype:
                # Cast to the model's dtype: a wider one would propagate to the model.
                value = as_type(value, dtype)
                record[name] = array = encode(value)
            if not self._is_small(value):
                if not is_finite(value):
                    raise InvalidReply("not finite", f"array {name!r} has values that are not finite")
                raise InvalidReply("too large", f"array {name!r} has values beyond {self.largest:g}")
            cache_decoded(array, value)

    def _is_small(self, value: Array) -> bool:
        """Return whether all absolute values are at most `largest`; try the sum of squares first."""
        if value.dtype.kind != "f" or not value.size:
            return True
        flat = value.reshape(-1)
        if value.size >= MIN_VALUES_FOR_SUM and value.dtype.itemsize >= 4:
            with np.errstate(over="ignore", invalid="ignore"):
                if np.dot(flat, flat) <= self.largest**2:
                    return True
        # Compare as Python floats: in half precision the bound itself would be infinite.
        return max(float(flat.max()), -float(flat.min())) <= self.largest

    def _shape_of(self, metrics: MetricRecord) -> object:
        """Return the names and lengths of metrics (-1 for a scalar); raise if a value is invalid."""
        weight = metrics.get(self.weight)
        if weight is None:
            raise InvalidReply("count", f"it does not report {self.weight!r}")
        if isinstance(weight, list) or not 0 < weight <= self.most:
            raise InvalidReply(
                "count", f"its {self.weight!r} is {weight!r}, expected above 0 and at most {self.most:,g}"
            )
        shape = []
        for name, value in metrics.items():
            if not _all_finite(value):
                raise InvalidReply("not finite", f"its metric {name!r} is {value!r}, which is not finite")
            shape.append((name, len(value) if isinstance(value, list) else -1))
        return tuple(sorted(shape))

    def _check_loss(self, metrics: MetricRecord) -> None:
        """Raise if the loss that the hedge needs is missing or invalid."""
        if self.loss is None:
            return
        loss = metrics.get(self.loss)
        if loss is None:
            raise InvalidReply(
                "loss",
                f"it does not report {self.loss!r}, the loss of the model it was sent, which the hedge needs",
            )
        if isinstance(loss, list) or not abs(loss) <= MAX_LOSS:
            raise InvalidReply(
                "loss", f"its {self.loss!r} is {loss!r}, expected one number of at most {MAX_LOSS:g}"
            )


def is_finite(value: Array) -> bool:
    """Return whether all values are finite; one pass, since a sum with a non-finite term is not finite."""
    if value.dtype.kind != "f":
        return True
    if value.size < MIN_VALUES_FOR_SUM:
        return bool(np.isfinite(value).all())
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(value.sum()):
            return True
    # The sum may overflow although all values are finite.
    return bool(np.isfinite(value).all())


def _all_finite(value: object) -> bool:
    """Return whether a metric, a number or a list of numbers, is finite."""
    try:
        if isinstance(value, list):
            return all(map(isfinite, value))
        return isfinite(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError):
        return False


def unexpected_reply(reply: Message) -> RejectedReply:
    """Return the rejection of a reply that belongs to no chain of the round."""
    sentence = str(reply.error.reason) if reply.has_error() else "it belongs to no chain of this round"
    return RejectedReply(reply.metadata.src_node_id, "failed" if reply.has_error() else "names", sentence)


def check_not_misunderstood(rejected: Sequence[RejectedReply]) -> None:
    """Raise if several clients were rejected and all of them for the format of their replies.

    Call it with the replies of a first round without usable replies: then the clients are not faulty, but
    their app uses the wrong reply format.
    """
    only_format = {reply.reason for reply in rejected} <= FORMAT_REASONS
    several = len({reply.node for reply in rejected}) > 1
    if only_format and several:
        raise ValueError(
            f"all {len(rejected)} replies of the first round were rejected. Node {rejected[0].node}: "
            f"{rejected[0].sentence}"
        )
