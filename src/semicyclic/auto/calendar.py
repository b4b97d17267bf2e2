"""`Calendar`: the hours, weekdays and coarser blocks that the blocks of a schedule belong to.

A daily rhythm may hide a weekly one. Therefore a daily schedule is refined to blocks of a week, cut at every
midnight. A block of the day is then a group of these finer blocks, and so is a weekday.
"""

from dataclasses import dataclass

import numpy as np

from semicyclic.schedule import block_edges
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.numbered import AnySchedule, Numbered, as_schedule
from semicyclic.schedule.schedule import MONDAY, Schedule
from semicyclic.types import Array

WEEK = 7 * DAY
WEEKDAYS = tuple(day.capitalize() for day in block_edges.WEEKDAYS)
# Schedules with fewer slots get no coarse slots; otherwise a coarse slot joins about four slots.
MIN_SLOTS_FOR_COARSE, SLOTS_PER_COARSE = 8, 4
# Schedules with more blocks are reduced to this many groups of neighboring blocks.
MAX_SLOTS = 168
# In microseconds, as DAY and WEEK.
HOUR = 3_600_000_000


@dataclass(frozen=True, eq=False)
class Calendar:
    """The finest blocks that candidates distinguish, and the groups they belong to.

    schedule: the user's schedule. model: the schedule of the exported model.
    fine, block: [blocks of `model`] the finest block, and the block of the user's schedule.
    slot: [finest blocks] position in the day (or in the user's cycle, if that is not a day or a week).
    weekday: [finest blocks] 0 to 6, or None. coarse: [finest blocks] about a quarter as many slots, or None.
    middle: [slots] middle of each slot as a fraction of its cycle. labels: [slots] names of the slots.
    """

    schedule: AnySchedule
    model: AnySchedule
    fine: Array
    block: Array
    slot: Array
    weekday: Array | None
    coarse: Array | None
    middle: Array
    labels: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of finest blocks."""
        return len(self.slot)

    @property
    def blocks(self) -> int:
        """Number of blocks of the user's schedule, m."""
        return self.schedule.blocks

    @property
    def slots(self) -> int:
        """Number of slots."""
        return int(self.slot.max()) + 1

    def place(self, ticks: Array) -> Array:
        """Return the finest block of each instant, in microseconds since 1970 UTC."""
        assert isinstance(self.model, Schedule)
        return np.asarray(self.fine[self.model.place(ticks).block])

    @property
    def once_a_day(self) -> bool:
        """True if a slot never recurs on the same day once left, even when clocks are set back."""
        schedule = self.schedule
        if isinstance(schedule, Numbered) or schedule.period % DAY or 0 not in schedule.starts:
            return False
        width, rest = divmod(schedule.period, schedule.blocks)
        if rest or width % HOUR:
            return False
        return set(schedule.starts) == set(range(0, schedule.period, width))


def calendar_of(schedule: AnySchedule | int, *, weekly: bool = True) -> Calendar:
    """Return the calendar of a schedule.

    weekly: distinguish weekdays in a daily schedule, and hours in a weekly one.
    """
    schedule = as_schedule(schedule)
    if isinstance(schedule, Schedule) and weekly and schedule.blocks <= MAX_SLOTS:
        if schedule.period == DAY and schedule.origin % DAY == 0:
            return _calendar_of_days(schedule)
        if schedule.period == WEEK and schedule.origin % WEEK == MONDAY % WEEK:
            return _calendar_of_weeks(schedule)
    return _calendar_of_blocks(schedule)


def _calendar_of_blocks(schedule: AnySchedule) -> Calendar:
    """Return a calendar of the schedule's blocks only; more than MAX_SLOTS are grouped with neighbors."""
    count, labels = schedule.blocks, schedule.labels
    if isinstance(schedule, Numbered):
        middle, order = (np.arange(count) + 0.5) / count, np.arange(count)
    else:
        middle = _block_middles(schedule)
        order = np.argsort(np.argsort(schedule.starts))
    block = np.arange(count)
    if count <= MAX_SLOTS:
        return Calendar(schedule, schedule, block, block, block, None, _coarse_slots(block), middle, labels)
    fine = order * MAX_SLOTS // count
    slot = np.arange(MAX_SLOTS)
    first = np.array([int(np.flatnonzero(fine == number)[0]) for number in slot])
    middle = np.array([middle[fine == number].mean() for number in slot])
    names = tuple(f"from {labels[number]}" for number in first)
    return Calendar(schedule, schedule, fine, block, slot, None, _coarse_slots(slot), middle, names)


def _calendar_of_days(schedule: Schedule) -> Calendar:
    """Return the calendar of a daily schedule: its blocks on each of the seven weekdays."""
    order = np.argsort(schedule.starts)
    starts = np.array(schedule.starts)[order]
    owner = order
    if starts[0] != 0:  # the last block of a day extends past midnight
        starts, owner = np.r_[0, starts], np.r_[order[-1], order]
    labels = [schedule.labels[index] for index in owner]
    if len(set(labels)) < len(labels):
        labels[0] += " (after midnight)"
    model = Schedule(
        WEEK,
        tuple(int(day * DAY + start) for day in range(7) for start in starts),
        tuple(f"{day} {label}" for day in WEEKDAYS for label in labels),
        schedule.zone,
        MONDAY,
    )
    block = np.tile(owner, 7)
    weekday = np.repeat(np.arange(7), len(starts))
    middle, coarse = _block_middles(schedule), _coarse_slots(block)
    fine = np.arange(model.blocks)
    return Calendar(schedule, model, fine, block, block, weekday, coarse, middle, schedule.labels)


def _calendar_of_weeks(schedule: Schedule) -> Calendar:
    """Return the calendar of a weekly schedule, with times of day as slots if it is cut at every midnight."""
    starts = np.array(schedule.starts)
    block = np.arange(schedule.blocks)
    if not set((np.arange(7) * DAY).tolist()) <= set(schedule.starts):
        return _calendar_of_blocks(schedule)
    weekday, within = np.divmod(starts, DAY)
    hours, slot = np.unique(within, return_inverse=True)
    middle = (hours + np.diff(np.r_[hours, DAY]) / 2) / DAY
    labels = tuple(_clock_label(int(hour)) for hour in hours)
    return Calendar(schedule, schedule, block, block, slot, weekday, _coarse_slots(slot), middle, labels)


def _clock_label(ticks: int) -> str:
    """Format microseconds since midnight as HH:MM."""
    minutes = ticks // 60_000_000
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _coarse_slots(slot: Array) -> Array | None:
    """Return the coarse slot of each slot, with about four neighboring slots in one; None if too few."""
    count = int(slot.max()) + 1
    if count < MIN_SLOTS_FOR_COARSE:
        return None
    return np.asarray(slot * (count // SLOTS_PER_COARSE) // count)


def _block_middles(schedule: Schedule) -> Array:
    """Return the middle of each block as a fraction of the period."""
    order = np.argsort(schedule.starts)
    begin = np.array(schedule.starts)[order]
    end = np.r_[begin[1:], begin[0] + schedule.period]
    middle = np.empty(schedule.blocks)
    middle[order] = ((begin + end) / 2 / schedule.period) % 1.0
    return middle
