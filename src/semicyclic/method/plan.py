"""From the settings of a method to an untrained run."""

from math import inf, isfinite
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from semicyclic.method import step as steps
from semicyclic.method.arrays import Plan, first_state
from semicyclic.method.average import hedged_models, one_model
from semicyclic.method.basis import Basis
from semicyclic.method.batches import Packed
from semicyclic.method.column_scale import ColumnScale
from semicyclic.method.hedge import AdaHedge, HedgeState, Prod
from semicyclic.method.log import Log
from semicyclic.method.loss import Loss
from semicyclic.method.run import Reservoir, Run
from semicyclic.method.step import ADAGRAD, DUAL, SGD, Step
from semicyclic.types import Array

MEMORY = 256 * 2**20


class Settings(TypedDict, total=False):
    """Settings that every training method accepts.

    loss: the loss, `loss.logistic` by default.
    step_size: a number, or a rule of `step`: paper, tight, dual_averaging, adagrad, normalized.
    batch_size: rows per step, 128 by default. A minibatch never crosses a visit.
    radius: B; project onto the ball ||w|| <= B after every step.
    l2: lambda; the penalty lambda / 2 ||w||^2 is added to the mean loss, without the intercept
        (docs/math.md#l2-penalty).
    objective_shares: the share of each block in the objective, if it differs from its share of the steps.
        Gradients in block i are multiplied by objective_shares[i] / share[i], both taken among the blocks of
        i's own chain (docs/math.md#objective-shares).
    initial_weights: the first iterate [C, d+1], zero by default; or one for each chain [chains, C, d+1].
    classes: the classes of the labels, if the rows may lack some.
    memory: bytes for the records of visits, 256 MB by default.
    final: False if rows will follow by `train.extend`; an incomplete minibatch then waits for them.
    reservoir: a random generator; the run then keeps a random iterate per block for `Run.random`.
    """

    loss: Loss
    step_size: float | Step
    batch_size: int
    radius: float
    l2: float
    objective_shares: npt.ArrayLike
    initial_weights: npt.ArrayLike
    classes: tuple[Any, ...]
    memory: int
    final: bool
    reservoir: np.random.Generator


class ChainSpec(NamedTuple):
    """The chains of a run: basis and step of each, and the hedge between them if there are several."""

    basis: tuple[Any, ...]
    step: tuple[Any, ...]
    hedge: AdaHedge | Prod | None = None
    plural: bool = True


def first_run(packed: Packed, chains: ChainSpec, counts: Array | None, settings: Settings) -> Run:
    """Create an untrained run. `counts`: the number of steps per block, if known."""
    bases, plans = [], []
    for basis, step in zip(chains.basis, chains.step, strict=True):
        if not isinstance(basis, Basis) and not callable(basis):
            raise TypeError(
                f"a basis is a {type(basis).__name__}: give one, such as basis.single, or with its step"
            )
        one_basis = basis if isinstance(basis, Basis) else basis(packed.blocks)
        if one_basis.blocks != packed.blocks:
            raise ValueError(f"the basis has {one_basis.blocks} blocks, the schedule {packed.blocks}")
        bases.append(one_basis)
        plans.append(_plan(packed, one_basis, steps.of(step), counts, settings))
    scale = _first_scale(packed, {steps.of(step).normalized for step in chains.step}, settings)
    plan = plans[0] if len(plans) == 1 else _side_by_side(plans)
    shape = (len(plan.owner), packed.width + 1, packed.loss.outputs)
    vectors = np.zeros(shape, packed.layout.values.dtype)
    if "initial_weights" in settings:
        first = 0
        for one_basis, own in zip(bases, plans, strict=True):
            _set_start(
                vectors[first : first + one_basis.vectors],
                one_basis,
                own,
                np.asarray(settings["initial_weights"]),
            )
            first += one_basis.vectors
    member = hedged_models(packed.blocks, len(plans)) if chains.plural else one_model(packed.blocks)
    reservoir = None
    if "reservoir" in settings:
        kept = np.zeros((member.models, *shape[1:]), vectors.dtype)
        reservoir = Reservoir(settings["reservoir"], kept, np.zeros(member.models, np.int64))
    if reservoir is not None and chains.hedge is not None and reservoir.rng is chains.hedge.coin:
        raise ValueError("coin= and reservoir= must be two generators: a cut stream would mix up one")
    state = first_state(plan, vectors, packed.blocks)
    log = Log(plan, vectors.copy(), settings.get("memory", MEMORY), experts=len(plans))
    return Run(
        log=log,
        state=state,
        schedule=packed.schedule,
        loss=packed.loss,
        classes=packed.classes,
        batch_size=packed.batch_size,
        member=member,
        single=len(bases) == 1 and bases[0].is_single,
        reservoir=reservoir,
        hedge=chains.hedge,
        hedge_state=None if chains.hedge is None else _first_bets(packed, plan, chains, counts),
        scale=scale,
    )


