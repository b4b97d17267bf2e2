"""`ScoreSums`: losses of many models by block, by cycle and overall."""

from typing import NamedTuple

import numpy as np

from semicyclic.evaluation.kernels.metrics import BINS, add_classes, add_numbers, add_two
from semicyclic.method.loss import LOGISTIC, SOFTMAX, Loss
from semicyclic.types import Array

# Half the width of a 95 % confidence interval in standard errors, for a normal distribution.
NORMAL = 1.959964


class ScoreSums(NamedTuple):
    """Sums of two measures over rows, for K models.

    The measures are log loss and hits for classes, squared and absolute error for numbers.

    by_block: [2, blocks, K] both measures. rows: [blocks] number of rows.
    by_cycle: [cycles, K] the first measure. cycle_rows: [cycles] number of rows.
    scored: [classes, 2, K, BINS] histogram of scores, for rows of other classes (0) and of this class (1).
    centre: [1] score around which the bins of the histogram are narrowest.
    """

    by_block: Array
    rows: Array
    by_cycle: Array
    cycle_rows: Array
    scored: Array
    centre: Array

    @staticmethod
    def none(blocks: int, cycles: int, candidates: int, loss: Loss, centre: float = 0.0) -> "ScoreSums":
        """Return sums over no rows."""
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
        """Add rows. score: [rows, K, C]. target, block, cycle: [rows]."""
        add = {LOGISTIC: add_two, SOFTMAX: add_classes}.get(loss.code, add_numbers)
        add(self, np.ascontiguousarray(score), target, block, cycle)
        np.add.at(self.rows, block, 1.0)
        np.add.at(self.cycle_rows, cycle, 1.0)

    # -------------------------------------------------------------------------- results

    def names(self) -> tuple[str, str]:
        """Return the names of the two measures."""
        return ("log_loss", "accuracy") if len(self.scored) else ("mse", "mae")

    def overall(self, units: tuple[float, float]) -> list[dict[str, float]]:
        """Return the measures of every model over all blocks. units: factors of the two measures."""
        first, second = self.names()
        sums = self.by_block.sum(axis=1) / max(self.rows.sum(), 1.0)
        measures = [{first: float(one * units[0]), second: float(other * units[1])} for one, other in sums.T]
        if len(self.scored):
            for by_name, area in zip(measures, self.areas(), strict=True):
                by_name["auc"] = float(area)
        return measures

    def areas(self) -> Array:
        """Return the area under the ROC curve, [K]; for several classes the mean of one-vs-rest areas.

        Bins resolve scores to 1e-5 near the centre, elsewhere to half a percent of the distance from it. Ties
        count half.
        """
        by_class = []
        for negatives, positives in self.scored.astype(np.float64):
            pairs = positives.sum(axis=1) * negatives.sum(axis=1)
            below = np.cumsum(negatives, axis=1) - negatives / 2
            with np.errstate(invalid="ignore", divide="ignore"):
                by_class.append((positives * below).sum(axis=1) / pairs)
        areas = np.array(by_class)
        defined = np.isfinite(areas)
        mean = np.where(defined, areas, 0.0).sum(axis=0) / defined.sum(axis=0).clip(1)
        return np.asarray(np.where(defined.any(axis=0), mean, 0.5))

    def margins(self, unit: float) -> Array:
        """Return half the width of the first measure's 95 % interval, [K]; cycles count as independent."""
        return NORMAL * unit * _standard_error(self.by_cycle, self.cycle_rows)

    def gaps(self, of: int, unit: float) -> tuple[Array, Array]:
        """Return the gain of model `of` over each, and half its 95 % interval's width, paired by cycle."""
        gap = self.by_cycle - self.by_cycle[:, of : of + 1]
        mean = gap.sum(axis=0) / max(self.cycle_rows.sum(), 1.0)
        return mean * unit, NORMAL * unit * _standard_error(gap, self.cycle_rows)


def _standard_error(sums: Array, rows: Array) -> Array:
    """Return the standard error of sums / rows, a ratio of means over cycles; NaN below two cycles."""
    used = rows > 0
    count = int(used.sum())
    if count < 2:
        return np.full(sums.shape[1], np.nan)
    mean = sums[used].sum(axis=0) / rows[used].sum()
    residual = sums[used] - rows[used, None] * mean
    return np.asarray(np.sqrt((residual**2).sum(axis=0) * count / (count - 1)) / rows[used].sum())
