"""Training: one pass over the rows, from which every read-out follows.

consensus      one chain, one model                                  (Section 2)
separate       a chain for each block                                (Section 4)
pluralistic    one chain, a model for each block                     (Section 5, Theorem 3)
residual       a shared vector and a small difference for each block (SPEC K1)
chain          any basis
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from math import inf, isfinite
from types import ModuleType
from typing import Any, TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt

from semicyclic.method import basis as bases
from semicyclic.method import step as steps
from semicyclic.method.average import one_model, own_models
from semicyclic.method.basis import Basis
from semicyclic.method.chain import in_force
from semicyclic.method.loss import Loss, logistic
from semicyclic.method.pack import Packed, pack
from semicyclic.method.readout import Kept, Log, trace_bytes
from semicyclic.method.record import (
    Page,
    Plan,
    Running,
    State,
    blank_table,
    blank_trace,
    cut_page,
    first_state,
)
from semicyclic.method.rows import Rows, join
from semicyclic.method.run import Reservoir, Run
from semicyclic.method.schedule import Schedule, visits
from semicyclic.method.step import ADAGRAD, DUAL, Step

Array = npt.NDArray[Any]
Data = Rows | Packed | Iterable[Rows]

MEMORY = 256 * 2**20
# Records are written page by page: large enough that calls do not count, small enough that
# dropping one frees little more than it must.
PAGE = 32 * 2**20


REMEDY = "use a smaller step_size, scale the features, or set radius="


class Diverged(ArithmeticError):
    """The chain left the finite numbers."""


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


def pluralistic(rows: Data, schedule: Schedule | int | None = None, **settings: Unpack[Settings]) -> Run:
    """One chain through all blocks; read out one model per block (Theorem 3)."""
    return chain(rows, schedule, bases.single, **settings)


def consensus(rows: Data, schedule: Schedule | int | None = None, **settings: Unpack[Settings]) -> Run:
    """The same chain; every read-out is one model for all blocks."""
    return chain(rows, schedule, bases.single, plural=False, **settings)


def separate(rows: Data, schedule: Schedule | int | None = None, **settings: Unpack[Settings]) -> Run:
    """A chain of its own for each block, which learns from that block only."""
    return chain(rows, schedule, bases.separate, **settings)


def residual(
    rows: Data,
    schedule: Schedule | int | None = None,
    *groupings: Iterable[int],
    **settings: Unpack[Settings],
) -> Run:
    """A shared chain and a small residual for each block, or for each group of groupings."""
    return chain(rows, schedule, lambda m: bases.residual(m, *map(list, groupings)), **settings)


def chain(
    rows: Data,
    schedule: Schedule | int | None,
    basis: Any,
    *,
    plural: bool = True,
    **settings: Unpack[Settings],
) -> Run:
    """Train on any basis: a `Basis`, or a function that makes one for m blocks.

    rows: `Rows` with a schedule; rows already packed by `pack`, without; or an iterable of
        `Rows`, the parts of one stream, from which minibatches are cut as from the whole.
    """
    if not isinstance(rows, Rows | Packed | Iterable) or isinstance(rows, str | bytes | np.ndarray):
        raise TypeError(f"rows is a {type(rows).__name__}: make it Rows(X, y, when=...)")
    # A setting that is None is one that was not given.
    settings = cast(Settings, {name: value for name, value in settings.items() if value is not None})
    unknown = sorted(set(settings) - set(Settings.__annotations__))
    if unknown:
        raise TypeError(f"unknown setting {unknown[0]!r}: choose from {', '.join(Settings.__annotations__)}")
    if isinstance(rows, Packed):
        given = {"batch_size", "loss", "classes"} & set(settings)
        if schedule is not None or given:
            raise ValueError("packed rows have their schedule, loss and batch_size: leave them out")
        run = _first_run(rows, basis, plural, rows.steps, settings)
        return _learn(run, rows, _engine(settings))
    if schedule is None:
        raise ValueError("give a schedule, such as Schedule.daily(6, zone='Europe/Paris')")
    batch_size = settings.get("batch_size", 128)
    ended = settings.get("ended", True)
    if isinstance(rows, Rows) and not ended:
        rows = [rows]
    if isinstance(rows, Rows):
        packed = _pack(rows, schedule, settings)
        run = _first_run(packed, basis, plural, packed.steps, settings)
        if rows.when is not None:
            run = replace(run, latest=int(rows.when[-1]))
        return _learn(run, packed, _engine(settings))
    started: Run | None = None
    for part in rows:
        if not isinstance(part, Rows):
            raise TypeError(f"a part of the stream is a {type(part).__name__}: make it Rows(X, y, when=...)")
        if len(part) == 0:
            continue
        if started is None:
            empty = _pack(part, schedule, settings)
            started = _first_run(empty, basis, plural, None, settings)
        started = _continue(started, part, _engine(settings), batch_size=batch_size, ended=False)
    if started is None:
        raise ValueError("the stream has no parts")
    if not ended:
        return started
    return _continue(started, None, _engine(settings), batch_size=batch_size, ended=True)


def more(run: Run, rows: Rows, *, ended: bool = True, engine: ModuleType | None = None) -> Run:
    """Go on with a run, which stays as it was: a new run that has learnt from these rows too.

    ended: whether the rows end here. If not, an unfilled minibatch waits for the next rows, and
        the runs are as if all rows had come at once. So start with `ended=False` as well.
    """
    if run.is_view:
        raise ValueError("this is a coarser or soft view of a run: go on with the run itself")
    if not isinstance(rows, Rows):
        raise TypeError(f"rows is a {type(rows).__name__}: make it Rows(X, y, when=...)")
    fresh = replace(run, log=run.log.copy(), state=run.state.copy(), reservoir=_copied(run.reservoir))
    return _continue(fresh, rows, engine or _engine({}), batch_size=run.batch_size, ended=ended)


# ------------------------------------------------------------------------- the parts


def _engine(settings: Settings) -> ModuleType:
    if "engine" in settings:
        return settings["engine"]
    from semicyclic.method import kernels

    return kernels


def _pack(rows: Rows, schedule: Schedule | int, settings: Settings) -> Packed:
    return pack(
        rows,
        schedule,
        loss=settings.get("loss", logistic),
        batch_size=settings.get("batch_size", 128),
        classes=settings.get("classes"),
    )


def _first_run(packed: Packed, basis: Any, plural: bool, counts: Array | None, settings: Settings) -> Run:
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


def _continue(run: Run, rows: Rows | None, engine: ModuleType, *, batch_size: int, ended: bool) -> Run:
    """Learn from pending and new rows; hold back an unfilled minibatch unless they end here."""
    parts = [part for part in (run.pending, rows) if part is not None]
    if not parts:
        return run
    if rows is not None:
        _check_part(run, rows)
        if rows.block is not None and rows.cycle is None:
            parts[-1] = _numbered(run, rows)
    whole = join(parts)
    if not ended:
        runs = visits(*whole.place(run.schedule))
        open_rows = int(runs.start[-1] - runs.start[-2]) % batch_size
        held = whole[len(whole) - open_rows :] if open_rows else None
        run = replace(run, pending=held)
        if open_rows == len(whole):
            return run
        whole = whole[: len(whole) - open_rows]
    else:
        run = replace(run, pending=None)
    if whole.when is not None:
        run = replace(run, latest=int(whole.when[-1]))
    packed = pack(whole, run.schedule, loss=run.loss, batch_size=batch_size, classes=run.classes or None)
    return _learn(run, packed, engine)


def _check_part(run: Run, rows: Rows) -> None:
    """Rows that follow must be like those before, and not earlier."""
    expected = {
        "columns": (run.state.vectors.shape[1] - 1, rows.width),
        "dtype": (run.state.vectors.dtype, rows.values.dtype),
        "intercept": (run.log.plan.intercept > 0, rows.intercept),
    }
    for name, (before, now) in expected.items():
        if before != now:
            raise ValueError(f"these rows have {name} {now}, those before had {before}: they must be alike")
    if run.pending is not None and run.pending.when is not None:
        latest = int(run.pending.when[-1])
    else:
        latest = run.latest
    if rows.when is not None and len(rows) and int(rows.when[0]) < latest:
        raise ValueError("these rows begin before the rows ahead of them end: sort the stream by time")


def _numbered(run: Run, rows: Rows) -> Rows:
    """Give numbered blocks their cycles, counted on from what came before."""
    first = rows[:]
    assert first.block is not None
    cycle = np.r_[0, np.cumsum(np.diff(first.block) < 0)]
    if run.pending is not None:
        place = run.pending.place(run.schedule)
        before = int(place.block[-1]), int(place.cycle[-1])
    elif run.log.pages:
        before = int(run.log.pages[-1].block[-1]), int(run.log.pages[-1].cycle[-1])
    else:
        before = 0, 0
    first.cycle = before[1] + cycle + (first.block[0] < before[0])
    return first


def _copied(reservoir: Reservoir | None) -> Reservoir | None:
    if reservoir is None:
        return None
    return Reservoir(deepcopy(reservoir.rng), reservoir.kept.copy(), reservoir.seen.copy())


def _learn(run: Run, packed: Packed, engine: ModuleType) -> Run:
    """Run the chain over packed rows, changing the run's own state and log."""
    layout, plan, state, log = packed.layout, run.log.plan, run.state, run.log
    traced = engine.TRACES and _is_traced(run, packed)
    if traced and not log.pages and engine.keeps_running(layout, plan, state):
        zeros = np.zeros((packed.blocks, *state.vectors.shape[1:]), state.vectors.dtype)
        log.running = Running(zeros, np.zeros(packed.blocks))
    total = int(layout.visits[-1])
    done = 0
    for stop, model, block in [*_draw(run, packed), (total, -1, -1)]:
        while done < stop:
            until = _page_end(packed, log, done, stop) if traced else stop
            page = _page(packed, plan, state, log, traced=traced, span=(done, until))
            reached, records = engine.advance(layout, plan, state, page, (done, until), log.running)
            rows = int(layout.steps[reached] - layout.steps[done]) if traced else 0
            page = cut_page(page, records, rows, reached - done if traced else 0)
            _check(page, packed)
            places = packed.cycle[page.visit], layout.block[page.visit]
            log.append(Kept(page, *places, layout if traced else None, (done, reached), packed.turned))
            done = reached
        if model >= 0:
            assert run.reservoir is not None
            run.reservoir.kept[model] = in_force(plan, state, block)
    if not np.isfinite(state.vectors).all():
        raise Diverged("the chain diverged at its last step: " + REMEDY)
    return run


