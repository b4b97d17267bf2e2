"""The candidates: kinds of chains, step sizes and read-outs, and their names.

Every kind of chain is run with every step, eight of them abreast (lanes): four constant ones and four
that adapt to each column. So what differs between lanes is two numbers, and one loop does all.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from semicyclic.auto.calendar import Calendar
from semicyclic.method import basis
from semicyclic.types import Array

# Steps as shares of the one that would mend the row's error at once; and rates of AdaGrad.
SHARES = (0.01, 0.05, 0.2, 0.8)
RATES = (0.05, 0.2, 0.6, 2.0)
LANES = len(SHARES) + len(RATES)
# Read-outs that stay as they are through a visit.
MEAN, TAIL, FADING, CYCLE, LAST = range(5)
KINDS = ("mean", "tail", "fading", "last cycle", "last")
# The weight of a cycle in the fading mean halves in so many.
HALF_LIFE = 7.0
HARMONICS = 2
# What a vector in force costs, beside a reading's five read-outs.
STEP = 1.5
# Left out where memory is short, the last first.
HEAVY = ("separate", "separate, fewer blocks", "fourier", "residual of the week")
# So many columns there should be room for, before less is tried.
ROOMY = 1 << 12
# With fewer blocks a wave says no more than a residual.
WAVES_FROM = 6


class ChainKind(NamedTuple):
    """A kind of chain: its name and its basis over the finest blocks.

    marked: slot and weekday are features. bare: it has no other features, and learns the rate of labels.
    """

    name: str
    basis: basis.Basis
    marked: bool = False
    bare: bool = False


class ReadOutKind(NamedTuple):
    """Read-outs of a kind of chain: averages by group of the finest blocks."""

    kind: int
    name: str
    group: Array


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """All that is tried. Candidates are numbered: live ones by kind and lane, then read-outs likewise."""

    calendar: Calendar
    kinds: tuple[ChainKind, ...]
    readings: tuple[ReadOutKind, ...]

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return LANES * (len(self.kinds) + len(KINDS) * len(self.readings))

    @cached_property
    def names(self) -> tuple[str, ...]:
        steps = [f"constant {each:g}" for each in SHARES] + [f"adaptive {each:g}" for each in RATES]
        live = [f"{kind.name}, {step}, live" for kind in self.kinds for step in steps]
        frozen = [
            f"{reading.name}, {step}, {how}" for reading in self.readings for how in KINDS for step in steps
        ]
        return (*live, *frozen)

    @cached_property
    def marks(self) -> int:
        """How many columns stand for slots and weekdays."""
        return self.calendar.slots + (7 if self.calendar.weekday is not None else 0)

    @cached_property
    def groups(self) -> int:
        """How many groups of blocks read-outs are kept for."""
        return sum(int(reading.group.max()) + 1 for reading in self.readings)

    @cached_property
    def shared_groups(self) -> int:
        """How many of these take in several slots; they come first."""
        count = 0
        for reading in self.readings:
            if len(np.unique(reading.group)) == self.calendar.slots > 1:
                break
            count += int(reading.group.max()) + 1
        return count

    def column_bytes(self, outputs: int) -> int:
        """How much memory a column takes, with everything kept as of dawn too."""
        vectors = sum(kind.basis.vectors for kind in self.kinds)
        numbers = LANES * (vectors * 2.5 + len(self.kinds)) + self.groups * LANES * (2 * len(KINDS) + 1)
        return round(4 * outputs * numbers)

    def lighter(self) -> "CandidateSet | None":
        """The same without its heaviest kind of chain, for many columns; None if it is light already."""
        heavy = [kind for kind in self.kinds if kind.name in HEAVY]
        if not heavy:
            return None
        kinds = tuple(kind for kind in self.kinds if kind is not heavy[-1])
        kept = {id(kind): number for number, kind in enumerate(kinds)}
        readings = tuple(
            reading._replace(kind=kept[id(self.kinds[reading.kind])])
            for reading in self.readings
            if id(self.kinds[reading.kind]) in kept
        )
        return CandidateSet(self.calendar, kinds, readings)

    def split(self, parts: int) -> list["CandidateSet"]:
        """The same candidates in several forms, about as costly as each other."""
        cost = []
        for number, kind in enumerate(self.kinds):
            active = (kind.basis.active >= 0).sum(axis=1).max()
            cost.append(float(STEP * active + sum(reading.kind == number for reading in self.readings)))
        shares: list[list[int]] = [[] for _ in range(min(parts, len(self.kinds)))]
        for number in np.argsort(cost)[::-1]:
            least = min(shares, key=lambda share: sum(cost[each] for each in share))
            least.append(int(number))
        found = []
        for share in map(sorted, shares):
            kinds = tuple(self.kinds[number] for number in share)
            readings = tuple(
                reading._replace(kind=share.index(reading.kind))
                for reading in self.readings
                if reading.kind in share
            )
            found.append(CandidateSet(self.calendar, kinds, readings))
        return found

    def tables(self) -> "CandidateTables":
        """The form as arrays, for kernels."""
        width = max(kind.basis.active.shape[1] for kind in self.kinds)
        fine, count = self.calendar.size, len(self.kinds)
        active = np.full((count, fine, width), -1, np.int64)
        share = np.zeros((count, fine, width), np.float32)
        used = 0
        for number, kind in enumerate(self.kinds):
            own = kind.basis.active
            active[number, :, : own.shape[1]] = np.where(own >= 0, own + used, -1)
            share[number, :, : own.shape[1]] = kind.basis.coefficient
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
    """active, share: [kinds, fine, A] the vectors in force and their coefficients. mark: [fine, 1 or 2]
    columns that are one there. of: [readings] their kind. group: [readings, fine]. vectors, groups: how many.
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


def form_of(calendar: Calendar, *, intercept: bool = True) -> CandidateSet:
    """All that is tried for a calendar. Without an intercept, no level of a block's own either."""
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
        kinds.append(ChainKind("separate", _apart(slot)))
        kinds.append(ChainKind("residual", basis.residual(fine, slot)))
    if coarse is not None:
        kinds.append(ChainKind("separate, fewer blocks", _apart(coarse)))
    if calendar.slots >= WAVES_FROM:
        waves = basis.fourier(calendar.slots, HARMONICS, calendar.middle)
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
    # First those to which several blocks of a day contribute.
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


def _apart(group: Array) -> basis.Basis:
    ones = np.ones((len(group), 1))
    return basis.Basis(group[:, None].astype(np.int64), ones, group.astype(np.int64))


def fitting(form: CandidateSet, outputs: int, width: int, limit: int) -> tuple[CandidateSet, int]:
    """As much of a form as `limit` bytes have room for, and how many columns that are."""
    while limit // form.column_bytes(outputs) < min(width, ROOMY) + form.marks:
        lighter = form.lighter()
        if lighter is None:
            break
        form = lighter
    return form, max(limit // form.column_bytes(outputs), form.marks + 2)
