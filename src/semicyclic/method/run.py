"""`Run`: one pass over the data, and its read-outs."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.method import average
from semicyclic.method.arrays import ChainState
from semicyclic.method.average import (
    Mean,
    Membership,
    RecordTable,
    RecordWeights,
    merge,
    one_model,
    own_models,
    soft_membership,
)
from semicyclic.method.column_scale import ColumnScale, weights_on_features
from semicyclic.method.hedge import AdaHedge, HedgeState, Prod
from semicyclic.method.hedge_summary import HedgeSummary, summarize_hedge
from semicyclic.method.log import Log
from semicyclic.method.loss import Loss
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.schedule.numbered import AnySchedule, as_schedule
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array


@dataclass(frozen=True, eq=False)
class Reservoir:
    """One random iterate per model, uniform over its steps so far (docs/math.md#random-iterate).

    At a model's c-th step the current iterate replaces the kept one with probability 1/c.
    """

    rng: np.random.Generator
    kept: Array
    seen: Array


class VisitLosses(NamedTuple):
    """Visits in order: cycle, block, mean progressive loss of their rows, and the weight of the rows."""

    cycle: Array
    block: Array
    loss: Array
    rows: Array


@dataclass(frozen=True, eq=False)
class Run:
    """Result of one pass over the data: the state of the chains and a log of the visits.

    Every read-out is a `Pluralistic` model and needs no further pass over the data. `through=k` gives it as
    of the end of cycle k. A block that was never visited gets the consensus mean, with a warning, and is
    listed in the model's `fallback`. Read-outs are defined in docs/math.md#read-outs.

    member: the share of each block's steps that belongs to each model: one model per block, or one for all in
        a consensus run.
    hedge, hedge_state: for a hedged run, the rule and its state in each block.
    """

    log: Log
    state: ChainState
    schedule: AnySchedule
    loss: Loss
    classes: tuple[Any, ...]
    batch_size: int
    member: Membership
    single: bool = True
    is_view: bool = False
    # Whether any rows had weights.
    weighted: bool = False
    # Time of the last row, in microseconds since 1970; far in the past if rows have no times.
    latest: int = -(2**63)
    reservoir: Reservoir | None = None
    pending: Rows | None = None
    hedge: AdaHedge | Prod | None = None
    hedge_state: HedgeState | None = None
    # How the rows' features were made from a file; passed on to the models.
    features: Any = None
    # With normalized steps: chains are trained on features divided by these scales.
    scale: ColumnScale | None = None

    def __repr__(self) -> str:
        cycle = self.log.places().cycle
        kept = f"{len(np.unique(cycle))} cycles kept" if len(cycle) else "no steps yet"
        return f"Run({self.blocks} blocks, {self.log.start.shape[1] - 1:,} columns, {self.loss!r}, {kept})"

    @property
    def blocks(self) -> int:
        """m, the number of blocks."""
        return self.schedule.blocks

    @property
    def _slots(self) -> int:
        """Number of slots: the blocks the run was trained with, once per hedged chain."""
        return len(self.log.plan.chain)

    # ------------------------------------------------------------------ the read-outs

    def read_out(self, what: average.ReadOut, *, through: int | None = None) -> Pluralistic:
        """The model of a read-out given as a value `what`, any of those below but `random`."""
        rule, number = what
        if rule == "tail":
            kept = len(np.unique(self.log.places().cycle))
            return self.tail(max(kept // 2, 1) if number is None else int(number), through=through)
        if rule == "fading":
            return self.fading(7.0 if number is None else number, through=through)
        if rule == "polynomial":
            return self.polynomial(3.0 if number is None else number, through=through)
        return {"mean": self.mean, "last": self.last, "last-cycle": self.last_cycle}[rule](through=through)

    def mean(self, *, through: int | None = None) -> Pluralistic:
        """Mean of the iterates of each block, each taken before its update (Theorem 3)."""
        return self._model(self._means(self.member, through), "mean()", through)

    def last(self, *, through: int | None = None) -> Pluralistic:
        """Iterate after the latest visit of each block (the read-out of the paper's experiment)."""
        if not self.member.is_hard:
            raise ValueError("last() has no meaning for soft membership: use mean()")
        values, seen = self._read(average.block_lasts, self.member, through)
        past, experts = self.log.past, self.log.experts
        if past is not None:
            blocks = self.log.blocks
            for block in np.argsort(past.order):
                model = int(self.member.model[block])
                if past.order[block] >= 0 and not seen[model]:
                    values[model] = past.last[block::blocks].sum(axis=0)
            seen |= self.member.totals(np.tile(past.order >= 0, experts)) > 0
        return self._model((values, seen), "last()", through)

    def tail(self, cycles: int, *, through: int | None = None) -> Pluralistic:
        """Mean over the last `cycles` cycles of each block."""
        if cycles < 1:
            raise ValueError(f"cycles={cycles!r}: a tail has at least one cycle")
        name = f"tail({cycles})"
        for kept in self._dropped_cycles(through):
            if len(np.unique(kept)) < cycles:
                self._over_budget(name)
        read = self._read(lambda t, m: average.tails(t, m, cycles), self.member, through)
        return self._model(read, name, through)

    def last_cycle(self, *, through: int | None = None) -> Pluralistic:
        """Mean over the latest cycle of each block."""
        return self.tail(1, through=through)

    def fading(self, half_life: float, *, through: int | None = None) -> Pluralistic:
        """Mean with weights that halve every `half_life` cycles."""
        if not half_life > 0:
            raise ValueError(f"half_life={half_life!r}: must be a positive number of cycles")
        name = f"fading({half_life:g})"
        for kept in self._dropped_cycles(through):
            # 2^-53 of the newest weight is lost in rounding anyway.
            if len(kept) == 0 or kept.max() - kept.min() < 53 * half_life:
                self._over_budget(name)
        read = self._read(lambda t, m: average.fading(t, m, half_life), self.member, through)
        return self._model(read, name, through)

    def polynomial(self, exponent: float, *, through: int | None = None) -> Pluralistic:
        """Mean with weights that grow as s^exponent, where s counts the steps of the block."""
        if not exponent > 0:
            raise ValueError(f"exponent={exponent!r}: must be positive")
        name = f"polynomial({exponent:g})"
        if self._dropped_cycles(through):
            self._over_budget(name)
        read = self._read(lambda t, m: average.polynomial(t, m, exponent), self.member, through)
        return self._model(read, name, through)

    def random(self) -> Pluralistic:
        """Random iterate of each block, uniform over its steps; train with `reservoir=`."""
        kept = self.reservoir
        if kept is None:
            raise ValueError("no iterates were kept: train with reservoir=numpy.random.default_rng(seed)")
        if len(kept.seen) != self.member.models:
            raise ValueError("random() is kept per block of the run: read it out of the run itself")
        return self._model((kept.kept, kept.seen > 0), "random()", None)

    def consensus(self, *, through: int | None = None) -> Pluralistic:
        """One model for all blocks: the mean of all iterates."""
        return self._wrap(self._consensus(through), "consensus()", through)

    def consensus_last(self, *, through: int | None = None) -> Pluralistic:
        """One model for all blocks: the iterate after the last step."""
        return replace(self, member=one_model(self._slots)).last(through=through)

    # ------------------------------------------------------------ other cuts of one run

    def coarser(self, schedule: AnySchedule | int, groups: Sequence[int] | None = None) -> "Run":
        """View of the run with fewer, larger blocks, for any read-out.

        schedule: a coarser schedule whose blocks are unions of this run's blocks; or
        groups: the group of each block.
        """
        coarse = as_schedule(schedule)
        if groups is None:
            if not isinstance(coarse, Schedule) or not isinstance(self.schedule, Schedule):
                raise ValueError("numbered blocks have no times to nest by: give groups=")
            groups = self.schedule.nest(coarse).tolist()
        group = np.asarray(groups, dtype=np.int64)
        if group.shape != (self.blocks,) or group.min() < 0 or group.max() >= coarse.blocks:
            raise ValueError(f"groups must give each of {self.blocks} blocks a number below {coarse.blocks}")
        slots = np.arange(self._slots)
        return self._seen_as(
            Membership(slots, group[self.member.model], np.ones(len(slots)), coarse.blocks), coarse
        )

    def soft(self, membership: npt.ArrayLike, schedule: AnySchedule | int) -> "Run":
        """View of the run in which blocks belong to several models by shares (docs/math.md#soft-training).

        membership: [blocks, models], rows summing to one. schedule: of the models.
        """
        share = np.asarray(membership, dtype=np.float64)
        models = as_schedule(schedule)
        if (
            share.shape != (self.blocks, models.blocks)
            or (share < 0).any()
            or not np.allclose(share.sum(axis=1), 1)
        ):
            raise ValueError(f"membership must be distributions [{self.blocks}, {models.blocks}]")
        return self._seen_as(soft_membership(share), models)

    def _seen_as(self, member: Membership, schedule: AnySchedule) -> "Run":
        if not self.single:
            raise ValueError("only the single chain can be cut anew: other chains need a run of their own")
        if self.member.models != self._slots:
            raise ValueError("cut the run itself anew, not a consensus or an already coarser one")
        return replace(self, schedule=schedule, member=member, reservoir=None, is_view=True)

    def without_records(self) -> "Run":
        """The run without its records: a few vectors per block.

        `mean` and `last` still work, and the run can be extended.
        """
        log = self.log.copy()
        if log.pages:
            log.fold(len(log.pages))
        return replace(self, log=log)

    # ---------------------------------------------------------------- progressive loss

    def progressive(self) -> Array:
        """[m] mean loss of each block's rows, each scored before the chain was trained on it.

        For a hedged run it is the expected loss sum_e p^e f(w^e_t, z_t), which Theorem 4 bounds. By convexity
        the loss of the mixture sum_e p^e w^e_t is at most that.
        """
        loss, rows = self.loss_sums()
        if self.member.models == self.blocks:
            # Experts share the rows of a block: those of the first stand for all.
            first = self.member.slot < len(loss)
            slot, model, share = (column[first] for column in self.member[:3])
            member = Membership(slot, model, share, self.blocks)
        else:
            # A consensus run has one model, but its loss still differs from block to block.
            member = own_models(len(loss))
        with np.errstate(invalid="ignore"):
            return np.asarray(member.totals(loss) / member.totals(rows))

    def progressive_loss(self) -> float:
        """Mean loss of all rows, each scored before the chain was trained on it; see `progressive`."""
        loss, rows = self.loss_sums()
        return float(loss.sum() / rows.sum())

    def hedge_summary(self) -> HedgeSummary:
        """Probability and progressive loss of each chain of a hedged run, by block."""
        if self.hedge_state is None:
            raise ValueError("only a hedged run has a hedge: train with train.hedged")
        return summarize_hedge(self.hedge_state)

    def progressive_visits(self) -> VisitLosses:
        """Mean progressive loss of each visit, in order.

        Cycles that were dropped to save memory (`memory=`) are left out.
        """
        place = np.stack(self.log.places())
        # A visit may have several records.
        begins = np.r_[True, (place[:, 1:] != place[:, :-1]).any(axis=0)][: place.shape[1]]
        number = np.cumsum(begins) - 1
        loss, rows = (np.bincount(number, self.log.column(name)) for name in ("loss", "rows"))
        cycle, block = place[:, begins]
        mean = np.divide(loss, rows, out=np.full(len(loss), np.nan), where=rows > 0)
        return VisitLosses(cycle, block, mean, rows)

    def loss_sums(self) -> tuple[Array, Array]:
        """[m] sums of the progressive losses of each block's rows, and the weights of the rows."""
        return self.log.losses()

    # ------------------------------------------------------------------------- inside

    def _mark_unused(self, through: int | None) -> RecordTable:
        """The table of records, with those after cycle `through` marked as unused."""
        table, past = self.log.table(), self.log.past
        if through is None:
            return table
        if past is not None and past.cycle.max() > through:
            self._over_budget(f"through={through}")
        return table._replace(weight=np.where(table.cycle <= through, table.weight, -1.0))

    def _read(
        self,
        choose: Callable[[RecordTable, Membership], RecordWeights],
        member: Membership,
        through: int | None,
    ) -> tuple[Array, Array]:
        """[models, d+1, C] a read-out of the records, and which models have any."""
        picks = choose(self._mark_unused(through), member)
        seen = np.zeros(member.models, dtype=bool)
        seen[picks.model] = True
        return self.log.combine(picks, member.models), seen

    def _means(self, member: Membership, through: int | None) -> tuple[Array, Array]:
        """Mean of each model over records and dropped records, and which models have any."""
        values, seen = self._read(average.block_means, member, through)
        past = self.log.past
        if past is None:
            return values, seen
        table = self._mark_unused(through)
        used = np.maximum(table.weight, 0.0)
        weight = member.totals(np.bincount(table.slot, used, self._slots))
        kept = [Mean(value, float(each)) for value, each in zip(values, weight, strict=True)]
        return _merge_models(kept, past.mean, past.weight, member)

    def _consensus(self, through: int | None) -> Array:
        value, seen = self._means(one_model(self._slots), through)
        if not seen[0]:
            raise ValueError("this run has no model yet: no step of it has any weight")
        return value

    def _dropped_cycles(self, through: int | None) -> list[Array]:
        """The number of complete cycles kept, for each model that has lost some."""
        past = self.log.past
        if past is None:
            return []
        picks = average.block_means(self._mark_unused(through), self.member)
        cycle = self.log.table().cycle[picks.record]
        # Of a cycle that was dropped in part, what is left does not count.
        newest = np.full(self.member.models, np.iinfo(np.int64).min)
        np.maximum.at(newest, self.member.model, past.cycle[self.member.slot % self.log.blocks])
        whole = cycle > newest[picks.model]
        models = np.flatnonzero(self.member.totals(past.weight))
        return [cycle[whole & (picks.model == model)] for model in models]

    def _over_budget(self, what: str) -> None:
        raise ValueError(
            f"{what} needs cycles that were dropped to stay within memory={self.log.budget:,} bytes: "
            "train with a larger memory="
        )

    def _model(self, found: tuple[Array, Array], name: str, through: int | None) -> Pluralistic:
        values, seen = found
        fallback = tuple(int(block) for block in np.flatnonzero(~seen))
        if fallback:
            values = np.array(values)
            values[list(fallback)] = self._consensus(through)
            warnings.warn(
                f"{name}: block(s) {', '.join(map(str, fallback))} were never visited and hold "
                "the consensus mean",
                stacklevel=3,
            )
        return self._wrap(values, name, through, fallback)

    def _wrap(
        self, values: Array, name: str, through: int | None, fallback: tuple[int, ...] = ()
    ) -> Pluralistic:
        """Wrap weights as a model of [blocks, C, d+1]; a single model is repeated for all blocks."""
        values = weights_on_features(values, self.scale)
        if len(values) != self.blocks:
            values = np.broadcast_to(values, (self.blocks, *values.shape[1:]))
        loss, rows = self.loss_sums()
        provenance = {
            "read_out": name,
            "through": None if through is None else int(through),
            "batch_size": int(self.batch_size),
            "rows": round(float(rows.sum()), 6),
            "progressive_loss": float(loss.sum() / rows.sum()) if rows.sum() > 0 else None,
        }
        weights, about = np.swapaxes(values, 1, 2).view(), (self.features, provenance)
        return Pluralistic(weights, self.schedule, self.loss, self.classes, fallback, *about)


def _merge_models(first: list[Mean], mean: Array, weight: Array, member: Membership) -> tuple[Array, Array]:
    """Merge means by block into means by model; return also which models have any."""
    total = list(first)
    for slot, model, share in zip(member.slot, member.model, member.share, strict=True):
        if weight[slot] > 0:
            total[model] = merge(total[model], Mean(mean[slot], float(share * weight[slot])))
    values = np.stack([each.value for each in total]).astype(mean.dtype)
    return values, np.array([each.weight > 0 for each in total])
