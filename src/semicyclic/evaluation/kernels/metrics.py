"""Sums of losses and score histograms of many models."""

from typing import Any

import numpy as np

from semicyclic.jit import jit
from semicyclic.method.kernels.losses import decay, log_one_plus

# Scores are counted in bins that are narrow around a centre and widen with the distance from it.
BINS, CENTRE_RESOLUTION = 4096, 512.0
# arcsinh(CENTRE_RESOLUTION * d) of the largest distance d that bins resolve, about 40.
MAX_ARCSINH = 10.6


@jit
def bin_of(score: Any, centre: Any) -> Any:
    """Return the bin of a score."""
    position = np.arcsinh((np.float64(score) - centre) * CENTRE_RESOLUTION) / MAX_ARCSINH
    return np.int64((min(max(position, -0.9999), 0.9999) + 1.0) * (BINS // 2))


@jit
def add_two(tally: Any, score: Any, target: Any, block: Any, cycle: Any) -> Any:
    """Add log losses and correct predictions of rows with two classes, encoded as -1 and +1, to the tally."""
    by_block, by_cycle, scored = tally.by_block, tally.by_cycle, tally.scored
    centre = np.float64(tally.centre[0])
    zero = np.float32(0.0)
    for row in range(len(target)):
        y, positive = np.float32(target[row]), np.int64(target[row] > 0)
        for k in range(score.shape[1]):
            s = score[row, k, 0]
            margin = s * y
            value = log_one_plus(decay(-abs(margin))) + (zero if margin > zero else -margin)
            by_block[0, block[row], k] += value
            by_block[1, block[row], k] += (s > zero) == (y > zero)
            by_cycle[cycle[row], k] += value
            scored[0, positive, k, bin_of(s, centre)] += 1


@jit
def add_classes(tally: Any, score: Any, target: Any, block: Any, cycle: Any) -> Any:
    """Add log losses and hits of rows of several classes, with targets 0 to C - 1."""
    by_block, by_cycle, scored = tally.by_block, tally.by_cycle, tally.scored
    centre = np.float64(tally.centre[0])
    for row in range(len(target)):
        actual = np.int64(target[row])
        for k in range(score.shape[1]):
            best, top, total = 0, score[row, k, 0], np.float32(0.0)
            for c in range(1, score.shape[2]):
                if score[row, k, c] > top:
                    best, top = c, score[row, k, c]
            for c in range(score.shape[2]):
                total += decay(score[row, k, c] - top)
            value = np.log(total) + top - score[row, k, actual]
            by_block[0, block[row], k] += value
            by_block[1, block[row], k] += best == actual
            by_cycle[cycle[row], k] += value
            for c in range(score.shape[2]):
                share = decay(score[row, k, c] - top) / total
                odds = np.log(max(share, np.float32(1e-7)) / max(np.float32(1.0) - share, np.float32(1e-7)))
                scored[c, np.int64(c == actual), k, bin_of(odds, centre)] += 1


@jit
def add_numbers(tally: Any, score: Any, target: Any, block: Any, cycle: Any) -> Any:
    """Add squared and absolute errors of rows with numeric targets."""
    by_block, by_cycle = tally.by_block, tally.by_cycle
    for row in range(len(target)):
        for k in range(score.shape[1]):
            error = np.float64(score[row, k, 0]) - target[row]
            by_block[0, block[row], k] += error * error
            by_block[1, block[row], k] += abs(error)
            by_cycle[cycle[row], k] += error * error
