"""The chain in plain NumPy, to be read beside the paper. `kernels` is the same, compiled.

    w_1 = 0,   w_{t+1} = w_t - eta g_t,   g_t a gradient of f(., z_t) at w_t             (eq. 2)

A step sees a minibatch, and f(w, z_t) is its mean loss. What is in force in block i is
w = scale * sum_j c_j v_j over the vectors of the basis: just v for the single chain. The scale
is 1, except in dual averaging, where v is the sum of gradients and the scale their step size.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.loss import by_code
from semicyclic.method.record import Layout, Page, Plan, State
from semicyclic.method.step import ADAGRAD, DUAL

Array = npt.NDArray[Any]

# This engine writes tables only.
TRACES = False


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
        page.visit[record] = visit
        run_visit(layout, plan, state, page, record=record, steps=range(step, end))
        step, record = end, record + 1
        visit += step == layout.visits[visit + 1]
    return step, record


def run_visit(layout: Layout, plan: Plan, state: State, page: Page, *, record: int, steps: range) -> None:
    """Run the chain through one visit to a block; write its mean, its end and its loss.

    The mean is over the iterates as they were before each update: w_t must not have seen
    z_t, or Theorem 3 does not hold.
    """
    block = int(layout.block[page.visit[record]])
    loss = by_code(plan.loss, level=plan.level, outputs=state.vectors.shape[2])
    total = np.zeros(state.vectors.shape[1:])
    weight = lost = lost_steps = counted = 0.0
    for t in steps:
        rows = slice(int(layout.steps[t]), int(layout.steps[t + 1]))
        x, target = _features(layout, rows, state.vectors.shape[1], plan.intercept), layout.targets[rows]
        share = layout.weights[rows] if len(layout.weights) else np.ones_like(target)
        w = in_force(plan, state, block)
        score = x @ w if w.shape[1] > 1 else x @ w[:, 0]
        losses = share * loss.value(score, target)
        slopes = share[:, None] * loss.slope(score, target).reshape(len(target), -1)
        gradient = plan.emphasis[block] * (x.T @ slopes) / len(target)

        total += share.mean() * w
        weight += share.mean()
        lost += losses.sum()
        lost_steps += losses.mean()
        counted += share.sum()
        _step(plan, state, block, gradient.astype(w.dtype))
        _project(plan, state, int(plan.chain[block]))
    page.weight[record], page.mass[record], page.rows[record] = weight, weight, counted
    page.loss[record], page.step_loss[record] = lost, lost_steps
    page.scale[record] = page.fold[record] = 1.0
    page.after[record] = in_force(plan, state, block)
    page.mean[record] = total / weight if weight > 0 else page.after[record]


def in_force(plan: Plan, state: State, block: int) -> Array:
    """w = scale * sum_j c_j v_j, the weights [d+1, C] in force in a block."""
    held = plan.active[block] >= 0
    vectors = state.vectors[plan.active[block][held]]
    factor = plan.coefficient[block][held] * state.scale[plan.chain[block]]
    return np.asarray(np.tensordot(factor.astype(vectors.dtype), vectors, axes=1))


def _step(plan: Plan, state: State, block: int, gradient: Array) -> None:
    """Move every vector in force along its own part c_j g of the gradient."""
    eta = gradient.dtype.type(plan.eta[plan.chain[block]])
    for vector, factor in zip(plan.active[block], plan.coefficient[block], strict=True):
        if vector < 0:
            continue
        own = gradient * gradient.dtype.type(factor)
        if plan.rule == ADAGRAD:
            state.squares[vector] += own**2
            # A square may underflow to nothing, and then nothing moves.
            reach = np.sqrt(state.squares[vector])
            turn = np.divide(own, reach, out=np.zeros_like(own), where=reach > 0)
            state.vectors[vector] = np.clip(state.vectors[vector] - eta * turn, -plan.box, plan.box)
        elif plan.rule == DUAL:
            state.vectors[vector] -= own
        else:
            state.vectors[vector] -= eta * own


def _project(plan: Plan, state: State, chain: int) -> None:
    """After the step: Pi_B(w) = w / max(||w|| / B, 1), and dual averaging's next step size.

    Dual averaging keeps the sum of gradients as it is and projects only what is in force.
    """
    state.steps[chain] += 1
    if plan.rule == DUAL:
        state.scale[chain] = plan.eta[chain] / np.sqrt(state.steps[chain] + 1.0)
    if np.isfinite(plan.radius):
        own = state.vectors[plan.owner == chain]
        shrink = 1.0 / max(state.scale[chain] * float(np.linalg.norm(own)) / plan.radius, 1.0)
        if plan.rule == DUAL:
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
