"""The chain in plain NumPy, to be read beside the paper. `kernels` is the same, compiled.

    w_1 = 0,   w_{t+1} = w_t - eta g_t,   g_t a gradient of f(., z_t) at w_t             (eq. 2)

A step sees a minibatch, and f(w, z_t) is its mean loss. What is in force in block i is
w = scale * sum_j c_j v_j over the vectors of the basis: just v for the single chain. The scale
is 1, except in dual averaging, where v is the sum of gradients and the scale their step size.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.method.bets import Bets
from semicyclic.method.hedge import in_play, learn_losses
from semicyclic.method.loss import by_code
from semicyclic.method.record import NUMBERS, Layout, Page, Plan, State
from semicyclic.method.step import ADAGRAD, DUAL

Array = npt.NDArray[Any]

# This engine writes tables only.
TRACES = False


class Taken(NamedTuple):
    """What one step saw: the weights before it, and its weight, rows and loss."""

    before: Array
    weight: float
    rows: float
    loss: float
    step_loss: float


def advance(
    layout: Layout,
    plan: Plan,
    state: State,
    page: Page,
    span: tuple[int, int],
    running: None = None,  # noqa: ARG001  (goes with traces)
) -> tuple[int, int]:
    """Run the steps span[0]..span[1]-1, changing `state` and writing one record a visit.

    Returns the step reached and the records written.
    """
    step, record = span[0], 0
    visit = int(np.searchsorted(layout.visits, step, side="right")) - 1
    while step < span[1] and record < len(page.weight):
        end = min(int(layout.visits[visit + 1]), span[1])
        block = int(layout.block[visit])
        total = open_record(page, record, visit, state)
        for t in range(step, end):
            taken = take_step(layout, plan, state, block, t)
            add_step(page, record, total, taken)
            note_loss(state, page, record, block, taken.step_loss)
        close_record(page, record, total, in_force(plan, state, block))
        step, record = end, record + 1
        visit += step == layout.visits[visit + 1]
    return step, record


def advance_hedged(
    layout: Layout,
    plan: Plan,
    state: State,
    page: Page,
    span: tuple[int, int],
    bets: Bets,
    toss: Array,
) -> tuple[int, int]:
    """`advance` for several chains at once, with a hedge between them (Theorem 4).

    The page has room for the experts one after another, R records each.
    """
    blocks, experts = bets.share.shape
    room = len(page.weight) // experts
    step, record = span[0], 0
    visit = int(np.searchsorted(layout.visits, step, side="right")) - 1
    while step < span[1] and record < room:
        end = min(int(layout.visits[visit + 1]), span[1])
        block = int(layout.block[visit])
        own = [e * room + record for e in range(experts)]
        total = [open_record(page, each, visit, state) for each in own]
        for t in range(step, end):
            held = in_play(bets, block, float(toss[t]) if len(toss) else None)
            taken = [take_step(layout, plan, state, e * blocks + block, t) for e in range(experts)]
            for e in range(experts):
                add_step(page, own[e], total[e], taken[e], held[e])
            losses = np.array([each.step_loss for each in taken])
            note_loss(state, page, record, block, float(held @ losses))
            learn_losses(bets, block, losses)
        for e in range(experts):
            after = in_force(plan, state, e * blocks + block)
            close_record(page, own[e], total[e], after, bets.share[block, e])
        step, record = end, record + 1
        visit += step == layout.visits[visit + 1]
    return step, record


def take_step(layout: Layout, plan: Plan, state: State, block: int, t: int) -> Taken:
    """One step of the chain: see a minibatch, then move.

    What is averaged is the iterate as it was before its update: w_t must not have seen z_t,
    or Theorem 3 does not hold.
    """
    loss = by_code(plan.loss, level=plan.level, outputs=state.vectors.shape[2])
    rows = slice(int(layout.steps[t]), int(layout.steps[t + 1]))
    x, target = _features(layout, rows, state.vectors.shape[1], plan.intercept), layout.targets[rows]
    share = layout.weights[rows] if len(layout.weights) else np.ones_like(target)
    w = in_force(plan, state, block)
    score = x @ w if w.shape[1] > 1 else x @ w[:, 0]
    losses = share * loss.value(score, target)
    slopes = share[:, None] * loss.slope(score, target).reshape(len(target), -1)
    gradient = plan.emphasis[block] * (x.T @ slopes) / len(target)
    _step(plan, state, block, gradient.astype(w.dtype))
    _project(plan, state, int(plan.chain[block]))
    return Taken(w, float(share.mean()), float(share.sum()), float(losses.sum()), float(losses.mean()))


def open_record(page: Page, record: int, visit: int, state: State) -> Array:
    """Begin a record; the sum of its iterates, to be added to."""
    for numbers in page[: 1 + NUMBERS]:
        numbers[record] = 0
    page.visit[record] = visit
    page.scale[record] = page.fold[record] = 1.0
    return np.zeros(state.vectors.shape[1:])


def add_step(page: Page, record: int, total: Array, taken: Taken, share: float = 1.0) -> None:
    """Count a step, or a hedge's `share` of it."""
    total += share * taken.weight * taken.before
    page.weight[record] += share * taken.weight
    page.loss[record] += share * taken.loss
    page.rows[record] += share * taken.rows


