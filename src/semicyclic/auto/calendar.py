"""`Calendar`: the hours, weekdays and coarser blocks that the blocks of a schedule belong to.

A rhythm may have another length than the schedule says. Therefore a daily or weekly schedule is refined to
blocks of a week, cut at every hour. A block of the schedule, an hour of the day and a weekday are then groups
of these finest blocks.
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
# Schedules with fewer blocks get no coarse blocks; otherwise a coarse block joins about four of them.
MIN_BLOCKS_FOR_COARSE, BLOCKS_PER_COARSE = 8, 4
# Schedules with more blocks are reduced to this many groups of neighboring blocks.
MAX_SLOTS = 168
# In microseconds, as DAY and WEEK.
HOUR = 3_600_000_000


@dataclass(frozen=True, eq=False)
class Calendar:
    """The finest blocks that candidates distinguish, and the groups they belong to.

    schedule: the user's schedule. model: the schedule of the exported model.
    fine, block: [blocks of `model`] the finest block, and the block of the user's schedule.
    slot: [finest blocks] the group that has mixture weights of its own: the block of the user's schedule, or
        in a weekly schedule its time of day.
    time: [finest blocks] position in the day at the finest resolution, or in the user's cycle, if that is
        neither a day nor a week. weekday: [finest blocks] 0 to 6, or None.
    coarse: [finest blocks] group of about four neighboring times, or None.
    middle: [times] middle of each time as a fraction of its cycle. labels: [slots] names of the slots.
    """

    schedule: AnySchedule
    model: AnySchedule
    fine: Array
    block: Array
    slot: Array
    time: Array
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

    @property
    def times(self) -> int:
        """Number of times of day, or positions in the cycle."""
        return int(self.time.max()) + 1

    def place(self, ticks: Array) -> Array:
        """Return the finest block of each instant, in microseconds since 1970 UTC."""
        assert isinstance(self.model, Schedule)
        return np.asarray(self.fine[self.model.place(ticks).block])

    def first_of(self, block: Array) -> Array:
        """Return the first finest block in each block of the user's schedule, for rows without times."""
        _, first = np.unique(self.block, return_index=True)
        return np.asarray(self.fine[first[block]])


def calendar_of(schedule: AnySchedule | int, *, weekly: bool = True) -> Calendar:
    """Return the calendar of a schedule.

    weekly: distinguish hours and weekdays in a daily or weekly schedule.
    """
    schedule = as_schedule(schedule)
    if isinstance(schedule, Schedule) and weekly and schedule.blocks <= MAX_SLOTS:
        daily = schedule.period == DAY and schedule.origin % DAY == 0
        if daily or (schedule.period == WEEK and schedule.origin % WEEK == MONDAY % WEEK):
            return _calendar_of_hours(schedule)
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
        return Calendar(schedule, schedule, block, block, block, block, None, _coarse(block), middle, labels)
    fine = order * MAX_SLOTS // count
    slot = np.arange(MAX_SLOTS)
    first = np.array([int(np.flatnonzero(fine == number)[0]) for number in slot])
    middle = np.array([middle[fine == number].mean() for number in slot])
    names = tuple(f"from {labels[number]}" for number in first)
    return Calendar(schedule, schedule, fine, block, slot, slot, None, _coarse(slot), middle, names)


def _calendar_of_hours(schedule: Schedule) -> Calendar:
    """Return the calendar of a daily or weekly schedule: the hours of the week, cut further at its edges."""
    hours = {hour * HOUR for hour in range(24)}
    times = np.array(sorted(hours | {start % DAY for start in schedule.starts}))
    starts = (np.arange(7)[:, None] * DAY + times).ravel()
    weekday, time = np.divmod(np.arange(len(starts)), len(times))
    order = np.argsort(schedule.starts)
    edges = np.array(schedule.starts)[order]
    # Before the first edge, the last block continues: index -1.
    block = order[np.searchsorted(edges, starts % schedule.period, side="right") - 1]
    model = Schedule(
        WEEK,
        tuple(starts.tolist()),
        tuple(f"{day} {_clock_label(int(start))}" for day in WEEKDAYS for start in times),
        schedule.zone,
        MONDAY,
    )
    slot, labels = block, schedule.labels
    if schedule.period == WEEK and set((np.arange(7) * DAY).tolist()) <= set(schedule.starts):
        within = np.unique(np.array(schedule.starts) % DAY)
        slot = np.searchsorted(within, times[time], side="right") - 1
        labels = tuple(_clock_label(int(start)) for start in within)
    middle = (times + np.diff(np.r_[times, DAY]) / 2) / DAY
    fine = np.arange(model.blocks)
    return Calendar(schedule, model, fine, block, slot, time, weekday, _coarse(time), middle, labels)


def _clock_label(ticks: int) -> str:
    """Format microseconds since midnight as HH:MM."""
    minutes = ticks // 60_000_000
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _coarse(time: Array) -> Array | None:
    """Return the coarse block of each position, with about four neighbors in one; None if too few."""
    count = int(time.max()) + 1
    if count < MIN_BLOCKS_FOR_COARSE:
        return None
    return np.asarray(time * (count // BLOCKS_PER_COARSE) // count)


def _block_middles(schedule: Schedule) -> Array:
    """Return the middle of each block as a fraction of the period."""
    order = np.argsort(schedule.starts)
    begin = np.array(schedule.starts)[order]
    end = np.r_[begin[1:], begin[0] + schedule.period]
    middle = np.empty(schedule.blocks)
    middle[order] = ((begin + end) / 2 / schedule.period) % 1.0
    return middle
