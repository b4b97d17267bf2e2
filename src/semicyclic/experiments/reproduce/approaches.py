"""The approaches that are compared: the paper's four, and further ones.

A plain name is the last iterate, as the paper evaluates it; see `APPROACHES` for each.
"""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.experiments.reproduce.protocol import Protocol
from semicyclic.method import basis, metrics, train
from semicyclic.method.batches import Packed
from semicyclic.method.evaluate import by_block
from semicyclic.method.hedge import Prod, prod_rate, steps_needed
from semicyclic.method.rows import Rows
from semicyclic.types import Array

APPROACHES = {
    "iid": "shuffled data, skewed alike: last iterate",
    "iid_average": "shuffled data, skewed alike: average of all iterates",
    "iid_unskewed": "shuffled data without skew, also when tested (the paper's ideal): last iterate",
    "consensus": "one chain, the model of a random block for all blocks: last iterate",
    "consensus_average": "one chain, one model for all blocks: average of all iterates",
    "per_component": "a chain for each block: last iterate",
    "per_component_average": "a chain for each block: average",
    "pluralistic": "one chain, a model for each block: last iterate of the block",
    "pluralistic_average": "one chain, a model for each block: average in the block (Theorem 3)",
    "pluralistic_tail": "one chain, a model for each block: average over the later half of its days",
    "hedged_prod": "both chains, projected, hedged by Prod (Theorem 4): average in the block",
    "hedged_adahedge": "both chains, hedged by AdaHedge: average in the block",
    "residual": "a shared chain and a small difference for each block: average in the block",
    "hour_feature": "one chain with the block as a feature, one model: average of all iterates",
}
MEASURES = {"accuracy": metrics.accuracy, "log_loss": metrics.log_loss}
CLASSES = (False, True)
# Bytes for what a run keeps per visit: every day must be there to be read out.
MEMORY = 8 * 2**30


class StepSizes(NamedTuple):
    """Logistic step sizes: of the single chain and all that is like it, and of a block's own chain."""

    single: float
    separate: float


class RepetitionData(NamedTuple):
    """One repetition's rows, packed for learning, and its test rows sorted by block."""

    cyclic: Packed
    mixed: Packed
    unskewed: Packed
    hour: Packed
    test: Rows
    unskewed_test: Rows


class StartIterates(NamedTuple):
    """The first iterates of a chain, of each block's chain, and of one that knows the hour."""

    one: Array
    each: Array
    hour: Array


class WeightBank(NamedTuple):
    """Weights to be tested: [K, q, C, d+1] on all blocks' rows, [K, m, C, d+1] on their own block's."""

    everywhere: dict[str, Array]
    own: dict[str, Array]


def starts(protocol: Protocol, width: int, rng: np.random.Generator) -> StartIterates:
    """Zero, or as the script draws them."""
    outputs, m = protocol.loss.outputs, protocol.blocks
    shapes = (outputs, width + 1), (m, outputs, width + 1), (outputs, width + m + 1)
    return StartIterates(
        *(rng.normal(size=shape) if protocol.random_start else np.zeros(shape) for shape in shapes)
    )


