"""Learning: a run, some rows, and the chain between them."""

from copy import deepcopy
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic.method.chain import in_force
from semicyclic.method.hedge import check_factors, check_rates, in_play
from semicyclic.method.pack import Packed, pack
from semicyclic.method.readout import Kept, Log, trace_bytes
from semicyclic.method.record import Page, Plan, Running, State, blank_table, blank_trace, cut_page
from semicyclic.method.rows import Rows, join
from semicyclic.method.run import Run
from semicyclic.method.schedule import visits

Array = npt.NDArray[Any]

# Records are written page by page: large enough that calls do not count, small enough that
# dropping one frees little more than it must.
PAGE = 32 * 2**20
REMEDY = "use a smaller step_size, scale the features, or set radius="


class Diverged(ArithmeticError):
    """The chain left the finite numbers."""


def go_on(run: Run, rows: Rows | None, engine: ModuleType, *, batch_size: int, ended: bool) -> Run:
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
    return learn(run, packed, engine)


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
        before = int(run.log.pages[-1].block[-1]) % run.blocks, int(run.log.pages[-1].cycle[-1])
    elif (past := run.log.past) is not None:
        slot = int(past.order.argmax())
        before = slot % run.blocks, int(past.cycle[slot])
    else:
        before = 0, 0
    first.cycle = before[1] + cycle + (first.block[0] < before[0])
    return first


def copied(held: Any) -> Any:
    """With a generator of its own, so that going on with a run leaves it as it was."""
    return deepcopy(held)


def learn(run: Run, packed: Packed, engine: ModuleType) -> Run:
    """Run the chain over packed rows, changing the run's own state and log."""
    layout, plan, state, log = packed.layout, run.log.plan, run.state, run.log
    traced = engine.TRACES and not log.tables and _is_traced(run, packed)
    fresh = not log.pages and log.past is None
    if traced and run.bets is None and fresh and engine.keeps_running(layout, plan, state):
        zeros = np.zeros((packed.blocks, *state.vectors.shape[1:]), state.vectors.dtype)
        log.running = Running(zeros, np.zeros(packed.blocks))
    total = int(layout.visits[-1])
    if run.bets is not None:
        check_rates(run.bets, packed.steps)
    coin = None if run.hedge is None else run.hedge.coin
    toss = np.zeros(0) if coin is None else coin.random(total)
    done = 0
    for stop, model, block in [*_draw(run, packed), (total, -1, -1)]:
        while done < stop:
            until = _page_end(packed, log, done, stop) if traced else stop
            page = _page(packed, plan, state, log, traced=traced, span=(done, until))
            span = done, until
            if run.bets is not None:
                reached, records = engine.advance_hedged(layout, plan, state, page, span, run.bets, toss)
            else:
                running = log.running if traced else None
                reached, records = engine.advance(layout, plan, state, page, span, running)
            rows = int(layout.steps[reached] - layout.steps[done]) if traced else 0
            pages = cut_page(page, log.experts, records, rows, reached - done if traced else 0)
            kept = []
            for expert, own in enumerate(pages):
                _check(own, packed)
                slots = expert * packed.blocks + layout.block[own.visit]
                where = packed.cycle[own.visit], slots
                kept.append(Kept(own, *where, layout if traced else None, (done, reached), packed.turned))
                if log.tables:
                    from semicyclic.method.replay import merge_table

                    assert log.running is not None
                    merge_table(own.mean, own.weight, slots, *log.running)
            log.append(kept)
            done = reached
        if model >= 0:
            assert run.reservoir is not None
            run.reservoir.kept[model] = iterate(run, block, float(toss[stop]) if len(toss) else None)
    if run.bets is not None:
        check_factors(run.bets)
    if not np.isfinite(state.vectors).all():
        raise Diverged("the chain diverged at its last step: " + REMEDY)
    return replace(run, weighted=run.weighted or len(layout.weights) > 0)


def iterate(run: Run, block: int, toss: float | None = None) -> Array:
    """[d+1, C] the iterate in force in a block; of hedged chains, their mixture or the one drawn."""
    if run.bets is None:
        return in_force(run.log.plan, run.state, block)
    blocks = len(run.bets.share)
    parts = [in_force(run.log.plan, run.state, e * blocks + block) for e in range(run.log.experts)]
    return np.asarray(np.tensordot(in_play(run.bets, block, toss), parts, axes=1))


def _is_traced(run: Run, packed: Packed) -> bool:
    """Whether the rows and their slopes take less room than a mean and an end per visit."""
    if run.log.pages:
        return not run.log.pages[0].is_table
    layout = packed.layout
    item = layout.values.dtype.itemsize
    table = 2 * len(layout.block) * (packed.width + 1) * packed.loss.outputs * item
    slopes = len(layout.targets) * packed.loss.outputs * item
    experts = run.log.experts
    return layout.columns.nbytes + layout.values.nbytes + experts * slopes < experts * table


def _page(packed: Packed, plan: Plan, state: State, log: Log, *, traced: bool, span: tuple[int, int]) -> Page:
    """Room for what comes next: all of it, or as much as a page holds."""
    layout = packed.layout
    shape, kind = (state.vectors.shape[1], state.vectors.shape[2]), state.vectors.dtype
    first, last = np.searchsorted(layout.visits, span, side="right") - 1
    records = int(last - first) + 1
    if np.isfinite(plan.radius).any():
        # A visit has several records where the projection shrinks the scale often.
        records += (span[1] - span[0]) // 8
    if not traced:
        limit = max(min(PAGE, log.budget // 8), 1)
        a_record = 2 * shape[0] * shape[1] * kind.itemsize * log.experts
        return blank_table(log.experts * max(min(records, limit // a_record), 1), shape, kind)
    rows = int(layout.steps[span[1]] - layout.steps[span[0]])
    steps, experts = span[1] - span[0], log.experts
    return blank_trace(experts * records, experts * rows, experts * steps, shape[1], kind)


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
