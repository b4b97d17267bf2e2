r"""Training from files: one pass in order of time, resumable at any point.

    files -> batches -> chunks -> run -> model file, at the end of every cycle
                          \-> checkpoint: reader state and run, between two chunks

A checkpoint never includes the end of the input: rows that wait for later ones (an unfilled minibatch, an
open cycle, rows above the watermark) are trained on only for the final model. A finished run can therefore
resume when its files have grown, with the same result as if all rows had been there from the start.
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

# Maximum share of the running time spent on saving.
MAX_SAVE_TIME_SHARE = 0.02
# Minimum seconds between two progress reports.
PROGRESS_SECONDS = 0.1


class TrainProgress(NamedTuple):
    """Progress of a run.

    share: fraction of the input read, if known. rows: rows trained on. seconds: elapsed time.
    loss: progressive loss so far. block: label of the current block. what: the current stage.
    """

    share: float
    rows: int
    seconds: float
    loss: float
    block: str
    what: str


ReportTrainProgress = Callable[[TrainProgress], None]


@dataclass
class SaveTimer:
    """Interval between saves: `seconds` seconds, longer if saving is slow; 0 saves every time."""

    clock: Callable[[], float]
    seconds: float
    next: float = -np.inf

    def due(self) -> bool:
        return self.clock() >= self.next

    def record_save(self, began: float) -> None:
        now = self.clock()
        self.next = now + (max(self.seconds, (now - began) / MAX_SAVE_TIME_SHARE) if self.seconds else 0.0)


@dataclass
class FileTraining:
    """Training of one run in a folder.

    report_progress: called with the progress. save_seconds: seconds between saves.
    unsaved: True if a cycle ended since the model was last saved.
    rows_trained: rows trained on. last_report: time of the last progress report.
    """

    config: TrainConfig
    inputs: Sources
    folder: Path
    report_progress: ReportTrainProgress
    clock: Callable[[], float] = time.monotonic
    save_seconds: float = 2.0
    checkpoints: bool = True
    unsaved: bool = False
    rows_trained: int = 0
    started: float = 0.0
    last_report: float = -np.inf
    timers: dict[str, SaveTimer] = field(default_factory=dict)
    names: FeatureNames = field(init=False)
    portfolio: Portfolio | None = None
    # True while the portfolio processes a chunk: no checkpoint may be written then.
    midway: bool = False
    # Replaced in one assignment after each chunk, so that it is consistent after an interrupt.
    state: TrainState | None = None

    def go(self, *, resume: bool) -> dict[str, Any]:
        """Train on all rows of the input, write the output files, and return the results."""
        self.started = self.clock()
        self.timers = {name: SaveTimer(self.clock, self.save_seconds) for name in (CHECKPOINT, MODEL)}
        self.timers[CHECKPOINT].record_save(self.clock())
        state, parts = self._begin(resume)
        self.state = state
        reader = Reader(self.config, self.inputs.name, state.reading, self.names)
        try:
            state = self._work(state, reader.chunks(parts))
        except KeyboardInterrupt:
            # Save the progress since the last checkpoint.
            if self.state.run.log.pages and not self.midway:
                self._save_state(self.state)
            raise
        return self._end(state, reader)

    def _begin(self, resume: bool) -> tuple[TrainState, Iterator[SourceBatch]]:
        """Return the state of the checkpoint, or an initial one, and the batches to read from there."""
        if resume and (self.folder / CHECKPOINT).exists():
            state, self.names, self.portfolio = read_state(self.folder, self.config)
            # Otherwise the input was too short to infer the features from `sample_rows` rows: start again.
            if state.reading.counts.read >= self.config.sample_rows:
                return state, self.inputs.parts(state.reading.position)
        reading, parts = open_reader(self.config, self.inputs, lambda stage: self._report(0.0, stage))
        self.names = FeatureNames.of(reading.features)
        run = self.config.first_run(reading.features.width, reading.labels.loss)
        self.portfolio = None
        if self.config.method == AUTO:
            self.portfolio = self.config.portfolio(reading.features.width, reading.labels.loss)
        return TrainState(reading, run, DelayedLoss.none(self.config.schedule.blocks)), parts

    def _work(self, state: TrainState, chunks: Iterator[Chunk]) -> TrainState:
        """Train chunk by chunk, and save checkpoints and models when due."""
        for chunk in read_ahead(chunks):
            if chunk is not None:
                state = self.state = self._learn_chunk(state, chunk)
                self.unsaved |= chunk.closes
                if self.checkpoints and self.timers[CHECKPOINT].due():
                    self._save_state(state)
            if self.unsaved and (chunk is None or self.timers[MODEL].due()):
                self._save_model(state)
        return state

    def _learn_chunk(self, state: TrainState, chunk: Chunk) -> TrainState:
        """Score and train on one chunk, and return the state after it."""
        run, scored = state.run, state.scored
        self.midway = True
        self._update_portfolio(chunk.arrived if self.config.label_delay else chunk.rows)
        # With candidates, the loss is that of their mixture.
        if chunk.arrived is not None and self.portfolio is None:
            scored = scored.add(run, chunk.arrived.rows)
        if chunk.rows is not None:
            run = train.extend(run, chunk.rows.rows, final=False)
            self.rows_trained += len(chunk.rows.rows)
        self.midway = False
        block = int(self.config.schedule.place(np.array([chunk.ends])).block[0])
        self._report(chunk.share, "learning", self.config.schedule.labels[block])
        return TrainState(chunk.after, run, scored)

    def _update_portfolio(self, arrived: ArrivedRows | None) -> None:
        """Score and train all candidates on new rows."""
        if self.portfolio is None or arrived is None:
            return
        target = targets(arrived.rows.labels, self.portfolio.loss)
        for _ in self.portfolio.add(arrived.rows, arrived.clock, arrived.ticks, target):
            pass

    def _save_model(self, state: TrainState) -> None:
        """Save the current model; it is not trained on the rows that are still waiting."""
        began = self.clock()
        if state.run.log.pages:
            save(self._model(state), self.folder / MODEL)
        self.unsaved = False
        self.timers[MODEL].record_save(began)

    def _model(self, state: TrainState) -> Pluralistic:
        reading, run, scored = state
        return model_of(self.config, reading, self.names, run, scored, self.portfolio)

    def _save_state(self, state: TrainState) -> None:
        began = self.clock()
        write_state(self.folder, self.config, state, self.names, self.portfolio)
        self.timers[CHECKPOINT].record_save(began)

    def _end(self, state: TrainState, reader: Reader) -> dict[str, Any]:
        """Write the last checkpoint, train on the waiting rows, and write the model and the results."""
        state = state._replace(reading=replace(reader.state, names_known=len(self.names.names)))
        if self.checkpoints:
            self._save_state(state)
        last = reader.rest()
        if last is not None:
            state = self._learn_chunk(state, last)
        if (left := reader.rows_to_score()) is not None:
            self._update_portfolio(left)
            if self.portfolio is None:
                state = state._replace(scored=state.scored.add(state.run, left.rows))
        state = state._replace(run=train.finish(state.run))
        reading, run, _ = state
        if not run.log.pages:
            raise ValueError("no model was trained: no row could be used, or no label is known yet")
        if self.portfolio is not None and not self.config.label_delay:
            self.portfolio.end()
        self._report(1.0, "writing")
        model = self._model(state)
        results = results_of(self.config, self.inputs, reading, self.names, model)
        save(model, self.folder / MODEL)
        write_text(self.folder / VISITS, visits_table(self.config, reading, run))
        write_text(self.folder / RESULTS, json.dumps(results, indent=1, allow_nan=False) + "\n")
        return results

    def _report(self, share: float, stage: str, block: str = "") -> None:
        """Report progress; within a block, at most every PROGRESS_SECONDS."""
        now = self.clock()
        if block and now < self.last_report + PROGRESS_SECONDS:
            return
        self.last_report = now
        loss = float("nan")
        if self.portfolio is not None:
            loss = mean_loss(self.portfolio)
        elif self.state is not None and self.state.run.log.pages:
            loss = self.state.run.progressive_loss()
        self.report_progress(TrainProgress(share, self.rows_trained, now - self.started, loss, block, stage))
