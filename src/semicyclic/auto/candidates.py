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
MEAN, TAIL, FADING, CYCLE, LAST = range(5)
READ_OUT_NAMES = ("mean", "tail", "fading", "last cycle", "last")
# The weight of a cycle in the fading mean halves every 7 cycles.
HALF_LIFE_CYCLES = 7.0
FOURIER_HARMONICS = 2
# Running time per active vector of a chain, relative to one group's five read-outs.
ACTIVE_VECTOR_COST = 1.5
# Kinds of chains to drop if memory is short, from the last to the first.
DROPPABLE_KINDS = ("separate", "separate, fewer blocks", "fourier", "residual of the week")
# Kinds of chains are dropped until memory suffices for this many columns.
MIN_COLUMNS = 1 << 12
# With fewer slots, a Fourier basis is no more expressive than a residual.
MIN_SLOTS_FOR_FOURIER = 6


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
    def marks(self) -> int:
        """Number of indicator columns for slots and weekdays."""
        return self.calendar.slots + (7 if self.calendar.weekday is not None else 0)

    @cached_property
    def groups(self) -> int:
        """Number of groups of blocks, over all readings."""
        return sum(int(reading.group.max()) + 1 for reading in self.readings)

    @cached_property
    def shared_groups(self) -> int:
        """Number of groups that span several slots; these precede the others."""
        count = 0
        for reading in self.readings:
            if len(np.unique(reading.group)) == self.calendar.slots > 1:
                break
            count += int(reading.group.max()) + 1
        return count

    def column_bytes(self, outputs: int) -> int:
        """Bytes of memory per column, including the copy of the state at the last freeze time."""
        vectors = sum(kind.basis.vectors for kind in self.kinds)
        per_group = 2 * len(READ_OUT_NAMES) + 1
        numbers = LANES * (vectors * 2.5 + len(self.kinds)) + self.groups * LANES * per_group
        return round(4 * outputs * numbers)

    def lighter(self) -> "CandidateSet | None":
        """Return the set without the last droppable kind of chain, or None if none can be dropped."""
        droppable = [kind for kind in self.kinds if kind.name in DROPPABLE_KINDS]
        if not droppable:
            return None
        kinds = tuple(kind for kind in self.kinds if kind is not droppable[-1])
        kept = {id(kind): number for number, kind in enumerate(kinds)}
        readings = tuple(
            reading._replace(kind=kept[id(self.kinds[reading.kind])])
            for reading in self.readings
            if id(self.kinds[reading.kind]) in kept
        )
        return CandidateSet(self.calendar, kinds, readings)

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
        mark = np.stack([self.calendar.slot, self.calendar.slot], axis=1)
        if self.calendar.weekday is not None:
            mark[:, 1] = self.calendar.slots + self.calendar.weekday
        group, groups = np.zeros((len(self.readings), fine), np.int64), 0
        for number, reading in enumerate(self.readings):
            group[number] = groups + reading.group
            groups += int(reading.group.max()) + 1
        of = np.array([reading.kind for reading in self.readings])
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
    fine, slot, weekday, coarse = calendar.size, calendar.slot, calendar.weekday, calendar.coarse
    one = basis.single(fine)
    kinds = [ChainKind("single", one)]
    many, weekly = calendar.slots > 1, weekday is not None
    marked = intercept and (many or weekly)
    if marked:
        kinds.append(ChainKind("block as a feature", one, marked=True))
    if intercept:
        kinds.append(ChainKind("rate of labels", one, marked=marked, bare=True))
    if many:
        kinds.append(ChainKind("separate", _separate_basis(slot)))
        kinds.append(ChainKind("residual", basis.residual(fine, slot)))
    if coarse is not None:
        kinds.append(ChainKind("separate, fewer blocks", _separate_basis(coarse)))
    if calendar.slots >= MIN_SLOTS_FOR_FOURIER:
        waves = basis.fourier(calendar.slots, FOURIER_HARMONICS, calendar.middle)
        kinds.append(
            ChainKind(
                "fourier",
                basis.Basis(waves.active[slot], waves.coefficient[slot], waves.chain[slot]),
                marked=marked,
            )
        )
    if weekday is not None:
        groups = [slot, weekday] if many else [weekday]
        kinds.append(ChainKind("residual with weekday", basis.residual(fine, *groups), marked=marked))
        if many:
            both = basis.residual(fine, slot, weekday, np.arange(fine))
            kinds.append(ChainKind("residual of the week", both))
    number = {kind.name: index for index, kind in enumerate(kinds)}
    everywhere = np.zeros(fine, np.int64)
    # Readings whose groups span several slots precede the others: `shared_groups` relies on it.
    readings = [ReadOutKind(0, "single, one model", everywhere)]
    if marked:
        readings.append(
            ReadOutKind(number["block as a feature"], "block as a feature, one model", everywhere)
        )
    if intercept:
        readings.append(ReadOutKind(number["rate of labels"], "rate of labels", everywhere))
    if coarse is not None:
        readings.append(ReadOutKind(0, "single, fewer blocks", coarse))
    for name in ("single", "separate", "residual", "fourier"):
        if many and name in number:
            readings.append(ReadOutKind(number[name], name, slot))
    return CandidateSet(calendar, tuple(kinds), tuple(readings))


def _separate_basis(group: Array) -> basis.Basis:
    """Return the basis with a separate vector and chain for each group of blocks."""
    ones = np.ones((len(group), 1))
    return basis.Basis(group[:, None].astype(np.int64), ones, group.astype(np.int64))


def fit_to_memory(candidates: CandidateSet, outputs: int, width: int, limit: int) -> tuple[CandidateSet, int]:
    """Drop kinds of chains until the rest fits into `limit` bytes; return it and its maximum of columns."""
    while limit // candidates.column_bytes(outputs) < min(width, MIN_COLUMNS) + candidates.marks:
        lighter = candidates.lighter()
        if lighter is None:
            break
        candidates = lighter
    return candidates, max(limit // candidates.column_bytes(outputs), candidates.marks + 2)
