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
from typing import NamedTuple

import numpy as np

from semicyclic.store.atomic import write_text
from semicyclic.store.model_file import save
from semicyclic.tables.features import FeatureNames
from semicyclic.tables.sources import SourceBatch, Sources
from semicyclic.training.config import TrainConfig
from semicyclic.training.learner import Learner
from semicyclic.training.open_model import MODEL
from semicyclic.training.read_ahead import read_ahead
from semicyclic.training.reader import Chunk, Reader, check_waiting, new_logged_learner, open_reader
from semicyclic.training.results import TrainResults, model_of, results_of, visits_table
from semicyclic.training.run_dir import (
    CHECKPOINT,
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
    state: TrainState = field(init=False)
    # True while the learner processes a chunk: no checkpoint may be written then.
    midway: bool = False

    def go(self, *, resume: bool) -> TrainResults:
        """Train on all rows of the input, write the output files, and return the results."""
        self.started = self.clock()
        self.timers = {name: SaveTimer(self.clock, self.save_seconds) for name in (CHECKPOINT, MODEL)}
        self.timers[CHECKPOINT].record_save(self.clock())
        self.state, parts = self._begin(resume)
        reader = Reader(self.config, self.inputs.name, self.state.reading, self.state.names)
        try:
            self._work(reader.chunks(parts))
        except KeyboardInterrupt:
            # Save the progress since the last checkpoint.
            if self.state.learner.has_learned and not self.midway:
                self._save_state()
            raise
        return self._end(reader)

    def _begin(self, resume: bool) -> tuple[TrainState, Iterator[SourceBatch]]:
        """Return the state of the checkpoint, or an initial one, and the batches to read from there."""
        if resume and (self.folder / CHECKPOINT).exists():
            state = read_state(self.folder, self.config)
            # Otherwise the input was too short to infer the features from `sample_rows` rows: start again.
            if state.reading.counts.read >= self.config.sample_rows:
                return state, self.inputs.parts(state.reading.position)
        reading, parts = open_reader(self.config, self.inputs, lambda stage: self._report(0.0, stage))
        learner = new_logged_learner(self.config, reading.features, reading.labels.loss)
        return TrainState(reading, learner, FeatureNames.of(reading.features)), parts

    def _work(self, chunks: Iterator[Chunk]) -> None:
        """Train chunk by chunk, and save checkpoints and models when due."""
        for chunk in read_ahead(chunks):
            if chunk is not None:
                self._learn_chunk(chunk)
                self.unsaved |= chunk.closes
                if self.checkpoints and self.timers[CHECKPOINT].due():
                    self._save_state()
            if self.unsaved and (chunk is None or self.timers[MODEL].due()):
                self._save_model()

    def _learn_chunk(self, chunk: Chunk) -> None:
        """Score and train on one chunk, and update the state."""
        learner, (rows, ticks, clock, _) = self.state.learner, chunk.arrived
        waiting = learner.waiting
        self.midway = True
        learner.learn(rows, clock, ticks)
        self.state = self.state._replace(reading=chunk.after)
        self.midway = False
        if learner.nbytes:
            check_waiting(self.config, learner.loss, chunk.after, learner.waiting, learner.nbytes)
        self.rows_trained += len(rows) + waiting - learner.waiting
        assert rows.block is not None
        self._report(chunk.share, "learning", self.config.schedule.labels[int(rows.block[-1])], learner)

    def _save_model(self) -> None:
        """Save the current model; it is not trained on the rows that are still waiting."""
        began = self.clock()
        if self.state.learner.has_learned:
            save(model_of(self.config, *self.state), self.folder / MODEL)
        self.unsaved = False
        self.timers[MODEL].record_save(began)

    def _save_state(self) -> None:
        began = self.clock()
        write_state(self.folder, self.config, self.state)
        self.timers[CHECKPOINT].record_save(began)

    def _end(self, reader: Reader) -> TrainResults:
        """Write the last checkpoint, train on the waiting rows, and write the model and the results."""
        learner, names = self.state.learner, self.state.names
        reading = replace(reader.state, names_known=len(names.names))
        self.state = self.state._replace(reading=reading)
        if self.checkpoints:
            self._save_state()
        last = reader.rest()
        if last is not None:
            self._learn_chunk(last)
        learner.end()
        if not learner.has_learned:
            raise ValueError("no model was trained: no row could be used, or no label is known yet")
        self._report(1.0, "writing", learner=learner)
        model = model_of(self.config, *self.state)
        results = results_of(self.config, self.inputs, self.state, model)
        save(model, self.folder / MODEL)
        write_text(self.folder / VISITS, visits_table(self.config, self.state))
        write_text(self.folder / RESULTS, json.dumps(results, indent=1, allow_nan=False) + "\n")
        return results

    def _report(self, share: float, stage: str, block: str = "", learner: Learner | None = None) -> None:
        """Report progress; within a block, at most every PROGRESS_SECONDS."""
        now = self.clock()
        if block and now < self.last_report + PROGRESS_SECONDS:
            return
        self.last_report = now
        loss = float("nan") if learner is None else learner.mean_loss()
        self.report_progress(TrainProgress(share, self.rows_trained, now - self.started, loss, block, stage))
