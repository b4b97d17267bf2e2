"""`TrainConfig`: the settings of a training run. They stay fixed when a run is resumed."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import candidate_set_of, fit_to_memory
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.average import ReadOut
from semicyclic.method.batches import empty_batches
from semicyclic.method.loss import Loss
from semicyclic.method.run import Run
from semicyclic.method.step import ADAGRAD, RATE, Step, adagrad, constant
from semicyclic.schedule.schedule import Schedule
from semicyclic.specs import parse_read_out
from semicyclic.tables.cleaning import START
from semicyclic.tables.columns import ColumnRequest
from semicyclic.tables.watermark import LatePolicy

# Maximum rows per training chunk. A chunk never spans two cycles.
CHUNK_ROWS = 1 << 15
# Limits of the hash size in bits; features are hashed to 2^bits columns.
MAX_HASH_BITS, MIN_HASH_BITS = 18, 8
MEAN = ReadOut("mean")
# The method that trains all candidates and mixes those with the least recent loss.
AUTO = "auto"


class MemoryBudget(NamedTuple):
    """Split of the memory limit: hash bits, and bytes for visit records, waiting rows and candidates."""

    bits: int
    records: int
    waiting: int
    candidates: int = 0


@dataclass(frozen=True)
class TrainConfig:
    """All settings that determine the trained model, given the rows.

    loss: a name, or None to infer it from the labels.
    classes: class names, needed if the first rows lack some.
    lateness, label_delay: microseconds. late: policy for rows that are later than `lateness`.
    skip_errors: count and skip rows that cannot be read, instead of stopping the run.
    memory: bytes. bits: the hash size; None to choose it from the first rows and `memory`.
    sample_rows: the number of first rows from which the schema, scales and labels are inferred.
    """

    columns: ColumnRequest
    schedule: Schedule
    method: str = AUTO
    loss: str | None = None
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
        columns = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.columns._asdict().items()
        }
        other = ("columns", "schedule", "step", "read_out")
        plain = {name: value for name, value in vars(self).items() if name not in other}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        values = {
            "schedule": self.schedule.to_json(),
            "step": self.step_json(),
            "read_out": str(self.read_out),
        }
        return {**columns, **values, **lists}

    def step_json(self) -> list[Any]:
        """Return the step rule as ["adaptive", rate] or ["constant", step size]."""
        return ["adaptive" if self.step.rule == ADAGRAD else "constant", self.step.size]

    @staticmethod
    def from_json(value: dict[str, Any]) -> "TrainConfig":
        """Build the settings from the output of `to_json`."""
        parts: dict[str, Any] = {
            name: tuple(part) if isinstance(part, list) else part for name, part in value.items()
        }
        parts["late"] = LatePolicy(parts["late"])
        rule, size = parts["step"]
        parts["step"] = adagrad(size) if rule == "adaptive" else constant(size)
        parts["read_out"] = parse_read_out("read_out", parts["read_out"])
        columns = ColumnRequest(**{name: parts.pop(name) for name in ColumnRequest._fields})
        return TrainConfig(columns, Schedule.from_json(parts.pop("schedule")), **parts)

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

    def portfolio(self, width: int, loss: Loss) -> Portfolio:
        """Return untrained candidates; fewer kinds of them if memory is short."""
        limit = self.budget(loss.outputs).candidates
        form, room = fit_to_memory(candidate_set_of(calendar_of(self.schedule)), loss.outputs, width, limit)
        apart = self.late is LatePolicy.KEEP
        return Portfolio(
            form, loss, width, delay=self.label_delay, subsample=True, blocks_recur=apart, max_columns=room
        )

    def first_run(self, width: int, loss: Loss) -> Run:
        """Return an untrained run."""
        codes = tuple(float(code) for code in range(loss.classes))
        empty = empty_batches(width, self.schedule, loss=loss, batch_size=self.batch_size, classes=codes)
        settings: train.Settings = {"step_size": self.step, "memory": self.budget(loss.outputs).records}
        # In addition to the candidates, one chain is logged for `what-if`.
        method = getattr(train, "pluralistic" if self.method == AUTO else self.method)
        run: Run = method(empty, **settings)
        return run


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names of the settings that differ and affect training, `schedule` last."""
    names = {*before, *now} - {"read_out"}
    # The schedule comes last: a changed zone changes it too, and the zone is easier to read.
    ordered = sorted(names, key=lambda name: (name == "schedule", name))
    return [name for name in ordered if before.get(name) != now.get(name)]
