"""Evaluation on held-out rows, weighted by the availability of their devices in each block."""

from typing import NamedTuple

import numpy as np

from semicyclic.adapters.flower import BlockModels
from semicyclic.experiments.federated.app import WEIGHTS
from semicyclic.experiments.federated.fleet import Fleet
from semicyclic.types import Array

MEMBERSHIPS = {
    "clock": "the model of the hour",
    "hard": "the model of the block in which it is available most",
    "soft": "the mixture of models by its own availability",
}


class HeldOutRows(NamedTuple):
    """Held-out rows, weighted in each block by the availability of their device (docs/math.md#availability).

    X: [rows, d + 1] dense features with a constant column.
    truth: [rows] whether the label is positive.
    device: [rows] device of each row.
    share: [rows, m] weight of each row in each block; sums to 1 over rows.
    profiles: [N, m] availability of each device by block.
    """

    X: Array
    truth: Array
    device: Array
    share: Array
    profiles: Array

    @staticmethod
    def of(fleet: Fleet, *, validation: bool = False) -> "HeldOutRows":
        """Return a fleet's test rows, or its validation rows."""
        population = fleet.population
        chosen = np.flatnonzero(population.validates == validation)
        rows, device = population.test[chosen], population.test_device[chosen]
        share = fleet.profiles[device]
        total = share.sum(axis=0)
        if not total.all():
            block = int((total == 0).argmax())
            label = population.schedule.labels[block]
            raise ValueError(
                f"no device with test rows is ever available in block {label}: use more devices or "
                "another availability"
            )
        X = np.zeros((len(rows), rows.width + 1))
        X[np.repeat(np.arange(len(X)), np.diff(rows.indptr)), rows.indices] = rows.values
        X[:, -1] = 1.0
        truth = population.test_labels[chosen] > 0
        return HeldOutRows(X, truth, device, share / total, fleet.profiles)

    def matrix(self, models: BlockModels) -> Array:
        """[m, m] accuracy of block i's model on block j's rows."""
        return np.asarray(self._correct(_stack_weights(models)).T @ self.share)

    def by_block(self, weights: Array) -> Array:
        """[m] accuracy of one model on each block's rows."""
        return np.asarray(self._correct(weights[None])[:, 0] @ self.share)

    def _correct(self, weights: Array) -> Array:
        """[rows, models] 1 where a model is correct; a score of exactly 0 predicts negative."""
        return np.asarray((self.X @ weights.T > 0) == self.truth[:, None], np.float64)

    def memberships(self, models: BlockModels) -> dict[str, float]:
        """Mean accuracy over all blocks for each way of assigning a model to a device (`MEMBERSHIPS`)."""
        table = _stack_weights(models)
        correct = self._correct(table)
        home = self.profiles.argmax(axis=1)
        mixed = self.profiles @ table
        soft = np.einsum("rd,rd->r", self.X, mixed[self.device]) > 0
        weight = self.share.mean(axis=1)
        return {
            "clock": float((correct * self.share).sum(axis=0).mean()),
            "hard": float(weight @ correct[np.arange(len(correct)), home[self.device]]),
            "soft": float(weight @ (soft == self.truth)),
        }


def _stack_weights(models: BlockModels) -> Array:
    """[m, d + 1] weights of all blocks."""
    return np.stack([np.asarray(model[WEIGHTS], np.float64) for model in models.models])
