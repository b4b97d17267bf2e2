"""Dispatch of the chain's steps to the loop that fits its settings.

All loops do the same: score the minibatch with the weights before its update, find the slopes, update,
project; at the end of a visit write its record. `chain` defines what they compute.
"""

from typing import Any

import numpy as np

from semicyclic.method import kernels
from semicyclic.method.arrays import ChainState, Layout, Plan, Records
from semicyclic.method.hedge import HedgeState
from semicyclic.method.step import ADAGRAD, SGD
from semicyclic.types import Array


def advance(
    layout: Layout,
    plan: Plan,
    state: ChainState,
    records: Records,
    hedge_state: HedgeState | None,
    toss: Array,
    span: tuple[int, int],
) -> tuple[int, int, int]:
    """Run the steps span[0]..span[1]-1, changing `state` and `hedge_state` and filling `records`.

    toss: a uniform number for every step of the layout if experts are drawn by a coin, else empty.

    Returns the step reached, since there may not be room for all records; the number of records written; and
    how many numbers their changes take.
    """
    loop = _loop(plan, state)
    reached, written, used = loop(layout, plan, state, records, hedge_state, toss, span)
    return int(reached), int(written), int(used)


def _loop(plan: Plan, state: ChainState) -> Any:
    """The loop that fits; only that one is loaded."""
    if (plan.l2 > 0.0).any():
        return kernels.general.run_general
    simple = state.vectors.shape[2] == 1 and plan.active.shape[1] == 1 and (plan.coefficient == 1.0).all()
    if simple and (plan.rule == SGD).all() and np.isinf(plan.radius).all():
        return kernels.sgd.run_sgd
    if simple and (plan.rule == ADAGRAD).all():
        return kernels.adagrad.run_adagrad

    return kernels.general.run_general
