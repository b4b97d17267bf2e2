"""Export of a portfolio: weights of candidates, losses, and the mixture as one model.

A mixture of linear models is a linear model. Which question's weights are taken, the portfolio says.
"""

from typing import Any

import numpy as np

from semicyclic.auto import kernels
from semicyclic.auto.candidates import KINDS, LANES
from semicyclic.auto.portfolio import Portfolio, PortfolioPart
from semicyclic.types import Array

# A candidate with less weight than this is left out of a model.
LITTLE = 1e-5


def weights_of(portfolio: Portfolio, question: str) -> Array:
    """[slots, K] how much each candidate counts in the mixture, by all that is known."""

    found = np.empty((portfolio.form.calendar.slots, portfolio.form.size))
    for slot, out in enumerate(found):
        kernels.mixing.weights_in(portfolio.questions[question].bets, slot, portfolio.loss.code, out)
    return found


def loss_sums(portfolio: Portfolio) -> Array:
    """[blocks, 3] of the mixture in each block of the schedule: rows, losses, losses squared."""
    return np.asarray(portfolio.questions[portfolio.question].bets.lost)


def mean_loss(portfolio: Portfolio) -> float:
    """The mean loss of the mixture over all rows whose labels are known."""
    rows, total, _ = loss_sums(portfolio).sum(axis=0)
    return float(total / rows) if rows > 0 else float("nan")


def unseen(portfolio: Portfolio) -> tuple[int, ...]:
    """The model's blocks of those blocks that had no rows; they have what is common to all."""
    return tuple(np.flatnonzero(loss_sums(portfolio)[portfolio.form.calendar.block, 0] == 0).tolist())


def describe_choice(portfolio: Portfolio, top: int = 3) -> dict[str, Any]:
    """For each slot what the mixture consists of, and what each of it has lost there: a JSON value."""
    names, bets = portfolio.names, portfolio.questions[portfolio.question].bets
    weights = weights_of(portfolio, portfolio.question)
    blocks = {}
    for slot, label in enumerate(portfolio.form.calendar.labels):
        rows = float(bets.weight[slot])
        loss = [float(each) / rows if rows > 0 else None for each in bets.loss[slot]]
        blocks[label] = {
            "rows": round(rows, 6),
            "loss": loss[-1],
            "candidates": [
                {"name": names[k], "weight": round(float(weights[slot, k]), 4), "loss": loss[k]}
                for k in np.argsort(-weights[slot], kind="stable")[:top]
            ],
        }
    return {"by": portfolio.question, "candidates": portfolio.form.size, "blocks": blocks}


def model_weights(portfolio: Portfolio) -> Array:
    """[model blocks, C, width + 1] the mixture as linear models, one for each of the model's blocks."""
    calendar, columns = portfolio.form.calendar, portfolio.columns
    weights = weights_of(portfolio, portfolio.question)
    weights[weights < LITTLE] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    known = np.flatnonzero(columns.place >= 0)
    sound = [_sound(part) for part in portfolio.parts]
    found = np.zeros((calendar.size, portfolio.loss.outputs, columns.width + 1), np.float32)
    for fine in range(calendar.size):
        mixed = _mix_weights(portfolio.parts, sound, fine, weights[calendar.slot[fine]])
        if portfolio.intercept:
            level = [columns.first - 1, *portfolio.parts[0].tables.mark[fine]]
            found[fine, :, -1] = mixed[level].sum(axis=0)
        found[fine][:, known] = mixed[columns.place[known]].T
    return found[calendar.fine]


def _sound(part: PortfolioPart) -> tuple[Array, Array]:
    """Which vectors [V, 8] and read-outs [G, 5, 8] are finite."""
    vectors, frozen = part.state.vectors, part.state.frozen
    return np.isfinite(vectors).all(axis=(1, 2)), np.isfinite(frozen).all(axis=(1, 2))


def _mix_weights(
    parts: list[PortfolioPart], sound: list[tuple[Array, Array]], fine: int, weights: Array
) -> Array:
    """[D, C] all candidates in one block, by their weights; one that is not finite says nothing."""
    columns, outputs = parts[0].state.vectors.shape[1:3]
    total = np.zeros((columns, outputs), np.float32)
    left = weights.astype(np.float32)
    for (form, tables, state), (whole, read) in zip(parts, sound, strict=True):
        live, left = np.split(left, [len(form.kinds) * LANES])
        live = live.reshape(-1, LANES).copy()
        for number, reading in enumerate(form.readings):
            own, left = np.split(left, [len(KINDS) * LANES])
            group = tables.group[number, fine]
            if state.seen[group, 1] == 0:
                live[reading.kind] += own.reshape(-1, LANES).sum(axis=0)
                continue
            used = np.flatnonzero((own > 0) & read[group].ravel())
            if len(used):
                total += state.frozen[group].reshape(columns, outputs, -1)[..., used] @ own[used]
        for kind, share in enumerate(live):
            active = tables.active[kind, fine]
            active = active[active >= 0]
            used = np.flatnonzero((share > 0) & whole[active].all(axis=0))
            for vector, times in zip(active, tables.share[kind, fine], strict=False):
                if len(used):
                    total += times * (state.vectors[vector][..., used] @ share[used])
    return total
