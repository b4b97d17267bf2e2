"""The state of a hedge: who has lost how much, and how probable that makes each."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PROD, ADAHEDGE = range(2)
# Sums that would overflow stop here.
HUGE = 1e300
# A probability below this counts as none: a mean cannot be taken with weights that underflow.
FAINT = 1e-20


class Bets(NamedTuple):
    """The state of a hedge over E experts in each of m blocks.

    share: [m, E] the probabilities of the next step.
    stake: [m, E] Prod's log weights; or AdaHedge's cumulative losses above the least.
    gap: [m] AdaHedge's Delta. rate, limit: [m] Prod's nu, and 2M, beyond which differences
        are clipped (infinite where they are not).
    lost: [m, E] each expert's own progressive loss, summed over steps. steps: [m].
    clipped, refused: [m] how many differences were clipped, how many factors not positive.
    """

    rule: int
    share: Array
    stake: Array
    gap: Array
    rate: Array
    limit: Array
    lost: Array
    steps: Array
    clipped: Array
    refused: Array

    def copy(self) -> "Bets":
        return Bets(self.rule, *(array.copy() for array in self[1:]))


class Standing(NamedTuple):
    """How the chains of a hedged run stand, by block.

    share: [m, E] their probabilities. loss: [m, E] each one's own mean progressive loss.
    clipped: [m] how many differences of losses lay beyond Prod's stated range.
    """

    share: Array
    loss: Array
    clipped: Array

    def __str__(self) -> str:
        names = [f"{what} {e}" for e in range(self.share.shape[1]) for what in ("share", "loss")]
        lines = ["block" + "".join(f"{name:>10}" for name in names)]
        for block, pairs in enumerate(np.stack([self.share, self.loss], axis=2)):
            lines.append(f"{block:>5}" + "".join(f"{value:>10.4f}" for value in pairs.ravel()))
        if self.clipped.any():
            lines.append(f"{int(self.clipped.sum())} differences of losses were clipped: bound= is too small")
        return "\n".join(lines)


def standing(bets: Bets) -> Standing:
    """How the chains stand after the steps so far."""
    steps = bets.steps[:, None]
    loss = np.divide(bets.lost, steps, out=np.full(bets.lost.shape, np.nan), where=steps > 0)
    return Standing(bets.share.copy(), loss, bets.clipped.copy())
