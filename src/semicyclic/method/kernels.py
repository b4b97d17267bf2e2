"""Compiled: steps of the chain, with the loop that fits; and scores of rows.

All loops do the same: score the minibatch with the weights before its update, find the slopes, update,
project; at the end of a visit write its record. `chain` defines what they compute.
"""

from typing import Any

import numpy as np

from semicyclic.method.arrays import Layout, Plan, Records, State
from semicyclic.method.hedge import Bets
from semicyclic.method.jit import inline, jit
from semicyclic.method.step import ADAGRAD, SGD
from semicyclic.types import Array


def advance(
    layout: Layout,
    plan: Plan,
    state: State,
    records: Records,
    bets: Bets | None,
    toss: Array,
    span: tuple[int, int],
) -> tuple[int, int, int]:
    """Run the steps span[0]..span[1]-1, changing `state` and `bets` and filling `records`.

    toss: a uniform number for every step of the layout if experts are drawn by a coin, else empty.

    Returns the step reached, since there may not be room for all records; the number of records written; and
    how many numbers their changes take.
    """
    loop = _loop(plan, state)
    reached, written, used = loop(layout, plan, state, records, bets, toss, span)
    return int(reached), int(written), int(used)


def _loop(plan: Plan, state: State) -> Any:
    """The loop that fits; only that one is loaded."""
    simple = state.vectors.shape[2] == 1 and plan.active.shape[1] == 1 and (plan.coefficient == 1.0).all()
    if simple and (plan.rule == SGD).all() and np.isinf(plan.radius).all():
        from semicyclic.method.sgd import run_sgd

        return run_sgd
    if simple and (plan.rule == ADAGRAD).all():
        from semicyclic.method.adagrad import run_adagrad

        return run_adagrad
    from semicyclic.method.general import run_general

    return run_general


@inline
def _dot(rows: Any, w: Any, r: Any) -> Any:
    """<w, x_r>, the intercept last in w."""
    indptr, indices, values = rows
    total = w[len(w) - 1]
    for p in range(indptr[r], indptr[r + 1]):
        total += w[indices[p]] * values[p]
    return total


@jit
def score_some(rows: Any, weights: Any, chosen: Any, out: Any) -> Any:
    """out[r] = <weights, x_r> for the rows chosen, for each of the C outputs."""
    for r in chosen:
        for c in range(out.shape[1]):
            out[r, c] = _dot(rows, weights[c], r)


@jit
def score_rows(rows: Any, weights: Any, block: Any, out: Any) -> Any:
    """out[r] = <weights[block[r]], x_r> for each of the C outputs."""
    for r in range(len(out)):
        for c in range(out.shape[1]):
            out[r, c] = _dot(rows, weights[block[r], c], r)
