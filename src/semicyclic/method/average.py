"""Averages of iterates: the paper's method in one file.

The aim is a model w^i for each block i that minimizes the expected loss of a random block and a row of it,

    F~(w^1..w^m) = E f(w^i, z) over i and z ~ D_i = (1/m) sum_i F_i(w^i)                               (eq. 8)

as well as one model on i.i.d. data would: F~ <= F(w*) + O(sqrt(B^2/T)) (eq. 13). Theorem 3: run one chain
through the cyclic data, and for each block average only the iterates w_t of its own steps S_i = {t(k, i, j)},
K n of them, each as it was BEFORE its update:

    w~^i = (1 / |S_i|) sum_{t in S_i} w_t                                                             (eq. 14)
    E F~(w~^1..w~^m) <= F(w*) + sqrt(2 B^2 / T)                                                  (eq. 15, 20)

Why, with S_i the steps of block i and w = w* in the regret bound of `step`, which holds for any sequence:

    sum_t f(w_t, z_t) - f(w*, z_t)                       <= sqrt(2 B^2 T)                             (eq. 16)
    (1/T) sum_i sum_{t in S_i} f(w_t, z_t) - f(w*, z_t)  <= sqrt(2 B^2 / T)   by block, over T        (eq. 17)
    E f(w_t, z_t) = F_i(w_t)                                w_t has not seen z_t ~ D_i                (eq. 18)
    F_i(w~^i) <= (1/|S_i|) sum_{t in S_i} F_i(w_t)          Jensen's inequality                       (eq. 19)

This needs nothing but draws of D_i within S_i, whatever m is.

A run does not keep every w_t. It keeps one record per visit (the n steps of block i in cycle k): the mean
of its iterates, as a `Mean` with its weight, n, and the iterate after it. Means over disjoint steps
`merge`, so every read-out is a choice of weights over records, made after the run (the module `log` adds the
records up):

    block_means    each record by its number of steps: eq. 14, of one chain, of separate ones, or (eq. 21) of
                   hedged ones, where a step counts for expert e by its probability p^e
    block_lasts    the iterate after the block's latest visit, as in the paper's experiment
    tails          the mean over the block's last few cycles
    fading         the mean with weights that halve every few cycles
    polynomial     the mean with weights that grow as a power of the number of the step, equal in a cycle

The average over all steps, (1 / T) sum_t w_t (eq. 3), is `block_means` of one model to which all blocks
belong.
"""

from typing import NamedTuple

import numpy as np

from semicyclic.types import Array


class Mean(NamedTuple):
    """The mean of some iterates, and the weight it stands for.

    Parameters
    ----------
    value : array
        The mean.
    weight : float
        Total weight of the iterates, 1 for each step.
    """

    value: Array
    weight: float


def merge(a: Mean, b: Mean) -> Mean:
    """Return the mean over two disjoint sets of steps: a convex step from `a` towards `b`.

    Parameters
    ----------
    a, b : Mean

    Returns
    -------
    Mean
    """
    weight = a.weight + b.weight
    share = b.weight / weight if weight else 0.0
    return Mean(a.value + share * (b.value - a.value), weight)


class ReadOut(NamedTuple):
    """A read-out as a value, for `Run.read_out`; `specs.parse_read_out` reads it from text.

    Parameters
    ----------
    rule : {"mean", "last", "last-cycle", "tail", "fading", "polynomial"}
    number : float, optional
        Of "tail", the number of cycles, by default half of those in the log; of "fading", the half-life in
        cycles, by default 7; of "polynomial", the exponent, by default 3.
    """

    rule: str
    number: float | None = None

    def __str__(self) -> str:
        if self.number is None:
            return self.rule
        number = str(int(self.number)) if self.rule == "tail" else repr(float(self.number)).removesuffix(".0")
        return f"{self.rule}:{number}"

    @property
    def needs_records(self) -> bool:
        """Whether it needs the records of single cycles, not only sums over all of them."""
        return self.rule not in ("mean", "last")


class RecordTable(NamedTuple):
    """The records of a run, in order: cycle, slot, weight and expert of each.

    A slot is a block; or, with several hedged experts, a block as seen by one of them: slot e * m + i is that
    of block i and expert e. The weight of a record is its number of steps (each times the mean weight of its
    rows), or, for hedged experts, the sum of p^e over them; a negative one marks a record that is not used.
    probability: the expert's probability after the record.
    """

    cycle: Array
    slot: Array
    weight: Array
    probability: Array
    expert: Array


class Membership(NamedTuple):
    """The share of each slot's steps that belongs to each model, as a list sorted by slot."""

    slot: Array
    model: Array
    share: Array
    models: int

    def totals(self, by_slot: Array) -> Array:
        """[models] Sum of a per-slot quantity over the slots of each model, weighted by share."""
        return np.bincount(self.model, self.share * by_slot[self.slot], self.models)

    @property
    def is_hard(self) -> bool:
        """Whether every slot belongs to one model."""
        return bool((self.share == 1.0).all())