def fit(
    data: RepetitionData, protocol: Protocol, start: StartIterates, steps: StepSizes, radius: float
) -> WeightBank:
    """Train every approach and read it out at the end of every day."""
    one, own = steps.single * protocol.scale, steps.separate * protocol.scale
    days = range(protocol.cycles)
    kept: Any = {"memory": MEMORY}
    single = train.pluralistic(data.cyclic, step_size=one, initial_weights=start.one, **kept)
    separate = train.separate(data.cyclic, step_size=own, initial_weights=start.each, **kept)
    ideal = train.pluralistic(data.mixed, step_size=one, initial_weights=start.one, **kept)
    unskewed = train.pluralistic(data.unskewed, step_size=one, initial_weights=start.one, **kept)
    hour = train.consensus(data.hour, step_size=one, initial_weights=start.hour, **kept)
    chains = ((basis.single, one), (basis.separate, own))
    ada = train.hedged(data.cyclic, chains=chains, initial_weights=start.one, **kept)
    prod = train.hedged(
        data.cyclic,
        chains=chains,
        hedge=_prod(data.cyclic, radius),
        radius=radius,
        initial_weights=_inside(start.one, radius),
        **kept,
    )
    residual = train.residual(data.cyclic, step_size=one, initial_weights=start.one, **kept)
    tails = [single.tail((k + 2) // 2, through=k).weights for k in days]
    return WeightBank(
        {
            "consensus": _read(single.last, days),
            "iid": _read(ideal.last, days),
            "iid_unskewed": _read(unskewed.last, days),
            "consensus_average": _read(single.consensus, days)[:, :1],
            "iid_average": _read(ideal.consensus, days)[:, :1],
        },
        {
            "per_component": _read(separate.last, days),
            "per_component_average": _read(separate.mean, days),
            "pluralistic_average": _read(single.mean, days),
            "pluralistic_tail": np.stack(tails),
            "hedged_prod": _read(prod.mean, days),
            "hedged_adahedge": _read(ada.mean, days),
            "residual": _read(residual.mean, days),
            "hour_feature": _unfold(_read(hour.consensus, days)[:, 0], protocol.blocks),
        },
    )


def _read(read_out: Any, days: range) -> Array:
    """[K, m, C, d+1] a read-out at the end of every day."""
    return np.stack([read_out(through=k).weights for k in days])


def _unfold(weights: Array, blocks: int) -> Array:
    """One model that knows the block, as a model for each block: its indicator joins the intercept."""
    plain = np.delete(weights, np.s_[-1 - blocks : -1], axis=-1)
    out = np.repeat(plain[:, None], blocks, axis=1)
    out[..., -1] += np.moveaxis(weights[..., -1 - blocks : -1], -1, 1)
    return out


def has_theorems_rate(packed: Packed, radius: float) -> bool:
    """Whether every block has the steps that the rate of Theorem 4 needs."""
    return int(packed.steps.min()) >= steps_needed(packed.lipschitz() * radius)


def _prod(packed: Packed, radius: float) -> Prod:
    """Prod at Theorem 4's rate, or where a block has too few steps for it at the largest allowed one."""
    if has_theorems_rate(packed, radius):
        return Prod()
    M, least = packed.lipschitz() * radius, int(packed.steps.min())
    return Prod(rate=min(prod_rate(least, M), 1 / (4 * M)) if M * least > 1 else 1 / (4 * M))


def _inside(start: Array, radius: float) -> Array:
    """A random start moved onto the ball it would otherwise lie outside of."""
    norm = float(np.linalg.norm(start))
    return start if norm <= radius else start * (0.999 * radius / norm)


def grade(
    bank: WeightBank, data: RepetitionData, protocol: Protocol
) -> tuple[dict[str, dict[str, Array]], dict[str, Array]]:
    """By measure and approach the score of every day [K]; and matrices of accuracy.

    Scores are means over blocks, all alike (SPEC H3).
    """
    scores: dict[str, dict[str, Array]] = {}
    matrices: dict[str, Array] = {}
    for name, how in MEASURES.items():
        found = scores[name] = {}
        for approach, weights in bank.everywhere.items():
            rows = data.unskewed_test if approach == "iid_unskewed" else data.test
            cells = _everywhere(weights, rows, protocol, how)
            found[approach] = cells.mean(axis=(1, 2))
            if approach == "consensus":
                found["pluralistic"] = np.diagonal(cells, axis1=1, axis2=2).mean(axis=1)
            if name == "accuracy":
                matrices[approach] = cells
        together = np.stack(list(bank.own.values()))
        own = _own(together.reshape(-1, *together.shape[2:]), data.test, protocol, how)
        for approach, mean in zip(bank.own, own.mean(axis=1).reshape(len(bank.own), -1), strict=True):
            found[approach] = mean
    for approach in ("per_component", "per_component_average", "pluralistic_average"):
        last = bank.own[approach][-1:]
        matrices[approach] = _everywhere(last, data.test, protocol, metrics.accuracy)
    return {name: {key: scores[name][key] for key in APPROACHES} for name in scores}, matrices


def _everywhere(weights: Array, rows: Rows, protocol: Protocol, how: Any) -> Array:
    """[K, q, m] weights [K, q, C, d+1] on the rows of every block."""
    flat = weights.reshape(-1, *weights.shape[2:])
    found = by_block(flat, rows, protocol.blocks, loss=protocol.loss, classes=CLASSES, metric=how)
    return found.reshape(*weights.shape[:2], protocol.blocks)


def _own(weights: Array, rows: Rows, protocol: Protocol, how: Any) -> Array:
    """[q, m] weights [q, m, C, d+1] on the rows of their own block; rows are sorted by block."""
    assert rows.block is not None
    bounds = np.searchsorted(rows.block, np.arange(protocol.blocks + 1))
    out = np.empty(weights.shape[:2])
    for i in range(protocol.blocks):
        part = rows[bounds[i] : bounds[i + 1]].with_blocks(np.zeros(bounds[i + 1] - bounds[i], np.int64))
        out[:, i] = by_block(weights[:, i], part, 1, loss=protocol.loss, classes=CLASSES, metric=how)[:, 0]
    return out
