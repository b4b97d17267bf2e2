"""From settings to a run that has learnt nothing yet: what stays the same while it learns."""

from math import inf, isfinite
from types import ModuleType
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from semicyclic.method import step as steps
from semicyclic.method.average import one_model, own_models
from semicyclic.method.basis import Basis
from semicyclic.method.loss import Loss
from semicyclic.method.pack import Packed
from semicyclic.method.readout import Log
from semicyclic.method.record import Plan, first_state
from semicyclic.method.run import Reservoir, Run
from semicyclic.method.step import ADAGRAD, DUAL, Step

Array = npt.NDArray[Any]

MEMORY = 256 * 2**20


class Settings(TypedDict, total=False):
    """What every method takes.

    loss: `loss.logistic` unless given.
    step_size: a number, or a rule of `step`: paper, tight, dual_averaging, adagrad.
    batch_size: rows a step, 128 unless given. A minibatch never crosses a visit.
    radius: B; project onto the ball ||w|| <= B after every step.
    target: the share of each block in the objective, where it is not its share of the
        steps: gradients in block i are multiplied by target_i / share_i (SPEC F2).
    start: the first iterate [C, d+1], zero unless given.
    classes: the labels' classes, where the rows may not hold them all.
    memory: bytes for what is kept per visit, 256 MB unless given.
    ended: False if rows will follow by `more`: an unfilled minibatch waits for them.
    reservoir: a generator; keeps a random iterate per block for `Run.random`.
    engine: `method.kernels` (compiled, the default) or `method.chain` (plain NumPy).
    """

    loss: Loss
    step_size: float | Step
    batch_size: int
    radius: float
    target: npt.ArrayLike
    start: npt.ArrayLike
    classes: tuple[Any, ...]
    memory: int
    ended: bool
    reservoir: np.random.Generator
    engine: ModuleType


def first_run(packed: Packed, basis: Any, plural: bool, counts: Array | None, settings: Settings) -> Run:
    """A run that has learnt nothing yet. `counts` are the steps per block, if known."""
    held = basis if isinstance(basis, Basis) else basis(packed.blocks)
    if held.blocks != packed.blocks:
        raise ValueError(f"the basis has {held.blocks} blocks, the schedule {packed.blocks}")
    plan = _plan(packed, held, counts, settings)
    shape = (held.vectors, packed.width + 1, packed.loss.outputs)
    vectors = np.zeros(shape, packed.layout.values.dtype)
    if "start" in settings:
        _set_start(vectors, held, plan, np.asarray(settings["start"]))
    member = own_models(packed.blocks) if plural else one_model(packed.blocks)
    reservoir = None
    if "reservoir" in settings:
        kept = np.zeros((member.models, *shape[1:]), vectors.dtype)
        reservoir = Reservoir(settings["reservoir"], kept, np.zeros(member.models, np.int64))
    state = first_state(plan, vectors)
    return Run(
        log=Log(plan, vectors.copy(), state.squares.copy(), settings.get("memory", MEMORY)),
        state=state,
        schedule=packed.schedule,
        loss=packed.loss,
        classes=packed.classes,
        batch_size=packed.batch_size,
        member=member,
        single=held.is_single,
        reservoir=reservoir,
    )


def _plan(packed: Packed, basis: Basis, counts: Array | None, settings: Settings) -> Plan:
    step = steps.of(settings.get("step_size", 0.5))
    radius = float(settings.get("radius", inf))
    if not radius > 0:
        raise ValueError(f"radius={radius!r}: the ball to project onto must have a positive radius")
    if step.rule == ADAGRAD and isfinite(radius):
        raise ValueError("adaptive steps are projected onto a box, not a ball: use step.adagrad(box=...)")
    if step.rule == DUAL and "start" in settings:
        raise ValueError("dual averaging starts from zero: leave out start=")
    emphasis, spread = _emphasis(packed, counts, settings)
    totals: list[float | None] = [None] * basis.chains
    if counts is not None:
        totals = list(np.bincount(basis.chain, counts, basis.chains) * spread)
    return Plan(
        loss=packed.loss.code,
        level=packed.loss.level,
        rule=step.rule,
        radius=radius,
        box=step.box,
        intercept=float(packed.intercept),
        eta=np.array([step.eta(total) for total in totals]),
        chain=basis.chain,
        active=basis.active,
        coefficient=basis.coefficient,
        emphasis=emphasis,
        owner=basis.owner(),
    )


def _emphasis(packed: Packed, counts: Array | None, settings: Settings) -> tuple[Array, float]:
    """c_i = pi_i / alpha_i, and chi = sum_i pi_i^2 / alpha_i, by which T grows (SPEC F2)."""
    if "target" not in settings:
        return np.ones(packed.blocks), 1.0
    if counts is None:
        raise ValueError("target= needs to know the blocks' shares, which a stream does not tell")
    target = np.asarray(settings["target"], dtype=np.float64)
    if target.shape != (packed.blocks,) or (target < 0).any() or not np.isclose(target.sum(), 1.0):
        raise ValueError(f"target must be {packed.blocks} shares that sum to 1, one for each block")
    share = counts / counts.sum()
    unseen = np.flatnonzero((target > 0) & (share == 0))
    if len(unseen):
        raise ValueError(f"block {unseen[0]} is never visited: its target share must be 0")
    emphasis = np.divide(target, share, out=np.zeros_like(target), where=share > 0)
    return emphasis, float(target @ emphasis)


def _set_start(vectors: Array, basis: Basis, plan: Plan, start: Array) -> None:
    """Put the first iterate where it is in force: every chain's shared or only vector."""
    _, width, outputs = vectors.shape
    if not np.isfinite(start).all():
        raise ValueError("start holds values that are not finite")
    if start.shape == (width,) and outputs == 1:
        start = start[None]
    if start.shape != (outputs, width):
        raise ValueError(f"start has shape {start.shape}: it must be [{outputs}, {width}], intercept last")
    if plan.intercept == 0 and start[:, -1].any():
        raise ValueError("start has an intercept, the rows have none")
    if np.linalg.norm(start) > plan.radius or np.abs(start).max() > plan.box:
        raise ValueError("start lies outside the ball or box to be projected onto")
    first = np.unique(basis.active[:, 0])
    if not (basis.coefficient[:, 0] == 1.0).all():
        raise ValueError("start= needs a basis whose first vector has coefficient 1 in every block")
    vectors[first] = start.T
