"""`ServerState`: models of the chains, their means, the hedge between them, and all read-outs."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord

from semicyclic.adapters.flower.averages import (
    ArraySpec,
    BlockAverages,
    CycleMean,
    Storage,
    as_type,
    merge_means,
)
from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.candidate_scores import Candidate
from semicyclic.adapters.flower.chains import SHARED, ChainModel, Chains
from semicyclic.method.average import Mean
from semicyclic.method.hedge import AdaHedge, HedgeState, Prod, in_play, learn_losses
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array

Named = Mapping[str, Array]
NO_STEP_MESSAGE = "no round has changed the model yet"
# Kind of the mean of the arrays that all blocks share; used with `per_block` only.
BODY = "body"


class FrozenModels(NamedTuple):
    """Models at the start of a visit, by kind and block: mean, means of recent cycles, last model.

    place: (cycle, block) of the visit.
    """

    place: tuple[int, int]
    total: dict[str, list[Mean | None]]
    recent: dict[str, list[list[CycleMean]]]
    last: dict[str, list[Named | None]]


class ServerState:
    """State of the chains.

    current: model of each chain. last: by kind, the model after each block's latest round.
    averages: by kind, the means of the models before each update. block: block of the latest round.
    hedge_state: state of the hedge, if any. frozen: models at the start of the open visit.
    per_block: patterns of array names with a separate mean per block; the other arrays, the body, have one
        mean over all rounds. Without patterns all arrays are per block.
    """

    def __init__(
        self,
        schedule: Schedule,
        chains: Chains,
        tail: int,
        hedge_state: HedgeState | None,
        *,
        per_block: Sequence[str] = (),
        storage: Storage | None = None,
    ) -> None:
        self.schedule, self.chains, self.tail, self.hedge_state = schedule, chains, tail, hedge_state
        self.per_block, self.storage = tuple(per_block), storage
        self.block = 0
        self._layout: ArraySpec | None = None
        self.current: dict[str, ChainModel] = {}
        self.last: dict[str, list[Named | None]] = {}
        self.averages: dict[str, BlockAverages] = {}
        self.frozen: FrozenModels | None = None
        # Shared model before the latest round.
        self.before: Named = {}

    @property
    def layout(self) -> ArraySpec:
        """Names, shapes and dtypes of the model."""
        if self._layout is None:
            raise ValueError("no round was run yet")
        return self._layout

    def check_begun(self) -> None:
        """Raise if the run has no model yet."""
        _ = self.layout

    def begin(self, arrays: ArrayRecord) -> None:
        """Set the initial model; in later rounds, replace the shared model by that of the caller's loop."""
        blocks = self.schedule.blocks
        if self._layout is None:
            given = ChainModel.of(arrays)
            self._layout = ArraySpec.of(given.values)
            self.current = dict.fromkeys(self.chains.names(blocks), given)
            names = self._per_block_names(self._layout)
            own = {name: value for name, value in given.values.items() if name in names}
            for kind in self.chains.kinds:
                self.averages[kind] = BlockAverages(own, blocks, self.tail, self.storage)
            if self.per_block:
                body = {name: value for name, value in given.values.items() if name not in names}
                self.averages[BODY] = BlockAverages(body, 1, 0, self.storage)
            self.last = {kind: [None] * blocks for kind in self.chains.kinds if kind != "hedged"}
        elif SHARED in self.current and arrays is not self.current[SHARED].record:
            given = ChainModel.of(arrays)
            if ArraySpec.of(given.values)[:2] != self._layout[:2]:
                raise ValueError(
                    "the names or shapes of the model's arrays differ from those of the run so far: give the "
                    "same network"
                )
            self.current[SHARED] = given

    def _per_block_names(self, layout: ArraySpec) -> set[str]:
        """Return the names of the arrays with a separate mean per block."""
        if not self.per_block:
            return set(layout.names)
        matches = {
            name for name in layout.names if any(fnmatchcase(name, pattern) for pattern in self.per_block)
        }
        if not matches or len(matches) == len(layout.names):
            quantity = "none" if not matches else "all"
            raise ValueError(
                f"per_block={list(self.per_block)}: {quantity} of the model's arrays match; use patterns "
                f"that match some of {', '.join(layout.names[:8])}"
            )
        return matches

    @property
    def has_means(self) -> bool:
        """True if a round has changed a model."""
        return any(averages.place is not None for averages in self.averages.values())

    def has_visited(self, block: int) -> bool:
        """Return whether any chain has made a step in a block."""
        return any(lasts[block] is not None for lasts in self.last.values())

    def has_own(self, block: int) -> bool:
        """Return whether a block's own chain has made a step."""
        return "own" in self.last and self.last["own"][block] is not None

    def main(self) -> ChainModel:
        """Return the model of the shared chain, or else of the chain of the latest round's block."""
        self.check_begun()
        return self.current[SHARED] if SHARED in self.current else self.current[str(self.block)]

    def step(
        self, cycle_and_block: tuple[int, int], moved: Mapping[str, ChainModel], losses: Array | None
    ) -> list[tuple[str, int]]:
        """Add the models before the update to the means of a (cycle, block), then apply the update.

        moved: new models by chain. losses: shape (2,), of the shared and of the block's own model.
        Return (kind, block) of the means that changed because another visit ended.
        """
        if not moved:
            return []
        block = cycle_and_block[1]
        own = str(block)
        moving = [(kind, name) for kind, name in self.chains.moving(block) if name in moved]
        closed = self.visit(cycle_and_block)
        for kind, name in moving:
            self.averages[kind].record([(1.0, self.current[name].values)])
            if kind == "shared" and BODY in self.averages:
                self.averages[BODY].record([(1.0, self.current[name].values)])
        if self.hedge_state is not None and (self.chains is Chains.SPLIT or len(moving) == 2):
            share = np.array([1.0, 0.0])
            if own in moved or self.has_own(block):
                in_play(self.hedge_state, block, -1.0, share)
            models = zip(share.tolist(), (self.current[SHARED].values, self.current[own].values), strict=True)
            self.averages["hedged"].record(models)
            if losses is not None:
                learn_losses(self.hedge_state, block, losses)
        if SHARED in self.current:
            self.before = self.current[SHARED].values
        for kind, name in moving:
            self.current[name] = moved[name]
            self.last[kind][block] = self.own(moved[name].values)
        return closed

    def visit(self, cycle_and_block: tuple[int, int]) -> list[tuple[str, int]]:
        """Continue or open the visit of a (cycle, block); return (kind, block) of the means this closes."""
        closed = []
        for kind, averages in self.averages.items():
            closed_block = averages.visit((cycle_and_block[0], 0) if kind == BODY else cycle_and_block)
            closed += [] if closed_block is None else [(kind, closed_block)]
        if self.frozen is None or self.frozen.place != cycle_and_block:
            self.freeze(cycle_and_block, {kind: list(lasts) for kind, lasts in self.last.items()})
        return closed

    def freeze(self, cycle_and_block: tuple[int, int], last: dict[str, list[Named | None]]) -> None:
        """Store the models at the start of a visit, with the given last models."""
        kinds = self.chains.kinds
        total = {kind: list(self.averages[kind].total) for kind in kinds}
        recent = {kind: [list(parts) for parts in self.averages[kind].recent] for kind in kinds}
        self.frozen = FrozenModels(cycle_and_block, total, recent, last)

    def own(self, values: Named) -> Named:
        """Return the arrays that have a separate mean per block."""
        if not self.per_block:
            return values
        return {name: values[name] for name in self.averages[self.chains.kinds[0]].layout.names}

    # Candidates, which `CandidateScores` compares.

    def candidates(self, block: int) -> tuple[Candidate, list[Candidate], list[Candidate]]:
        """Return the reference of a block, its other candidates and those of other blocks, as frozen."""
        frozen = self.frozen
        first = self.chains.kinds[0]
        reference = Candidate(first, "mean", block)
        if frozen is None:
            return reference, [], []
        own = [
            Candidate(kind, read_out, block)
            for kind in self.chains.kinds
            for read_out in ("last", "tail", "mean")
        ]
        own = [*(candidate for candidate in own if candidate != reference), Candidate(first, "all", 0)]
        others = [j for j in range(self.schedule.blocks) if j != block]
        foreign = [Candidate(first, read_out, j) for read_out in ("last", "mean", "tail") for j in others]
        own, foreign = (
            [candidate for candidate in group if self.has_frozen(candidate)] for group in (own, foreign)
        )
        return reference, own, foreign

    def has_frozen(self, candidate: Candidate) -> bool:
        """Return whether a candidate existed at the start of the visit."""
        frozen, (chain, read_out, block) = self.frozen, candidate
        if frozen is None:
            return False
        if read_out == "all":
            return sum(mean is not None for mean in frozen.total[chain]) > 1
        if read_out == "last":
            return chain in frozen.last and frozen.last[chain][block] is not None
        return (
            bool(frozen.recent[chain][block])
            if read_out == "tail"
            else frozen.total[chain][block] is not None
        )

    def frozen_model(self, candidate: Candidate) -> dict[str, Array]:
        """Return a candidate as of the start of the visit; it must exist (`has_frozen`)."""
        frozen, (chain, read_out, block) = self.frozen, candidate
        assert frozen is not None
        if read_out == "last":
            last = frozen.last[chain][block]
            assert last is not None
            # The body is shared by all blocks: use the one before the round.
            return self._assemble(last, self.before if self.per_block else None)
        parts: dict[str, list[Mean | None]] = {
            "mean": [frozen.total[chain][block]],
            "tail": [part.mean for part in frozen.recent[chain][block]],
            "all": frozen.total[chain],
        }
        return self._to_model(chain, _merge_all(parts[read_out]))

    def model_of(self, candidate: Candidate) -> dict[str, Array]:
        """Return a candidate as of now; raise if it does not exist."""
        chain, read_out, block = candidate
        if read_out == "last":
            last = self._last_of(chain, block)
            if last is None:
                raise ValueError(NO_STEP_MESSAGE)
            return self._assemble(last, self.current[SHARED].values if self.per_block else None)
        averages = self.averages[chain]
        if read_out == "all":
            return self._to_model(chain, _merge_all(averages.means()))
        mean = averages.tail_mean(block, self.tail) if read_out == "tail" else averages.mean(block)
        if mean is None:
            raise ValueError(NO_STEP_MESSAGE)
        return self._to_model(chain, mean)

    def _to_model(self, kind: str, mean: Mean) -> dict[str, Array]:
        """Return a mean as a model, completed by the mean of the body if blocks share one."""
        own = self.averages[kind].layout.unflatten(mean.value)
        if BODY not in self.averages:
            return own
        body = self.averages[BODY]
        shared = body.mean(0)
        if shared is None:
            raise ValueError(NO_STEP_MESSAGE)
        return self._assemble(own, body.layout.unflatten(shared.value))

    def _assemble(self, own: Named, body: Named | None) -> dict[str, Array]:
        """Return all arrays of a model in order, from the per-block arrays and the body."""
        both = {**(body or {}), **own}
        return {name: both[name] for name in self.layout.names}

    # Read-outs.

    def means(self, of: str | None) -> BlockModels:
        """Return the mean of each block over all its rounds (Theorem 3)."""
        return self._read(self._averages(of).means(), "mean", self._resolve_kind(of))

    def mean_of(self, block: int) -> dict[str, Array] | None:
        """Return the mean of one block; None if it has made no step."""
        mean = self._averages(None).mean(block)
        return None if mean is None else self._to_model(self._resolve_kind(None), mean)

    def tails(self, cycles: int, of: str | None) -> BlockModels:
        """Return the mean of each block over its last `cycles` cycles."""
        return self._read(self._averages(of).tails(cycles), f"tail:{cycles}", self._resolve_kind(of))

    def lasts(self, of: str | None) -> BlockModels:
        """Return the model after the latest round of each block; the current model for unvisited blocks."""
        main, kind = self.main(), self._resolve_kind(of)
        lasts = [self._last_of(kind, block) for block in range(self.schedule.blocks)]
        unvisited = tuple(block for block, last in enumerate(lasts) if last is None)
        body = main.values if self.per_block else None
        models = tuple(main.values if last is None else self._assemble(last, body) for last in lasts)
        return BlockModels(self.schedule, models, unvisited, "last")

    def consensus(self) -> dict[str, Array]:
        """Return the mean over all rounds: one model for all blocks."""
        kind = self.chains.kinds[0]
        return self._to_model(kind, _merge_all(self._averages(kind).means()))

    def _last_of(self, kind: str, block: int) -> Named | None:
        """Return the last per-block arrays of a block; for "hedged", the mixture of both chains."""
        if kind != "hedged":
            return self.last[kind][block]
        shared, own = self.last["shared"][block], self.last["own"][block]
        if shared is None or own is None or self.hedge_state is None:
            return own if shared is None else shared
        share, layout = self.hedge_state.share[block], self.averages["hedged"].layout
        return {
            name: as_type(share[0] * shared[name] + share[1] * own[name], dtype)
            for name, _, dtype in zip(*layout, strict=True)
        }

    def _averages(self, of: str | None) -> BlockAverages:
        """Return the means of a kind; raise if no round was run."""
        self.check_begun()
        return self.averages[self._resolve_kind(of)]

    def _resolve_kind(self, of: str | None) -> str:
        """Return the kind `of`, by default the last; raise if the run does not have it."""
        kinds = self.chains.kinds
        if of is None:
            return kinds[-1]
        if of not in kinds:
            raise ValueError(f"of={of!r}: this run has {', '.join(kinds)}")
        return of

    def _read(self, means: Sequence[Mean | None], read_out: str, kind: str) -> BlockModels:
        """Return means as models; blocks that were never visited get the mean over all blocks."""
        overall = _merge_all(means)
        unvisited = tuple(block for block, mean in enumerate(means) if mean is None)
        models = tuple(self._to_model(kind, overall if mean is None else mean) for mean in means)
        return BlockModels(self.schedule, models, unvisited, read_out)


