"""`ServerState`: the chains' models, their averages, the hedge between them, and every read-out."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord

from semicyclic.adapters.flower.averages import (
    ArraySpec,
    BlockAverages,
    CycleMean,
    ModelMean,
    Storage,
    merge_means,
)
from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.candidate_scores import Candidate
from semicyclic.adapters.flower.chains import SHARED, ChainModel, Chains
from semicyclic.method.hedge import AdaHedge, HedgeState, Prod, in_play, learn_losses
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array

Named = Mapping[str, Array]
NOTHING = "no round has changed the model yet"
# The arrays that all blocks share, where only some are kept for each block.
BODY = "body"


class FrozenModels(NamedTuple):
    """What a visit begins with, by kind and block: mean so far, those of recent cycles, last model."""

    place: tuple[int, int]
    total: dict[str, list[ModelMean | None]]
    recent: dict[str, list[list[CycleMean]]]
    last: dict[str, list[Named | None]]


class ServerState:
    """The state of the chains.

    current: each chain's model. last: by kind, the model after each block's latest round. averages: by kind,
    of the models in force. block: the one of the latest round. frozen: what the open visit began with.
    per_block: patterns of the names of arrays that blocks have for themselves; the others, the body, have one
    mean over all rounds. All arrays, if there are no patterns.
    """

    def __init__(
        self,
        schedule: Schedule,
        chains: Chains,
        tail: int,
        bets: HedgeState | None,
        *,
        per_block: Sequence[str] = (),
        storage: Storage | None = None,
    ) -> None:
        self.schedule, self.chains, self.tail, self.bets = schedule, chains, tail, bets
        self.per_block, self.storage = tuple(per_block), storage
        self.block = 0
        self._layout: ArraySpec | None = None
        self.current: dict[str, ChainModel] = {}
        self.last: dict[str, list[Named | None]] = {}
        self.averages: dict[str, BlockAverages] = {}
        self.frozen: FrozenModels | None = None
        # The shared model before the latest round.
        self.before: Named = {}

    @property
    def layout(self) -> ArraySpec:
        """The names, shapes and types of the model."""
        if self._layout is None:
            raise ValueError("no round was run yet")
        return self._layout

    def check_begun(self) -> None:
        """Raise if there is no model yet."""
        _ = self.layout

    def begin(self, arrays: ArrayRecord) -> None:
        """Take the initial model, or the shared one as the loop has it."""
        blocks = self.schedule.blocks
        if self._layout is None:
            given = ChainModel.of(arrays)
            self._layout = ArraySpec.of(given.values)
            self.current = dict.fromkeys(self.chains.names(blocks), given)
            own = self._own_names(self._layout)
            for kind in self.chains.kinds:
                part = self._layout.only(own)
                self.averages[kind] = BlockAverages(part, blocks, self.tail, self.storage)
            if self.per_block:
                rest = [name for name in self._layout.names if name not in own]
                self.averages[BODY] = BlockAverages(self._layout.only(rest), 1, 0, self.storage)
            self.last = {kind: [None] * blocks for kind in self.chains.kinds if kind != "hedged"}
        elif SHARED in self.current and arrays is not self.current[SHARED].record:
            given = ChainModel.of(arrays)
            if ArraySpec.of(given.values)[:2] != self._layout[:2]:
                raise ValueError("the arrays have other names or shapes than those of the run so far")
            self.current[SHARED] = given

    def _own_names(self, layout: ArraySpec) -> set[str]:
        """The names of the arrays that blocks have for themselves."""
        if not self.per_block:
            return set(layout.names)
        found = {name for name in layout.names if any(fnmatchcase(name, each) for each in self.per_block)}
        if not found or len(found) == len(layout.names):
            word = "none" if not found else "all"
            raise ValueError(
                f"per_block={list(self.per_block)}: {word} of the model's arrays match; "
                f"they are {', '.join(layout.names[:8])}"
            )
        return found

    @property
    def has_means(self) -> bool:
        """Whether any round has changed a model."""
        return any(averages.place is not None for averages in self.averages.values())

    def has_visited(self, block: int) -> bool:
        """Whether any chain has made a step in a block."""
        return any(lasts[block] is not None for lasts in self.last.values())

    def has_own(self, block: int) -> bool:
        """Whether a block's own chain has made a step."""
        return "own" in self.last and self.last["own"][block] is not None

    def main(self) -> ChainModel:
        """The model of the chain that the latest round has moved; the shared one if there is one."""
        self.check_begun()
        return self.current[SHARED] if SHARED in self.current else self.current[str(self.block)]

    def step(
        self, place: tuple[int, int], moved: Mapping[str, ChainModel], losses: Array | None
    ) -> list[tuple[str, int]]:
        """Average what was in force at a (cycle, block) before the update, then let the update be.

        losses: of the shared and of the block's own model. Returns the means that have changed because
        another visit began, by kind and block.
        """
        if not moved:
            return []
        block = place[1]
        own = str(block)
        moving = [(kind, name) for kind, name in self.chains.moving(block) if name in moved]
        closed = self.visit(place)
        for kind, name in moving:
            self.averages[kind].record([(1.0, self.current[name].values)])
            if kind == "shared" and BODY in self.averages:
                self.averages[BODY].record([(1.0, self.current[name].values)])
        if self.bets is not None and (self.chains is Chains.SPLIT or len(moving) == 2):
            share = np.array([1.0, 0.0])
            if own in moved or self.has_own(block):
                in_play(self.bets, block, -1.0, share)
            models = zip(share.tolist(), (self.current[SHARED].values, self.current[own].values), strict=True)
            self.averages["hedged"].record(models)
            if losses is not None:
                learn_losses(self.bets, block, losses)
        if SHARED in self.current:
            self.before = self.current[SHARED].values
        for kind, name in moving:
            self.current[name] = moved[name]
            self.last[kind][block] = self.own(moved[name].values)
        return closed

    def visit(self, place: tuple[int, int]) -> list[tuple[str, int]]:
        """Go on at a (cycle, block); the means that have changed because another visit has ended."""
        closed = []
        for kind, averages in self.averages.items():
            ended = averages.visit((place[0], 0) if kind == BODY else place)
            closed += [] if ended is None else [(kind, ended)]
        if self.frozen is None or self.frozen.place != place:
            self.freeze(place, {kind: list(lasts) for kind, lasts in self.last.items()})
        return closed

    def freeze(self, place: tuple[int, int], last: dict[str, list[Named | None]]) -> None:
        """Remember what a visit begins with."""
        kinds = self.chains.kinds
        total = {kind: list(self.averages[kind].total) for kind in kinds}
        recent = {kind: [list(parts) for parts in self.averages[kind].recent] for kind in kinds}
        self.frozen = FrozenModels(place, total, recent, last)

    def own(self, values: Named) -> Named:
        """The arrays that blocks have for themselves."""
        if not self.per_block:
            return values
        return {name: values[name] for name in self.averages[self.chains.kinds[0]].layout.names}

    # Candidates: what `Evidence` compares.

    def candidates(self, block: int) -> tuple[Candidate, list[Candidate], list[Candidate]]:
        """The reference of a block, its other candidates, and those of other blocks, in an open visit."""
        frozen = self.frozen
        first = self.chains.kinds[0]
        reference = Candidate(first, "mean", block)
        if frozen is None:
            return reference, [], []
        own = [
            Candidate(kind, word, block) for kind in self.chains.kinds for word in ("last", "tail", "mean")
        ]
        own = [*(each for each in own if each != reference), Candidate(first, "all", 0)]
        others = [j for j in range(self.schedule.blocks) if j != block]
        foreign = [Candidate(first, word, j) for word in ("last", "mean", "tail") for j in others]
        own, foreign = ([each for each in some if self.has_frozen(each)] for some in (own, foreign))
        return reference, own, foreign

    def has_frozen(self, candidate: Candidate) -> bool:
        """Whether there was such a model when the visit began."""
        frozen, (chain, word, block) = self.frozen, candidate
        if frozen is None:
            return False
        if word == "all":
            return sum(mean is not None for mean in frozen.total[chain]) > 1
        if word == "last":
            return chain in frozen.last and frozen.last[chain][block] is not None
        return bool(frozen.recent[chain][block]) if word == "tail" else frozen.total[chain][block] is not None

    def frozen_model(self, candidate: Candidate) -> dict[str, Array]:
        """A candidate as the visit began with it; see `has_frozen`."""
        frozen, (chain, word, block) = self.frozen, candidate
        assert frozen is not None
        if word == "last":
            found = frozen.last[chain][block]
            assert found is not None
            # A body is shared, so it is always the current one: that before the round.
            return self._whole(found, self.before if self.per_block else None)
        parts: dict[str, list[ModelMean | None]] = {
            "mean": [frozen.total[chain][block]],
            "tail": [part.mean for part in frozen.recent[chain][block]],
            "all": frozen.total[chain],
        }
        return self._to_model(chain, _all(parts[word]))

    def model_of(self, candidate: Candidate) -> dict[str, Array]:
        """A candidate as it is by now."""
        chain, word, block = candidate
        if word == "last":
            found = self._last(chain, block)
            if found is None:
                raise ValueError(NOTHING)
            return self._whole(found, self.current[SHARED].values if self.per_block else None)
        averages = self.averages[chain]
        if word == "all":
            return self._to_model(chain, _all(averages.means()))
        mean = averages.tail_mean(block, self.tail) if word == "tail" else averages.mean(block)
        if mean is None:
            raise ValueError(NOTHING)
        return self._to_model(chain, mean)

    def _to_model(self, kind: str, mean: ModelMean) -> dict[str, Array]:
        """A mean as a model, with the mean of the body where blocks share one."""
        own = self.averages[kind].layout.cast(mean.values)
        if BODY not in self.averages:
            return own
        body = self.averages[BODY]
        shared = body.mean(0)
        if shared is None:
            raise ValueError(NOTHING)
        return self._whole(own, body.layout.cast(shared.values))

    def _whole(self, own: Named, body: Named | None) -> dict[str, Array]:
        """All arrays of a model in order, of the block's own and the body's."""
        both = {**(body or {}), **own}
        return {name: both[name] for name in self.layout.names}

    # Read-outs.

    def means(self, of: str | None) -> BlockModels:
        """The mean of each block (Theorem 3)."""
        return self._read(self._averages(of).means(), "mean", self._which(of))

    def mean_of(self, block: int) -> dict[str, Array] | None:
        """The mean of one block alone, if it had a step."""
        found = self._averages(None).mean(block)
        return None if found is None else self._to_model(self._which(None), found)

    def tails(self, cycles: int, of: str | None) -> BlockModels:
        """The mean of each block over its own last `cycles` cycles."""
        return self._read(self._averages(of).tails(cycles), f"tail:{cycles}", self._which(of))

    def lasts(self, of: str | None) -> BlockModels:
        """The model after the latest round in each block."""
        main, which = self.main(), self._which(of)
        found = [self._last(which, block) for block in range(self.schedule.blocks)]
        empty = tuple(block for block, model in enumerate(found) if model is None)
        body = main.values if self.per_block else None
        whole = tuple(main.values if model is None else self._whole(model, body) for model in found)
        return BlockModels(self.schedule, whole, empty, "last")

    def consensus(self) -> dict[str, Array]:
        """The mean over all rounds: one model for all blocks."""
        kind = self.chains.kinds[0]
        return self._to_model(kind, _all(self._averages(kind).means()))

    def _last(self, which: str, block: int) -> Named | None:
        if which != "hedged":
            return self.last[which][block]
        shared, own = self.last["shared"][block], self.last["own"][block]
        if shared is None or own is None or self.bets is None:
            return own if shared is None else shared
        share, layout = self.bets.share[block], self.averages["hedged"].layout
        return layout.cast(share[0] * shared[name] + share[1] * own[name] for name in layout.names)

    def _averages(self, of: str | None) -> BlockAverages:
        self.check_begun()
        return self.averages[self._which(of)]

    def _which(self, of: str | None) -> str:
        kinds = self.chains.kinds
        if of is None:
            return kinds[-1]
        if of not in kinds:
            raise ValueError(f"of={of!r}: this run has {', '.join(kinds)}")
        return of

    def _read(self, means: Sequence[ModelMean | None], read_out: str, kind: str) -> BlockModels:
        """Means as models; blocks that were never visited have the mean of all."""
        whole = _all(means)
        empty = tuple(block for block, mean in enumerate(means) if mean is None)
        models = tuple(self._to_model(kind, whole if mean is None else mean) for mean in means)
        return BlockModels(self.schedule, models, empty, read_out)


