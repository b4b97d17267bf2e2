"""Approaches under comparison: the paper's four, and further ones.

A name without a suffix refers to the last iterate, which the paper evaluates; `APPROACHES` describes each.
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
# Budget for the per-visit records of a run, large enough to read out every day.
LOG_MEMORY_BYTES = 8 * 2**30


class StepSizes(NamedTuple):
    """Logistic step sizes: `single` for one chain over all blocks, `separate` for one chain per block."""

    single: float
    separate: float


class RepetitionData(NamedTuple):
    """Rows of one repetition: packed training rows, and test rows sorted by block."""

    cyclic: Packed
    mixed: Packed
    unskewed: Packed
    hour: Packed
    test: Rows
    unskewed_test: Rows


class StartIterates(NamedTuple):
    """Initial weights of a single chain, of one chain per block, and of a chain with block features."""

    one: Array
    each: Array
    hour: Array


class WeightBank(NamedTuple):
    """Weights to test, by approach.

    everywhere: [K, q, C, d+1] models tested on the rows of all blocks.
    own: [K, m, C, d+1] one model per block, each tested on the rows of its block.
    """

    everywhere: dict[str, Array]
    own: dict[str, Array]


def starts(protocol: Protocol, width: int, rng: np.random.Generator) -> StartIterates:
    """Return initial weights: zero, or N(0, 1) as in the script."""
    outputs, m = protocol.loss.outputs, protocol.blocks
    shapes = (outputs, width + 1), (m, outputs, width + 1), (outputs, width + m + 1)
    return StartIterates(
        *(rng.normal(size=shape) if protocol.random_start else np.zeros(shape) for shape in shapes)
    )


def fit(
    data: RepetitionData, protocol: Protocol, start: StartIterates, steps: StepSizes, radius: float
) -> WeightBank:
    """Train every approach and return its weights at the end of every day."""
    single_step, separate_step = steps.single * protocol.scale, steps.separate * protocol.scale
    days = range(protocol.cycles)
    budget: Any = {"memory": LOG_MEMORY_BYTES}
    single = train.pluralistic(data.cyclic, step_size=single_step, initial_weights=start.one, **budget)
    separate = train.separate(data.cyclic, step_size=separate_step, initial_weights=start.each, **budget)
    ideal = train.pluralistic(data.mixed, step_size=single_step, initial_weights=start.one, **budget)
    unskewed = train.pluralistic(data.unskewed, step_size=single_step, initial_weights=start.one, **budget)
    hour = train.consensus(data.hour, step_size=single_step, initial_weights=start.hour, **budget)
    chains = ((basis.single, single_step), (basis.separate, separate_step))
    ada = train.hedged(data.cyclic, chains=chains, initial_weights=start.one, **budget)
    prod = train.hedged(
        data.cyclic,
        chains=chains,
        hedge=_prod(data.cyclic, radius),
        radius=radius,
        initial_weights=_project_start(start.one, radius),
        **budget,
    )
    residual = train.residual(data.cyclic, step_size=single_step, initial_weights=start.one, **budget)
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
    """[K, m, C, d+1] weights of a read-out at the end of every day."""
    return np.stack([read_out(through=k).weights for k in days])


def _unfold(weights: Array, blocks: int) -> Array:
    """Convert one model with block features to one model per block: add each indicator to the intercept."""
    plain = np.delete(weights, np.s_[-1 - blocks : -1], axis=-1)
    out = np.repeat(plain[:, None], blocks, axis=1)
    out[..., -1] += np.moveaxis(weights[..., -1 - blocks : -1], -1, 1)
    return out


def has_theorems_rate(packed: Packed, radius: float) -> bool:
    """Return whether every block has enough steps for the rate of Theorem 4."""
    return int(packed.steps.min()) >= steps_needed(packed.lipschitz() * radius)


def _prod(packed: Packed, radius: float) -> Prod:
    """Prod with the rate of Theorem 4, or with the largest allowed rate if a block has too few steps."""
    if has_theorems_rate(packed, radius):
        return Prod()
    M, min_steps = packed.lipschitz() * radius, int(packed.steps.min())
    return Prod(rate=min(prod_rate(min_steps, M), 1 / (4 * M)) if M * min_steps > 1 else 1 / (4 * M))


def _project_start(start: Array, radius: float) -> Array:
    """Scale initial weights into the ball of the given radius if they lie outside it."""
    norm = float(np.linalg.norm(start))
    return start if norm <= radius else start * (0.999 * radius / norm)


class Grades(NamedTuple):
    """Results of one repetition at one step size.

    scores: [K] score of every day, by measure and approach: unweighted means over blocks
    (docs/math.md#scores). matrices: accuracy of models on blocks, by approach.
    has_theorems_rate: True if every block had enough steps for the rate of Theorem 4.
    """

    scores: dict[str, dict[str, Array]]
    matrices: dict[str, Array]
    has_theorems_rate: bool


def grade(bank: WeightBank, data: RepetitionData, protocol: Protocol, radius: float) -> Grades:
    """Score all approaches. radius: of the ball that Prod's chains are projected onto."""
    scores: dict[str, dict[str, Array]] = {}
    matrices: dict[str, Array] = {}
    for name, measure in MEASURES.items():
        by_approach = scores[name] = {}
        for approach, weights in bank.everywhere.items():
            rows = data.unskewed_test if approach == "iid_unskewed" else data.test
            cells = _score_everywhere(weights, rows, protocol, measure)
            by_approach[approach] = cells.mean(axis=(1, 2))
            if approach == "consensus":
                by_approach["pluralistic"] = np.diagonal(cells, axis1=1, axis2=2).mean(axis=1)
            if name == "accuracy":
                matrices[approach] = cells
        stacked = np.stack(list(bank.own.values()))
        cells = _score_own_block(stacked.reshape(-1, *stacked.shape[2:]), data.test, protocol, measure)
        for approach, mean in zip(bank.own, cells.mean(axis=1).reshape(len(bank.own), -1), strict=True):
            by_approach[approach] = mean
    for approach in ("per_component", "per_component_average", "pluralistic_average"):
        last = bank.own[approach][-1:]
        matrices[approach] = _score_everywhere(last, data.test, protocol, metrics.accuracy)
    ordered = {name: {key: scores[name][key] for key in APPROACHES} for name in scores}
    return Grades(ordered, matrices, has_theorems_rate(data.cyclic, radius))


def _score_everywhere(weights: Array, rows: Rows, protocol: Protocol, measure: Any) -> Array:
    """[K, q, m] scores of weights [K, q, C, d+1] on the rows of every block."""
    flat = weights.reshape(-1, *weights.shape[2:])
    cells = by_block(flat, rows, protocol.blocks, loss=protocol.loss, classes=CLASSES, metric=measure)
    return cells.reshape(*weights.shape[:2], protocol.blocks)


def _score_own_block(weights: Array, rows: Rows, protocol: Protocol, measure: Any) -> Array:
    """[q, m] scores of weights [q, m, C, d+1] on the rows of their block; rows are sorted by block."""
    assert rows.block is not None
    bounds = np.searchsorted(rows.block, np.arange(protocol.blocks + 1))
    out = np.empty(weights.shape[:2])
    for i in range(protocol.blocks):
        part = rows[bounds[i] : bounds[i + 1]].with_blocks(np.zeros(bounds[i + 1] - bounds[i], np.int64))
        out[:, i] = by_block(weights[:, i], part, 1, loss=protocol.loss, classes=CLASSES, metric=measure)[
            :, 0
        ]
    return out