def models_per_block(
    chains: Chains, tail: int, *, half: bool = False, on_disk: bool = False, state: int = 0
) -> float:
    """Return the server memory per block, in models of the model's precision.

    Each averaged sequence takes one mean over all rounds and `tail` means of recent cycles. The latter count
    half in half precision; means in a file on disk count 0. Each chain of a block takes one last model, which
    for the block's own chain is also the current one. state: number of models in the state of the inner
    strategy (FedAvgM 2, FedAdam 3), which every chain has separately.
    """
    means = 0.0 if on_disk else 1 + tail * (0.5 if half else 1.0)
    lasts = 2 if chains.is_hedged else 1
    return len(chains.kinds) * means + lasts + (0 if chains is Chains.SHARED else state)


def _merge_all(means: Sequence[Mean | None]) -> Mean:
    """Return the mean over the steps of all `means`; raise if there are none."""
    overall: Mean | None = None
    for mean in means:
        overall = overall if mean is None else merge_means(overall, mean)
    if overall is None:
        raise ValueError(NO_STEP_MESSAGE)
    return overall


def initial_hedge(hedge: AdaHedge | Prod | None, blocks: int) -> HedgeState:
    """Return the state of the hedge before the first round, of two chains per block."""
    rule = AdaHedge() if hedge is None else hedge
    if rule.coin is not None:
        raise ValueError(
            "coin= is not supported here, because federated hedges mix the models: leave coin= out"
        )
    if isinstance(rule, AdaHedge):
        return rule.first(2, blocks)
    if rule.steps is None:
        raise ValueError("Prod needs the number of rounds in advance: use Prod(bound=..., steps=...)")
    return rule.first(2, np.broadcast_to(np.asarray(rule.steps), (blocks,)))
