"""`TrainConfig`: the settings of a training run. They stay fixed when a run is resumed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic import specs
from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import candidate_set_of, fit_to_memory
from semicyclic.auto.portfolio import Portfolio
from semicyclic.method import train
from semicyclic.method.average import ReadOut
from semicyclic.method.batches import check_batch_size, empty_batches
from semicyclic.method.loss import Loss, by_name
from semicyclic.method.plan import check_l2
from semicyclic.method.step import Step, normalized
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import zone_info
from semicyclic.store.json_codec import from_json, to_json
from semicyclic.tables.cleaning import START
from semicyclic.tables.columns import ColumnRequest, check_column_names, check_not_ignored
from semicyclic.tables.watermark import LatePolicy
from semicyclic.training.learner import AUTO, AutoLearner, ChainLearner, Learner, LoggedAutoLearner

# Maximum rows per training chunk. A chunk never spans two cycles.
CHUNK_ROWS = 1 << 15
# Limits of the hash size in bits; features are hashed to 2^bits columns.
MAX_HASH_BITS, MIN_HASH_BITS = 18, 8
MEAN = ReadOut("mean")
MIN_MEMORY = 64 * 10**6
MIN_BITS, MAX_BITS, MAX_BINS = 4, 24, 1000
# Defaults of settings that method `auto` does not take.
STEP_SIZE, BATCH_SIZE, L2, READ_OUT = "normalized", 16, 0.0, "mean"


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
    horizon: number of days that a model is used for, which candidates are evaluated by.
    """

    columns: ColumnRequest
    schedule: Schedule
    method: str = AUTO
    loss: Loss | None = None
    classes: tuple[str, ...] = ()
    step: Step = field(default_factory=normalized)
    batch_size: int = 16
    l2: float = 0.0
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
    horizon: int = 1

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

    def learner(self, width: int, features: int, loss: Loss) -> Learner:
        """Return an untrained learner. features: expected number of different features in `width` columns."""
        if self.method == AUTO:
            return AutoLearner(self.portfolio(width, features, loss))
        return self.chain_learner(width, loss)

    def logged_learner(self, width: int, features: int, loss: Loss) -> ChainLearner | LoggedAutoLearner:
        """Return an untrained learner with a log of visits for `what-if`."""
        if self.method == AUTO:
            return LoggedAutoLearner(self.portfolio(width, features, loss), self.chain_learner(width, loss))
        return self.chain_learner(width, loss)

    def portfolio(
        self, width: int, features: int, loss: Loss, *, intercept: bool = True, **settings: Any
    ) -> Portfolio:
        """Return untrained candidates, fewer of them if memory is short; settings: of `Portfolio`."""
        limit = self.budget(loss.outputs).candidates
        whole = candidate_set_of(calendar_of(self.schedule), intercept=intercept)
        form, room = fit_to_memory(whole, loss.outputs, features, limit)
        return Portfolio(
            form,
            loss,
            width,
            intercept=intercept,
            max_columns=room,
            **{"delay": self.label_delay, "horizon": self.horizon, "subsample": True, **settings},
        )

    def chain_learner(
        self, width: int, loss: Loss, *, intercept: bool = True, dtype: npt.DTypeLike = np.float32
    ) -> ChainLearner:
        """Return an untrained chain: that of the method, or the one logged next to the candidates."""
        empty = empty_batches(
            width,
            self.schedule,
            loss=loss,
            batch_size=self.batch_size,
            classes=tuple(float(code) for code in range(loss.classes)),
            intercept=intercept,
            dtype=dtype,
        )
        if self.method == AUTO:
            run = train.pluralistic(empty, **self.chain_settings(loss.outputs))
            return ChainLearner(run, MEAN, self.label_delay)
        run = getattr(train, self.method)(empty, **self.chain_settings(loss.outputs))
        return ChainLearner(run, self.read_out, self.label_delay)

    def chain_settings(self, outputs: int) -> train.Settings:
        """Return the settings of a chain that do not come with its rows."""
        return {"step_size": self.step, "l2": self.l2, "memory": self.budget(outputs).records}


