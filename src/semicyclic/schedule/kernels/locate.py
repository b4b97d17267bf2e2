"""`locate` for long arrays: one table look-up and two divisions per row."""

from typing import Any

import numpy as np

from semicyclic.jit import inline, jit

# 2^40 microseconds are 12.7 days: no zone changes its clock twice in that time, so a
# bucket needs at most one comparison.
BUCKET = 40


@inline
def _floor_divide(value: Any, divisor: Any, inverse: Any) -> Any:
    # Multiplying by the inverse is several times faster than an integer division, and off
    # by at most one for every time the calendar has.
    quotient = np.int64(np.floor(np.float64(value) * inverse))
    rest = value - quotient * divisor
    if rest < 0:
        quotient -= 1
    elif rest >= divisor:
        quotient += 1
    return quotient


@jit
def locate(ticks: Any, at: Any, offset: Any, clock: Any, starts: Any, owner: Any) -> Any:
    """(cycle, block) of each instant; `clock` is (period, origin, equal width or 0)."""
    period, origin, width = clock
    cycle = np.empty(len(ticks), np.int64)
    block = np.empty(len(ticks), np.int64)
    low = ticks[0]
    high = ticks[0]
    for t in ticks:
        low = min(low, t)
        high = max(high, t)
    changes_before = np.zeros(((high - low) >> BUCKET) + 2, np.int64)
    for k in range(len(changes_before)):
        changes_before[k] = max(np.searchsorted(at, low + (k << BUCKET), side="right") - 1, 0)
    ends = np.full(len(at) + 1, np.int64(2**62))
    ends[: len(at) - 1] = at[1:]
    inverse = 1.0 / period
    share = 1.0 / width if width else 0.0
    for row in range(len(ticks)):
        t = ticks[row]
        k = changes_before[(t - low) >> BUCKET]
        k += t >= ends[k]
        local = t + offset[k] - origin
        turn = _floor_divide(local, period, inverse)
        rest = local - turn * period
        cycle[row] = turn
        if width:
            block[row] = _floor_divide(rest, width, share)
        else:
            block[row] = owner[np.searchsorted(starts, rest, side="right") - 1]
    return cycle, block
