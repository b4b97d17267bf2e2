"""Semi-cyclic SGD by its definition: every step written out, every iterate kept.

    F(w) = E f(w, z) over z ~ D,  D = (1/m) sum_i D_i                                                  (eq. 1)
         = (1/m) sum_i F_i(w),    F_i(w) = E f(w, z) over z ~ D_i
    w_1 = 0,    w_{t+1} = w_t - eta_t g_t,    g_t a subgradient of f(., z_t) at w_t                    (eq. 2)
    z_t ~ D_i  for t = t(k, i, j) = (k-1) n m + (i-1) n + j, T = K m n                                 (eq. 4)
               in cycle k = 1..K, block i = 1..m, step j = 1..n of the block

On i.i.d. data the mean of all w_t is within O(sqrt(B^2/T)) of F(w*), the least F(w) with ||w|| <= B (eq. 3).
On block-cyclic data it need not be, but the models of all blocks together are, if each averages its own
iterates (`average`). Here rows have their cycle and block, and blocks may have any length and order: if
block i has |S_i| of T steps, it has the weight |S_i| / T in F in place of 1/m. z_t is a minibatch, and
f(w, z_t) the mean loss of its rows.

In block i the model is w = sum_j c_ij v_j over the vectors of a basis: v itself for the single chain, v_i
for separate chains (`basis`). A step moves every vector by -eta_t c_ij g_t. With a projection,
w_{t+1} = Pi_B(w_t - eta_t g_t), Pi_B(w) = w / max(||w|| / B, 1).

This file is to be read next to the paper, and it is what tests compare the compiled loops with. It is slow.
"""

from collections.abc import Callable, Sequence
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from semicyclic.method.basis import Basis
from semicyclic.method.hedge import HedgeState, in_play, learn_losses
from semicyclic.method.loss import Loss
from semicyclic.method.step import ADAGRAD, DUAL, SGD, Step
from semicyclic.types import Array


class Examples(NamedTuple):
    """Rows in order of arrival: features [n, d+1], the constant column last; target, weight, cycle, block."""

    X: Array
    target: Array
    weight: Array
    cycle: Array
    block: Array


class Iterate(NamedTuple):
    """One step t: the model [C, d+1] of its block before and after it, its losses and its gradient.

    weight: the mean weight of the minibatch's rows, 1 unless rows have weights.
    losses: f(w_t, z) of every row z of the minibatch, times the row's weight.
    gradient: [C, d+1] g_t, the mean over the rows, with their weights and that of the block.
    """

    cycle: int
    block: int
    before: Array
    after: Array
    weight: float
    losses: Array
    gradient: Array


def minibatches(cycle: Array, block: Array, batch_size: int) -> list[list[int]]:
    """The row numbers of each step: visits, runs of rows with equal (cycle, block), cut into minibatches."""
    batches: list[list[int]] = []
    for row in range(len(cycle)):
        same = row > 0 and (cycle[row], block[row]) == (cycle[row - 1], block[row - 1])
        if same and len(batches[-1]) < batch_size:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def normalize_columns(X: Array, weight: Array) -> tuple[Array, Array]:
    """Every row divided by the scales of its columns so far, and the last scales (normalized steps)."""
    squares, counts, scale = (np.zeros(X.shape[1]) for _ in range(3))
    normalized = np.zeros(X.shape)
    for r, x in enumerate(X):
        if weight[r] > 0:
            squares, counts = squares + x**2, counts + (x != 0)
            scale[counts > 0] = np.sqrt(squares[counts > 0] / counts[counts > 0])
        normalized[r, scale > 0] = x[scale > 0] / scale[scale > 0]
    return normalized, scale


