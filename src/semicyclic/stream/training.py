"""Training from files: one pass in the order of time, resumable at any instant.

    files -> parts -> chunks -> run -> model file, at the end of every cycle
                        \\-> checkpoint: what reading knows, and the run, between two chunks

A checkpoint never sees the end of the input: what is held back for rows to come (an unfilled
minibatch, an open cycle, late rows) is learnt only for the last model. So a run that has ended goes on, when
its files have grown, as if they had been there from the start.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semicyclic.data.features import Names
from semicyclic.data.inputs import Inputs, Mark, Part
from semicyclic.method import train
from semicyclic.method.run import Run
from semicyclic.store.modelfile import save
from semicyclic.store.safely import put_text
from semicyclic.stream.ahead import ahead
from semicyclic.stream.first_pass import after_first_pass
from semicyclic.stream.folder import CHECKPOINT, MODEL, RESULTS, VISITS, read_state, write_state
from semicyclic.stream.job import Job
from semicyclic.stream.outcome import model_of, results_of, visits_table
from semicyclic.stream.reading import Chunk, Reader, Reading, open_stream
from semicyclic.stream.scored import Scored

# Saving may take this share of the time.
SHARE = 0.02
# Nobody reads faster than this many seconds.
SELDOM = 0.1


class News(NamedTuple):
    """What there is to tell while a run is at work."""

    share: float
    rows: int
    seconds: float
    loss: float
    block: str
    what: str


Tell = Callable[[News], None]


@dataclass
class Pace:
    """When to save: every so many seconds, or more seldom if it takes long; always, if that is 0."""

    clock: Callable[[], float]
    every: float
    next: float = -np.inf

    def due(self) -> bool:
        return self.clock() >= self.next

    def saved(self, began: float) -> None:
        now = self.clock()
        self.next = now + (max(self.every, (now - began) / SHARE) if self.every else 0.0)


@dataclass
class Training:
    """A run at work in a folder."""

    job: Job
    inputs: Inputs
    folder: Path
    tell: Tell
    clock: Callable[[], float] = time.monotonic
    every: float = 2.0
    checkpoints: bool = True
    run: Run | None = None
    scored: Scored | None = None
    unsaved: bool = False
    learnt: int = 0
    began: float = 0.0
    told: float = -np.inf
    pace: dict[str, Pace] = field(default_factory=dict)
    settled: tuple[Reading, Run, Scored] = field(init=False)

    def go(self, *, resume: bool) -> dict[str, Any]:
        """Read and learn everything there is; the results."""
        self.began = self.clock()
        self.pace = {name: Pace(self.clock, self.every) for name in (CHECKPOINT, MODEL)}
        self.pace[CHECKPOINT].saved(self.clock())
        known = None
        if resume and (self.folder / CHECKPOINT).exists():
            known = read_state(self.folder, self.job)
            if known[0].counts.read < self.job.start:
                # Features were learnt from fewer rows than they should be, since there were no more.
                known = None
        if known is not None:
            reading, names, self.run, self.scored = known
            parts: Iterator[Part] = self.inputs.parts(reading.mark)
        else:
            self._tell(0.0, "reading the first rows")
            reading, parts = self._opened()
            names = Names.of(reading.features)
            self.run = self.job.first_run(reading.features.width, reading.labels.loss)
            self.scored = Scored.none(self.job.schedule.blocks)
        reader = Reader(self.job, self.inputs.name, reading, names)
        self.settled = reading, self.run, self.scored
        try:
            self._work(reader, parts, names)
        except KeyboardInterrupt:
            # Asked to stop, politely: what was learnt since the last checkpoint need not be learnt again.
            reading, self.run, self.scored = self.settled
            if self.run.log.pages:
                self._save_state(reading, names)
            raise
        return self._end(reader, names)

    def _work(self, reader: Reader, parts: Iterator[Part], names: Names) -> None:
        """Learn chunk by chunk, and save now and then."""
        for item in ahead(reader.chunks(parts)):
            if item is not None:
                self._learn(item)
                self.unsaved |= item.closes
                if self.checkpoints and self.pace[CHECKPOINT].due():
                    self._save_state(item.after, names)
            if self.unsaved and (item is None or self.pace[MODEL].due()):
                self._save_model(self.settled[0], names)

    def _opened(self) -> tuple[Reading, Iterator[Part]]:
        """Enough parts to know what the columns are; and all parts, these included."""
        held: list[Part] = []
        rows = 0
        parts = self.inputs.parts(Mark())
        for part in parts:
            held.append(part)
            rows += part.batch.table.num_rows
            if rows >= self.job.start:
                break
        opened = open_stream(self.job, held, self.inputs.name)
        if self.job.first_pass:
            self._tell(0.0, "first pass")
            opened = after_first_pass(self.job, self.inputs, opened)
        return opened, chain(held, parts)

    def _learn(self, chunk: Chunk) -> None:
        assert self.run is not None
        assert self.scored is not None
        if chunk.arrived is not None:
            self.scored = self.scored.add(self.run, chunk.arrived)
        if chunk.rows is not None:
            self.run = train.more(self.run, chunk.rows, ended=False)
            self.learnt += len(chunk.rows)
        # In one step, so that whoever interrupts finds what belongs together.
        self.settled = chunk.after, self.run, self.scored
        block = int(self.job.schedule.place(np.array([chunk.ends])).block[0])
        self._tell(chunk.share, "learning", self.job.schedule.labels[block])

    def _save_model(self, reading: Reading, names: Names) -> None:
        """The model as it stands, without what is held back."""
        assert self.run is not None
        began = self.clock()
        if self.run.log.pages:
            save(model_of(self.job, reading, names, self.run, self.scored), self.folder / MODEL)
        self.unsaved = False
        self.pace[MODEL].saved(began)

    def _save_state(self, reading: Reading, names: Names) -> None:
        assert self.run is not None
        assert self.scored is not None
        began = self.clock()
        write_state(self.folder, self.job, reading, names, self.run, self.scored)
        self.pace[CHECKPOINT].saved(began)

    def _end(self, reader: Reader, names: Names) -> dict[str, Any]:
        """The last checkpoint; then learn what was held back, and write what came of it all."""
        reading = reader.reading
        if self.checkpoints:
            self._save_state(replace(reading, named=len(names.names)), names)
        last = reader.rest()
        assert self.run is not None
        if last is not None:
            if last.arrived is not None:
                assert self.scored is not None
                self.scored = self.scored.add(self.run, last.arrived)
            if last.rows is not None:
                self.run = train.more(self.run, last.rows, ended=False)
                self.learnt += len(last.rows)
            reading = last.after
        if (rows := reader.unscored()) is not None:
            assert self.scored is not None
            self.scored = self.scored.add(self.run, rows)
        self.run = train.ended(self.run)
        if not self.run.log.pages:
            raise ValueError("nothing was learnt: no row could be used, or no label has come yet")
        self._tell(1.0, "writing")
        model = model_of(self.job, reading, names, self.run, self.scored)
        results = results_of(self.job, self.inputs, reading, names, self.run, self.scored)
        save(model, self.folder / MODEL)
        put_text(self.folder / VISITS, visits_table(self.job, reading, self.run))
        put_text(self.folder / RESULTS, json.dumps(results, indent=1, allow_nan=False) + "\n")
        return results

    def _tell(self, share: float, what: str, block: str = "") -> None:
        now = self.clock()
        if block and now < self.told + SELDOM:
            return
        self.told = now
        loss = float("nan")
        if self.run is not None and self.run.log.pages:
            loss = self.run.progressive_loss()
        self.tell(News(share, self.learnt, now - self.began, loss, block, what))
