"""`ScoreSums`: losses of many candidates by block, by cycle and overall."""

from typing import NamedTuple

import numpy as np

from semicyclic.evaluation.kernels.metrics import BINS, add_classes, add_numbers, add_two
from semicyclic.method.loss import LOGISTIC, SOFTMAX, Loss
from semicyclic.types import Array

# 95 of 100 intervals hold the mean, were cycles independent and many.
NORMAL = 1.959964


class ScoreSums(NamedTuple):
    """Sums over rows, of K candidates: [2, blocks, K] log loss and hits, or squared and absolute errors.

    by_cycle: [cycles, K] of the first. rows, cycle_rows: how many. scored: [classes, 2, K, BINS] how often
    each score was given to a row of another class and of this one. centre: where scores are told apart
    best.
    """

    by_block: Array
    rows: Array
    by_cycle: Array
    cycle_rows: Array
    scored: Array
    centre: Array

    @staticmethod
    def none(blocks: int, cycles: int, candidates: int, loss: Loss, centre: float = 0.0) -> "ScoreSums":
        classes = {LOGISTIC: 1, SOFTMAX: loss.outputs}.get(loss.code, 0)
        return ScoreSums(
            np.zeros((2, blocks, candidates)),
            np.zeros(blocks),
            np.zeros((cycles, candidates)),
            np.zeros(cycles),
            np.zeros((classes, 2, candidates, BINS), np.uint32),
            np.array([centre], np.float32),
        )

    def add(self, loss: Loss, score: Array, target: Array, block: Array, cycle: Array) -> None:
        """Rows with their scores [rows, K, C]."""
        add = {LOGISTIC: add_two, SOFTMAX: add_classes}.get(loss.code, add_numbers)
        add(self, np.ascontiguousarray(score), target, block, cycle)
        np.add.at(self.rows, block, 1.0)
        np.add.at(self.cycle_rows, cycle, 1.0)

    # --------------------------------------------------------------------- what came of it

    def names(self) -> tuple[str, str]:
        return ("log_loss", "accuracy") if len(self.scored) else ("mse", "mae")

    def overall(self, units: tuple[float, float]) -> list[dict[str, float]]:
        """Of every candidate its measures, in the labels' own units."""
        first, second = self.names()
        sums = self.by_block.sum(axis=1) / max(self.rows.sum(), 1.0)
        found = [{first: float(one * units[0]), second: float(other * units[1])} for one, other in sums.T]
        if len(self.scored):
            for each, area in zip(found, self.areas(), strict=True):
                each["auc"] = float(area)
        return found

    def areas(self) -> Array:
        """[K] the area under the ROC curve; for several classes the mean of one against the rest.

        Scores near the centre are told apart to 1e-5, others to half a percent of their distance; equal ones
        count half.
        """
        found = []
        for below, own in self.scored.astype(np.float64):
            pairs = own.sum(axis=1) * below.sum(axis=1)
            under = np.cumsum(below, axis=1) - below / 2
            with np.errstate(invalid="ignore", divide="ignore"):
                found.append((own * under).sum(axis=1) / pairs)
        areas = np.array(found)
        held = np.isfinite(areas)
        mean = np.where(held, areas, 0.0).sum(axis=0) / held.sum(axis=0).clip(1)
        return np.asarray(np.where(held.any(axis=0), mean, 0.5))

    def margins(self, unit: float) -> Array:
        """[K] half the width of a 95 % interval of the first measure: cycles are taken as independent."""
        return NORMAL * unit * _error(self.by_cycle, self.cycle_rows)

    def gaps(self, of: int, unit: float) -> tuple[Array, Array]:
        """How much candidate `of` is better than each, and half the width of its interval, cycles paired."""
        gap = self.by_cycle - self.by_cycle[:, of : of + 1]
        mean = gap.sum(axis=0) / max(self.cycle_rows.sum(), 1.0)
        return mean * unit, NORMAL * unit * _error(gap, self.cycle_rows)


def _error(sums: Array, rows: Array) -> Array:
    """The standard error of sums / rows, a ratio of means over cycles."""
    used = rows > 0
    count = int(used.sum())
    if count < 2:
        return np.full(sums.shape[1], np.nan)
    mean = sums[used].sum(axis=0) / rows[used].sum()
    rest = sums[used] - rows[used, None] * mean
    return np.asarray(np.sqrt((rest**2).sum(axis=0) * count / (count - 1)) / rows[used].sum())
