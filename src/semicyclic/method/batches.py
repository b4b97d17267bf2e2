"""Minibatches: rows cut into visits and minibatches and packed for the kernels."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.method import kernels
from semicyclic.method.arrays import Layout
from semicyclic.method.column_scale import ColumnScale
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.schedule.numbered import AnySchedule, as_schedule
from semicyclic.schedule.schedule import Located
from semicyclic.schedule.visits import visits
from semicyclic.types import Array

Classes = tuple[Any, ...]

# Below this many cells a second thread costs more than it saves.
MANY = 1 << 18
# Every visit scans all columns if that is at most this many per cell.
SCAN = 8


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows cut into visits and minibatches, ready for training; made by `pack`.

    Parameters
    ----------
    layout : Layout
        The cells of the rows, in training order.
    schedule, loss, classes, batch_size
        As given to `pack`.
    width : int
        Number of feature columns.
    intercept : bool
        Whether the model has a constant column.
    scale : ColumnScale, optional
        For normalized steps, the scale of each column, by which values are divided.
    """

    layout: Layout
    schedule: AnySchedule
    loss: Loss
    classes: Classes
    batch_size: int
    width: int
    intercept: bool
    scale: ColumnScale | None = None

    def __repr__(self) -> str:
        rows, steps = len(self.layout.starts) - 1, int(self.steps.sum())
        return f"Packed({rows:,} x {self.width:,}, {steps:,} steps in {self.blocks} blocks, {self.loss!r})"

    @property
    def blocks(self) -> int:
        """m, the number of blocks."""
        return self.schedule.blocks

    @property
    def steps(self) -> Array:
        """[m] |S_i|, the number of steps in each block."""
        return np.bincount(self.layout.block, np.diff(self.layout.visits), self.blocks).astype(int)

    def lipschitz(self) -> float:
        """G, a bound on a step's gradient: the loss's Lipschitz constant times the largest row norm."""
        return self.loss.lipschitz * self._longest

    @cached_property
    def _longest(self) -> float:

        layout = self.layout
        return float(
            kernels.batching.largest_row_norm(
                layout.starts, layout.values, layout.weights, float(self.intercept)
            )
        )


def empty_batches(
    width: int,
    schedule: AnySchedule | int,
    *,
    loss: Loss,
    batch_size: int = 128,
    classes: Classes = (),
    intercept: bool = True,
    dtype: npt.DTypeLike = np.float32,
) -> Packed:
    """Return a `Packed` without rows, to create an untrained run that `train.extend` continues."""
    none, whole = np.zeros(0, dtype), np.zeros(0, np.int64)
    start = np.zeros(1, np.int64)
    columns = np.zeros(0, np.uint16 if width <= 2**16 else np.uint32)
    layout = Layout(columns, none, start, none, none, start, start, whole, whole, start, columns, True)
    return Packed(layout, as_schedule(schedule), loss, classes, batch_size, width, intercept)


class RowOrder(NamedTuple):
    """Row numbers in training order, with the cycle and block of each."""

    rows: Array
    cycle: Array
    block: Array