def own_models(slots: int) -> Membership:
    """A model for every slot."""
    return Membership(np.arange(slots), np.arange(slots), np.ones(slots), slots)


def hedged_models(blocks: int, experts: int) -> Membership:
    """A model for every block, made of the records of all experts."""
    slots = np.arange(blocks * experts)
    return Membership(slots, slots % blocks, np.ones(len(slots)), blocks)


def one_model(slots: int) -> Membership:
    """One model for all slots."""
    return Membership(np.arange(slots), np.zeros(slots, np.int64), np.ones(slots), 1)


def soft_membership(membership: Array) -> Membership:
    """Soft membership: shares as a table [slots, models]."""
    slot, model = np.nonzero(membership)
    return Membership(slot, model, membership[slot, model], membership.shape[1])


class RecordWeights(NamedTuple):
    """A read-out as weights over records, in their order.

    `model` takes `mean` times the mean of `record`, and `last` times the iterate after it.
    """

    model: Array
    record: Array
    mean: Array
    last: Array


def block_means(table: RecordTable, member: Membership) -> RecordWeights:
    """w~^i, the mean over S_i; if a share r_ti of step t belongs to model i, sum_t r_ti w_t / sum_t r_ti."""
    model, record, share = _model_records(table, member)
    return _normalize(model, record, share)


def tails(table: RecordTable, member: Membership, cycles: int) -> RecordWeights:
    """The mean over the last `cycles` cycles in which each model was visited."""
    model, record, share = _model_records(table, member)
    recent = _cycles_ago(model, table.cycle[record]) < cycles
    return _normalize(model[recent], record[recent], share[recent])


def fading(table: RecordTable, member: Membership, half_life: float) -> RecordWeights:
    """The mean with weights that halve every `half_life` cycles, also those without a visit to the model."""
    model, record, share = _model_records(table, member)
    cycle = table.cycle[record]
    latest = np.full(member.models, np.iinfo(np.int64).min)
    np.maximum.at(latest, model, cycle)
    return _normalize(model, record, share * np.exp2((cycle - latest[model]) / half_life))


def polynomial(table: RecordTable, member: Membership, exponent: float) -> RecordWeights:
    """The mean with weights that grow as s^exponent, where s counts the steps of each model.

    This is polynomial-decay averaging (Shamir and Zhang, 2013) by cycles: the steps from s to s' of a cycle
    share the integral of s^exponent over them evenly, however the cycle is divided into records.
    """
    model, record, share = _model_records(table, member)
    pairs, pair = np.unique(np.stack([model, table.cycle[record]]), axis=1, return_inverse=True)
    steps = np.bincount(pair, share)
    total = np.bincount(pairs[0], steps, member.models)
    end = np.cumsum(steps) - (np.cumsum(total) - total)[pairs[0]]
    # In shares of all steps of the model, so that powers neither overflow nor vanish.
    begin, end = (part.clip(0.0) / total[pairs[0]] for part in (end - steps, end))
    weight = end ** (exponent + 1) - begin ** (exponent + 1)
    return _normalize(model, record, share * (weight / steps)[pair])


def block_lasts(table: RecordTable, member: Membership) -> RecordWeights:
    """The iterate after each model's latest visit; of hedged experts, their mixture by probability."""
    model, record, _ = _model_records(table, member, weightless=True)
    key = model * (table.expert.max(initial=0) + 1) + table.expert[record]
    # The last of each key is the first backwards.
    _, backwards = np.unique(key[::-1], return_index=True)
    final = np.sort(len(key) - 1 - backwards)
    probability = table.probability[record[final]]
    return RecordWeights(model[final], record[final], 0 * probability, probability)


def _model_records(
    table: RecordTable, member: Membership, *, weightless: bool = False
) -> tuple[Array, Array, Array]:
    """Every (model, record) in which the model has a share, and that share of its weight; in order."""
    first = np.searchsorted(member.slot, np.arange(table.slot.max(initial=-1) + 2))
    count = np.diff(first)[table.slot]
    record = np.repeat(np.arange(len(table.slot)), count)
    place = np.arange(len(record)) - np.repeat(np.cumsum(count) - count, count)
    entry = first[table.slot[record]] + place
    model = member.model[entry]
    share = member.share[entry] * table.weight[record]
    used = share >= 0 if weightless else share > 0
    return model[used], record[used], share[used]


def _cycles_ago(model: Array, cycle: Array) -> Array:
    """In how many later cycles each model was visited."""
    pairs, index = np.unique(np.stack([model, cycle]), axis=1, return_inverse=True)
    end = np.searchsorted(pairs[0], pairs[0], side="right")
    return np.asarray((end - 1 - np.arange(len(end)))[index])


def _normalize(model: Array, record: Array, share: Array) -> RecordWeights:
    """Weights in proportion to `share` that sum to one for each model."""
    total = np.bincount(model, share)
    mean = share / total[model]
    return RecordWeights(model, record, mean, 0 * mean)
