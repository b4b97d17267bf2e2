"""Read-outs: models as weighted sums over the records of a run.

A read-out gives model q the weight a on the mean of a record and l on the iterate after it. With V_0 the
vectors before the first record, and dV and dm the changes a record holds (see `arrays.Records`),

    iterate after record r    scale_r sum_a c_a V_r,        V_r = V_{r-1} + dV_r
    mean of record r          (mass_r / weight_r) sum_a c_a V_{r-1} + dm_r,

so every model is a weighted sum of V_0 and of changes. There are two ways to add them up. `walk` follows V
through the records and adds whole iterates to the models: its cost is records x columns. `sweep` adds every
change to all models at once, by the weight of all later iterates, which `look_back` finds: its cost is
changes x models.
"""

from typing import Any

import numpy as np

from semicyclic.jit import jit, loop
from semicyclic.method.arrays import Plan, Records

# Changes are swept up in tiles of 2^13 columns, which stay in the cache; packing orders a visit's columns so.
TILE_BITS = 13


@loop
def look_back(plan: Plan, records: Records, picks: Any, carry: Any, later: Any, needed: Any) -> Any:
    """The weight of every change in every model, going backwards through the records.

    picks: (first, model, mean, last): record k = r * E + e has the entries first[k]:first[k+1].
    carry: [vectors, Q] the weight that later records give to each vector; it is brought to the first record.
    later: [R * E, A, Q] what a change of the a-th active vector adds to each model.
    needed: [R * E] whether it adds anything to any model.
    """
    first, model, mean, last = picks
    experts = records.weight.shape[1]
    blocks = len(plan.chain) // experts
    for r in range(len(records.block) - 1, -1, -1):
        for e in range(experts):
            k, slot = r * experts + e, e * blocks + records.block[r]
            chain = plan.chain[slot]
            if records.fold[r, e] != 1.0:
                for vector in range(len(carry)):
                    if plan.owner[vector] == chain:
                        for q in range(carry.shape[1]):
                            carry[vector, q] *= records.fold[r, e]
            weight = records.weight[r, e]
            whole = records.mass[r, e] / weight if weight > 0.0 else 0.0
            needed[k] = False
            for a in range(plan.active.shape[1]):
                vector = plan.active[slot, a]
                if vector < 0:
                    continue
                c = plan.coefficient[slot, a]
                for p in range(first[k], first[k + 1]):
                    carry[vector, model[p]] += last[p] * records.scale[r, e] * c
                for q in range(carry.shape[1]):
                    later[k, a, q] = carry[vector, q]
                    needed[k] |= carry[vector, q] != 0.0
                for p in range(first[k], first[k + 1]):
                    carry[vector, model[p]] += mean[p] * whole * c
            needed[k] |= first[k + 1] > first[k]


@jit
def sweep(plan: Plan, records: Records, picks: Any, weights: Any, out: Any, low: Any, tiles: Any) -> Any:
    """Add the changes in the tiles tiles[0]..tiles[1]-1 to out [C, d+1, models], from model `low` on.

    weights: what `look_back` found, `later` and `needed`.
    """
    first, model, mean, _ = picks
    later, needed = weights
    lists, listed, widths, changes = records.lists, records.listed, records.width, records.changes
    begins, steps, block, active = records.begin, records.steps, records.block, plan.active
    count, experts = records.weight.shape
    blocks = len(plan.chain) // experts
    outputs, width, stride = out.shape
    flat, shares = out.ravel(), later.ravel()
    models = np.uint64(later.shape[2])
    at = listed.copy()
    for tile in range(tiles[0], tiles[1]):
        for r in range(count):
            stop = listed[r] + widths[r]
            begin = at[r] if tile > tiles[0] else _find_tile(lists, at[r], stop, tile)
            end = _find_tile(lists, begin, stop, tile + 1)
            at[r] = end
            for e in range(experts):
                k, slot = r * experts + e, e * blocks + block[r]
                if not needed[k] or end == begin:
                    continue
                place = begins[r, e] + (begin - listed[r]) * outputs
                for a in range(active.shape[1]):
                    if active[slot, a] < 0:
                        continue
                    share = np.uint64((k * active.shape[1] + a) * later.shape[2])
                    for c in range(outputs):
                        for p in range(begin, end):
                            change = changes[place + (p - begin) * outputs + c]
                            to = np.uint64((c * width + np.int64(lists[p])) * stride + low)
                            for q in range(models):
                                flat[to + q] += change * shares[share + q]
                    place += widths[r] * outputs
                if steps[r] > 1.0:
                    for entry in range(first[k], first[k + 1]):
                        part = changes.dtype.type(mean[entry])
                        for c in range(outputs):
                            for p in range(begin, end):
                                change = changes[place + (p - begin) * outputs + c]
                                row = (c * width + np.int64(lists[p])) * stride + low
                                flat[np.uint64(row + model[entry])] += part * change