def note_loss(state: State, page: Page, record: int, block: int, loss: float) -> None:
    """What a certificate needs to know of a step's loss."""
    steps, total = state.heard[block]
    page.spread[record] += (loss - total / max(steps, 1)) ** 2
    state.heard[block] += 1, loss
    page.steps[record] += 1
    page.step_loss[record] += loss
    page.most[record] = max(page.most[record], loss)


def close_record(page: Page, record: int, total: Array, after: Array, force: float = 1.0) -> None:
    """End a record: the mean of its iterates, and the iterate after it."""
    weight = page.weight[record]
    page.mass[record], page.force[record] = weight, force
    page.mean[record] = total / weight if weight > 0 else after
    page.after[record] = after


def in_force(plan: Plan, state: State, block: int) -> Array:
    """w = scale * sum_j c_j v_j, the weights [d+1, C] in force in a block."""
    held = plan.active[block] >= 0
    vectors = state.vectors[plan.active[block][held]]
    factor = plan.coefficient[block][held] * state.scale[plan.chain[block]]
    return np.asarray(np.tensordot(factor.astype(vectors.dtype), vectors, axes=1))


def _step(plan: Plan, state: State, block: int, gradient: Array) -> None:
    """Move every vector in force along its own part c_j g of the gradient."""
    chain = plan.chain[block]
    eta = gradient.dtype.type(plan.eta[chain])
    for vector, factor in zip(plan.active[block], plan.coefficient[block], strict=True):
        if vector < 0:
            continue
        own = gradient * gradient.dtype.type(factor)
        if plan.rule[chain] == ADAGRAD:
            state.squares[vector] += own**2
            # A square may underflow to nothing, and then nothing moves.
            reach = np.sqrt(state.squares[vector])
            turn = np.divide(own, reach, out=np.zeros_like(own), where=reach > 0)
            state.vectors[vector] = np.clip(
                state.vectors[vector] - eta * turn, -plan.box[chain], plan.box[chain]
            )
        elif plan.rule[chain] == DUAL:
            state.vectors[vector] -= own
        else:
            state.vectors[vector] -= eta * own


def _project(plan: Plan, state: State, chain: int) -> None:
    """After the step: Pi_B(w) = w / max(||w|| / B, 1), and dual averaging's next step size.

    Dual averaging keeps the sum of gradients as it is and projects only what is in force.
    """
    state.steps[chain] += 1
    if plan.rule[chain] == DUAL:
        state.scale[chain] = plan.eta[chain] / np.sqrt(state.steps[chain] + 1.0)
    if np.isfinite(plan.radius[chain]):
        own = state.vectors[plan.owner == chain]
        shrink = 1.0 / max(state.scale[chain] * float(np.linalg.norm(own)) / plan.radius[chain], 1.0)
        if plan.rule[chain] == DUAL:
            state.scale[chain] *= shrink
        else:
            state.vectors[plan.owner == chain] *= own.dtype.type(shrink)


def _features(layout: Layout, rows: slice, width: int, intercept: float) -> Array:
    """The rows of a minibatch, densely, with the constant column last."""
    x = np.zeros((rows.stop - rows.start, width), layout.values.dtype)
    x[:, -1] = intercept
    for r in range(rows.start, rows.stop):
        cells = slice(int(layout.starts[r]), int(layout.starts[r + 1]))
        np.add.at(x[r - rows.start], layout.columns[cells], layout.values[cells])
    return x
