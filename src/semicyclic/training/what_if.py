"""Alternative models from the log of a run: other blocks, read-outs or cycles, without the data.

For a single chain, every averaged read-out is a sum of logged records, also for coarser blocks that consist
of its blocks (docs/math.md#records).
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method.average import ReadOut
from semicyclic.method.batches import encode
from semicyclic.method.loss import hinge
from semicyclic.method.model import Pluralistic
from semicyclic.method.run import Run
from semicyclic.schedule.schedule import Schedule
from semicyclic.training.reader import Reader
from semicyclic.training.results import encoding_of, finish_model
from semicyclic.training.run_dir import CHECKPOINT, LoggedRun, read_log
from semicyclic.types import Array


class ModelRequest(NamedTuple):
    """An alternative model.

    blocks: number of blocks, or None for those of the run. read_out: such as `tail:5`.
    until: number of final cycles to exclude, or None for all cycles.
    """

    blocks: int | None
    read_out: ReadOut
    until: int | None = None

    @property
    def name(self) -> str:
        blocks = "own" if self.blocks is None else str(self.blocks)
        suffix = "" if self.until is None else f"-until-{self.until}"
        return f"{blocks}-{str(self.read_out).replace(':', '-')}{suffix}"


def open_run(folder: Path) -> LoggedRun:
    """Load the run of a folder, and train it on the rows that were waiting at its checkpoint."""
    if not (folder / CHECKPOINT).is_file():
        raise FileNotFoundError(f"{folder}: this folder has no checkpoint of a run")
    logged = read_log(folder)
    last = Reader(logged.config, str, logged.reading, logged.names).rest()
    if last is not None:
        logged.chain.learn(last.arrived.rows, last.arrived.clock, last.arrived.ticks)
    logged.chain.end()
    return logged


def cycles_of(log: LoggedRun) -> Array:
    """Return the numbers of the cycles in the log, ascending."""
    return np.unique(log.chain.run.log.places().cycle)


def model_for(log: LoggedRun, wanted: ModelRequest) -> Pluralistic:
    """Return the model that the run would have produced with the requested blocks, read-out and cycles."""
    run = log.chain.run
    if wanted.blocks is not None and wanted.blocks != run.blocks:
        run = run.coarser(_coarser_schedule(run, wanted.blocks))
    through = None
    if wanted.until is not None:
        cycles = cycles_of(log)
        if not 0 <= wanted.until < len(cycles):
            raise ValueError(f"until={wanted.until}: the log has {len(cycles)} cycles, 0 is the last")
        through = int(cycles[len(cycles) - 1 - wanted.until])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*never visited.*")
        model = run.read_out(wanted.read_out, through=through)
    finished = finish_model(model, log.reading.labels, encoding_of(log.reading, log.names))
    about = {**(model.provenance or {}), "what_if": {"blocks": run.blocks, "read_out": str(wanted.read_out)}}
    return replace(finished, provenance=about)


def _coarser_schedule(run: Run, blocks: int) -> Schedule:
    """Merge adjacent blocks of the run's schedule into `blocks` equal groups."""
    schedule = run.schedule
    assert isinstance(schedule, Schedule)
    if blocks < 1 or run.blocks % blocks:
        fits = ", ".join(str(count) for count in range(1, run.blocks) if run.blocks % count == 0)
        raise ValueError(
            f"blocks={blocks}: the run has {run.blocks}, and coarser ones must be made of whole ones: "
            f"choose from {fits}"
        )
    step = run.blocks // blocks
    order = np.argsort(schedule.starts)
    starts = tuple(schedule.starts[first] for first in order[::step])
    names = [schedule.labels[block] for block in order]
    labels = tuple(
        f"{names[k * step].split('-')[0]}-{names[(k + 1) * step - 1].split('-')[-1]}" for k in range(blocks)
    )
    return Schedule(schedule.period, starts, labels, schedule.zone, schedule.origin)


def score_model(model: Pluralistic, rows: Any) -> dict[str, float]:
    """Return the scores of a model on labelled rows: squared and absolute error, or loss and accuracy."""
    score = model.score(rows)
    if not model.classes:
        error = score.astype(np.float64) - np.asarray(rows.labels, np.float64)
        return {"mse": float((error**2).mean()), "mae": float(np.abs(error).mean())}
    target, _ = encode(rows.labels, model.loss, model.classes)
    loss = model.loss.value(score.astype(np.float64), target)
    correct = score.argmax(axis=1) == target if model.loss.outputs > 1 else (score > 0) == (target > 0)
    name = "hinge_loss" if model.loss == hinge else "log_loss"
    return {name: float(np.mean(loss)), "accuracy": float(correct.mean())}
