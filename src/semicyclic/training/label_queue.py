"""Queue of rows whose labels come later: which rows to score on arrival, and which to train on then."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from semicyclic.method.rows import Rows, join
from semicyclic.schedule.label_delay import arrived_before_label, known_before
from semicyclic.types import Array

# Maximum rows per training step: rows are scored by a model that lags at most this many rows, and at most one
# visit.
MAX_STEP_ROWS = 2048


def byte_size(rows: Rows) -> int:
    """Return the size in bytes of rows with times and labels."""
    return int(rows.indices.nbytes + rows.values.nbytes + 48 * len(rows))


class QueueStep(NamedTuple):
    """Rows to score, and then rows to train on, whose labels became known after those had arrived."""

    arrived: Rows | None
    known: Rows | None


@dataclass
class LabelQueue:
    """Rows in order of arrival that a chain has not been trained on.

    delay: time from a row's arrival until its label is known, in microseconds; without a delay, rows leave
    the queue at once, and are not scored: training itself scores them. clock: arrival times.
    scored: number of rows, counted from the first, that have been scored.
    """

    delay: int
    rows: Rows | None = None
    clock: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    scored: int = 0

    def __len__(self) -> int:
        return len(self.clock)

    @property
    def nbytes(self) -> int:
        """Size of the rows in bytes."""
        return 0 if self.rows is None else byte_size(self.rows)

    def add(self, rows: Rows, clock: Array) -> Iterator[QueueStep]:
        """Add rows, which have blocks and cycles, and return the steps that they make possible.

        A step ends with its visit, or after MAX_STEP_ROWS rows of it, as soon as the label of a row after it
        is known: steps do not depend on how the stream is cut into calls.
        """
        self.rows = rows if self.rows is None else join([self.rows, rows])
        self.clock = np.concatenate([self.clock, clock])
        return self._steps(ended=False)

    def end(self) -> Iterator[QueueStep]:
        """Return the last steps, at the end of the stream; rows without a known label are only scored."""
        yield from self._steps(ended=True)
        if self.rows is not None and self.scored < len(self):
            yield QueueStep(self.rows[self.scored :], None)
            self.scored = len(self)

    def _steps(self, *, ended: bool) -> Iterator[QueueStep]:
        rows = self.rows
        if rows is None:
            return
        if not self.delay:
            self.rows, self.clock = None, self.clock[:0]
            yield QueueStep(None, rows)
            return
        assert rows.block is not None
        assert rows.cycle is not None
        due = int(known_before(self.clock, self.clock[-1:], self.delay)[0])
        # The cycle of a late row may be an earlier one, which does not begin anew.
        new_cycle = np.diff(np.maximum.accumulate(rows.cycle[:due])) > 0
        changes = new_cycle | (np.diff(rows.block[:due]) != 0)
        done = 0
        for end in [*(np.flatnonzero(changes) + 1).tolist(), due]:
            while done < end and (end < due or ended or end - done > MAX_STEP_ROWS):
                step = min(end, done + MAX_STEP_ROWS)
                until = arrived_before_label(self.clock, step - 1, self.delay)
                arrived = rows[self.scored : until] if until > self.scored else None
                yield QueueStep(arrived, rows[done:step])
                self.scored = max(self.scored, until)
                done = step
        self.rows = rows[done:] if done < len(rows) else None
        self.clock = self.clock[done:]
        self.scored = max(self.scored - done, 0)
