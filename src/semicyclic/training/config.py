"""`TrainConfig`: the settings of a training run. They stay fixed when a run is resumed."""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import candidate_set_of, fit_to_memory
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.average import ReadOut
from semicyclic.method.batches import empty_batches
from semicyclic.method.loss import Loss
from semicyclic.method.run import Run
from semicyclic.method.step import RATE, Step, adagrad
from semicyclic.schedule.schedule import Schedule
from semicyclic.store.json_codec import from_json, to_json
from semicyclic.tables.cleaning import START
from semicyclic.tables.columns import ColumnRequest
from semicyclic.tables.watermark import LatePolicy
from semicyclic.training.learner import AUTO, ChainLearner, LoggedAutoLearner

# Maximum rows per training chunk. A chunk never spans two cycles.
CHUNK_ROWS = 1 << 15
# Limits of the hash size in bits; features are hashed to 2^bits columns.
MAX_HASH_BITS, MIN_HASH_BITS = 18, 8
MEAN = ReadOut("mean")


class MemoryBudget(NamedTuple):
    """Split of the memory limit: hash bits, and bytes for visit records, waiting rows and candidates."""

    bits: int
    records: int
    waiting: int
    candidates: int = 0


@dataclass(frozen=True)
class TrainConfig:
    """All settings that determine the trained model, given the rows.

    loss: None to infer it from the labels.
    classes: class names, needed if the first rows lack some.
    lateness, label_delay: microseconds. late: policy for rows that are later than `lateness`.
    skip_errors: count and skip rows that cannot be read, instead of stopping the run.
    memory: bytes. bits: the hash size; None to choose it from the first rows and `memory`.
    sample_rows: the number of first rows from which the schema, scales and labels are inferred.
    """

    columns: ColumnRequest
    schedule: Schedule
    method: str = AUTO
    loss: Loss | None = None
    classes: tuple[str, ...] = ()
    step: Step = field(default_factory=lambda: adagrad(RATE))
    batch_size: int = 16
    lateness: int = 0
    late: LatePolicy = LatePolicy.DROP
    skip_errors: bool = False
    label_delay: int = 0
    memory: int = 1 << 30
    bits: int | None = None
    bins: int = 16
    read_out: ReadOut = MEAN
    first_pass: bool = False
    sample_rows: int = START

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object of all settings, those of the columns included."""
        values = to_json(self)
        return {**values.pop("columns"), **values}

    @staticmethod
    def from_json(value: dict[str, Any]) -> "TrainConfig":
        """Build the settings from the output of `to_json`."""
        names = [field.name for field in fields(ColumnRequest)]
        others = {name: part for name, part in value.items() if name not in names}
        return from_json({"columns": {name: value[name] for name in names}, **others}, TrainConfig)

    @property
    def experts(self) -> int:
        """Number of chains that the method hedges between."""
        return 2 if self.method == "hedged" else 1

    def budget(self, outputs: int) -> MemoryBudget:
        """Split `memory` between its uses; deterministic for given settings. outputs: scores per row."""
        blocks = self.schedule.blocks
        slots = blocks * self.experts
        vectors = {"separate": blocks, "residual": blocks + 1, "hedged": blocks + 1}.get(self.method, 1)
        # Bytes per column: a chain's vectors and scratch space; and for each slot the sums of dropped cycles,
        # the temporary sums while cycles are dropped, and the model while it is read out and saved.
        column_bytes = outputs * (32 + 8 * vectors + 44 * slots)
        if self.method == AUTO:
            # The model has one weight vector for each of the finest blocks.
            column_bytes += 16 * outputs * len(calendar_of(self.schedule).fine)
        bits = MAX_HASH_BITS
        while bits > MIN_HASH_BITS and column_bytes << bits > self.memory // 4:
            bits -= 1
        if self.method == AUTO:
            return MemoryBudget(self.bits or bits, self.memory // 8, self.memory // 8, self.memory // 8)
        return MemoryBudget(self.bits or bits, self.memory // 8, self.memory // 4)

    def learner(self, width: int, loss: Loss) -> ChainLearner | LoggedAutoLearner:
        """Return an untrained learner."""
        if self.method == AUTO:
            return LoggedAutoLearner(self.portfolio(width, loss), self.chain_learner(width, loss))
        return self.chain_learner(width, loss)

    def portfolio(self, width: int, loss: Loss) -> Portfolio:
        """Return untrained candidates; fewer kinds of them if memory is short."""
        limit = self.budget(loss.outputs).candidates
        form, room = fit_to_memory(candidate_set_of(calendar_of(self.schedule)), loss.outputs, width, limit)
        apart = self.late is LatePolicy.KEEP
        return Portfolio(
            form, loss, width, delay=self.label_delay, subsample=True, blocks_recur=apart, max_columns=room
        )

    def chain_learner(self, width: int, loss: Loss) -> ChainLearner:
        """Return an untrained chain: that of the method, or the one logged next to the candidates."""
        codes = tuple(float(code) for code in range(loss.classes))
        empty = empty_batches(width, self.schedule, loss=loss, batch_size=self.batch_size, classes=codes)
        settings: train.Settings = {"step_size": self.step, "memory": self.budget(loss.outputs).records}
        if self.method == AUTO:
            return ChainLearner(train.pluralistic(empty, **settings), MEAN, self.label_delay)
        run: Run = getattr(train, self.method)(empty, **settings)
        return ChainLearner(run, self.read_out, self.label_delay)


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names of the settings that differ and affect training, `schedule` last."""
    names = {*before, *now} - {"read_out"}
    # The schedule comes last: a changed zone changes it too, and the zone is easier to read.
    ordered = sorted(names, key=lambda name: (name == "schedule", name))
    return [name for name in ordered if before.get(name) != now.get(name)]
