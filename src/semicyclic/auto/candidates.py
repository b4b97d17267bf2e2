"""Candidates of the automatic choice: combinations of a kind of chain, a step size and a read-out.

Every kind of chain runs with eight step sizes at once, one per SIMD lane: four constant ones and four of
AdaGrad. Lanes differ only in the value of the step size, so one loop updates all eight.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from semicyclic.auto.calendar import Calendar
from semicyclic.method import basis
from semicyclic.types import Array

# Constant step sizes, as shares of the step that would remove a row's error at once.
STEP_SHARES = (0.01, 0.05, 0.2, 0.8)
ADAGRAD_RATES = (0.05, 0.2, 0.6, 2.0)
LANES = len(STEP_SHARES) + len(ADAGRAD_RATES)
# Read-outs; they do not change during a visit.
MEAN, FADING, CYCLE = range(3)
READ_OUT_NAMES = ("mean", "fading", "last cycle")
# The weight of a cycle in the fading mean halves every 7 cycles.
HALF_LIFE_CYCLES = 7.0
FOURIER_HARMONICS = 2
# Running time per active vector of a chain, relative to one group's read-outs.
ACTIVE_VECTOR_COST = 2.5
# Names of what to drop if memory is short, from the last to the first: kinds of chains and of read-outs.
DROPPABLE = (
    "single, by time of day",
    "separate",
    "separate, coarse blocks",
    "fourier",
    "single, by weekday",
    "single, by coarse block",
    "residual of the week",
    "single, by hour of the week",
)
# With fewer times, a Fourier basis is no more expressive than a residual.
MIN_TIMES_FOR_FOURIER = 6
MARKED = "block as a feature"


class ChainKind(NamedTuple):
    """A kind of chain: its name and its basis over the finest blocks.

    marked: slot and weekday are features. bare: other features are ignored, so it learns label rates only.
    """

    name: str
    basis: basis.Basis
    marked: bool = False
    bare: bool = False


class ReadOutKind(NamedTuple):
    """Read-outs of a kind of chain, averaged over groups of the finest blocks.

    kind: number of the kind of chain. group: [finest blocks] the group of each.
    """

    kind: int
    name: str
    group: Array


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """The set of candidates.

    Candidates are numbered: first the live chains by kind and lane, then the read-outs by reading, read-out
    and lane.
    """

    calendar: Calendar
    kinds: tuple[ChainKind, ...]
    readings: tuple[ReadOutKind, ...]

    @property
    def size(self) -> int:
        """Number of candidates."""
        return LANES * (len(self.kinds) + len(READ_OUT_NAMES) * len(self.readings))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates, in their order: chain, step size, read-out."""
        constant = [f"constant {share:g}" for share in STEP_SHARES]
        steps = constant + [f"adaptive {rate:g}" for rate in ADAGRAD_RATES]
        live = [f"{kind.name}, {step}, live" for kind in self.kinds for step in steps]
        frozen = [
            f"{reading.name}, {step}, {read_out}"
            for reading in self.readings
            for read_out in READ_OUT_NAMES
            for step in steps
        ]
        return (*live, *frozen)

    @cached_property
    def blocks(self) -> Array:
        """[size] Number of blocks that each candidate distinguishes, not counting smooth waves and marks."""
        live = [len(np.unique(kind.basis.active, axis=0)) for kind in self.kinds]
        read = [max(live[each.kind], int(each.group.max()) + 1) for each in self.readings]
        counts = np.r_[np.repeat(live, LANES), np.repeat(read, LANES * len(READ_OUT_NAMES))]
        return np.asarray(counts)

    @cached_property
    def marks(self) -> int:
        """Number of indicator columns for times of day and weekdays."""
        return self.calendar.times + (7 if self.calendar.weekday is not None else 0)

    @cached_property
    def groups(self) -> int:
        """Number of groups of blocks, over all readings."""
        return sum(int(reading.group.max()) + 1 for reading in self.readings)

    def column_bytes(self, outputs: int) -> int:
        """Bytes of memory per column, including the copy of the state at the last freeze time."""
        vectors = sum(kind.basis.vectors for kind in self.kinds)
        read_outs = 2 * self.groups * len(READ_OUT_NAMES)
        numbers = LANES * (vectors * 2.5 + len(self.kinds) + read_outs)
        return round(4 * outputs * numbers)

    def without(self, name: str) -> "CandidateSet":
        """Return the set without the kinds of chains and of read-outs of this name."""
        kinds = [kind for kind in self.kinds if kind.name != name]
        number = {kind.name: index for index, kind in enumerate(kinds)}
        readings = [
            reading._replace(kind=number[self.kinds[reading.kind].name])
            for reading in self.readings
            if reading.name != name and self.kinds[reading.kind].name in number
        ]
        return CandidateSet(self.calendar, tuple(kinds), tuple(readings))

    def split(self, parts: int) -> list["CandidateSet"]:
        """Split the candidates into at most `parts` sets of similar running time."""
        cost = []
        for number, kind in enumerate(self.kinds):
            active = (kind.basis.active >= 0).sum(axis=1).max()
            cost.append(
                float(ACTIVE_VECTOR_COST * active + sum(reading.kind == number for reading in self.readings))
            )
        shares: list[list[int]] = [[] for _ in range(min(parts, len(self.kinds)))]
        for number in np.argsort(cost)[::-1]:
            cheapest = min(shares, key=lambda share: sum(cost[kind] for kind in share))
            cheapest.append(int(number))
        sets = []
        for share in map(sorted, shares):
            kinds = tuple(self.kinds[number] for number in share)
            readings = tuple(
                reading._replace(kind=share.index(reading.kind))
                for reading in self.readings
                if reading.kind in share
            )
            sets.append(CandidateSet(self.calendar, kinds, readings))
        return sets

    def tables(self) -> "CandidateTables":
        """Return the set as arrays for the kernels."""
        width = max(kind.basis.active.shape[1] for kind in self.kinds)
        fine, count = self.calendar.size, len(self.kinds)
        active = np.full((count, fine, width), -1, np.int64)
        share = np.zeros((count, fine, width), np.float32)
        used = 0
        for number, kind in enumerate(self.kinds):
            vectors = kind.basis.active
            active[number, :, : vectors.shape[1]] = np.where(vectors >= 0, vectors + used, -1)
            share[number, :, : vectors.shape[1]] = kind.basis.coefficient
            used += kind.basis.vectors
        marked = np.array([kind.marked for kind in self.kinds])
        bare = np.array([kind.bare for kind in self.kinds])
        mark = np.stack([self.calendar.time, self.calendar.time], axis=1)
        if self.calendar.weekday is not None:
            mark[:, 1] = self.calendar.times + self.calendar.weekday
        group, groups = np.zeros((len(self.readings), fine), np.int64), 0
        for number, reading in enumerate(self.readings):
            group[number] = groups + reading.group
            groups += int(reading.group.max()) + 1
        of = np.array([reading.kind for reading in self.readings], np.int64)
        weekly = self.calendar.weekday is not None
        return CandidateTables(active, share, marked, bare, mark[:, : 1 + weekly], of, group, used, groups)


