"""Averages of iterates: the paper's cure in one file.

Theorem 3: run one chain through the cyclic data, and for each block i average only the
iterates w_t of the steps t in that block, each as it was BEFORE its update:

    w~^i = (1 / |S_i|) sum_{t in S_i} w_t                                      (eq. 14)

A chain leaves one record per visit: the mean of its iterates, and the iterate after it. Every
read-out of SPEC C is then a choice of weights over records, made after the run:

    block_means    each record in proportion to its steps                      (C3, C5)
    block_lasts    the iterate after the block's latest visit                  (C4)
    tails          only the block's last R cycles                              (C6)
    fading         a cycle's weight halves every so many cycles                (C7)
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Mean(NamedTuple):
    """The mean of some iterates, and the weight it stands for (one per step)."""

    value: Array
    weight: float


def merge(a: Mean, b: Mean) -> Mean:
    """Mean over two disjoint sets of steps: a convex step from `a` towards `b`."""
    weight = a.weight + b.weight
    share = b.weight / weight if weight else 0.0
    return Mean(a.value + share * (b.value - a.value), weight)


class Table(NamedTuple):
    """What is known of each record of a run, in order: its visit's place, and its weight.

    Where chains are hedged, `block` is the slot, a block as one of the chains sees it; `expert`
    is that chain, and `force` its probability after the record. A negative weight marks a
    record that is not to be used.
    """

    cycle: Array
    block: Array
    weight: Array
    force: Array
    expert: Array


class Member(NamedTuple):
    """Which share of each block's steps belongs to which model, as a list sorted by block."""

    block: Array
    model: Array
    share: Array
    models: int

    def totals(self, by_block: Array) -> Array:
        """[models] what each model has of something that is known by block."""
        return np.bincount(self.model, self.share * by_block[self.block], self.models)

    @property
    def is_own(self) -> bool:
        """Whether every block has a model of its own, in the same order."""
        return self.is_hard and np.array_equal(self.model, np.arange(self.models))

    @property
    def is_hard(self) -> bool:
        """Whether every block belongs to one model."""
        return bool((self.share == 1.0).all())


def own_models(blocks: int) -> Member:
    """A model for every block."""
    return Member(np.arange(blocks), np.arange(blocks), np.ones(blocks), blocks)


def hedged_models(blocks: int, experts: int) -> Member:
    """A model for every block, of the records all experts have of it: own_models if there is one."""
    slots = np.arange(blocks * experts)
    return Member(slots, slots % blocks, np.ones(len(slots)), blocks)


def one_model(blocks: int) -> Member:
    """One model for all blocks."""
    return Member(np.arange(blocks), np.zeros(blocks, np.int64), np.ones(blocks), 1)


def shared(membership: Array) -> Member:
    """Shares as a table [blocks, models] has them."""
    block, model = np.nonzero(membership)
    return Member(block, model, membership[block, model], membership.shape[1])


class Picks(NamedTuple):
    """A read-out as weights: `model` takes `mean` of a record's mean and `last` of its end."""

    model: Array
    record: Array
    mean: Array
    last: Array


def block_means(table: Table, member: Member) -> Picks:
    """w~^i, the mean over S_i; with soft membership sum_t R_ti w_t / sum_t R_ti (SPEC G3)."""
    model, record, share = _held(table, member)
    return _normalised(model, record, share)


def tails(table: Table, member: Member, cycles: int) -> Picks:
    """The mean over each model's own last `cycles` cycles."""
    model, record, share = _held(table, member)
    recent = _cycles_ago(model, table.cycle[record]) < cycles
    return _normalised(model[recent], record[recent], share[recent])


def fading(table: Table, member: Member, half_life: float) -> Picks:
    """The mean with weights that halve every `half_life` cycles, within each model's steps."""
    model, record, share = _held(table, member)
    cycle = table.cycle[record]
    latest = np.full(member.models, np.iinfo(np.int64).min)
    np.maximum.at(latest, model, cycle)
    return _normalised(model, record, share * np.exp2((cycle - latest[model]) / half_life))


def block_lasts(table: Table, member: Member) -> Picks:
    """The iterate after each model's latest visit (what the paper's experiment uses).

    Of hedged chains, each one's iterate in proportion to its probability by then.
    """
    model, record, _ = _held(table, member, weightless=True)
    order = np.lexsort((record, table.expert[record], model))
    model, record = model[order], record[order]
    key = model * (table.expert.max(initial=0) + 1) + table.expert[record]
    final = np.r_[key[1:] != key[:-1], np.ones(min(len(key), 1), bool)]
    force = table.force[record[final]]
    return Picks(model[final], record[final], 0 * force, force)


def _held(table: Table, member: Member, *, weightless: bool = False) -> tuple[Array, Array, Array]:
    """Every (model, record) in which the model has a share, and that share of its weight.

    Sorted by model, then in the order of the records.
    """
    first = np.searchsorted(member.block, np.arange(table.block.max(initial=-1) + 2))
    count = np.diff(first)[table.block]
    record = np.repeat(np.arange(len(table.block)), count)
    place = np.arange(len(record)) - np.repeat(np.cumsum(count) - count, count)
    entry = first[table.block[record]] + place
    order = np.argsort(member.model[entry], kind="stable")
    record, entry = record[order], entry[order]
    model = member.model[entry]
    share = member.share[entry] * table.weight[record]
    used = share >= 0 if weightless else share > 0
    return model[used], record[used], share[used]


def _cycles_ago(model: Array, cycle: Array) -> Array:
    """How many later cycles each model was visited in."""
    pairs, index = np.unique(np.stack([model, cycle]), axis=1, return_inverse=True)
    end = np.searchsorted(pairs[0], pairs[0], side="right")
    return np.asarray((end - 1 - np.arange(len(end)))[index])


def _normalised(model: Array, record: Array, share: Array) -> Picks:
    """Weights in proportion to `share` that sum to one for each model."""
    total = np.bincount(model, share)
    mean = share / total[model]
    return Picks(model, record, mean, 0 * mean)
