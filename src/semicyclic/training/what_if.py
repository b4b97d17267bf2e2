"""Other models from the log of a run: other blocks, read-outs or cycles, without the data.

Every averaged read-out of a single chain, and any coarser blocks that are nested in its own, are sums of the
records it has left (SPEC K5).
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semicyclic.method import train
from semicyclic.method.batches import encode
from semicyclic.method.loss import hinge
from semicyclic.method.model import Pluralistic
from semicyclic.method.run import Run
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.features import FeatureNames
from semicyclic.training.config import TrainConfig
from semicyclic.training.reader import Reader
from semicyclic.training.results import finish_model
from semicyclic.training.run_dir import CHECKPOINT, TrainState, read_log


class ModelRequest(NamedTuple):
    """Other blocks, or None for the run's own; a read-out such as tail:5; and how many cycles back."""

    blocks: int | None
    read_out: str
    until: int | None = None

    @property
    def name(self) -> str:
        blocks = "own" if self.blocks is None else str(self.blocks)
        back = "" if self.until is None else f"-until-{self.until}"
        return f"{blocks}-{self.read_out.replace(':', '-').replace(' ', '-')}{back}"


class SavedRun(NamedTuple):
    """A run with what it was told and what was read."""

    job: TrainConfig
    state: TrainState
    names: FeatureNames

    @property
    def cycles(self) -> int:
        """How many cycles are kept."""
        return len(np.unique(self.state.run.log.places()[0]))


def open_run(folder: Path) -> SavedRun:
    """The log that a run has left in its folder, with the rows that were held back to the end."""
    if not (folder / CHECKPOINT).is_file():
        raise FileNotFoundError(f"{folder}: there is no run in this folder")
    job, state, names = read_log(folder)
    last = Reader(job, str, state.reading, names).rest()
    run = state.run
    if last is not None and last.rows is not None:
        run = train.extend(run, last.rows.rows, final=False)
    return SavedRun(job, state._replace(run=train.finish(run)), names)


def model_for(log: SavedRun, wanted: ModelRequest) -> Pluralistic:
    """The model that would have come out."""
    run = log.state.run
    if wanted.blocks is not None and wanted.blocks != run.blocks:
        run = run.coarser(_coarser(run, wanted.blocks))
    through = None
    if wanted.until is not None:
        cycles = np.unique(log.state.run.log.places()[0])
        if not 0 <= wanted.until < len(cycles):
            raise ValueError(f"--until {wanted.until}: the log has {len(cycles)} cycles, 0 is the last")
        through = int(cycles[len(cycles) - 1 - wanted.until])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*never visited.*")
        model = _read_out(run, wanted.read_out, log.cycles, through)
    held = finish_model(model, log.state.reading, log.names)
    about = {**(model.provenance or {}), "what_if": {"blocks": run.blocks, "read_out": wanted.read_out}}
    return replace(held, provenance=about)


def _coarser(run: Run, blocks: int) -> Schedule:
    own = run.schedule
    assert isinstance(own, Schedule)
    if blocks < 1 or run.blocks % blocks:
        fits = ", ".join(str(each) for each in range(1, run.blocks) if run.blocks % each == 0)
        raise ValueError(
            f"--blocks {blocks}: the run has {run.blocks}, and coarser ones must be made of whole ones: "
            f"choose from {fits}"
        )
    step = run.blocks // blocks
    order = np.argsort(own.starts)
    firsts = order[::step]
    starts = tuple(own.starts[each] for each in firsts)
    labels = tuple(
        f"{own.labels[order[k * step]].split('-')[0]}-{own.labels[order[(k + 1) * step - 1]].split('-')[-1]}"
        for k in range(blocks)
    )
    return Schedule(own.period, starts, labels, own.zone, own.origin)


def _read_out(run: Run, text: str, cycles: int, through: int | None) -> Pluralistic:
    kind, _, argument = text.partition(":")
    if kind == "mean":
        return run.mean(through=through)
    if kind == "last":
        return run.last(through=through)
    if kind == "last-cycle":
        return run.last_cycle(through=through)
    if kind == "fading":
        return run.fading(float(argument or 7.0), through=through)
    return run.tail(int(argument) if argument else max(cycles // 2, 1), through=through)


def check_read_out(text: str) -> str:
    """A read-out as `what-if` takes it."""
    kind, _, argument = text.partition(":")
    plain = kind in ("mean", "last", "last-cycle") and not argument
    if plain or (kind == "tail" and (not argument or (argument.isdecimal() and int(argument) > 0))):
        return text
    try:
        if kind == "fading" and (not argument or float(argument) > 0):
            return text
    except ValueError:
        pass
    raise ValueError(f"--read-out {text}: write mean, last, last-cycle, tail, tail:5, fading or fading:5")


def score_model(model: Pluralistic, rows: Any) -> dict[str, float]:
    """How a model does on labelled rows."""
    score = model.score(rows)
    if not model.classes:
        miss = score.astype(np.float64) - np.asarray(rows.labels, np.float64)
        return {"mse": float((miss**2).mean()), "mae": float(np.abs(miss).mean())}
    target, _ = encode(rows.labels, model.loss, model.classes)
    loss = model.loss.value(score.astype(np.float64), target)
    right = score.argmax(axis=1) == target if model.loss.outputs > 1 else (score > 0) == (target > 0)
    name = "hinge_loss" if model.loss == hinge else "log_loss"
    return {name: float(np.mean(loss)), "accuracy": float(right.mean())}
