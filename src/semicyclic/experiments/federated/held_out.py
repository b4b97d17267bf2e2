"""Held-out rows, weighted by the availability of their devices in each block."""

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
    """Held-out rows, and how much each counts in each block: as its device is available there (SPEC G1)."""

    X: Array
    truth: Array
    device: Array
    share: Array
    profiles: Array

    @staticmethod
    def of(world: Fleet, *, validation: bool = False) -> "HeldOutRows":
        """The rows that test, or those that validate."""
        population = world.population
        chosen = np.flatnonzero(population.validates == validation)
        rows, device = population.test[chosen], population.test_device[chosen]
        share = world.profiles[device]
        total = share.sum(axis=0)
        if not total.all():
            block = int((total == 0).argmax())
            label = population.schedule.labels[block]
            raise ValueError(
                f"no device with rows to test is ever available in block {label}: take more devices, or "
                "another availability"
            )
        X = np.zeros((len(rows), rows.width + 1))
        X[np.repeat(np.arange(len(X)), np.diff(rows.indptr)), rows.indices] = rows.values
        X[:, -1] = 1.0
        truth = population.test_labels[chosen] > 0
        return HeldOutRows(X, truth, device, share / total, world.profiles)

    def matrix(self, models: BlockModels) -> Array:
        """[m, m] the accuracy of block i's model on block j's rows."""
        return np.asarray(self._right(_table(models)).T @ self.share)

    def by_block(self, weights: Array) -> Array:
        """[m] the accuracy of one model on each block's rows."""
        return np.asarray(self._right(weights[None])[:, 0] @ self.share)

    def _right(self, weights: Array) -> Array:
        """[rows, models] 1 where a model is right; a score of exactly 0 says no."""
        return np.asarray((self.X @ weights.T > 0) == self.truth[:, None], np.float64)

    def memberships(self, models: BlockModels) -> dict[str, float]:
        """The accuracy over all blocks, by how a device comes to its model."""
        table = _table(models)
        right = self._right(table)
        home = self.profiles.argmax(axis=1)
        mixed = self.profiles @ table
        soft = np.einsum("rd,rd->r", self.X, mixed[self.device]) > 0
        over = self.share.mean(axis=1)
        return {
            "clock": float((right * self.share).sum(axis=0).mean()),
            "hard": float(over @ right[np.arange(len(right)), home[self.device]]),
            "soft": float(over @ (soft == self.truth)),
        }


def _table(models: BlockModels) -> Array:
    """[m, d + 1] the weights of all blocks."""
    return np.stack([np.asarray(model[WEIGHTS], np.float64) for model in models.models])
