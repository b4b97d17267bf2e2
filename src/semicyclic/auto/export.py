"""Export of a portfolio: mixture weights, losses, and the mixture as one linear model.

A mixture of linear models is a linear model. `Portfolio.exported_protocol` names the evaluation protocol
whose mixture weights are exported.
"""

from typing import TypedDict

import numpy as np

from semicyclic.auto import kernels
from semicyclic.auto.candidates import LANES, READ_OUT_NAMES
from semicyclic.auto.portfolio import Portfolio, PortfolioPart
from semicyclic.types import Array

# Candidates with less weight in the mixture are left out of the exported model.
MIN_MIXTURE_WEIGHT = 1e-5


class CandidateWeight(TypedDict):
    """A candidate in a mixture: its weight, and its mean loss if there were rows."""

    name: str
    weight: float
    loss: float | None


class SlotChoice(TypedDict):
    """The mixture in a slot: weight of its rows, mean loss, and the candidates with the most weight."""

    rows: float
    loss: float | None
    candidates: list[CandidateWeight]


class Choice(TypedDict):
    """A mixture: the evaluation protocol of its weights, the number of candidates, and its slots by name.

    horizon: number of days that a model is used for.
    """

    by: str
    horizon: int
    candidates: int
    blocks: dict[str, SlotChoice]


def weights_of(portfolio: Portfolio, protocol: str) -> Array:
    """Return the candidates' current mixture weights under a protocol, [slots, K]."""

    weights = np.empty((portfolio.candidate_set.calendar.slots, portfolio.candidate_set.size))
    for slot, out in enumerate(weights):
        kernels.mixing.weights_in(portfolio.protocols[protocol].mixing, slot, portfolio.loss.code, out)
    return weights


def loss_sums(portfolio: Portfolio) -> Array:
    """Return the mixture's weighted counts of rows, losses and squared losses by block, [blocks, 3]."""
    return np.asarray(portfolio.protocols[portfolio.exported_protocol].mixing.block_losses)


def mean_loss(portfolio: Portfolio) -> float:
    """Return the mean loss of the mixture over scored rows with known labels; NaN without any."""
    rows, total, _ = loss_sums(portfolio).sum(axis=0)
    return float(total / rows) if rows > 0 else float("nan")


def unseen(portfolio: Portfolio) -> tuple[int, ...]:
    """Return the model's blocks that had no rows; their weights are only those shared by all blocks."""
    return tuple(
        np.flatnonzero(loss_sums(portfolio)[portfolio.candidate_set.calendar.block, 0] == 0).tolist()
    )


def describe_choice(portfolio: Portfolio, top: int = 3) -> Choice:
    """Return each slot's `top` candidates, with their mixture weights and mean losses."""
    names, mixing = portfolio.names, portfolio.protocols[portfolio.exported_protocol].mixing
    weights = weights_of(portfolio, portfolio.exported_protocol)
    blocks: dict[str, SlotChoice] = {}
    for slot, label in enumerate(portfolio.candidate_set.calendar.labels):
        rows = float(mixing.weight[slot])
        loss = [float(total) / rows if rows > 0 else None for total in mixing.loss[slot]]
        blocks[label] = {
            "rows": round(rows, 6),
            "loss": loss[-1],
            "candidates": [
                {"name": names[k], "weight": round(float(weights[slot, k]), 4), "loss": loss[k]}
                for k in np.argsort(-weights[slot], kind="stable")[:top]
            ],
        }
    return {
        "by": portfolio.exported_protocol,
        "horizon": portfolio.horizon,
        "candidates": portfolio.candidate_set.size,
        "blocks": blocks,
    }


def model_weights(portfolio: Portfolio) -> Array:
    """Return the mixture as one linear model per block of the exported model, [blocks, C, width + 1]."""
    calendar, columns = portfolio.candidate_set.calendar, portfolio.columns
    weights = weights_of(portfolio, portfolio.exported_protocol)
    weights[weights < MIN_MIXTURE_WEIGHT] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    known = np.flatnonzero(columns.column_of >= 0)
    mixed = _mix_weights(portfolio.parts, calendar.slot, weights.astype(np.float32))
    models = np.zeros((calendar.size, portfolio.loss.outputs, columns.width + 1), np.float32)
    if portfolio.intercept:
        for fine, mark in enumerate(portfolio.parts[0].tables.mark):
            models[fine, :, -1] = mixed[fine, [columns.first - 1, *mark]].sum(axis=0)
    models[:, :, known] = mixed[:, columns.column_of[known]].transpose(0, 2, 1)
    models *= portfolio.scale.factors(models.dtype)
    return models[calendar.fine]


def _finite_lanes(part: PortfolioPart) -> tuple[Array, Array]:
    """Return masks of the vectors [V, 8] and read-outs [G, 3, 8] whose weights are all finite."""
    vectors, frozen = part.state.vectors, part.state.frozen
    return np.isfinite(vectors).all(axis=(1, 2)), np.isfinite(frozen).all(axis=(1, 2))


def _mix_weights(parts: list[PortfolioPart], slot: Array, weights: Array) -> Array:
    """Return the weighted sums of all candidates, [finest blocks, D, C]; non-finite ones are skipped.

    slot: [finest blocks]. weights: [slots, K] of the candidates.
    """
    columns, outputs = parts[0].state.vectors.shape[1:3]
    total = np.zeros((len(slot), columns, outputs), np.float32)
    for part in parts:
        own, weights = np.split(weights, [part.candidate_set.size], axis=1)
        _add_weights(total, part, slot, own)
    return total


def _add_weights(total: Array, part: PortfolioPart, slot: Array, weights: Array) -> None:
    """Add the weighted sums of the candidates of one part to `total`."""
    candidate_set, tables, state = part
    columns, outputs = total.shape[1:]
    finite_vectors, finite_read_outs = _finite_lanes(part)
    live, rest = np.split(weights, [len(candidate_set.kinds) * LANES], axis=1)
    live = live.reshape(len(weights), -1, LANES)[slot]
    for number, reading in enumerate(candidate_set.readings):
        shares, rest = np.split(rest, [len(READ_OUT_NAMES) * LANES], axis=1)
        pairs, of = np.unique(np.stack([slot, tables.group[number]], axis=1), axis=0, return_inverse=True)
        for index, (where, group) in enumerate(pairs):
            inside = of.ravel() == index
            if state.seen[group, 1] == 0:
                # A group without a closed visit has no read-outs: its weight goes to the live chain.
                live[inside, reading.kind] += shares[where].reshape(-1, LANES).sum(axis=0)
                continue
            used = np.flatnonzero((shares[where] > 0) & finite_read_outs[group].ravel())
            if len(used):
                read_outs = state.frozen[group].reshape(columns, outputs, -1)
                total[inside] += read_outs[..., used] @ shares[where][used]
    mixed: dict[tuple[int, bytes], Array] = {}
    for fine in range(len(slot)):
        for kind, share in enumerate(live[fine]):
            active = tables.active[kind, fine]
            active = active[active >= 0]
            used = np.flatnonzero((share > 0) & finite_vectors[active].all(axis=0))
            for vector, coefficient in zip(active.tolist(), tables.share[kind, fine], strict=False):
                key = vector, share[used].tobytes() + used.tobytes()
                if len(used) and key not in mixed:
                    mixed[key] = state.vectors[vector][..., used] @ share[used]
                if len(used):
                    total[fine] += coefficient * mixed[key]