def models_per_block(
    chains: Chains, tail: int, *, half: bool = False, on_disk: bool = False, state: int = 0
) -> float:
    """How many models, in the precision of the model, every block takes of the server's memory.

    For each sequence of models that is averaged, a mean of all rounds and `tail` of recent cycles, which
    count half in half precision; none if they are in a file. For each chain that a block shares or has, its
    last model; of a chain of its own that is also the current one. state: how many models the inner strategy
    remembers (FedAvgM 2, FedAdam 3), which every chain has for itself.
    """
    kept = 0.0 if on_disk else 1 + tail * (0.5 if half else 1.0)
    lasts = 2 if chains.is_hedged else 1
    return len(chains.kinds) * kept + lasts + (0 if chains is Chains.SHARED else state)


def _all(means: Sequence[ModelMean | None]) -> ModelMean:
    """The mean over all blocks."""
    whole: ModelMean | None = None
    for mean in means:
        whole = merge_means(whole, mean)
    if whole is None:
        raise ValueError(NOTHING)
    return whole


def first_bets(hedge: AdaHedge | Prod | None, blocks: int) -> HedgeState:
    """The hedge before the first round."""
    rule = AdaHedge() if hedge is None else hedge
    if rule.coin is not None:
        raise ValueError("hedges of federated chains mix the models: leave coin= out")
    if isinstance(rule, AdaHedge):
        return rule.first(2, blocks)
    if rule.steps is None:
        raise ValueError("Prod's rate is for a number of rounds told beforehand: Prod(bound=..., steps=...)")
    return rule.first(2, np.broadcast_to(np.asarray(rule.steps), (blocks,)))
