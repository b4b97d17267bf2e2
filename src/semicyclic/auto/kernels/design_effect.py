"""The design effect of rows that depend on each other, by which mixture rates are divided.

Rows close in time may depend on each other: then a day's rows say less than as many independent ones, and
rates must be lower. The design effect, as in survey statistics, is the variance of the sum of the losses of a
unit of rows, relative to that of as many independent rows. A unit is the rows with the same freeze time, such
as those of a day. The losses are those of the strategies, in excess of the mixture's.
"""

from typing import Any

from semicyclic.jit import jit

# The design effect that is assumed at first; it counts as much as a day of rows.
FIRST_DESIGN_EFFECT = 5.0


@jit
def add_to_unit(unit: Any, value: Any, mixed: Any, weight: Any, represents: Any) -> Any:
    """Add a row to the sums of the open unit. value: loss of each strategy. mixed: that of the mixture."""
    times = weight * represents
    for s in range(unit.shape[1]):
        excess = value[s] - mixed
        unit[0, s] += times
        unit[1, s] += times * excess
        unit[2, s] += weight * times
        unit[3, s] += weight * times * excess * excess


@jit
def close_unit(unit: Any, units: Any) -> Any:
    """Add the sums of the open unit, and their products, to those of the units before."""
    for s in range(unit.shape[1]):
        rows, total = unit[0, s], unit[1, s]
        if rows > 0.0:
            units[0, s] += 1.0
            units[1, s] += rows
            units[2, s] += rows * rows
            units[3, s] += total
            units[4, s] += rows * total
            units[5, s] += total * total
            units[6, s] += unit[2, s]
            units[7, s] += unit[3, s]
    for at in range(unit.size):
        unit.flat[at] = 0.0


@jit
def design_effect(units: Any) -> Any:
    """Return the variance of a unit's sum of losses, relative to that of independent rows; at least 1.

    Both variances are about the mean loss of all rows. The mean over strategies is returned.
    """
    total, count = 0.0, 0
    for s in range(units.shape[1]):
        if units[0, s] == 0.0:
            continue
        mean = units[3, s] / units[1, s]
        of_sums = units[5, s] - 2.0 * mean * units[4, s] + mean * mean * units[2, s]
        of_rows = units[7, s] - mean * mean * units[6, s]
        if of_rows > 0.0:
            first = of_rows / units[0, s]
            total += (FIRST_DESIGN_EFFECT * first + of_sums) / (first + of_rows)
            count += 1
    return max(1.0, total / count) if count > 0 else FIRST_DESIGN_EFFECT
