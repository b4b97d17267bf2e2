"""Learners: the training of a chain, and of the automatic choice, through one interface."""

import warnings
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

import numpy as np

from semicyclic.auto.buffer import targets
from semicyclic.auto.export import Choice, describe_choice, loss_sums, mean_loss, model_weights, unseen
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.average import ReadOut
from semicyclic.method.batches import encode
from semicyclic.method.column_scale import weights_on_features
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows, rows_from_arrays, rows_to_arrays
from semicyclic.method.run import Run
from semicyclic.method.training_loop import iterate
from semicyclic.schedule.numbered import Numbered
from semicyclic.store.checkpoint import restore_run, run_arrays
from semicyclic.store.sealed import Arrays
from semicyclic.training.label_queue import LabelQueue, QueueStep, byte_size
from semicyclic.types import Array

# The method that trains all candidates and mixes those with the least recent loss.
AUTO = "auto"
# Prefixes of arrays in a checkpoint: rows whose labels are not known yet, and the state of the candidates.
WAITING, CANDIDATES = "waiting.", "portfolio."


class BlockLosses(NamedTuple):
    """Progressive losses of each block's rows: every row is scored before it is trained on.

    rows: [m] weight of the rows. mean: [m] mean loss, NaN without rows. losses, spread: [m] number of losses
    and sum of their squared deviations from the mean, for confidence intervals.
    """

    rows: Array
    mean: Array
    losses: Array
    spread: Array

    @staticmethod
    def from_sums(sums: Array) -> "BlockLosses":
        """Return the losses from weighted counts of rows, losses and squared losses, [m, 3]."""
        rows, total, squares = sums.T
        mean = np.divide(total, rows, out=np.full(len(rows), np.nan), where=rows > 0)
        return BlockLosses(rows, mean, rows, np.maximum(squares - total**2 / np.maximum(rows, 1), 0.0))