class CandidateTables(NamedTuple):
    """A `CandidateSet` as arrays.

    active, share: [kinds, finest blocks, A] active vectors (-1 if fewer than A) and their coefficients.
    marked, bare: [kinds] as in `ChainKind`. mark: [finest blocks, 1 or 2] indicator columns that are one.
    of: [readings] kind of chain of each reading. group: [readings, finest blocks].
    vectors, groups: number of vectors and of groups.
    """

    active: Array
    share: Array
    marked: Array
    bare: Array
    mark: Array
    of: Array
    group: Array
    vectors: int
    groups: int


def candidate_set_of(calendar: Calendar, *, intercept: bool = True) -> CandidateSet:
    """Return the candidates for a calendar. Without an intercept, blocks have no intercepts either."""
    size, slot, time, weekday = calendar.size, calendar.slot, calendar.time, calendar.weekday
    one = basis.single(size)
    marked = intercept and size > 1
    kinds = [ChainKind("single", one)]
    if marked:
        kinds.append(ChainKind(MARKED, one, marked=True))
    if intercept:
        kinds.append(ChainKind("rate of labels", one, marked=marked, bare=True))
    if calendar.slots > 1:
        kinds.append(ChainKind("separate", _separate_basis(slot)))
        kinds.append(ChainKind("residual", basis.residual(size, slot)))
    coarse = calendar.coarse
    if coarse is not None and not _same_partition(coarse, slot):
        kinds.append(ChainKind("separate, coarse blocks", _separate_basis(coarse)))
    if calendar.times >= MIN_TIMES_FOR_FOURIER:
        waves = basis.fourier(calendar.times, FOURIER_HARMONICS, calendar.middle)
        by_time = basis.Basis(waves.active[time], waves.coefficient[time], waves.chain[time])
        kinds.append(ChainKind("fourier", by_time, marked=marked))
    if weekday is not None:
        hourly = basis.residual(size, time, weekday)
        kinds.append(ChainKind("residual of hour and weekday", hourly, marked=marked))
        both = basis.residual(size, time, weekday, np.arange(size))
        kinds.append(ChainKind("residual of the week", both))
    number = {kind.name: index for index, kind in enumerate(kinds)}
    everywhere = np.zeros(size, np.int64)
    readings = [
        ReadOutKind(number[name], f"{name}, one model", everywhere)
        for name in ("single", MARKED)
        if name in number
    ]
    for name, group in _calendars(calendar).items():
        readings.append(ReadOutKind(0, f"single, {name}", group))
    by_chain: dict[str, Array | None] = {
        "separate": slot, "residual": slot, "separate, coarse blocks": coarse, "fourier": time,
    }  # fmt: skip
    for name, blocks in by_chain.items():
        if name in number and blocks is not None:
            readings.append(ReadOutKind(number[name], name, blocks))
    return CandidateSet(calendar, tuple(kinds), tuple(readings))


