"""What a run has learnt: the chains' models, their averages, the hedge between them, and every read-out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord

from semicyclic.adapters.flower.averages import Averages, Layout, Mean, merged
from semicyclic.adapters.flower.chains import SHARED, Chains, Model
from semicyclic.adapters.flower.models import BlockModels
from semicyclic.method.hedge import AdaHedge, Bets, Prod, in_play, learn_losses
from semicyclic.method.schedule import Schedule

NDArray = npt.NDArray[Any]
Named = Mapping[str, NDArray]
NOTHING = "no round has changed the model yet"


class Learnt:
    """The state of the chains.

    current: each chain's model. last: by kind, the model after each block's latest round. averages: by kind,
    of the models in force. block: the one of the latest round.
    """

    def __init__(self, schedule: Schedule, chains: Chains, tail: int, bets: Bets | None) -> None:
        self.schedule, self.chains, self.tail, self.bets = schedule, chains, tail, bets
        self.block = 0
        self._layout: Layout | None = None
        self.current: dict[str, Model] = {}
        self.last: dict[str, list[Named | None]] = {}
        self.averages: dict[str, Averages] = {}

    @property
    def layout(self) -> Layout:
        """The names, shapes and types of the model."""
        return self._begun()

    def begin(self, arrays: ArrayRecord) -> None:
        """Take the initial model, or the shared one as the loop has it."""
        blocks = self.schedule.blocks
        if self._layout is None:
            given = Model.of(arrays)
            self._layout = Layout.of(given.values)
            self.current = dict.fromkeys(self.chains.names(blocks), given)
            for kind in self.chains.kinds:
                self.averages[kind] = Averages(self._layout, blocks, self.tail)
            self.last = {kind: [None] * blocks for kind in self.chains.kinds if kind != "hedged"}
        elif SHARED in self.current and arrays is not self.current[SHARED].record:
            given = Model.of(arrays)
            if Layout.of(given.values)[:2] != self._layout[:2]:
                raise ValueError("the arrays have other names or shapes than those of the run so far")
            self.current[SHARED] = given

    def main(self) -> Model:
        """The model of the chain that the latest round has moved; the shared one if there is one."""
        self._begun()
        return self.current[SHARED] if SHARED in self.current else self.current[str(self.block)]

    def step(
        self, place: tuple[int, int], moved: Mapping[str, Model], losses: NDArray | None
    ) -> list[tuple[str, int]]:
        """Average what was in force at a (cycle, block) before the update, then let the update be.

        losses: of the shared and of the block's own model. Returns the means that have changed because
        another visit began, by kind and block.
        """
        block = place[1]
        own = str(block)
        moving = [(kind, name) for kind, name in self.chains.moving(block) if name in moved]
        closed = [
            (kind, self.averages[kind].record(place, [(1.0, self.current[name].values)]))
            for kind, name in moving
        ]
        if self.bets is not None and SHARED in moved and own in moved:
            share = np.zeros(2)
            in_play(self.bets, block, -1.0, share)
            models = zip(share.tolist(), (self.current[SHARED].values, self.current[own].values), strict=True)
            closed.append(("hedged", self.averages["hedged"].record(place, models)))
            if losses is not None:
                learn_losses(self.bets, block, losses)
        for kind, name in moving:
            self.current[name] = moved[name]
            self.last[kind][block] = moved[name].values
        return [(kind, ended) for kind, ended in closed if ended is not None]

    # Read-outs.

    def means(self, of: str | None) -> BlockModels:
        """The mean of each block (Theorem 3)."""
        return self._read(self._averages(of).means(), "mean")

    def mean_of(self, block: int) -> dict[str, NDArray] | None:
        """The mean of one block alone, if it had a step."""
        found = self._averages(None).mean(block)
        return None if found is None else self.layout.cast(found.values)

    def tails(self, cycles: int, of: str | None) -> BlockModels:
        """The mean of each block over its own last `cycles` cycles."""
        return self._read(self._averages(of).tails(cycles), f"tail:{cycles}")

    def lasts(self, of: str | None) -> BlockModels:
        """The model after the latest round in each block."""
        main, which = self.main(), self._which(of)
        found = [self._last(which, block) for block in range(self.schedule.blocks)]
        empty = tuple(block for block, model in enumerate(found) if model is None)
        whole = tuple(main.values if model is None else model for model in found)
        return BlockModels(self.schedule, whole, empty, "last")

    def consensus(self) -> dict[str, NDArray]:
        """The mean over all rounds: one model for all blocks."""
        return self.layout.cast(_all(self._averages(self.chains.kinds[0]).means()).values)

    def _last(self, which: str, block: int) -> Named | None:
        if which != "hedged":
            return self.last[which][block]
        shared, own = self.last["shared"][block], self.last["own"][block]
        if shared is None or own is None or self.bets is None:
            return shared
        share, layout = self.bets.share[block], self.layout
        return layout.cast(share[0] * shared[name] + share[1] * own[name] for name in layout.names)

    def _begun(self) -> Layout:
        if self._layout is None:
            raise ValueError("no round was run yet")
        return self._layout

    def _averages(self, of: str | None) -> Averages:
        self._begun()
        return self.averages[self._which(of)]

    def _which(self, of: str | None) -> str:
        kinds = self.chains.kinds
        if of is None:
            return kinds[-1]
        if of not in kinds:
            raise ValueError(f"of={of!r}: this run has {', '.join(kinds)}")
        return of

    def _read(self, means: Sequence[Mean | None], read_out: str) -> BlockModels:
        """Means as models; blocks that were never visited have the mean of all."""
        whole = _all(means)
        empty = tuple(block for block, mean in enumerate(means) if mean is None)
        models = tuple(self.layout.cast((whole if mean is None else mean).values) for mean in means)
        return BlockModels(self.schedule, models, empty, read_out)


def _all(means: Sequence[Mean | None]) -> Mean:
    """The mean over all blocks."""
    whole: Mean | None = None
    for mean in means:
        whole = merged(whole, mean)
    if whole is None:
        raise ValueError(NOTHING)
    return whole


def first_bets(hedge: AdaHedge | Prod | None, blocks: int) -> Bets:
    """The hedge before the first round."""
    rule = AdaHedge() if hedge is None else hedge
    if rule.coin is not None:
        raise ValueError("hedges of federated chains mix the models: leave coin= out")
    if isinstance(rule, AdaHedge):
        return rule.first(2, blocks)
    if rule.steps is None:
        raise ValueError("Prod's rate is for a number of rounds told beforehand: Prod(bound=..., steps=...)")
    return rule.first(2, np.broadcast_to(np.asarray(rule.steps), (blocks,)))
