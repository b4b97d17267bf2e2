"""The training loop: feeds packed rows to a kernel and collects its records."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from semicyclic.method import kernels
from semicyclic.method.arrays import Plan, Records, blank_records, current_weights, cut_records
from semicyclic.method.batches import Packed, pack
from semicyclic.method.hedge import check_factors, check_rates, in_play
from semicyclic.method.log import Log
from semicyclic.method.rows import Rows, copy_rows, join
from semicyclic.method.run import Run
from semicyclic.schedule.visits import visits
from semicyclic.types import Array

# Records are written in pages: large enough that the cost of a call does not matter, small enough that
# dropping one frees little more than needed. The system would map arrays of 32 MB and more anew every time.
PAGE = 31 * 2**20
REMEDY = "use a smaller step_size, scale the features, or set radius="


class Diverged(ArithmeticError):
    """The weights of a chain are no longer finite."""


def continue_run(run: Run, rows: Rows | None, *, batch_size: int, final: bool) -> Run:
    """Train on pending and new rows; unless `final`, keep an incomplete minibatch pending."""
    parts = [part for part in (run.pending, rows) if part is not None]
    if not parts:
        return run
    if rows is not None:
        _check_part(run, rows)
        if rows.block is not None and rows.cycle is None:
            parts[-1] = _number_cycles(run, rows)
        if run.scale is not None:
            parts[-1] = run.scale.normalize(parts[-1])
    whole = join(parts)
    if not final:
        runs = visits(*whole.place(run.schedule))
        open_rows = int(runs.start[-1] - runs.start[-2]) % batch_size
        # A copy: rows may share arrays with the caller, who may use them again.
        open_part = copy_rows(whole[len(whole) - open_rows :]) if open_rows else None
        run = replace(run, pending=open_part)
        if open_rows == len(whole):
            return run
        whole = whole[: len(whole) - open_rows]
    else:
        run = replace(run, pending=None)
    if whole.when is not None:
        run = replace(run, latest=int(whole.when[-1]))
    packed = pack(whole, run.schedule, loss=run.loss, batch_size=batch_size, classes=run.classes or None)
    return learn(run, packed)


def _check_part(run: Run, rows: Rows) -> None:
    """Raise unless the rows have the format of those before and are not older."""
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


def _number_cycles(run: Run, rows: Rows) -> Rows:
    """Assign cycles to rows with numbered blocks, continuing the numbering of the run."""
    first = rows[:]
    assert first.block is not None
    cycle = np.r_[0, np.cumsum(np.diff(first.block) < 0)]
    if run.pending is not None:
        place = run.pending.place(run.schedule)
        before = int(place.block[-1]), int(place.cycle[-1])
    elif run.log.pages:
        before = int(run.log.pages[-1].block[-1]), int(run.log.pages[-1].cycle[-1])
    elif (past := run.log.past) is not None:
        block = int(past.order.argmax())
        before = block, int(past.cycle[block])
    else:
        before = 0, 0
    first.cycle = before[1] + cycle + (first.block[0] < before[0])
    return first


def copy_with_generator(held: Any) -> Any:
    """Copy a reservoir or hedge including its random generator."""
    return deepcopy(held)


def learn(run: Run, packed: Packed) -> Run:
    """Train on packed rows, changing the run's state and log in place."""

    layout, plan, state, log = packed.layout, run.log.plan, run.state, run.log
    total = int(layout.visits[-1])
    if run.hedge_state is not None:
        check_rates(run.hedge_state, packed.steps)
    coin = None if run.hedge is None else run.hedge.coin
    toss = np.zeros(0) if coin is None else coin.random(total)
    sizes = _sizes(packed, plan, log.experts)
    done = 0
    for stop, model, block in [*_draw(run, packed), (total, -1, -1)]:
        while done < stop:
            page = _page(packed, log, sizes, (done, stop))
            done, count, used = kernels.advance.advance(
                layout, plan, state, page, run.hedge_state, toss, (done, stop)
            )
            _check(page, count)
            log.append(cut_records(page, count, used))
        if model >= 0:
            assert run.reservoir is not None
            run.reservoir.kept[model] = iterate(run, block, float(toss[stop]) if len(toss) else -1.0)
    if run.hedge_state is not None:
        check_factors(run.hedge_state)
    if not np.isfinite(state.vectors).all():
        raise Diverged("the chain diverged at its last step: " + REMEDY)
    return replace(run, weighted=run.weighted or len(layout.weights) > 0)