def _calendars(calendar: Calendar) -> dict[str, Array]:
    """Return the groupings of the finest blocks that a chain is averaged over, by name, all different."""
    groupings = {
        "by block": calendar.slot,
        "by coarse block": calendar.coarse,
        "by time of day": calendar.time,
        "by weekday": calendar.weekday,
        "by hour of the week": np.arange(calendar.size),
    }
    different: dict[str, Array] = {}
    for name, group in groupings.items():
        if group is not None and group.max() > 0:
            group = np.unique(group, return_inverse=True)[1]
            if not any(_same_partition(group, other) for other in different.values()):
                different[name] = group
    return different


def _same_partition(group: Array, other: Array) -> bool:
    """Return whether two groupings of the finest blocks have the same groups, however numbered."""
    pairs = len(set(zip(group.tolist(), other.tolist(), strict=True)))
    return bool(pairs == group.max() + 1 == other.max() + 1)


def _separate_basis(group: Array) -> basis.Basis:
    """Return the basis with a separate vector and chain for each group of blocks."""
    ones = np.ones((len(group), 1))
    return basis.Basis(group[:, None].astype(np.int64), ones, group.astype(np.int64))


def fit_to_memory(
    candidates: CandidateSet, outputs: int, features: int, limit: int
) -> tuple[CandidateSet, int]:
    """Drop candidates until the rest has room for all features in `limit` bytes, as far as possible.

    Returns the rest, and its maximum number of columns; if there are more features, they share columns.
    """
    for name in reversed(DROPPABLE):
        if limit // candidates.column_bytes(outputs) >= features + candidates.marks + 1:
            break
        candidates = candidates.without(name)
    return candidates, max(limit // candidates.column_bytes(outputs), candidates.marks + 2)