def _is_traced(run: Run, packed: Packed) -> bool:
    """Whether the rows and their slopes take less room than a mean and an end per visit."""
    if run.log.pages:
        return not run.log.pages[0].page.is_table
    layout = packed.layout
    item = layout.values.dtype.itemsize
    table = 2 * len(layout.block) * (packed.width + 1) * packed.loss.outputs * item
    trace = layout.columns.nbytes + layout.values.nbytes + len(layout.targets) * packed.loss.outputs * item
    return trace < table


def _page(packed: Packed, plan: Plan, state: State, log: Log, *, traced: bool, span: tuple[int, int]) -> Page:
    """Room for what comes next: all of it, or as much as a page holds."""
    layout = packed.layout
    shape, kind = (state.vectors.shape[1], state.vectors.shape[2]), state.vectors.dtype
    first, last = np.searchsorted(layout.visits, span, side="right") - 1
    records = int(last - first) + 4
    if isfinite(plan.radius):
        # A visit has several records where the projection shrinks the scale often.
        records += (span[1] - span[0]) // 8
    if not traced:
        limit = max(min(PAGE, log.budget // 8), 1)
        records = max(min(records, limit // (2 * shape[0] * shape[1] * kind.itemsize)), 1)
        return blank_table(records, shape, kind)
    rows = int(layout.steps[span[1]] - layout.steps[span[0]])
    return blank_trace(records, rows, span[1] - span[0], shape[1], kind)


def _page_end(packed: Packed, log: Log, done: int, stop: int) -> int:
    """How far the next page of a trace reaches: a quarter of the budget, or one step."""
    sizes = trace_bytes(packed.layout, done, np.arange(done + 1, stop + 1))
    return done + max(int(np.searchsorted(sizes, log.budget // 4, side="right")), 1)


def _draw(run: Run, packed: Packed) -> list[tuple[int, int, int]]:
    """(step, model, block) at which the reservoir takes the iterate in force, in order.

    One uniform a step, so that cutting the stream changes nothing; of all the replacements in
    these rows only each model's last one stays, and only that is carried out.
    """
    if run.reservoir is None:
        return []
    block = np.repeat(packed.layout.block, np.diff(packed.layout.visits))
    model = run.member.model[block]
    chance = run.reservoir.rng.random(len(block))
    chosen = {}
    for number in range(run.member.models):
        own = np.flatnonzero(model == number)
        count = run.reservoir.seen[number] + np.arange(1, len(own) + 1)
        taken = own[chance[own] * count < 1.0]
        run.reservoir.seen[number] += len(own)
        if len(taken):
            chosen[int(taken[-1])] = number
    return [(step, number, int(block[step])) for step, number in sorted(chosen.items())]


def _check(page: Any, packed: Packed) -> None:
    broken = ~np.isfinite(page.loss)
    if broken.any():
        visit = int(page.visit[int(broken.argmax())])
        raise Diverged(
            f"the chain diverged in cycle {packed.cycle[visit]}, block {packed.layout.block[visit]}: "
            + REMEDY
        )
