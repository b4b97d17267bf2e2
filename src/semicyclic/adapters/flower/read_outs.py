"""Read-outs of a federated run: the models that can be deployed, and what they are based on."""

from typing import Any

import numpy as np

from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.candidate_evaluation import CandidateEvaluation
from semicyclic.adapters.flower.chains import ChainModel
from semicyclic.adapters.flower.round_results import reply_counts
from semicyclic.adapters.flower.server_state import ServerState
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array


class ReadOuts:
    """The methods of `PluralisticStrategy` that read models and counts and change nothing."""

    schedule: Schedule
    learnt: ServerState
    trials: CandidateEvaluation
    total: dict[str, Any]

    def best(self) -> BlockModels:
        """For each block the model to deploy: the one with the least loss by what clients have reported.

        Candidates are the means, tails and last models of every block, those of the block's own chain and of
        the hedge where there are any, and the mean of all rounds; `chosen` says which it is. A block without
        reports gets the mean of its hedge if that has seen losses, otherwise the mean of all rounds, and a
        warning.
        """
        return self.trials.best(self.learnt)

    def evaluation(self) -> list[dict[str, Any]]:
        """What clients have reported, by block and candidate, best first.

        difference: of its loss to that of the block's mean on the same clients, with its standard error.
        """
        return self.trials.table()

    def mean(self, *, of: str | None = None) -> BlockModels:
        """The mean of each block (Theorem 3).

        of: "shared", "own" or "hedged", with Chains.SPLIT and Chains.HEDGED. Default: the hedged mixture.
        """
        return self.learnt.means(of)

    def tail(self, cycles: int = 1, *, of: str | None = None) -> BlockModels:
        """The mean of each block over its own last `cycles` cycles."""
        return self.learnt.tails(cycles, of)

    def last(self, *, of: str | None = None) -> BlockModels:
        """The model after the latest round in each block (what the paper's experiment uses).

        With Chains.HEDGED both chains' in proportion to their probabilities, unless `of` says otherwise.
        """
        return self.learnt.lasts(of)

    def consensus(self) -> dict[str, Array]:
        """The mean over all rounds: one model for all blocks."""
        return self.learnt.consensus()

    def main(self) -> ChainModel:
        """The current model: of the shared chain, or of the block of the latest round."""
        return self.learnt.main()

    def hedge_shares(self) -> Array:
        """[m, 2] how probable the shared and the own chain of each block are by now."""
        if self.learnt.bets is None:
            raise ValueError("there is no hedge: use chains=Chains.SPLIT or Chains.HEDGED")
        return self.learnt.bets.share.copy()

    @property
    def participation(self) -> Array:
        """[m] how many replies were learnt from in each block."""
        by_block = self.total.get("by_block", {})
        return np.array([by_block.get(str(block), 0) for block in range(self.schedule.blocks)])

    def reply_counts(self) -> dict[str, Any]:
        """Rounds and replies so far: used, missing, failed, and rejected by reason."""
        return reply_counts(self.total)
