"""Read-outs of a federated run: models for deployment, candidate scores and reply counts."""

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
    """Read-only methods of `PluralisticStrategy`: models and counts."""

    schedule: Schedule
    server: ServerState
    trials: CandidateEvaluation
    total: dict[str, Any]

    def best(self) -> BlockModels:
        """Return the model to deploy in each block: the candidate with the lowest loss reported by clients.

        Candidates are the means, tails and last models of every block, those of the block's own chain and of
        the hedge if the run has them, and the mean of all rounds. For a block without reported losses a
        warning is logged, and the result is the mean of its hedge if the hedge has seen losses, otherwise the
        mean of all rounds.

        Returns
        -------
        BlockModels
            Chosen models; `chosen` names the candidate of each block.

        Raises
        ------
        ValueError
            If no round has changed the model.
        """
        return self.trials.best(self.server)

    def evaluation(self) -> list[dict[str, Any]]:
        """Return the scores of all measured candidates, by block, best first.

        Returns
        -------
        list of dict
            Keys: "block" (label), "candidate", "difference" (its loss minus the loss of the block's mean on
            the same clients), "standard_error" (of the difference) and "rounds" (weighted number of rounds
            in which it was measured).
        """
        return self.trials.table()

    def mean(self, *, of: str | None = None) -> BlockModels:
        """Return the mean of each block over all its rounds (Theorem 3).

        Parameters
        ----------
        of : {"shared", "own", "hedged"}, optional
            Sequence of models to average. Default: the hedged mixture with Chains.SPLIT and Chains.HEDGED,
            otherwise the only sequence that the run has.

        Returns
        -------
        BlockModels

        Raises
        ------
        ValueError
            If the run has no such sequence, or no round has changed the model.
        """
        return self.server.means(of)

    def tail(self, cycles: int = 1, *, of: str | None = None) -> BlockModels:
        """Return the mean of each block over its last cycles.

        Parameters
        ----------
        cycles : int, default 1
            Number of cycles, at most the `tail` of the strategy.
        of : {"shared", "own", "hedged"}, optional
            Sequence of models, as in `mean`.

        Returns
        -------
        BlockModels

        Raises
        ------
        ValueError
            If `cycles` is out of range, the run has no such sequence, or no round has changed the model.
        """
        return self.server.tails(cycles, of)

    def last(self, *, of: str | None = None) -> BlockModels:
        """Return the model after the latest round of each block, as in the paper's experiment.

        Parameters
        ----------
        of : {"shared", "own", "hedged"}, optional
            Sequence of models, as in `mean`. "hedged", the default with Chains.SPLIT and Chains.HEDGED, is
            the mixture of both chains, weighted by their hedge probabilities.

        Returns
        -------
        BlockModels

        Raises
        ------
        ValueError
            If the run has no such sequence, or no round was run.
        """
        return self.server.lasts(of)

    def consensus(self) -> dict[str, Array]:
        """Return the mean over all rounds: one model for all blocks.

        Returns
        -------
        dict from str to ndarray

        Raises
        ------
        ValueError
            If no round has changed the model.
        """
        return self.server.consensus()

    def main(self) -> ChainModel:
        """Return the current model of the shared chain, or else of the chain of the latest round's block."""
        return self.server.main()

    def hedge_shares(self) -> Array:
        """Return the current hedge probabilities of the shared and the own chain of each block.

        Returns
        -------
        ndarray of shape (m, 2)

        Raises
        ------
        ValueError
            If the run has no hedge.
        """
        if self.server.hedge_state is None:
            raise ValueError("this run has no hedge: use chains=Chains.SPLIT or Chains.HEDGED")
        return self.server.hedge_state.share.copy()

    @property
    def participation(self) -> Array:
        """Number of replies used for training in each block, shape (m,)."""
        by_block = self.total.get("by_block", {})
        return np.array([by_block.get(str(block), 0) for block in range(self.schedule.blocks)])

    def reply_counts(self) -> dict[str, Any]:
        """Return the counts of rounds and replies so far: used, missing, failed, and rejected by reason."""
        return reply_counts(self.total)
