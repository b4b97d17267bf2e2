"""Evaluation protocols (progressive, walk-forward): predictions of the mixture for rows as they arrive."""

from typing import Any, NamedTuple

import numpy as np

from semicyclic.auto import kernels
from semicyclic.types import Array

# As `choice.Told` has them.
KINDS = (np.int64, np.int64, np.int64, np.int64, np.float32, np.float32, np.int64, np.float64)
Plan = tuple[int, float, int]


class EvaluationProtocol(NamedTuple):
    """The mixture's bets; and of rows asked whose labels are not known yet, what is told of them and what
    was answered: scores of candidates, of strategies, of the mixture."""

    bets: Any
    told: Any
    score: Array
    bet: Array
    auto: Array

    def ask(
        self, plan: Plan, delay: int, told: Any, score: Array
    ) -> tuple["EvaluationProtocol", Array, Array]:
        """More rows, and what candidates answer: what is to be known still, these scores, the mixture's."""

        number, outputs = len(score), plan[2]
        before = len(self.told.clock)
        bet = np.empty((number, kernels.mixing.STRATEGIES * outputs), np.float32)
        new = score, bet, np.empty((number, outputs), np.float32)
        full = EvaluationProtocol(
            self.bets,
            kernels.mixing.MixingRows(*(np.concatenate(pair) for pair in zip(self.told, told, strict=True))),
            *(np.concatenate(pair) for pair in zip(self[2:], new, strict=True)),
        )
        known = kernels.mixing.choose(
            full.bets, plan, tuple(full.told), (0, before), delay, full[2:], full._scratch()
        )
        # Scores that were none have been tamed.
        return full._after(known), full.score[before:], full.auto[before:]

    def end(self, plan: Plan) -> "EvaluationProtocol":
        """No rows will follow: all labels are known."""

        kernels.mixing.know_rest(self.bets, plan, tuple(self.told), 0, self[2:], self._scratch())
        return self._after(len(self.told.clock))

    def _after(self, count: int) -> "EvaluationProtocol":
        """Without the first rows."""
        told = type(self.told)(*(each[count:].copy() for each in self.told))
        return EvaluationProtocol(self.bets, told, *(each[count:].copy() for each in self[2:]))

    def _scratch(self) -> tuple[Array, ...]:
        """Slopes, losses and targets of candidates; losses of strategies and of the mixture."""
        strategies = self.bet.shape[1]
        size = self.score.shape[1]
        return tuple(np.empty(max(width, strategies), np.float32) for width in (size, size, size, 1, 1))


def new_protocol(
    slots: int, blocks: int, candidates: int, outputs: int, *, at_dawn: bool
) -> EvaluationProtocol:
    """A question of which nothing is known yet."""

    bets = kernels.mixing.no_bets(slots, blocks, candidates, at_dawn=at_dawn)
    told = kernels.mixing.MixingRows(*(np.zeros(0, kind) for kind in KINDS))
    widths = candidates, kernels.mixing.STRATEGIES, 1
    return EvaluationProtocol(bets, told, *(np.zeros((0, width * outputs), np.float32) for width in widths))
