"""Protocol of the experiment (Section 7, Appendix B): split, label skew, blocks and days.

The paper's text and its authors' script differ in several details. Each detail is a field of
`Protocol`; `text()` and `script()` return the two variants.
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

SECONDS_PER_DAY = 86_400
TRAIN_SHARE = 0.9


@dataclass(frozen=True)
class Protocol:
    """Settings that turn the data set into a stream of blocks and days.

    blocks, cycles: number of blocks per day (m) and of days (K).
    batch_size: rows per minibatch.
    passes: number of passes over the training rows.
    skew: function of labels, blocks, m and a generator that returns a mask of the rows to keep;
        None keeps all rows.
    wraps: if true, every visit has the same number of full minibatches, and small blocks are read
        again (the script); otherwise each block's rows are divided over the days (the text).
    random_start: draw every initial weight from N(0, 1) instead of starting at zero.
    loss: logistic, or the equivalent two-class softmax, which needs half the step size
        (docs/math.md#softmax-step).
    cuts_tests: drop an incomplete last minibatch of test rows.
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
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.blocks > SECONDS_PER_DAY:
            raise ValueError(f"blocks={self.blocks}: a day has {SECONDS_PER_DAY} seconds")

    @property
    def scale(self) -> float:
        """Factor that converts a logistic step size into one for this loss."""
        return 1 / self.loss.outputs

    def block_of(self, second: Array) -> Array:
        """Return the block of each second of the day, in a small integer type, which sorts faster."""
        block = second.astype(np.int64) * self.blocks // SECONDS_PER_DAY
        return block.astype(np.uint16 if self.blocks <= 2**16 else np.uint32)

    def label(self, block: int) -> str:
        """Time range of a block, such as `12:00-16:00`."""
        ends = [(block + side) * SECONDS_PER_DAY // self.blocks for side in (0, 1)]
        return "-".join(f"{end // 3600:02d}:{end // 60 % 60:02d}" for end in ends)


def distance(blocks: int) -> Array:
    """[m] cyclic distance of each block from the first: 0 at midnight, 1 at noon."""
    i = np.arange(blocks)
    return np.minimum(i, blocks - i) / max(blocks / 2, 1)


def by_rate(positive: Array, block: Array, blocks: int, rng: np.random.Generator) -> Array:
    """Skew of the text: the *rate* of positives is linear, from 2/3 at midnight to 1/3 at noon.

    Each block drops random rows of one label until it has that rate.

    positive: [n] labels.
    block: [n] block of each row.
    blocks: number of blocks m.

    Returns a mask [n] of the rows to keep.
    """
    rates = 2 / 3 - distance(blocks) / 3
    keep = np.ones(len(positive), bool)
    order = np.argsort(block, kind="stable")
    bounds = np.searchsorted(block[order], np.arange(blocks + 1))
    for i, rate in enumerate(rates):
        in_block = order[bounds[i] : bounds[i + 1]]
        plus, minus = in_block[positive[in_block]], in_block[~positive[in_block]]
        max_minus = round(len(plus) * (1 - rate) / rate)
        max_plus = round(len(minus) * rate / (1 - rate))
        for side, max_rows in ((minus, max_minus), (plus, max_plus)):
            if len(side) > max_rows:
                keep[rng.permutation(side)[max_rows:]] = False
    return keep


def by_drop(positive: Array, block: Array, blocks: int, rng: np.random.Generator) -> Array:
    """Skew of the script: the *share dropped* is linear, from half the negatives to half the positives.

    Takes the same arguments as `by_rate` and returns the same kind of mask.
    """
    share = (distance(blocks) - 0.5)[block]
    drawn = rng.random(len(positive)) < np.abs(share)
    return np.asarray(~(drawn & (positive == (share > 0))))


# Name of each skew in settings and reports.
SKEWS: dict[Skew | None, str] = {by_rate: "rate", by_drop: "drop", None: "none"}


def text(**settings: Any) -> Protocol:
    """Return the protocol as the paper's text describes it; `settings` override its fields."""
    return Protocol(**{"skew": by_rate, **settings})


def script(**settings: Any) -> Protocol:
    """Return the protocol of the authors' script; `settings` override its fields."""
    fixed = {"wraps": True, "random_start": True, "loss": losses.softmax(2), "cuts_tests": True}
    return Protocol(**{"skew": by_drop, **fixed, **settings})


class TrainTestSplit(NamedTuple):
    """Numbers of the training rows and of the test rows, both in random order."""

    train: Array
    test: Array


def split(rows: int, rng: np.random.Generator) -> TrainTestSplit:
    """Split row numbers at random: nine tenths for training, the rest for testing."""
    order = rng.permutation(rows)
    return TrainTestSplit(*np.split(order, [int(rows * TRAIN_SHARE)]))


def apply_skew(
    protocol: Protocol, rows: Array, positive: Array, block: Array, rng: np.random.Generator
) -> Array:
    """Return the rows that the protocol's skew keeps."""
    if protocol.skew is None:
        return rows
    return rows[protocol.skew(positive[rows], block[rows], protocol.blocks, rng)]


def cyclic(
    protocol: Protocol, rows: Array, block: Array, training_size: int, rng: np.random.Generator
) -> RowOrder:
    """Return the training rows in cyclic order: K days of m blocks.

    training_size: number of training rows before the skew.
    """
    groups = _rows_by_block(rows, block, protocol.blocks)
    return _visit_in_turn(protocol, groups, training_size, rng)


def shuffle_visits(order: RowOrder, rng: np.random.Generator) -> RowOrder:
    """Return the same rows in random order, in visits of the same sizes: the like-for-like i.i.d. ideal."""
    return order._replace(rows=rng.permutation(order.rows))


def deal_unskewed(protocol: Protocol, rows: Array, rng: np.random.Generator) -> RowOrder:
    """Return the order of the paper's i.i.d. ideal: all rows, without skew, dealt to the blocks in turn."""
    groups = [rows[i :: protocol.blocks] for i in range(protocol.blocks)]
    return _visit_in_turn(protocol, groups, len(rows), rng)


def deal_test_rows(protocol: Protocol, rows: Array) -> tuple[Array, Array]:
    """Return the test rows of that ideal, and the block each row is dealt to."""
    return _test_rows(protocol, [rows[i :: protocol.blocks] for i in range(protocol.blocks)])


def tests(protocol: Protocol, rows: Array, block: Array) -> tuple[Array, Array]:
    """Return the test rows sorted by block, and the block of each row."""
    return _test_rows(protocol, _rows_by_block(rows, block, protocol.blocks))


def _test_rows(protocol: Protocol, groups: list[Array]) -> tuple[Array, Array]:
    """Concatenate the test rows of all blocks; raise if a block has none."""
    kept = []
    for i, group in enumerate(groups):
        size = len(group)
        if protocol.cuts_tests:
            size -= size % protocol.batch_size
        if size == 0:
            minibatch = f", and a minibatch takes {protocol.batch_size}" if protocol.cuts_tests else ""
            raise ValueError(_too_few_rows(protocol, i, len(group), f"to be tested on{minibatch}"))
        kept.append(group[:size])
    return np.concatenate(kept), np.repeat(np.arange(len(kept)), [len(group) for group in kept])


def _rows_by_block(rows: Array, block: Array, blocks: int) -> list[Array]:
    """Return the rows of every block, in their given order."""
    row_block = block[rows]
    order = np.argsort(row_block, kind="stable")
    return np.split(rows[order], np.searchsorted(row_block[order], np.arange(1, blocks)))


def _visit_in_turn(
    protocol: Protocol, groups: list[Array], training_size: int, rng: np.random.Generator
) -> RowOrder:
    """Return an order that visits every block once a day.

    In the text, block i has n_i = floor(|component i| / K) rows a day. Training uses full minibatches,
    and the remainder of one day starts the next: a full step on a handful of rows just before a model
    is evaluated would measure the remainder more than the method.
    """
    K, m = protocol.cycles, protocol.blocks
    visits: list[list[Array]] = []
    for i, group in enumerate(groups):
        if protocol.wraps:
            visits.append(_wrap_rows(protocol, i, group, training_size))
            continue
        passes = [group, *(rng.permutation(group) for _ in range(protocol.passes - 1))]
        n = len(group) * protocol.passes // K
        if n == 0:
            raise ValueError(_too_few_rows(protocol, i, len(group), f"to learn from in {K} days"))
        ends = np.arange(K + 1) * n
        if n >= protocol.batch_size:
            ends -= ends % protocol.batch_size
        stream = np.concatenate(passes)
        visits.append([stream[low:high] for low, high in pairwise(ends.tolist())])
    sizes = np.array([[len(visits[i][k]) for i in range(m)] for k in range(K)]).ravel()
    visit = np.repeat(np.arange(K * m), sizes)
    rows = np.concatenate([visits[i][k] for k in range(K) for i in range(m)])
    return RowOrder(rows, visit // m, visit % m)


def _wrap_rows(protocol: Protocol, i: int, group: Array, training_size: int) -> list[Array]:
    """Return each day's rows of block i as the script reads them: cyclically, in full minibatches."""
    size = protocol.batch_size
    if len(group) < size:
        raise ValueError(_too_few_rows(protocol, i, len(group), f"and a minibatch takes {size}"))
    n = training_size * protocol.passes // protocol.cycles // protocol.blocks
    days = []
    for day in range(protocol.cycles):
        starts = np.arange(day * n, (day + 1) * n, size)
        days.append(group[(starts[:, None] + np.arange(size)).ravel() % len(group)])
    if n == 0:
        raise ValueError(_too_few_rows(protocol, i, len(group), f"to learn from in {protocol.cycles} days"))
    return days


def _too_few_rows(protocol: Protocol, block: int, rows: int, what: str) -> str:
    """Error message for a block that has too few rows."""
    return (
        f"block {block} ({protocol.label(block)}) has {rows} row(s) {what}: choose fewer blocks= or "
        "cycles=, a smaller batch_size=, or more data"
    )
