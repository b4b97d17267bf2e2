"""Training methods: one pass over the rows, from which every read-out follows.

consensus      one chain, one model                                  (Section 2)
separate       a chain for each block                                (Section 4)
pluralistic    one chain, a model for each block                     (Section 5, Theorem 3)
residual       a shared vector and a small difference for each block (docs/math.md#residual)
hedged         several chains at once, and per block a hedge between them (Section 6, Theorem 4)
chain          any basis
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Unpack, cast

import numpy as np

from semicyclic.method import basis as bases
from semicyclic.method import step as steps
from semicyclic.method.batches import Packed, pack
from semicyclic.method.column_scale import ColumnScale
from semicyclic.method.hedge import AdaHedge, Prod
from semicyclic.method.loss import logistic
from semicyclic.method.plan import ChainSpec, Settings, first_run
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.training_loop import Diverged, continue_run, copy_with_generator, learn
from semicyclic.schedule.numbered import AnySchedule

__all__ = [
    "Diverged",
    "Settings",
    "chain",
    "consensus",
    "extend",
    "finish",
    "hedged",
    "pluralistic",
    "residual",
    "separate",
]

# The methods by name, for command lines and estimators.
METHODS = ("pluralistic", "separate", "residual", "hedged", "consensus")
STEP_SIZE = 0.5
ADAHEDGE = AdaHedge()
Data = Rows | Packed | Iterable[Rows]


def pluralistic(rows: Data, schedule: AnySchedule | int | None = None, **settings: Unpack[Settings]) -> Run:
    """Train one chain through all blocks, for one averaged model per block (Theorem 3).

    Parameters
    ----------
    rows : Rows, Packed or iterable of Rows
        Labelled rows in order of time; packed rows (then leave out `schedule`); or the parts of a stream,
        which are trained on as if they were one table.
    schedule : Schedule, Numbered or int, optional
        Blocks of the cycle. An int m means that rows state their block, 0..m-1.
    **settings
        See `train.Settings`.

    Returns
    -------
    Run
        Read a model out of it with `mean()`, `last()`, `tail(cycles)`, ...

    Raises
    ------
    Diverged
        If the weights are no longer finite.

    Examples
    --------
    >>> import numpy as np
    >>> import semicyclic as sc
    >>> rows = sc.Rows(np.eye(4), [0, 1, 0, 1], when=[0, 40_000, 86_400, 130_000])
    >>> run = sc.train.pluralistic(rows, sc.Schedule.daily(2), batch_size=1)
    >>> run.mean().blocks
    2
    """
    return chain(rows, schedule, bases.single, **settings)


def consensus(rows: Data, schedule: AnySchedule | int | None = None, **settings: Unpack[Settings]) -> Run:
    """Train the same chain as `pluralistic`; every read-out is one model for all blocks.

    Parameters
    ----------
    rows, schedule, **settings
        As in `pluralistic`.

    Returns
    -------
    Run
    """
    return chain(rows, schedule, bases.single, plural=False, **settings)


def separate(rows: Data, schedule: AnySchedule | int | None = None, **settings: Unpack[Settings]) -> Run:
    """Train a separate chain for each block, on the rows of that block only (Section 4).

    Parameters
    ----------
    rows, schedule, **settings
        As in `pluralistic`.

    Returns
    -------
    Run
    """
    return chain(rows, schedule, bases.separate, **settings)


def residual(
    rows: Data,
    schedule: AnySchedule | int | None = None,
    *groupings: Iterable[int],
    **settings: Unpack[Settings],
) -> Run:
    """Train a shared vector and a small difference per block (docs/math.md#residual).

    Parameters
    ----------
    rows, schedule, **settings
        As in `pluralistic`.
    groupings : sequence of sequences of int, optional
        A difference per group of each grouping instead of per block. A grouping lists the group of each
        block, such as the weekday of each hour of the week.

    Returns
    -------
    Run
    """
    return chain(rows, schedule, lambda m: bases.residual(m, *map(list, groupings)), **settings)


def hedged(
    rows: Data,
    schedule: AnySchedule | int | None = None,
    *,
    chains: Sequence[Any] = (bases.single, bases.separate),
    hedge: AdaHedge | Prod = ADAHEDGE,
    **settings: Unpack[Settings],
) -> Run:
    """Train several chains in one pass, with a hedge between them in each block (Theorem 4).

    Every read-out is of the mixture of the chains by their probabilities or, with `coin=`, of the chains that
    were drawn. `last` is the mixture by the latest probabilities.

    Parameters
    ----------
    rows, schedule, **settings
        As in `pluralistic`.
    chains : sequence of bases or (basis, step_size) pairs
        Chains without a step of their own use the common `step_size`. The first one is Prod's fixed expert.
    hedge : AdaHedge or Prod
        `AdaHedge()` needs no tuning. `Prod(...)` is the paper's rule and needs `radius=` or the range of
        losses.

    Returns
    -------
    Run
    """
    if not isinstance(chains, Sequence) or isinstance(chains, str):
        raise TypeError("chains must be a list of bases, such as (basis.single, basis.separate)")
    if len(chains) == 0:
        raise ValueError(
            "chains=(): name the chains to hedge between, such as (basis.single, basis.separate)"
        )
    if not isinstance(hedge, AdaHedge | Prod):
        raise TypeError(f"hedge is a {type(hedge).__name__}: give AdaHedge() or Prod(...)")
    common = _step_size(settings)
    pairs = [each if isinstance(each, tuple) else (each, common) for each in chains]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("chains must be bases, or pairs (basis, step_size)")
    basis, step = zip(*pairs, strict=True)
    return _train(rows, schedule, ChainSpec(basis, step, hedge), settings)


def chain(
    rows: Data,
    schedule: AnySchedule | int | None,
    basis: Any,
    *,
    plural: bool = True,
    **settings: Unpack[Settings],
) -> Run:
    """Train on any basis.

    Parameters
    ----------
    rows : Rows, Packed or iterable of Rows
        `Rows` with a schedule; rows packed by `pack`, without one; or the parts of one stream, cut into
        minibatches as if they were one table.
    schedule : Schedule, Numbered or int, optional
    basis : Basis or callable
        A basis, or a function that makes one for m blocks.
    plural : bool
        Whether read-outs give one model per block, or one for all.
    **settings
        See `train.Settings`.

    Returns
    -------
    Run
    """
    return _train(rows, schedule, ChainSpec((basis,), (_step_size(settings),), plural=plural), settings)


def _train(rows: Data, schedule: AnySchedule | int | None, chains: ChainSpec, settings: Settings) -> Run:
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
        if len(rows.layout.cycle) == 0:
            return first_run(rows, chains, None, settings)
        run = first_run(rows, chains, rows.steps, settings)
        return learn(run, rows)
    if schedule is None:
        raise ValueError("give a schedule, such as Schedule.daily(6, zone='Europe/Paris')")
    batch_size = settings.get("batch_size", 128)
    final = settings.get("final", True)
    if isinstance(rows, Rows) and not final:
        rows = [rows]
    normalize = steps.of(chains.step[0]).normalized
    if isinstance(rows, Rows):
        packed = _pack(rows, schedule, settings, normalize=normalize)
        run = replace(first_run(packed, chains, packed.steps, settings), features=rows.features)
        if rows.when is not None:
            run = replace(run, latest=int(rows.when[-1]))
        return learn(run, packed)
    started: Run | None = None
    for part in rows:
        if not isinstance(part, Rows):
            raise TypeError(f"a part of the stream is a {type(part).__name__}: make it Rows(X, y, when=...)")
        if len(part) == 0:
            continue
        if started is None:
            packed = _pack(part, schedule, settings, normalize=normalize)
            started = replace(first_run(packed, chains, None, settings), features=part.features)
            if normalize:
                started = replace(started, scale=ColumnScale.empty(part.width))
        started = continue_run(started, part, batch_size=batch_size, final=False)
    if started is None:
        raise ValueError("the stream has no parts")
    if not final:
        return started
    return continue_run(started, None, batch_size=batch_size, final=True)


def extend(run: Run, rows: Rows, *, final: bool = True) -> Run:
    """Continue a run on more rows; return a new run and leave the given one unchanged.

    Parameters
    ----------
    run : Run
        Trained with `final=False`.
    rows : Rows
        Rows that follow those of the run.
    final : bool
        Whether no rows will follow. With False an incomplete minibatch waits for the next rows, and the
        result is the same as if all rows had been given at once.

    Returns
    -------
    Run
    """
    if run.is_view:
        raise ValueError("this is a coarser or soft view of a run: extend the run itself")
    if not isinstance(rows, Rows):
        raise TypeError(f"rows is a {type(rows).__name__}: make it Rows(X, y, when=...)")
    return continue_run(_apart(run), rows, batch_size=run.batch_size, final=final)


def finish(run: Run) -> Run:
    """Return the run without further rows: trained on the incomplete minibatch too.

    Parameters
    ----------
    run : Run

    Returns
    -------
    Run
    """
    return continue_run(_apart(run), None, batch_size=run.batch_size, final=True)


def _apart(run: Run) -> Run:
    """Copy what training changes, so that the given run stays as it is."""
    return replace(
        run,
        log=run.log.copy(),
        state=run.state.copy(),
        scale=None if run.scale is None else run.scale.copy(),
        reservoir=copy_with_generator(run.reservoir),
        hedge=copy_with_generator(run.hedge),
        hedge_state=None if run.hedge_state is None else run.hedge_state.copy(),
    )


def _step_size(settings: Settings) -> Any:
    given = settings.get("step_size")
    return STEP_SIZE if given is None else given


def _pack(rows: Rows, schedule: AnySchedule | int, settings: Settings, *, normalize: bool) -> Packed:
    return pack(
        rows,
        schedule,
        loss=settings.get("loss", logistic),
        batch_size=settings.get("batch_size", 128),
        classes=settings.get("classes"),
        normalize=normalize,
    )
