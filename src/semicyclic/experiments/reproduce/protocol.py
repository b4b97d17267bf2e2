"""Protocol of the experiment (Section 7, Appendix B): split, label skew, blocks and days.

Where the paper's text and its authors' script differ, each place is a field of `Protocol`, and
`text` and `script` are two values of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method import loss as losses
from semicyclic.method.batches import RowOrder
from semicyclic.method.loss import Loss
from semicyclic.types import Array

Skew = Callable[[Array, Array, int, np.random.Generator], Array]

DAY = 86_400
TRAINING = 0.9


@dataclass(frozen=True)
class Protocol:
    """How the data become a stream.

    skew: which rows are kept, given labels, blocks, m and a generator.
    wraps: every visit has the same number of whole minibatches, and small blocks are read again
        (the script); or every block's rows are divided over the days (the text).
    random_start: N(0, 1) for every weight, instead of zero.
    loss: logistic, or the same as two-class softmax, in which a step has half the size (SPEC H4).
    cuts_tests: an incomplete last minibatch of test rows is left out.
    """

    blocks: int = 6
    cycles: int = 10
    batch_size: int = 128
    passes: int = 1
    skew: Skew | None = None
    wraps: bool = False
    random_start: bool = False
    loss: Loss = losses.logistic
    cuts_tests: bool = False

    def __post_init__(self) -> None:
        for name in ("blocks", "cycles", "batch_size", "passes"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least 1")
        if self.blocks > DAY:
            raise ValueError(f"--blocks {self.blocks}: a day has {DAY} seconds")

    @property
    def scale(self) -> float:
        """What the logistic step is multiplied by for this loss."""
        return 1 / self.loss.outputs

    def block_of(self, second: Array) -> Array:
        """The block of a second of the day, in the smallest integers that do: these are sorted fastest."""
        block = second.astype(np.int64) * self.blocks // DAY
        return block.astype(np.uint16 if self.blocks <= 2**16 else np.uint32)

    def label(self, block: int) -> str:
        """A block as a person says it."""
        ends = [(block + side) * DAY // self.blocks for side in (0, 1)]
        return "-".join(f"{end // 3600:02d}:{end // 60 % 60:02d}" for end in ends)


def distance(blocks: int) -> Array:
    """[m] how far each block is from the first, 0 to 1 half-way round: midnight to noon."""
    i = np.arange(blocks)
    return np.minimum(i, blocks - i) / max(blocks / 2, 1)


def by_rate(positive: Array, block: Array, blocks: int, rng: np.random.Generator) -> Array:
    """The text: the *rate* of positives goes linearly from 2/3 at midnight to 1/3 at noon.

    In each block as many rows of one label are dropped, at random, as that takes.
    """
    rates = 2 / 3 - distance(blocks) / 3
    keep = np.ones(len(positive), bool)
    order = np.argsort(block, kind="stable")
    bounds = np.searchsorted(block[order], np.arange(blocks + 1))
    for i, rate in enumerate(rates):
        own = order[bounds[i] : bounds[i + 1]]
        plus, minus = own[positive[own]], own[~positive[own]]
        most_minus = round(len(plus) * (1 - rate) / rate)
        most_plus = round(len(minus) * rate / (1 - rate))
        for side, most in ((minus, most_minus), (plus, most_plus)):
            if len(side) > most:
                keep[rng.permutation(side)[most:]] = False
    return keep


def by_drop(positive: Array, block: Array, blocks: int, rng: np.random.Generator) -> Array:
    """The script: the *share dropped* goes linearly, from half the negatives to half the positives."""
    share = (distance(blocks) - 0.5)[block]
    hit = rng.random(len(positive)) < np.abs(share)
    return np.asarray(~(hit & (positive == (share > 0))))


# What each skew is called.
SKEWS: dict[Skew | None, str] = {by_rate: "rate", by_drop: "drop", None: "none"}


def text(**settings: Any) -> Protocol:
    """The paper's words."""
    return Protocol(**{"skew": by_rate, **settings})


def script(**settings: Any) -> Protocol:
    """The authors' program."""
    fixed = {"wraps": True, "random_start": True, "loss": losses.softmax(2), "cuts_tests": True}
    return Protocol(**{"skew": by_drop, **fixed, **settings})


class TrainTestSplit(NamedTuple):
    """Rows to learn from and to be tested on, both in random order."""

    train: Array
    test: Array


def split(rows: int, rng: np.random.Generator) -> TrainTestSplit:
    """Nine rows of ten to learn from, at random."""
    order = rng.permutation(rows)
    return TrainTestSplit(*np.split(order, [int(rows * TRAINING)]))


