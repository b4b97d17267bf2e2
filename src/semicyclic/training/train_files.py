r"""Training from files: one pass in order of time, resumable at any point.

    files -> parts -> chunks -> run -> model file, at the end of every cycle
                        \-> checkpoint: what reading knows, and the run, between two chunks

A checkpoint never sees the end of the input: what is held back for rows to come (an unfilled
minibatch, an open cycle, late rows) is learnt only for the last model. So a run that has ended goes on, when
its files have grown, as if they had been there from the start.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semicyclic.auto.buffer import targets
from semicyclic.auto.export import mean_loss
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.model import Pluralistic
from semicyclic.store.atomic import write_text
from semicyclic.store.model_file import save
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.sources import SourceBatch, Sources
from semicyclic.training.config import AUTO, TrainConfig
from semicyclic.training.delayed_loss import DelayedLoss
from semicyclic.training.read_ahead import read_ahead
from semicyclic.training.reader import ArrivedRows, Chunk, Reader, open_reader
from semicyclic.training.results import model_of, results_of, visits_table
from semicyclic.training.run_dir import (
    CHECKPOINT,
    MODEL,
    RESULTS,
    VISITS,
    TrainState,
    read_state,
    write_state,
)

# Saving may take this share of the time.
SHARE = 0.02
# Nobody reads faster than this many seconds.
SELDOM = 0.1


class TrainProgress(NamedTuple):
    """What there is to tell while a run is at work."""

    share: float
    rows: int
    seconds: float
    loss: float
    block: str
    what: str


ReportTrainProgress = Callable[[TrainProgress], None]


@dataclass
class SaveTimer:
    """When to save: every so many seconds, or more seldom if it takes long; always, if that is 0."""

    clock: Callable[[], float]
    every: float
    next: float = -np.inf

    def due(self) -> bool:
        return self.clock() >= self.next

    def record_save(self, began: float) -> None:
        now = self.clock()
        self.next = now + (max(self.every, (now - began) / SHARE) if self.every else 0.0)


@dataclass
class FileTraining:
    """A run at work in a folder."""

    job: TrainConfig
    inputs: Sources
    folder: Path
    tell: ReportTrainProgress
    clock: Callable[[], float] = time.monotonic
    every: float = 2.0
    checkpoints: bool = True
    unsaved: bool = False
    learnt: int = 0
    began: float = 0.0
    told: float = -np.inf
    pace: dict[str, SaveTimer] = field(default_factory=dict)
    names: FeatureNames = field(init=False)
    portfolio: Portfolio | None = None
    # Whether the portfolio is in the midst of a chunk, which no checkpoint may see.
    midway: bool = False
    # Replaced by each chunk in one step, so that whoever interrupts finds what belongs together.
    state: TrainState | None = None

    def go(self, *, resume: bool) -> dict[str, Any]:
        """Read and learn everything there is; the results."""
        self.began = self.clock()
        self.pace = {name: SaveTimer(self.clock, self.every) for name in (CHECKPOINT, MODEL)}
        self.pace[CHECKPOINT].record_save(self.clock())
        state, parts = self._begin(resume)
        self.state = state
        reader = Reader(self.job, self.inputs.name, state.reading, self.names)
        try:
            state = self._work(state, reader.chunks(parts))
        except KeyboardInterrupt:
            # Asked to stop, politely: what was learnt since the last checkpoint need not be learnt again.
            if self.state.run.log.pages and not self.midway:
                self._save_state(self.state)
            raise
        return self._end(state, reader)

    def _begin(self, resume: bool) -> tuple[TrainState, Iterator[SourceBatch]]:
        """Where an earlier run stood, or the beginning; and what is to be read from there."""
        if resume and (self.folder / CHECKPOINT).exists():
            state, self.names, self.portfolio = read_state(self.folder, self.job)
            # Else features were learnt from fewer rows than they should be, since there were no more.
            if state.reading.counts.read >= self.job.start:
                return state, self.inputs.parts(state.reading.mark)
        reading, parts = open_reader(self.job, self.inputs, lambda what: self._tell(0.0, what))
        self.names = FeatureNames.of(reading.features)
        run = self.job.first_run(reading.features.width, reading.labels.loss)
        self.portfolio = None
        if self.job.method == AUTO:
            self.portfolio = self.job.portfolio(reading.features.width, reading.labels.loss)
        return TrainState(reading, run, DelayedLoss.none(self.job.schedule.blocks)), parts

    def _work(self, state: TrainState, chunks: Iterator[Chunk]) -> TrainState:
        """Learn chunk by chunk, and save now and then."""
        for chunk in read_ahead(chunks):
            if chunk is not None:
                state = self.state = self._learn_chunk(state, chunk)
                self.unsaved |= chunk.closes
                if self.checkpoints and self.pace[CHECKPOINT].due():
                    self._save_state(state)
            if self.unsaved and (chunk is None or self.pace[MODEL].due()):
                self._save_model(state)
        return state

    def _learn_chunk(self, state: TrainState, chunk: Chunk) -> TrainState:
        run, scored = state.run, state.scored
        self.midway = True
        self._mix(chunk.arrived if self.job.label_delay else chunk.rows)
        if chunk.arrived is not None:
            scored = scored.add(run, chunk.arrived.rows)
        if chunk.rows is not None:
            run = train.extend(run, chunk.rows.rows, final=False)
            self.learnt += len(chunk.rows.rows)
        self.midway = False
        block = int(self.job.schedule.place(np.array([chunk.ends])).block[0])
        self._tell(chunk.share, "learning", self.job.schedule.labels[block])
        return TrainState(chunk.after, run, scored)

    def _mix(self, came: ArrivedRows | None) -> None:
        """All candidates meet rows that have come."""
        if self.portfolio is None or came is None:
            return
        target = targets(came.rows.labels, self.portfolio.loss)
        for _ in self.portfolio.add(came.rows, came.clock, came.ticks, target):
            pass

    def _save_model(self, state: TrainState) -> None:
        """The model as it stands, without what is held back."""
        began = self.clock()
        if state.run.log.pages:
            save(self._model(state), self.folder / MODEL)
        self.unsaved = False
        self.pace[MODEL].record_save(began)

    def _model(self, state: TrainState) -> Pluralistic:
        reading, run, scored = state
        return model_of(self.job, reading, self.names, run, scored, self.portfolio)

    def _save_state(self, state: TrainState) -> None:
        began = self.clock()
        write_state(self.folder, self.job, state, self.names, self.portfolio)
        self.pace[CHECKPOINT].record_save(began)

    def _end(self, state: TrainState, reader: Reader) -> dict[str, Any]:
        """The last checkpoint; then learn what was held back, and write what came of it all."""
        state = state._replace(reading=replace(reader.reading, named=len(self.names.names)))
        if self.checkpoints:
            self._save_state(state)
        last = reader.rest()
        if last is not None:
            state = self._learn_chunk(state, last)
        if (left := reader.rows_to_score()) is not None:
            self._mix(left)
            state = state._replace(scored=state.scored.add(state.run, left.rows))
        state = state._replace(run=train.finish(state.run))
        reading, run, _ = state
        if not run.log.pages:
            raise ValueError("nothing was learnt: no row could be used, or no label has come yet")
        if self.portfolio is not None and not self.job.label_delay:
            self.portfolio.end()
        self._tell(1.0, "writing")
        model = self._model(state)
        results = results_of(self.job, self.inputs, reading, self.names, model)
        save(model, self.folder / MODEL)
        write_text(self.folder / VISITS, visits_table(self.job, reading, run))
        write_text(self.folder / RESULTS, json.dumps(results, indent=1, allow_nan=False) + "\n")
        return results

    def _tell(self, share: float, what: str, block: str = "") -> None:
        now = self.clock()
        if block and now < self.told + SELDOM:
            return
        self.told = now
        loss = float("nan")
        if self.portfolio is not None:
            loss = mean_loss(self.portfolio)
        elif self.state is not None and self.state.run.log.pages:
            loss = self.state.run.progressive_loss()
        self.tell(TrainProgress(share, self.learnt, now - self.began, loss, block, what))