def run_chain(
    examples: Examples,
    *,
    basis: Basis,
    loss: Loss,
    step: Step,
    batch_size: int = 1,
    radius: float = inf,
    l2: float = 0.0,
    block_weights: Sequence[float] | None = None,
    start: Array | None = None,
) -> list[Iterate]:
    """Every step of the chain, or of all chains of the basis.

    radius: B; after every step of SGD, project onto the ball of norm B, that of all vectors of the chain
        together (for one vector it is that of w). Dual averaging projects what it reads out instead, and
        AdaGrad its box.
    l2: lambda; the penalty lambda / 2 ||V||^2 on the chain's vectors, without the last column. For AdaGrad on
        those that the step moves, in the columns that its rows have.
    block_weights: [m] factors of the gradients in each block, for an objective that weighs blocks otherwise
        than by their shares of the steps.
    start: [vectors, C, d+1] the first vectors, 0 unless given.

    With normalized steps, models are those on the features as they are, but gradients are not.
    """
    last_scale = np.ones(examples.X.shape[1])
    if step.normalized:
        normalized, last_scale = normalize_columns(examples.X, examples.weight)
        examples = examples._replace(X=normalized)
    batches = minibatches(examples.cycle, examples.block, batch_size)
    factors = np.ones(basis.blocks) if block_weights is None else np.asarray(block_weights)
    V = np.zeros((basis.vectors, loss.outputs, examples.X.shape[1])) if start is None else np.array(start)
    squares, owner, t = np.zeros_like(V), basis.owner(), np.zeros(basis.chains)
    # A chain's step size depends on T, the number of steps in its own blocks, unless the step states it. With
    # block weights a, gradients have a^2 times the squared norm, so T becomes the sum of a^2 over the steps.
    blocks = [examples.block[rows[0]] for rows in batches]
    steps = np.bincount(basis.chain[blocks], factors[blocks] ** 2, basis.chains)
    eta = [step.eta(total) for total in steps]

    def shrink(chain: int, scale: float) -> float:
        """The factor of the projection of a chain's vectors times `scale`: w / max(||w|| / B, 1)."""
        return 1.0 / max(scale * float(np.linalg.norm(V[owner == chain])) / radius, 1.0)

    def model(i: int) -> Array:
        """The current model of block i."""
        w = sum(factor * V[j] for j, factor in basis.terms(i))
        if step.rule == DUAL:
            # Dual averaging: V is minus the sum of gradients, and w_{t+1} = B / (G sqrt(2 (t+1))) V.
            scale = eta[basis.chain[i]] / sqrt(t[basis.chain[i]] + 1)
            w = w * scale * shrink(basis.chain[i], scale)
        return np.asarray(w)

    penalized = np.arange(examples.X.shape[1]) < examples.X.shape[1] - 1
    iterates = []
    for rows in batches:
        i = int(examples.block[rows[0]])
        chain = basis.chain[i]
        w = model(i)
        x, y, weight = examples.X[rows], examples.target[rows], examples.weight[rows]
        score = x @ w.T if loss.outputs > 1 else x @ w[0]
        slope = loss.slope(score, y).reshape(len(rows), -1)
        g = factors[i] * (weight[:, None] * slope).T @ x / len(rows)
        if step.rule == SGD:
            V[np.ix_(owner == chain, np.arange(loss.outputs), penalized)] *= 1.0 - eta[chain] * l2
        present = penalized & (x != 0).any(axis=0)
        for j, factor in basis.terms(i):
            if step.rule == SGD:
                V[j] -= eta[chain] * factor * g
            elif step.rule == DUAL:
                V[j] -= factor * g
            elif step.rule == ADAGRAD:
                slope_of_v = factor * g + l2 * V[j] * present
                squares[j] += slope_of_v**2
                moves = squares[j] > 0
                V[j][moves] -= eta[chain] * slope_of_v[moves] / np.sqrt(squares[j][moves])
                V[j] = V[j].clip(-step.box, step.box)
        if step.rule == SGD:
            V[owner == chain] *= shrink(chain, 1.0)
        t[chain] += 1
        where = int(examples.cycle[rows[0]]), i
        losses = weight * loss.value(score, y)
        iterates.append(Iterate(*where, w, model(i), float(weight.mean()), losses, g))
    last_scale[last_scale == 0] = inf
    return [
        each._replace(before=each.before / last_scale, after=each.after / last_scale) for each in iterates
    ]


def hedge_chains(
    chains: Sequence[list[Iterate]], hedge_state: HedgeState, toss: Array | None = None
) -> list[Iterate]:
    """Every step of several experts with a hedge between them (Theorem 4): u_t, its loss, the next model.

    chains: one list for each expert, as `run_chain` gives it. Those of the paper are the single chain and, as
        one expert, all separate ones: its iterate in block i is that of chain i. They run as if there were no
        hedge.

    Before each step the probabilities p of its block are known: the model is u_t = sum_e p^e w^e_t, or that
    of the one expert that the coin toss[t] picks. Then every expert's loss is observed. The loss of a step is
    the expected loss, sum_e p^e f(w^e_t, z_t), which is what Lemma 1 bounds, or that of the expert drawn.
    After the step the model is the mixture by the new probabilities, until a coin is tossed again. A mixture
    has no gradient.
    """
    done = []
    for t, steps in enumerate(zip(*chains, strict=True)):
        i, p, after = steps[0].block, np.zeros(len(steps)), np.zeros(len(steps))
        in_play(hedge_state, i, -1.0 if toss is None else toss[t], p)
        learn_losses(hedge_state, i, np.array([step.losses.mean() for step in steps]))
        in_play(hedge_state, i, -1.0, after)
        done.append(
            steps[0]._replace(
                before=_mixture(p, [step.before for step in steps]),
                after=_mixture(after, [step.after for step in steps]),
                losses=_mixture(p, [step.losses for step in steps]),
                gradient=np.full_like(steps[0].gradient, np.nan),
            )
        )
    return done


def mean_iterate(iterates: Sequence[Iterate], share: Callable[[Iterate], float] = lambda _: 1.0) -> Array:
    """(1 / |S_i|) sum_{t in S_i} w_t, given the steps of block i (eq. 14); with u_t of a hedge, eq. 21.

    Each w_t is that before its update, and counts by the mean weight of its rows, times `share` if given.
    """
    weights = [share(step) * step.weight for step in iterates]
    total = sum(weight * step.before for weight, step in zip(weights, iterates, strict=True))
    return np.asarray(total / sum(weights))


def _mixture(p: Array, parts: Sequence[Array]) -> Array:
    return np.asarray(np.tensordot(p, np.stack(parts), axes=1))
