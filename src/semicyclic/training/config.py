"""`TrainConfig`: the settings of a training run, the same however often it is resumed."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import fitting, form_of
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import step, train
from semicyclic.method.batches import empty_batches
from semicyclic.method.loss import Loss
from semicyclic.method.run import Run
from semicyclic.schedule.schedule import Schedule
from semicyclic.tables.cleaning import START
from semicyclic.tables.columns import ColumnRequest
from semicyclic.tables.watermark import LatePolicy

# No more rows than this are learnt from at once, and never those of two cycles.
CHUNK = 1 << 15
MOST_BITS, LEAST_BITS = 18, 8
# The method that tries all, and mixes what has been best lately.
AUTO = "auto"


class MemoryBudget(NamedTuple):
    """What `memory` allows: hashed columns, and bytes for records of visits, rows that wait, candidates."""

    bits: int
    records: int
    waiting: int
    candidates: int = 0


@dataclass(frozen=True)
class TrainConfig:
    """All that decides what is learnt from the rows.

    step: ("adaptive" or "constant", rate or size).
    loss: a name, or None to follow from the labels. classes: names, where the first rows lack some.
    lateness, label_delay: microseconds. late: what happens to rows that are later.
    skip: rows that cannot be read are counted and left out, instead of stopping the run.
    read_out: `mean`, `last`, `tail:N` or `fading:N`.
    """

    wish: ColumnRequest
    schedule: Schedule
    method: str = AUTO
    loss: str | None = None
    classes: tuple[str, ...] = ()
    step: tuple[str, float] = ("adaptive", step.RATE)
    batch_size: int = 16
    lateness: int = 0
    late: LatePolicy = LatePolicy.DROP
    skip: bool = False
    label_delay: int = 0
    memory: int = 1 << 30
    bits: int | None = None
    bins: int = 16
    read_out: str = "mean"
    first_pass: bool = False
    start: int = START

    def to_json(self) -> dict[str, Any]:
        wish = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.wish._asdict().items()
        }
        plain = {name: value for name, value in vars(self).items() if name not in ("wish", "schedule")}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        return {**wish, "schedule": self.schedule.to_json(), **lists}

    @staticmethod
    def from_json(value: dict[str, Any]) -> "TrainConfig":
        """What `to_json` wrote."""
        parts: dict[str, Any] = {
            name: tuple(part) if isinstance(part, list) else part for name, part in value.items()
        }
        parts["late"] = LatePolicy(parts["late"])
        wish = ColumnRequest(**{name: parts.pop(name) for name in ColumnRequest._fields})
        return TrainConfig(wish, Schedule.from_json(parts.pop("schedule")), **parts)

    @property
    def experts(self) -> int:
        """How many chains are hedged between."""
        return 2 if self.method == "hedged" else 1

    def budget(self, outputs: int) -> MemoryBudget:
        """What the memory is used for; the same for the same job."""
        blocks = self.schedule.blocks
        slots = blocks * self.experts
        vectors = {"separate": blocks, "residual": blocks + 1, "hedged": blocks + 1}.get(self.method, 1)
        # Bytes a column: a chain's vectors and scratch, and of each slot what is left of dropped cycles, the
        # sums while they are dropped, and the model while it is read out and saved.
        a_column = outputs * (32 + 8 * vectors + 44 * slots)
        if self.method == AUTO:
            # The model is of the finest blocks.
            a_column += 16 * outputs * len(calendar_of(self.schedule).fine)
        bits = MOST_BITS
        while bits > LEAST_BITS and a_column << bits > self.memory // 4:
            bits -= 1
        if self.method == AUTO:
            return MemoryBudget(self.bits or bits, self.memory // 8, self.memory // 8, self.memory // 8)
        return MemoryBudget(self.bits or bits, self.memory // 8, self.memory // 4)

    def portfolio(self, width: int, loss: Loss) -> Portfolio:
        """All candidates, which have learnt nothing yet; fewer kinds where memory is short."""
        limit = self.budget(loss.outputs).candidates
        form, room = fitting(form_of(calendar_of(self.schedule)), loss.outputs, width, limit)
        apart = self.late is LatePolicy.KEEP
        return Portfolio(form, loss, width, delay=self.label_delay, brief=True, apart=apart, room=room)

    def first_run(self, width: int, loss: Loss) -> Run:
        """A run that has learnt nothing yet."""
        kind, size = self.step
        rule = step.adagrad(size) if kind == "adaptive" else step.constant(size)
        codes = tuple(float(code) for code in range(loss.classes))
        empty = empty_batches(width, self.schedule, loss=loss, batch_size=self.batch_size, classes=codes)
        settings: train.Settings = {"step_size": rule, "memory": self.budget(loss.outputs).records}
        # Beside the candidates one chain is logged, for `what-if`.
        method = getattr(train, "pluralistic" if self.method == AUTO else self.method)
        run: Run = method(empty, **settings)
        return run


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is told otherwise than before and decides what is learnt."""
    names = {*before, *now} - {"read_out"}
    # A zone is part of the schedule too, and easier to read.
    ordered = sorted(names, key=lambda name: (name == "schedule", name))
    return [name for name in ordered if before.get(name) != now.get(name)]
