"""`Calendar`: the hours, weekdays and coarser blocks that the blocks of a schedule belong to.

A daily rhythm may hide a weekly one. So a daily schedule is cut at every midnight of the week, and its
blocks are groups of these finer ones; so are the weekdays.
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
# Fewer blocks than this are not made coarser; coarser ones are about a quarter as many.
SEVERAL, QUARTER = 8, 4
# More blocks than these are told apart in groups.
MOST_SLOTS = 168
HOUR = 3_600_000_000


@dataclass(frozen=True, eq=False)
class Calendar:
    """The finest blocks that candidates tell apart, and groups of these.

    model: the schedule of a model of them. fine, block: [its blocks] the finest block of each, and the
        block of the user's schedule.
    slot: [fine] the position in the day (or in the user's cycle, where that is not a day or a week).
        weekday: [fine] 0 to 6, or None. coarse: [fine] a quarter as many slots, or None.
    middle: [slots] the middle of each slot as a fraction of its cycle. labels: what slots are called.
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
        """How many of the finest blocks there are."""
        return len(self.slot)

    @property
    def blocks(self) -> int:
        """m, the blocks of the schedule itself."""
        return self.schedule.blocks

    @property
    def slots(self) -> int:
        return int(self.slot.max()) + 1

    def place(self, ticks: Array) -> Array:
        """The finest block of each moment."""
        assert isinstance(self.model, Schedule)
        return np.asarray(self.fine[self.model.place(ticks).block])

    @property
    def once_a_day(self) -> bool:
        """Whether a slot, once left, is not come back to on the same day, even when clocks are put back."""
        held = self.schedule
        if isinstance(held, Numbered) or held.period % DAY or 0 not in held.starts:
            return False
        width, rest = divmod(held.period, held.blocks)
        return rest == 0 and width % HOUR == 0 and set(held.starts) == set(range(0, held.period, width))


def calendar_of(schedule: AnySchedule | int, *, weekly: bool = True) -> Calendar:
    """The finest blocks that a schedule's rhythm may need. weekly: a week may hide behind days."""
    schedule = as_schedule(schedule)
    if isinstance(schedule, Schedule) and weekly and schedule.blocks <= MOST_SLOTS:
        if schedule.period == DAY and schedule.origin % DAY == 0:
            return _of_days(schedule)
        if schedule.period == WEEK and schedule.origin % WEEK == MONDAY % WEEK:
            return _of_weeks(schedule)
    return _plain(schedule)


def _plain(schedule: AnySchedule) -> Calendar:
    """The blocks themselves, and nothing behind them; very many are told apart in groups of neighbours."""
    count, labels = schedule.blocks, schedule.labels
    if isinstance(schedule, Numbered):
        middle, order = (np.arange(count) + 0.5) / count, np.arange(count)
    else:
        middle = _middles(schedule)
        order = np.argsort(np.argsort(schedule.starts))
    own = np.arange(count)
    if count <= MOST_SLOTS:
        return Calendar(schedule, schedule, own, own, own, None, _coarse(own), middle, labels)
    fine = order * MOST_SLOTS // count
    first = np.array([int(np.flatnonzero(fine == each)[0]) for each in range(MOST_SLOTS)])
    slot = np.arange(MOST_SLOTS)
    middle = np.array([middle[fine == each].mean() for each in slot])
    names = tuple(f"from {labels[each]}" for each in first)
    return Calendar(schedule, schedule, fine, own, slot, None, _coarse(slot), middle, names)


def _of_days(schedule: Schedule) -> Calendar:
    order = np.argsort(schedule.starts)
    starts = np.array(schedule.starts)[order]
    owner = order
    if starts[0] != 0:  # the last block of a day reaches into the next
        starts, owner = np.r_[0, starts], np.r_[order[-1], order]
    labels = [schedule.labels[each] for each in owner]
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
    middle = _middles(schedule)
    fine = np.arange(model.blocks)
    return Calendar(schedule, model, fine, block, block, weekday, _coarse(block), middle, schedule.labels)


def _of_weeks(schedule: Schedule) -> Calendar:
    starts = np.array(schedule.starts)
    own = np.arange(schedule.blocks)
    if not set((np.arange(7) * DAY).tolist()) <= set(schedule.starts):
        return _plain(schedule)
    weekday, within = np.divmod(starts, DAY)
    hours, slot = np.unique(within, return_inverse=True)
    middle = (hours + np.diff(np.r_[hours, DAY]) / 2) / DAY
    labels = tuple(_clock(int(hour)) for hour in hours)
    return Calendar(schedule, schedule, own, own, slot, weekday, _coarse(slot), middle, labels)


def _clock(ticks: int) -> str:
    minutes = ticks // 60_000_000
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _coarse(slot: Array) -> Array | None:
    """Neighbouring slots together, about four and four."""
    count = int(slot.max()) + 1
    if count < SEVERAL:
        return None
    return np.asarray(slot * (count // QUARTER) // count)


def _middles(schedule: Schedule) -> Array:
    order = np.argsort(schedule.starts)
    begin = np.array(schedule.starts)[order]
    end = np.r_[begin[1:], begin[0] + schedule.period]
    middle = np.empty(schedule.blocks)
    middle[order] = ((begin + end) / 2 / schedule.period) % 1.0
    return middle