@loop
def _find_tile(lists: Any, low: Any, high: Any, tile: Any) -> Any:
    """Where in lists[low:high], which is ordered by tile, this tile or a later one begins."""
    while low < high:
        middle = (low + high) // 2
        if lists[middle] >> TILE_BITS < tile:
            low = middle + 1
        else:
            high = middle
    return low


@loop
def walk(plan: Plan, records: Records, picks: Any, vectors: Any, out: Any) -> Any:
    """Add whole iterates to out [models, d+1, C], bringing `vectors` from before the records to their end."""
    first, model, mean, last = picks
    lists, listed, widths, changes = records.lists, records.listed, records.width, records.changes
    begins, steps, block, active = records.begin, records.steps, records.block, plan.active
    weights, masses, scales, folds = records.weight, records.mass, records.scale, records.fold
    coefficients = plan.coefficient
    count, experts = weights.shape
    blocks = len(plan.chain) // experts
    real = vectors.dtype.type
    outputs = np.uint64(vectors.shape[2])
    size = np.uint64(vectors.shape[1] * vectors.shape[2])
    v, rows = vectors.reshape(-1), out.reshape(-1)
    for r in range(count):
        begin, width = np.uint64(listed[r]), np.uint64(widths[r])
        for e in range(experts):
            k, slot = r * experts + e, e * blocks + block[r]
            place: Any = np.uint64(begins[r, e])
            whole = masses[r, e] / weights[r, e] if weights[r, e] > 0.0 else 0.0
            for a in range(active.shape[1]):
                if active[slot, a] < 0:
                    continue
                here = np.uint64(active[slot, a]) * size
                for entry in range(first[k], first[k + 1]):
                    if mean[entry] != 0.0:
                        part = real(mean[entry] * whole * coefficients[slot, a])
                        to = np.uint64(model[entry]) * size
                        for j in range(size):
                            rows[to + j] += part * v[here + j]
                for c in range(outputs):
                    for p in range(width):
                        column = np.uint64(lists[begin + p])
                        v[here + column * outputs + c] += changes[place + p * outputs + c]
                for entry in range(first[k], first[k + 1]):
                    if last[entry] != 0.0:
                        part = real(last[entry] * scales[r, e] * coefficients[slot, a])
                        to = np.uint64(model[entry]) * size
                        for j in range(size):
                            rows[to + j] += part * v[here + j]
                place += width * outputs
            if steps[r] > 1.0:
                for entry in range(first[k], first[k + 1]):
                    part, to = real(mean[entry]), np.uint64(model[entry]) * size
                    for c in range(outputs):
                        for p in range(width):
                            column = np.uint64(lists[begin + p])
                            rows[to + column * outputs + c] += part * changes[place + p * outputs + c]
            if folds[r, e] != 1.0:
                for vector in range(len(vectors)):
                    if plan.owner[vector] == plan.chain[slot]:
                        for j in range(size):
                            v[np.uint64(vector) * size + j] *= real(folds[r, e])