def _first_scale(packed: Packed, normalized: set[bool], settings: Settings) -> ColumnScale | None:
    """Return the scale of the packed columns if steps are normalized."""
    if len(normalized) > 1:
        raise ValueError("some chains have normalized steps and some have not: give all of them such steps")
    (is_normalized,) = normalized
    if is_normalized and "initial_weights" in settings:
        raise ValueError("normalized steps start from zero: leave out initial_weights=")
    if is_normalized and packed.scale is None and len(packed.layout.cycle) == 0:
        return ColumnScale.empty(packed.width)
    if is_normalized != (packed.scale is not None):
        raise ValueError(
            f"these rows were packed with normalize={packed.scale is not None}, which must be True for "
            "step.normalized and False for other steps"
        )
    return None if packed.scale is None else packed.scale.copy()


def _side_by_side(plans: list[Plan]) -> Plan:
    """Combine the plans of several chains into one, renumbering chains, vectors and slots."""
    widest = max(plan.active.shape[1] for plan in plans)
    chains = np.cumsum([0, *(len(plan.eta) for plan in plans)])
    vectors = np.cumsum([0, *(len(plan.owner) for plan in plans)])
    active, coefficient = [], []
    for plan, first in zip(plans, vectors, strict=False):
        wide = (0, 0), (0, widest - plan.active.shape[1])
        active.append(np.pad(np.where(plan.active >= 0, plan.active + first, -1), wide, constant_values=-1))
        coefficient.append(np.pad(plan.coefficient, wide))
    return plans[0]._replace(
        chain=np.concatenate([plan.chain + first for plan, first in zip(plans, chains, strict=False)]),
        owner=np.concatenate([plan.owner + first for plan, first in zip(plans, chains, strict=False)]),
        active=np.concatenate(active),
        coefficient=np.concatenate(coefficient),
        slot_weight=np.concatenate([plan.slot_weight for plan in plans]),
        rule=np.concatenate([plan.rule for plan in plans]),
        radius=np.concatenate([plan.radius for plan in plans]),
        box=np.concatenate([plan.box for plan in plans]),
        eta=np.concatenate([plan.eta for plan in plans]),
        l2=np.concatenate([plan.l2 for plan in plans]),
    )


def _first_bets(packed: Packed, plan: Plan, chains: ChainSpec, counts: Array | None) -> HedgeState:
    hedge, experts = chains.hedge, len(chains.basis)
    if not isinstance(hedge, Prod):
        assert hedge is not None
        return hedge.first(experts, packed.blocks)
    if hedge.steps is not None:
        stated = np.asarray(hedge.steps)
        if stated.shape not in ((), (packed.blocks,)):
            raise ValueError(
                f"steps={hedge.steps!r}: give one number, or one for each of {packed.blocks} blocks"
            )
        counts = np.broadcast_to(stated, packed.blocks)
    if counts is None and hedge.rate is None:
        raise ValueError(
            "Prod's rate depends on the number of steps in each block, which is unknown for a stream: "
            "give it as Prod(steps=...), or use AdaHedge()"
        )
    bound = None
    if hedge.bound is None and hedge.rate is None:
        bound = _loss_range(packed, plan, hedge, known=counts is not None and hedge.steps is None)
    return hedge.first(experts, counts if counts is not None else np.ones(packed.blocks), bound=bound)


def _loss_range(packed: Packed, plan: Plan, hedge: Prod, *, known: bool) -> float:
    """M = G B: the losses of two projected iterates differ by at most 2 G B."""
    if not np.isfinite(plan.radius).all():
        raise ValueError(
            "Prod's range G B needs all chains projected: give radius=B (and no adaptive steps), or state "
            "the range as Prod(bound=M), or use AdaHedge(), which needs no range"
        )
    if not isfinite(packed.loss.lipschitz):
        raise ValueError(
            f"loss {packed.loss.name} has no Lipschitz constant: state the range of losses as Prod(bound=M), "
            "or use AdaHedge()"
        )
    if hedge.lipschitz is None and not known:
        raise ValueError("the largest norm of future rows is unknown: give Prod(lipschitz=G)")
    G = packed.lipschitz() if hedge.lipschitz is None else hedge.lipschitz
    # The model is sum_a c_a v_a, and the ball bounds all its vectors together.
    reach = float(np.sqrt((plan.coefficient**2).sum(axis=1)).max())
    return G * float(plan.radius.max()) * reach


