"""Summary of a hedge for people: probabilities and losses of its chains, by block."""

from typing import NamedTuple

import numpy as np

from semicyclic.method.hedge import HedgeState
from semicyclic.types import Array


class HedgeSummary(NamedTuple):
    """Probabilities and losses of the chains of a hedged run, by block.

    share: [m, E] probabilities. loss: [m, E] mean progressive loss of each chain.
    clipped: [m] number of loss differences outside Prod's stated range.
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


def summarize_hedge(hedge_state: HedgeState) -> HedgeSummary:
    """Summarize the state of a hedge."""
    steps = hedge_state.steps[:, None]
    loss = np.divide(
        hedge_state.total_loss, steps, out=np.full(hedge_state.total_loss.shape, np.nan), where=steps > 0
    )
    return HedgeSummary(hedge_state.share.copy(), loss, hedge_state.clipped.copy())