def iterate(run: Run, block: int, toss: float = -1.0) -> Array:
    """[d+1, C] the current iterate of a block; for hedged chains the mixture, or the one drawn by `toss`.

    With normalized steps it is that on normalized features.
    """
    if run.hedge_state is None:
        return current_weights(run.log.plan, run.state, block)
    blocks, experts = run.hedge_state.share.shape
    shares = np.zeros(experts)
    in_play(run.hedge_state, block, toss, shares)
    parts = [current_weights(run.log.plan, run.state, e * blocks + block) for e in range(experts)]
    return np.asarray(np.tensordot(shares, parts, axes=1))


def _sizes(packed: Packed, plan: Plan, experts: int) -> Array:
    """[visits] an upper bound on the number of values in the records of each visit."""
    layout = packed.layout
    active = (plan.active >= 0).sum(axis=1).reshape(experts, -1).sum(axis=0)[layout.block]
    tables = active + experts * (np.diff(layout.visits) > 1)
    return np.asarray(np.diff(layout.first) * packed.loss.outputs * tables)


def _page(packed: Packed, log: Log, sizes: Array, span: tuple[int, int]) -> Records:
    """Allocate a page for the next records: for all of them, or as many as fit."""
    layout = packed.layout
    first, last = np.searchsorted(layout.visits, (span[0], span[1] - 1), side="right") - 1
    need = np.cumsum(sizes[first : last + 1])
    limit = max(min(PAGE, log.budget // 8) // layout.values.itemsize, int(need[0]))
    room, numbers = int(np.searchsorted(need, limit, side="right")), min(int(need[-1]), limit)
    if np.isfinite(log.plan.radius).any():
        # A visit has several records if the projection shrinks the scale often, at most one per step.
        steps = np.diff(layout.visits)[first : last + 1]
        room += int(steps[:room].sum()) // 8 + 1
        numbers = min(limit, int(sizes[first : last + 1] @ steps))
    return blank_records(room, log.experts, layout.lists, np.empty(numbers, layout.values.dtype))


def _draw(run: Run, packed: Packed) -> list[tuple[int, int, int]]:
    """Draw the replacements of the reservoir: (step, model, block), in order.

    One uniform number per step, so that cutting the stream changes nothing. Of all replacements in these rows
    only the last one per model matters, and only that is carried out.
    """
    if run.reservoir is None:
        return []
    block = np.repeat(packed.layout.block, np.diff(packed.layout.visits))
    model = run.member.model[block]
    chance = run.reservoir.rng.random(len(block))
    chosen = {}
    for number in range(run.member.models):
        steps_of_model = np.flatnonzero(model == number)
        count = run.reservoir.seen[number] + np.arange(1, len(steps_of_model) + 1)
        taken = steps_of_model[chance[steps_of_model] * count < 1.0]
        run.reservoir.seen[number] += len(steps_of_model)
        if len(taken):
            chosen[int(taken[-1])] = number
    return [(step, number, int(block[step])) for step, number in sorted(chosen.items())]


def _check(page: Records, count: int) -> None:
    broken = ~np.isfinite(page.loss[:count])
    if broken.any():
        record = int(broken.argmax())
        raise Diverged(
            f"the chain diverged in cycle {page.cycle[record]}, block {page.block[record]}: " + REMEDY
        )