def _plan(packed: Packed, basis: Basis, step: Step, counts: Array | None, settings: Settings) -> Plan:
    radius = float(settings.get("radius", inf))
    if not radius > 0:
        raise ValueError(f"radius={radius!r}: the ball to project onto must have a positive radius")
    if step.rule == ADAGRAD and isfinite(radius):
        raise ValueError("adaptive steps are projected onto a box, not a ball: use step.adagrad(box=...)")
    if step.rule == DUAL and "initial_weights" in settings:
        raise ValueError("dual averaging starts from zero: leave out initial_weights=")
    block_weight = np.ones(packed.blocks)
    if "objective_shares" in settings:
        block_weight = _block_weights(basis, packed.blocks, counts, settings)
    totals: list[float | None] = [None] * basis.chains
    if counts is not None:
        # T steps whose gradients are multiplied by c_t count as sum_t c_t^2.
        totals = list(np.bincount(basis.chain, counts * block_weight**2, basis.chains))
    eta = np.array([step.eta(total) for total in totals])
    return Plan(
        loss=packed.loss.code,
        level=packed.loss.level,
        intercept=float(packed.intercept),
        rule=np.full(basis.chains, step.rule),
        radius=np.full(basis.chains, radius),
        box=np.full(basis.chains, step.box),
        eta=eta,
        l2=np.full(basis.chains, _penalty(packed, basis, step, eta, settings)),
        chain=basis.chain,
        active=basis.active,
        coefficient=basis.coefficient,
        slot_weight=block_weight,
        owner=basis.owner(),
    )


def _penalty(packed: Packed, basis: Basis, step: Step, eta: Array, settings: Settings) -> float:
    """Return lambda if the chains of a basis can have it."""
    l2 = check_l2(settings.get("l2", 0.0))
    if l2 > 0.0 and step.rule == DUAL:
        raise ValueError("dual averaging has no l2=: use constant or adaptive steps")
    if step.rule == SGD and l2 * eta.max() >= 1.0:
        raise ValueError(f"l2={l2:g} times the step size {eta.max():g} must be below 1: lower one of them")
    if l2 > 0.0 and step.rule == SGD and packed.intercept and np.bincount(basis.owner()).max() > 1:
        # The weights of all vectors shrink by the scale they share. Intercepts must not, and those of the
        # vectors that a step does not move are out of its reach.
        raise ValueError(
            "l2= with constant steps needs chains of one vector each, as single and separate ones are, or "
            "rows without an intercept: use normalized or adaptive steps"
        )
    return l2


def check_l2(l2: float) -> float:
    """Return the strength of an L2 penalty; raise if it is not a number from 0 on."""
    if isinstance(l2, bool) or not isinstance(l2, float | int | np.number) or not 0.0 <= l2 < inf:
        raise ValueError(f"l2={l2!r}: the strength of the penalty must be a number, at least 0")
    return float(l2)


def _block_weights(basis: Basis, blocks: int, counts: Array | None, settings: Settings) -> Array:
    """c_i = pi_i / alpha_i: objective share over share of the steps, both among the blocks of i's own chain.

    A chain with a single block has nothing to weigh, so its c is 1.
    """
    if counts is None:
        raise ValueError(
            "objective_shares= needs the blocks' shares of the steps, which are unknown for a stream"
        )
    target = np.asarray(settings["objective_shares"], dtype=np.float64)
    if target.shape != (blocks,) or (target < 0).any() or not np.isclose(target.sum(), 1.0):
        raise ValueError(f"objective_shares must be {blocks} shares that sum to 1, one for each block")
    unseen = np.flatnonzero((target > 0) & (counts == 0))
    if len(unseen):
        raise ValueError(f"block {unseen[0]} is never visited: its target share must be 0")
    wanted, steps_ = (np.bincount(basis.chain, each)[basis.chain] for each in (target, counts))
    block_weight = np.ones(blocks)
    # A chain whose blocks all have share 0 does not count in the objective; it runs unweighted.
    weighed = (wanted > 0) & (counts > 0)
    block_weight[weighed] = (target / wanted)[weighed] / (counts / steps_)[weighed]
    return block_weight


def _set_start(vectors: Array, basis: Basis, plan: Plan, start: Array) -> None:
    """Set the initial weights: in the shared vector of every chain, or in its only one."""
    _, width, outputs = vectors.shape
    if not np.isfinite(start).all():
        raise ValueError("start holds values that are not finite")
    if start.shape == (width,) and outputs == 1:
        start = start[None]
    if start.shape not in ((outputs, width), (basis.chains, outputs, width)):
        raise ValueError(
            f"initial_weights has shape {start.shape}: it must be [{outputs}, {width}], intercept last"
        )
    start = np.broadcast_to(start, (basis.chains, outputs, width))
    if plan.intercept == 0 and start[..., -1].any():
        raise ValueError("start has an intercept, the rows have none")
    if np.linalg.norm(start, axis=(1, 2)).max() > plan.radius.min() or np.abs(start).max() > plan.box.min():
        raise ValueError("start lies outside the ball or box to be projected onto")
    first = np.unique(basis.active[:, 0])
    if not (basis.coefficient[:, 0] == 1.0).all():
        raise ValueError("initial_weights= needs a basis whose first vector has coefficient 1 in every block")
    owner = basis.owner()
    for vector in first:
        vectors[vector] = start[owner[vector]].T