def train_config(
    *,
    when: str | Sequence[str],
    label: str,
    zone: str = "UTC",
    schedule: str | Schedule = "daily:6",
    method: str = AUTO,
    loss: str | Loss | None = None,
    classes: Sequence[str] = (),
    step_size: str | float | Step = STEP_SIZE,
    batch_size: int = BATCH_SIZE,
    l2: float = L2,
    read_out: str | ReadOut = READ_OUT,
    label_delay: str | timedelta = "0",
    lateness: str | timedelta = "0",
    late: str = "drop",
    on_error: str = "stop",
    memory: str | int = "1GB",
    bits: int | None = None,
    bins: int = 16,
    first_pass: bool = False,
    sample_rows: int | None = None,
    horizon: str | timedelta = "1d",
    number: Sequence[str] = (),
    category: Sequence[str] = (),
    text: Sequence[str] = (),
    ignore: Sequence[str] = (),
    when_format: str | None = None,
) -> TrainConfig:
    """Check the settings of a training run as users write them, and return them as values."""
    time_columns = (when,) if isinstance(when, str) else tuple(when)
    by_type = {"number": number, "category": category, "text": text, "ignore": ignore}
    check_column_names(time_columns, label)
    for name, names in (by_type | {"classes": classes}).items():
        if isinstance(names, str):
            of = "classes" if name == "classes" else "column names"
            raise ValueError(f"{name}={names!r}: give a list of {of}, such as [{names!r}]")
    check_named_once(by_type)
    check_not_ignored((*time_columns, label), ignore)
    check_batch_size(batch_size)
    check_feature_settings(bins, bits)
    if sample_rows is not None and sample_rows < 1:
        raise ValueError(f"sample_rows={sample_rows}: must be at least 1")
    try:
        zone_info(zone)
    except ValueError as error:
        raise ValueError(f"zone={zone!r}: {error}") from None
    if when_format is not None and "%" not in when_format:
        raise ValueError(f"when_format={when_format!r}: write it with % signs, such as '%d.%m.%Y %H:%M'")
    for argument, value, choices in (
        ("method", method, (AUTO, *train.METHODS)),
        ("late", late, tuple(LatePolicy)),
        ("on_error", on_error, ("stop", "skip")),
    ):
        if value not in choices:
            raise ValueError(f"{argument}={value!r}: choose {', '.join(map(repr, map(str, choices)))}")
    step = _storable(specs.parse_step("step_size", step_size))
    model_read_out = specs.parse_read_out("read_out", read_out)
    if method == AUTO:
        _check_auto_defaults(step_size=step_size, batch_size=batch_size, l2=l2, read_out=read_out)
    return TrainConfig(
        ColumnRequest(time_columns, label, zone, when_format, *(tuple(names) for names in by_type.values())),
        specs.parse_schedule("schedule", schedule, zone),
        method=method,
        loss=by_name(loss) if isinstance(loss, str) else loss,
        classes=tuple(map(str, classes)),
        step=step,
        batch_size=batch_size,
        l2=check_l2(l2),
        lateness=specs.parse_duration("lateness", lateness),
        late=LatePolicy(late),
        skip_errors=on_error == "skip",
        label_delay=specs.parse_duration("label_delay", label_delay),
        memory=parse_memory(memory),
        bits=bits,
        bins=bins,
        first_pass=first_pass,
        sample_rows=START if sample_rows is None else sample_rows,
        horizon=parse_horizon(horizon),
        read_out=model_read_out,
    )


def check_named_once(by_type: Mapping[str, Sequence[str]]) -> None:
    """Raise if a column is given two types."""
    named = [name for names in by_type.values() for name in names]
    for name in named:
        if named.count(name) > 1:
            raise ValueError(f"column {name!r} is named twice among number=, category=, text= and ignore=")


def check_feature_settings(bins: int, bits: int | None) -> None:
    """Raise if the number of bins or of hash bits is out of range."""
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 1 <= bins <= MAX_BINS:
        raise ValueError(f"bins={bins!r}: must be from 1 to {MAX_BINS}")
    is_int = isinstance(bits, int | np.integer) and not isinstance(bits, bool)
    if bits is not None and not (is_int and MIN_BITS <= bits <= MAX_BITS):
        raise ValueError(f"bits={bits!r}: must be from {MIN_BITS} to {MAX_BITS}")


def parse_horizon(horizon: str | timedelta) -> int:
    """Return how long a model is used for, in days; raise if it is not a whole number of them."""
    days, rest = divmod(specs.parse_duration("horizon", horizon), DAY)
    if rest or days < 1:
        raise ValueError(f"horizon={horizon!r}: give a whole number of days, such as '1d' or '2w'")
    return days


def parse_memory(memory: str | int) -> int:
    """Return a memory limit in bytes; raise if it is too small."""
    size = specs.parse_size("memory", memory)
    if size < MIN_MEMORY:
        raise ValueError(f"memory={memory!r}: must be at least 64MB")
    return size


def _storable(step: Step) -> Step:
    """Return a step rule that a configuration can hold; raise for others."""
    if specs.step_rule(step) is None:
        raise ValueError(
            f"step_size={step!r}: training from a table takes step.normalized(rate), step.adagrad(rate) and "
            "step.constant(size); for other rules, use semicyclic.train with rows from semicyclic.read"
        )
    return step


def _check_auto_defaults(**given: Any) -> None:
    """Raise if a setting is given that method `auto` does not take."""
    defaults = {"step_size": STEP_SIZE, "batch_size": BATCH_SIZE, "l2": L2, "read_out": READ_OUT}
    for name, value in given.items():
        if value != defaults[name]:
            raise ValueError(
                f"{name}={value!r}: method='auto' does not take it, since its candidates have settings of "
                "their own: leave it out, or name another method, such as method='hedged'"
            )


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names of the settings that differ and affect training, `schedule` last."""
    names = {*before, *now} - {"read_out"}
    # The schedule comes last: a changed zone changes it too, and the zone is easier to read.
    ordered = sorted(names, key=lambda name: (name == "schedule", name))
    return [name for name in ordered if before.get(name) != now.get(name)]
