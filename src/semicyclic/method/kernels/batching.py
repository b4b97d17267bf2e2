"""Checking and packing of sparse rows by visit.

The order of rows within a minibatch does not matter, so they are sorted by length: consecutive inner loops
then have the same length, branches are predicted well, and four rows are processed at a time.

Every visit gets a list of the columns it touches, each once, the intercept last. If visits touch a good part
of all columns, cells keep their column numbers; otherwise they get their positions in the visit's list, so
that a visit can run on a small array.
"""

from typing import Any

import numpy as np

from semicyclic.jit import jit
from semicyclic.method.kernels.prefetch import prefetch
from semicyclic.method.kernels.readout import TILE_BITS

# Number of rows by which the copy prefetches ahead.
AHEAD = 16
# A minibatch of fewer rows is left as it is: sorting it would cost more than it saves.
FEW = 8
# Rows this long or longer share a bucket: they are few, and their loops long enough.
LONGEST = 64


@jit
def faults(indices: Any, values: Any, width: Any) -> Any:
    """Whether every column lies in 0..width-1, and whether every value is finite."""
    low = np.int64(0)
    high = np.int64(0)
    finite = True
    for p in range(len(indices)):
        low = min(low, np.int64(indices[p]))
        high = max(high, np.int64(indices[p]))
    for p in range(len(values)):
        finite &= np.isfinite(values[p])
    return low >= 0 and high < width, finite


@jit
def order_rows(indptr: Any, steps: Any, order: Any) -> Any:
    """Fill `order` with the rows of each minibatch, shortest first; equal lengths and few rows keep order."""
    count = np.zeros(LONGEST + 1, np.int64)
    for t in range(len(steps) - 1):
        first, last = steps[t], steps[t + 1]
        if last - first < FEW:
            for r in range(first, last):
                order[r] = r
            continue
        count[:] = 0
        for r in range(first, last):
            count[min(indptr[r + 1] - indptr[r], LONGEST - 1) + 1] += 1
        for length in range(LONGEST):
            count[length + 1] += count[length]
        for r in range(first, last):
            length = min(indptr[r + 1] - indptr[r], LONGEST - 1)
            order[first + count[length]] = r
            count[length] += 1


@jit
def begin_rows(indptr: Any, order: Any, starts: Any) -> Any:
    """Where rows begin when they are copied in this order."""
    at = np.int64(0)
    starts[0] = 0
    last = len(order) - 1
    for k in range(len(order)):
        prefetch(indptr, order[min(k + AHEAD, last)])
        r = order[k]
        at += indptr[r + 1] - indptr[r]
        starts[k + 1] = at


@jit
def largest_row_norm(starts: Any, values: Any, weights: Any, intercept: Any) -> Any:
    """The maximum over rows of the Euclidean norm, constant column included, times the row's weight."""
    longest = 0.0
    for r in range(len(starts) - 1):
        square = np.float64(intercept) ** 2
        for p in range(starts[r], starts[r + 1]):
            square += np.float64(values[p]) ** 2
        weight = np.float64(weights[r]) if len(weights) > 0 else 1.0
        longest = max(longest, weight * np.sqrt(square))
    return longest


@jit
def copy_rows(indptr: Any, indices: Any, values: Any, order: Any, packed: Any, span: Any) -> Any:
    """Copy the rows in their new order, columns narrowed to the layout's integers.

    packed: where each row is to begin, as `begin_rows` found it, and room for columns and values.
    span: which of the rows, in their new order, so that several threads can share the work.
    """
    starts, columns, cells = packed
    at = np.uint64(starts[span[0]])
    last = len(order) - 1
    for k in range(span[0], span[1]):
        prefetch(indptr, order[min(k + 2 * AHEAD, last)])
        soon = indptr[order[min(k + AHEAD, last)]]
        prefetch(indices, soon)
        prefetch(values, soon)
        prefetch(values, soon + 15)  # most rows extend into a second cache line
        r = order[k]
        first = np.uint64(indptr[r])
        length = np.uint64(indptr[r + 1]) - first
        for p in range(length):
            columns[at + p] = indices[first + p]
        for p in range(length):
            cells[at + p] = values[first + p]
        at += length


@jit
def list_columns(columns: Any, bounds: Any, width: Any, span: Any, lists: Any, first: Any) -> Any:
    """List the columns of the visits span[0]..span[1]-1 in ascending order; how many there are in all.

    bounds: visit v has the cells bounds[v]:bounds[v+1]. first: first[v+1] becomes the end of visit v's list.
    """
    mark = np.zeros(width, np.uint8)
    n = np.uint64(0)
    for v in range(span[0], span[1]):
        if bounds[v + 1] - bounds[v] >= 4 * width:
            # Nearly all columns occur: the few that do not change by 0.
            mark[:] = 1
        else:
            for p in range(np.uint64(bounds[v]), np.uint64(bounds[v + 1])):
                mark[columns[p]] = 1
        for j in range(np.uint64(width)):
            # Written whether marked or not: a branch would be mispredicted.
            lists[n] = j
            n += np.uint64(mark[j])
            mark[j] = 0
        lists[n] = width
        n += np.uint64(1)
        first[v + 1] = n
    return n


@jit
def number_columns(
    columns: Any, bounds: Any, width: Any, span: Any, lists: Any, first: Any, local: Any
) -> Any:
    """List the columns of visits, ordered by tile; `local` becomes the position of every cell's column."""
    # slot[j]: one more than where column j was listed last; it is in this visit's list if beyond its begin.
    slot = np.zeros(width, np.uint32)
    tiles = (width >> TILE_BITS) + 1
    count = np.zeros(tiles + 1, np.int64)
    longest = np.int64(0)
    for v in range(span[0], span[1]):
        longest = max(longest, min(bounds[v + 1] - bounds[v], width))
    listed, place = np.empty(longest, lists.dtype), np.empty(longest, local.dtype)
    n = np.uint64(0)
    for v in range(span[0], span[1]):
        begin = n
        for p in range(np.uint64(bounds[v]), np.uint64(bounds[v + 1])):
            j = columns[p]
            g = np.uint64(slot[j])
            new = g <= begin
            g = n + np.uint64(1) if new else g
            slot[j] = g
            lists[n] = j
            n += np.uint64(new)
            local[p] = g - begin - np.uint64(1)
        if tiles > 1:
            length = n - begin
            count[:] = 0
            for k in range(length):
                listed[k] = lists[begin + k]
                count[(np.int64(listed[k]) >> TILE_BITS) + 1] += 1
            for k in range(tiles):
                count[k + 1] += count[k]
            for k in range(length):
                tile = np.int64(listed[k]) >> TILE_BITS
                place[k] = count[tile]
                lists[begin + np.uint64(count[tile])] = listed[k]
                count[tile] += 1
            for p in range(np.uint64(bounds[v]), np.uint64(bounds[v + 1])):
                local[p] = place[local[p]]
        lists[n] = width
        n += np.uint64(1)
        first[v + 1] = n
    return n