def pack(
    rows: Rows,
    schedule: AnySchedule | int,
    *,
    loss: Loss,
    batch_size: int = 128,
    classes: Classes | None = None,
    order: RowOrder | None = None,
    normalize: bool = False,
) -> Packed:
    """Cut rows into visits, and visits into minibatches.

    Packing once and training several times saves the packing time of the later runs.

    Parameters
    ----------
    rows : Rows
        Labelled rows.
    schedule : Schedule, Numbered or int
        Maps the rows' times to blocks; an int m means m numbered blocks.
    loss : Loss
        Decides how labels are encoded.
    batch_size : int
        Rows per step. A minibatch never crosses a visit, so the last one of a visit may be smaller.
    classes : tuple, optional
        Classes in the order of their codes; by default the sorted distinct labels. Of two classes the second
        is the positive one.
    order : RowOrder, optional
        Train in this order, ignoring the rows' own times, as on
        `rows[order.rows].with_blocks(order.block, order.cycle)` but without that copy.
    normalize : bool
        Divide features by the scale of their column, for `step.normalized`.

    Returns
    -------
    Packed
    """
    check_batch_size(batch_size)
    schedule = as_schedule(schedule)
    located = rows.place(schedule) if order is None else _check_order(order, rows, schedule.blocks)
    scale, given = None, None if order is None else order.rows
    if normalize:
        # In training order: a row that comes again is divided by another scale.
        ordered = rows if given is None else rows[given].with_blocks(located.block, located.cycle)
        scale, given = ColumnScale.empty(rows.width), None
        rows = scale.normalize(ordered)
    runs = visits(located.cycle, located.block)
    counts = -(-np.diff(runs.start) // batch_size)
    bounds = np.r_[0, np.cumsum(counts)]
    within = np.arange(bounds[-1]) - np.repeat(bounds[:-1], counts)
    steps = np.r_[np.repeat(runs.start[:-1], counts) + within * batch_size, len(located.block)]
    targets, known = encode(rows.labels, loss, classes)
    visits_ = bounds.astype(np.int64), runs.cycle, runs.block
    layout = _lay_out(rows, targets, steps, visits_, given)
    return Packed(layout, schedule, loss, known, batch_size, rows.width, rows.intercept, scale)


def check_batch_size(batch_size: int) -> None:
    """Raise unless the batch size is a positive integer."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r}: must be a whole number, at least 1")


def _check_order(order: RowOrder, rows: Rows, blocks: int) -> Located:
    if not len(order.rows) == len(order.cycle) == len(order.block) > 0:
        raise ValueError("an order has a row, a cycle and a block for each of its places, at least one")
    if order.rows.min() < 0 or order.rows.max() >= len(rows):
        raise ValueError(f"the order names rows that are not there: there are 0 to {len(rows) - 1}")
    if order.block.min() < 0 or order.block.max() >= blocks:
        raise ValueError(f"the order names blocks that are not there: there are 0 to {blocks - 1}")
    return Located(order.cycle, order.block)


def encode(labels: Array | None, loss: Loss, classes: Classes | None) -> tuple[Array, Classes]:
    """Encode labels as the loss expects them: -1 and +1, codes 0..C-1, or numbers."""
    if labels is None:
        raise ValueError("these rows have no labels: give y")
    if loss.classes == 0:
        if labels.dtype.kind not in "biuf":
            raise ValueError(f"labels hold {labels.dtype}: loss {loss.name} needs numbers")
        numbers = labels.astype(np.float64)
        if not np.isfinite(numbers).all():
            row = int((~np.isfinite(numbers)).argmax())
            raise ValueError(f"label of row {row} is {numbers[row]}: it must be finite")
        return numbers, ()
    if classes is None:
        values = distinct(labels)
        if len(values) < loss.classes:
            shown = ", ".join(repr(value) for value in values)
            raise ValueError(
                f"the labels have {len(values)} class(es) ({shown}), loss {loss.name} needs "
                f"{loss.classes}: name them all with classes=(...)"
            )
    else:
        values = np.asarray(list(classes))
        if len(set(values.tolist())) != len(values):
            raise ValueError(f"classes={classes!r}: they must all be different")
    if len(values) != loss.classes:
        raise ValueError(
            f"there are {len(values)} classes, loss {loss.name} takes {loss.classes}: "
            + ("use loss.softmax" if len(values) > 2 else "check classes=")
        )
    targets = encode_labels(labels, values).astype(np.float32)
    return (targets if loss.outputs > 1 else 2 * targets - 1), tuple(values.tolist())


def encode_labels(labels: Array, values: Array) -> Array:
    """Return the index of each label in `values`; raise for a label that is not among them."""
    if len(values) == 2:
        code = labels == values[1]
        unknown = ~(code | (labels == values[0]))
    else:
        order = np.argsort(values)
        code = order[np.searchsorted(values, labels, sorter=order).clip(0, len(values) - 1)]
        unknown = values[code] != labels
    if unknown.any():
        row = int(unknown.argmax())
        known = ", ".join(repr(value) for value in values.tolist())
        label = labels[row : row + 1].tolist()[0]
        raise ValueError(f"row {row} has the unknown label {label!r}: the classes are {known}")
    return np.asarray(code, np.int64)


def distinct(labels: Array) -> Array:
    """Return the distinct labels, sorted."""
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int((~np.isfinite(labels)).argmax())
        raise ValueError(f"label of row {row} is {labels[row]}: it must be finite")
    if labels.dtype.kind not in "biuf":
        try:
            return np.unique(labels)
        except TypeError:
            what = "missing" if any(each is None for each in labels) else "of several kinds"
            raise ValueError(f"some labels are {what}: they must all be texts or all be numbers") from None
    # Two comparisons settle the common case without sorting millions of labels.
    low, high = labels.min(), labels.max()
    if ((labels == low) | (labels == high)).all():
        return np.array([low, high] if low != high else [low])
    return np.unique(labels)


def _lay_out(
    rows: Rows, targets: Array, steps: Array, visits_: tuple[Array, Array, Array], given: Array | None
) -> Layout:
    """Sort the rows of each minibatch by length, and list the distinct columns of each visit."""

    n, begin = len(rows), rows.indptr
    if given is not None:
        n, begin = len(given), np.empty(len(given) + 1, np.int64)
        kernels.batching.begin_rows(rows.indptr, given, begin)
    order = np.empty(n, np.int64)
    kernels.batching.order_rows(begin, steps, order)
    if given is not None:
        order = given[order]
    cells = int(begin[-1])
    starts, columns = np.empty(n + 1, np.int64), np.empty(cells, _whole(rows.width))
    values = np.empty(cells, rows.values.dtype)
    kernels.batching.begin_rows(rows.indptr, order, starts)
    copy = partial(
        kernels.batching.copy_rows, rows.indptr, rows.indices, rows.values, order, (starts, columns, values)
    )
    _in_parallel(copy, n, cells)
    weights = np.zeros(0, values.dtype) if rows.weight is None else rows.weight[order]
    columns, first, lists, dense = _list_columns(columns, starts[steps[visits_[0]]], rows.width)
    kept = targets[order].astype(values.dtype), weights, steps
    return Layout(columns, values, starts, *kept, *visits_, first, lists, dense)


def _list_columns(columns: Array, bounds: Array, width: int) -> tuple[Array, Array, Array, bool]:
    """Return the distinct columns of each visit, and the cells with their columns renumbered by visit."""

    visits_, cells = len(bounds) - 1, len(columns)
    # By ratio: listing columns in order scans all of them in every visit.
    dense = visits_ * width <= SCAN * cells
    column_type = _whole(width + 1)
    most = np.diff(bounds).clip(max=width) + 1
    local = columns if dense else np.empty(cells, _whole(int(most.max())))
    first = np.zeros(visits_ + 1, np.int64)

    def job(span: tuple[int, int]) -> Array:
        lists = np.empty(int(most[span[0] : span[1]].sum()) + 1, column_type)
        if dense:
            used = kernels.batching.list_columns(columns, bounds, width, span, lists, first)
        else:
            used = kernels.batching.number_columns(columns, bounds, width, span, lists, first, local)
        return lists[: int(used)]

    parts = _in_parallel(job, visits_, cells)
    # Each part has counted from 0.
    ends = np.linspace(0, visits_, len(parts) + 1).astype(np.int64)
    for part, (low, high) in enumerate(pairwise(ends.tolist())):
        if part:
            first[low + 1 : high + 1] += first[low]
    return local, first, np.concatenate(parts), dense


def _whole(limit: int) -> Any:
    """Return the smallest unsigned integer type for numbers below `limit`."""
    return np.uint16 if limit <= 2**16 else np.uint32


def _in_parallel(job: Callable[[tuple[int, int]], Any], count: int, cells: int) -> list[Any]:
    """Run `job` on ranges that cover 0..count, one per thread; return the results in order."""
    threads = min(os.cpu_count() or 1, count) if cells >= MANY else 1
    spans = list(pairwise(np.linspace(0, count, threads + 1).astype(np.int64).tolist()))
    if threads == 1:
        return [job(span) for span in spans]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(job, spans))