def apply_skew(
    protocol: Protocol, rows: Array, positive: Array, block: Array, rng: np.random.Generator
) -> Array:
    """The rows that the skew keeps."""
    if protocol.skew is None:
        return rows
    return rows[protocol.skew(positive[rows], block[rows], protocol.blocks, rng)]


def cyclic(protocol: Protocol, rows: Array, block: Array, whole: int, rng: np.random.Generator) -> RowOrder:
    """Days of blocks. `whole` is the size of the training set before it was skewed."""
    groups = _groups(rows, block, protocol.blocks)
    return _in_turn(protocol, groups, whole, rng)


def shuffle_visits(order: RowOrder, rng: np.random.Generator) -> RowOrder:
    """The same rows in random order, in visits of the same sizes: the like-for-like ideal."""
    return order._replace(rows=rng.permutation(order.rows))


def deal_unskewed(protocol: Protocol, rows: Array, rng: np.random.Generator) -> RowOrder:
    """The paper's ideal: all rows, skewed or not, dealt out to blocks in turn."""
    groups = [rows[i :: protocol.blocks] for i in range(protocol.blocks)]
    return _in_turn(protocol, groups, len(rows), rng)


def deal_test_rows(protocol: Protocol, rows: Array) -> tuple[Array, Array]:
    """Test rows for that ideal, with the block each is dealt to."""
    return _tests(protocol, [rows[i :: protocol.blocks] for i in range(protocol.blocks)])


def tests(protocol: Protocol, rows: Array, block: Array) -> tuple[Array, Array]:
    """Test rows by block, with the block of each."""
    return _tests(protocol, _groups(rows, block, protocol.blocks))


def _tests(protocol: Protocol, groups: list[Array]) -> tuple[Array, Array]:
    kept = []
    for i, own in enumerate(groups):
        size = len(own)
        if protocol.cuts_tests:
            size -= size % protocol.batch_size
        if size == 0:
            whole = f", and a minibatch takes {protocol.batch_size}" if protocol.cuts_tests else ""
            raise ValueError(_empty(protocol, i, len(own), f"to be tested on{whole}"))
        kept.append(own[:size])
    return np.concatenate(kept), np.repeat(np.arange(len(kept)), [len(own) for own in kept])


def _groups(rows: Array, block: Array, blocks: int) -> list[Array]:
    """The rows of every block, each in the order they had."""
    own = block[rows]
    order = np.argsort(own, kind="stable")
    return np.split(rows[order], np.searchsorted(own[order], np.arange(1, blocks)))


def _in_turn(protocol: Protocol, groups: list[Array], whole: int, rng: np.random.Generator) -> RowOrder:
    """Every day a visit to every block.

    By the text block i has n_i = floor(|component i| / K) rows a day. They are learnt from in whole
    minibatches, and what is left of one day opens the next: a full step on a handful of rows
    just before a model is judged would tell more of the remainder than of the method.
    """
    K, m = protocol.cycles, protocol.blocks
    visits: list[list[Array]] = []
    for i, own in enumerate(groups):
        if protocol.wraps:
            visits.append(_wrap_rows(protocol, i, own, whole))
            continue
        passes = [own, *(rng.permutation(own) for _ in range(protocol.passes - 1))]
        n = len(own) * protocol.passes // K
        if n == 0:
            raise ValueError(_empty(protocol, i, len(own), f"to learn from in {K} days"))
        ends = np.arange(K + 1) * n
        if n >= protocol.batch_size:
            ends -= ends % protocol.batch_size
        stream = np.concatenate(passes)
        visits.append([stream[low:high] for low, high in pairwise(ends.tolist())])
    sizes = np.array([[len(visits[i][k]) for i in range(m)] for k in range(K)]).ravel()
    number = np.repeat(np.arange(K * m), sizes)
    rows = np.concatenate([visits[i][k] for k in range(K) for i in range(m)])
    return RowOrder(rows, number // m, number % m)


def _wrap_rows(protocol: Protocol, i: int, own: Array, whole: int) -> list[Array]:
    """As the script goes round and round a block's rows, always in whole minibatches."""
    size = protocol.batch_size
    if len(own) < size:
        raise ValueError(_empty(protocol, i, len(own), f"and a minibatch takes {size}"))
    n = whole * protocol.passes // protocol.cycles // protocol.blocks
    days = []
    for day in range(protocol.cycles):
        starts = np.arange(day * n, (day + 1) * n, size)
        days.append(own[(starts[:, None] + np.arange(size)).ravel() % len(own)])
    if n == 0:
        raise ValueError(_empty(protocol, i, len(own), f"to learn from in {protocol.cycles} days"))
    return days


def _empty(protocol: Protocol, block: int, rows: int, what: str) -> str:
    return (
        f"block {block} ({protocol.label(block)}) has {rows} row(s) {what}: choose fewer --blocks or "
        f"--cycles, "
        "smaller --batch-size, or more data"
    )