class Learner(Protocol):
    """What is trained on a stream of rows: a chain, or the automatic choice.

    waiting: number of rows not trained on yet. nbytes: their size in bytes, without an unfilled minibatch.
    has_learned: True if it was trained on any row.
    """

    @property
    def loss(self) -> Loss: ...
    @property
    def waiting(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def has_learned(self) -> bool: ...

    def learn(self, rows: Rows, clock: Array, ticks: Array | None) -> None:
        """Score and train on rows in order of arrival.

        rows: with blocks and cycles. clock: arrival times in microseconds.
        ticks: times that determine the blocks, in the same unit. If None, candidates are frozen at the
            beginning of a cycle instead of midnight.
        """

    def end(self) -> None:
        """Train on all rows whose labels are known, at the end of the stream."""

    def copy(self) -> Self:
        """Return a learner that can be trained without changing this one."""

    def without_records(self, pages: int = 0) -> Self:
        """Return a learner without records of visits, if no read-out needs them.

        pages: leave up to this many pages of them.
        """

    def model(self) -> Pluralistic:
        """Return the current model."""

    def losses(self) -> BlockLosses:
        """Return the progressive losses of each block."""

    def mean_loss(self) -> float:
        """Return the mean loss of the rows trained on so far, each scored just before; NaN without any."""

    def choice(self) -> Choice | None:
        """Return the candidates that the model mixes; None if there is nothing to choose."""

    def arrays(self) -> Arrays:
        """Return the complete state as named arrays, for a checkpoint."""

    def restore(self, arrays: Arrays) -> None:
        """Resume from the `arrays` of a learner with the same settings."""


@dataclass
class ChainLearner:
    """A run of one or several chains.

    delay: time from a row's arrival until its label is known, in microseconds; with a delay, rows are scored
    on arrival by the current weights, and `sums` has their losses.
    queue: rows whose labels are not known yet.
    sums: [m, 3] number of rows scored on arrival, sums of their losses and of their squared losses.
    """

    run: Run
    read_out: ReadOut
    delay: int = 0
    queue: LabelQueue = field(init=False)
    sums: Array = field(init=False)

    def __post_init__(self) -> None:
        self.queue = LabelQueue(self.delay)
        self.sums = np.zeros((self.run.blocks, 3))

    @property
    def loss(self) -> Loss:
        return self.run.loss

    @property
    def waiting(self) -> int:
        return len(self.queue) + (0 if self.run.pending is None else len(self.run.pending))

    @property
    def nbytes(self) -> int:
        return self.queue.nbytes

    @property
    def has_learned(self) -> bool:
        return bool(self.run.log.pages)

    def learn(self, rows: Rows, clock: Array, ticks: Array | None) -> None:  # noqa: ARG002
        for step in self.queue.add(rows, clock):
            self._take(step)

    def end(self) -> None:
        for step in self.queue.end():
            self._take(step)
        self.run = train.finish(self.run)

    def train(self, rows: Rows) -> None:
        """Train on rows whose labels are known."""
        self.run = train.extend(self.run, rows, final=False)

    def copy(self) -> Self:
        other = copy(self)
        other.queue = copy(self.queue)
        return other

    def without_records(self, pages: int = 0) -> Self:
        if self.read_out.needs_records or len(self.run.log.pages) <= pages:
            return self
        slim = self.copy()
        slim.run = self.run.without_records()
        return slim

    def _take(self, step: QueueStep) -> None:
        if step.arrived is not None:
            self.sums = self.sums + self._score(step.arrived)
        if step.known is not None:
            self.train(step.known)

    def _score(self, rows: Rows) -> Array:
        """Score rows with the current weights of their blocks; return what to add to `sums`."""
        run, block = self.run, rows.blocks_in(self.run.schedule)
        present = np.unique(block)
        iterates = np.stack([iterate(run, int(number)) for number in present])
        weights = weights_on_features(iterates, run.scale)
        current = Pluralistic(weights.swapaxes(1, 2), Numbered(len(present)), run.loss)
        score = current.score(rows, block=np.searchsorted(present, block)).astype(np.float64)
        target, _ = encode(rows.labels, run.loss, run.classes or None)
        loss = np.asarray(run.loss.value(score, target), np.float64)
        powers = (np.ones(len(loss)), loss, loss**2)
        return np.stack([np.bincount(block, power, run.blocks) for power in powers], axis=1)

    def model(self) -> Pluralistic:
        with warnings.catch_warnings():
            # The model itself names such blocks.
            warnings.filterwarnings("ignore", message=".*never visited")
            return self.run.read_out(self.read_out)

    def losses(self) -> BlockLosses:
        if self.delay:
            return BlockLosses.from_sums(self.sums)
        count, _, _, spread = self.run.log.tally()
        loss, rows = self.run.loss_sums()
        mean = np.divide(loss, rows, out=np.full(len(rows), np.nan), where=rows > 0)
        return BlockLosses(rows, mean, count, spread)

    def mean_loss(self) -> float:
        return self.run.progressive_loss() if self.run.log.pages else float("nan")

    def choice(self) -> Choice | None:
        return None

    def arrays(self) -> Arrays:
        arrays = run_arrays(self.run)
        if self.sums.any() or self.queue.scored:
            arrays |= {"arrivals.sums": self.sums, "arrivals.scored": np.array([self.queue.scored])}
        if self.queue.rows is not None:
            arrays |= {f"{WAITING}clock": self.queue.clock, **rows_to_arrays(self.queue.rows, WAITING)}
        return arrays

    def restore(self, arrays: Arrays) -> None:
        self.run = restore_run(self.run, arrays)
        if "arrivals.sums" in arrays:
            self.sums, self.queue.scored = arrays["arrivals.sums"].copy(), int(arrays["arrivals.scored"][0])
        if self.delay and len(arrays.get(f"{WAITING}clock", ())):
            width = self.run.state.vectors.shape[1] - 1
            self.queue.clock = arrays[f"{WAITING}clock"].copy()
            self.queue.rows = rows_from_arrays(arrays, WAITING, width=width, intercept=True)


@dataclass
class AutoLearner:
    """The automatic choice: all candidates, and their mixture."""

    portfolio: Portfolio

    @property
    def loss(self) -> Loss:
        return self.portfolio.loss

    @property
    def waiting(self) -> int:
        return 0 if self.portfolio.waiting is None else self.portfolio.waiting.size

    @property
    def nbytes(self) -> int:
        waiting = self.portfolio.waiting
        return 0 if waiting is None else byte_size(waiting.rows) + waiting.normalized.nbytes

    @property
    def has_learned(self) -> bool:
        return self.portfolio.trained > 0

    def learn(self, rows: Rows, clock: Array, ticks: Array | None) -> None:
        for _ in self.portfolio.add(rows, clock, ticks, targets(rows.labels, self.loss)):
            pass

    def end(self) -> None:
        # With a delay, labels that were not known at the last row stay unknown.
        if not self.portfolio.delay:
            self.portfolio.end()

    def copy(self) -> Self:
        return deepcopy(self)

    def without_records(self, pages: int = 0) -> Self:  # noqa: ARG002
        return self

    def model(self) -> Pluralistic:
        portfolio = self.portfolio
        schedule = portfolio.candidate_set.calendar.model
        return Pluralistic(model_weights(portfolio), schedule, self.loss, fallback=unseen(portfolio))

    def losses(self) -> BlockLosses:
        """Return the losses of the mixture, as of the last local midnight, once there are enough of them."""
        return BlockLosses.from_sums(loss_sums(self.portfolio))

    def mean_loss(self) -> float:
        return mean_loss(self.portfolio)

    def choice(self) -> Choice | None:
        return describe_choice(self.portfolio)

    def arrays(self) -> Arrays:
        arrays = self.portfolio.arrays()
        return {
            name if name.startswith(WAITING) else f"{CANDIDATES}{name}": array
            for name, array in arrays.items()
        }

    def restore(self, arrays: Arrays) -> None:
        own = [name for name in arrays if name.startswith((WAITING, CANDIDATES))]
        self.portfolio.restore({name.removeprefix(CANDIDATES): arrays[name] for name in own})


@dataclass
class LoggedAutoLearner(AutoLearner):
    """The automatic choice, and next to it a chain whose log `what-if` reads.

    With a label delay, the chain is trained on the rows that the candidates have been trained on: one buffer
    of waiting rows serves both. A checkpoint stores that buffer as a chain would, so that the chain can be
    restored alone.
    """

    chain: ChainLearner

    @property
    def run(self) -> Run:
        return self.chain.run

    @property
    def waiting(self) -> int:
        # Without a delay, candidates only wait for the end of an instant.
        return self.chain.waiting + (super().waiting if self.portfolio.delay else 0)

    def learn(self, rows: Rows, clock: Array, ticks: Array | None) -> None:
        before = self.portfolio.waiting
        super().learn(rows, clock, ticks)
        # Without a delay, a chain follows the order of rows.
        parts = [rows] if before is None or not self.portfolio.delay else [before.rows, rows]
        known = sum(map(len, parts)) - (super().waiting if self.portfolio.delay else 0)
        for part in parts:
            if (count := min(known, len(part))) > 0:
                self.chain.train(part[:count])
            known -= count

    def end(self) -> None:
        super().end()
        self.chain.end()

    def arrays(self) -> Arrays:
        return super().arrays() | self.chain.arrays()

    def restore(self, arrays: Arrays) -> None:
        super().restore(arrays)
        self.chain.run = restore_run(self.chain.run, arrays)
