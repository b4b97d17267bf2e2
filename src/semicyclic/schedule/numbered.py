"""`Numbered`: a schedule without times, for rows that state their block."""

from dataclasses import dataclass

import numpy as np

from semicyclic.schedule.schedule import Schedule


@dataclass(frozen=True)
class Numbered:
    """Schedule without times: blocks are numbered from 0, and rows state their block.

    Parameters
    ----------
    blocks : int
        m.
    """

    blocks: int

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, int | np.integer) or isinstance(self.blocks, bool) or self.blocks < 1:
            raise ValueError(f"schedule={self.blocks!r}: give a Schedule, or the number of blocks")
        object.__setattr__(self, "blocks", int(self.blocks))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the blocks: their numbers."""
        return tuple(str(block) for block in range(self.blocks))

    def to_json(self) -> int:
        """Return a JSON value: the number of blocks."""
        return self.blocks


AnySchedule = Schedule | Numbered


def as_schedule(schedule: AnySchedule | int) -> AnySchedule:
    """Return a schedule; an int m becomes `Numbered(m)`."""
    return schedule if isinstance(schedule, Schedule | Numbered) else Numbered(schedule)
