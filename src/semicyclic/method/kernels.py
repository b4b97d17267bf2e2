"""The chain, compiled. Same signature and same results as the plain one in `chain`.

`line` is the common case, one vector in force and one score a row; `adaptive` the same with adaptive
steps; `lifted` is everything else; `hedged` runs several chains of the first or last kind side by side,
`adaptive` does so itself. All follow the same plan: score the minibatch with the weights before its update,
find the slopes, update, project; at the end of a visit write its record.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.adaptive import run_adaptive
from semicyclic.method.bets import Bets
from semicyclic.method.hedge import AdaHedge
from semicyclic.method.hedged import run_hedged
from semicyclic.method.jit import inline, jit
from semicyclic.method.lifted import run_lifted
from semicyclic.method.line import run_line
from semicyclic.method.record import Layout, Page, Plan, Running, State
from semicyclic.method.step import ADAGRAD, SGD

Array = npt.NDArray[Any]

# What a run without a hedge has in place of one.
NO_BETS = AdaHedge().first(1, 1)
# This engine can write traces as well as tables.
TRACES = True


def keeps_running(layout: Layout, plan: Plan, state: State) -> bool:
    """Whether each block's mean can be kept up to date almost for nothing."""
    return _takes_line(plan, state) and _sums_iterates(layout, state.vectors.shape[1])


def advance(
    layout: Layout,
    plan: Plan,
    state: State,
    page: Page,
    span: tuple[int, int],
    running: Running | None = None,
) -> tuple[int, int]:
    """Run the steps span[0]..span[1]-1, changing `state` and filling `page`.

    Returns the step reached and the records written: the page may be full before the end.
    `running`, where given, has each block's mean brought up to date as well.
    """
    line = _takes_line(plan, state)
    shape = state.vectors.shape[1:]
    summing = line and (running is not None or (page.is_table and _sums_iterates(layout, shape[0])))
    sums = np.zeros(shape[0] if summing else 0)
    lag = np.zeros(shape, state.vectors.dtype)
    if _takes_adaptive(plan, state):
        scratch = False, np.zeros((1, 0)), lag[None]
        reached, records = run_adaptive(layout, plan, state, page, NO_BETS, np.zeros(0), scratch, span)
        return int(reached), int(records)
    means = running or Running(np.zeros((0, *shape), state.vectors.dtype), np.zeros(0))
    run = run_line if line else run_lifted
    reached, records = run(layout, plan, state, page, (sums, lag, *means), span)
    return int(reached), int(records)


def advance_hedged(
    layout: Layout,
    plan: Plan,
    state: State,
    page: Page,
    span: tuple[int, int],
    bets: Bets,
    toss: Array,
) -> tuple[int, int]:
    """`advance` for several chains at once, with a hedge between them (see `hedged`)."""
    experts = bets.share.shape[1]
    line = _takes_line(plan, state)
    shape = state.vectors.shape[1:]
    summing = line and page.is_table and _sums_iterates(layout, shape[0])
    sums = np.zeros((experts, shape[0] if summing else 0))
    lag = np.zeros((experts, *shape), state.vectors.dtype)
    if _takes_adaptive(plan, state):
        reached, records = run_adaptive(layout, plan, state, page, bets, toss, (True, sums, lag), span)
    else:
        reached, records = run_hedged(layout, plan, state, page, bets, toss, (line, sums, lag), span)
    return int(reached), int(records)


def _takes_line(plan: Plan, state: State) -> bool:
    """Whether the fast kernel covers this run."""
    return bool((plan.rule == SGD).all()) and bool(np.isinf(plan.radius).all()) and _is_single(plan, state)


def _takes_adaptive(plan: Plan, state: State) -> bool:
    """Whether the fast kernel for adaptive steps covers this run."""
    return bool((plan.rule == ADAGRAD).all()) and _is_single(plan, state)


def _is_single(plan: Plan, state: State) -> bool:
    """Whether one score a row and one vector a block are in force."""
    one = state.vectors.shape[2] == 1 and plan.active.shape[1] == 1
    return one and bool((plan.coefficient == 1.0).all())


def _sums_iterates(layout: Layout, width: int) -> bool:
    """Whether adding up whole iterates is cheaper than following the columns that move."""
    return width <= 4 * len(layout.values) / (len(layout.steps) - 1)


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
