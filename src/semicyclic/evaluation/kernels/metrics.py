"""Sums of the losses of many candidates' scores."""

from typing import Any

import numpy as np

from semicyclic.jit import jit
from semicyclic.method.kernels.losses import decay, log_one_plus

# Scores are sorted into bins that are narrow around a centre and grow with the distance from it.
BINS, FINE = 4096, 512.0
# arcsinh of the largest distance told apart, about 40.
REACH = 10.6


@jit
def bin_of(score: Any, centre: Any) -> Any:
    """The bin of a score."""
    place = np.arcsinh((np.float64(score) - centre) * FINE) / REACH
    return np.int64((min(max(place, -0.9999), 0.9999) + 1.0) * (BINS // 2))


@jit
def add_two(tally: Any, score: Any, target: Any, block: Any, cycle: Any) -> Any:
    """Log losses and hits of two classes, targets -1 and +1."""
    by_block, by_cycle, scored = tally.by_block, tally.by_cycle, tally.scored
    centre = np.float64(tally.centre[0])
    zero = np.float32(0.0)
    for row in range(len(target)):
        y, own = np.float32(target[row]), np.int64(target[row] > 0)
        for k in range(score.shape[1]):
            s = score[row, k, 0]
            margin = s * y
            value = log_one_plus(decay(-abs(margin))) + (zero if margin > zero else -margin)
            by_block[0, block[row], k] += value
            by_block[1, block[row], k] += (s > zero) == (y > zero)
            by_cycle[cycle[row], k] += value
            scored[0, own, k, bin_of(s, centre)] += 1


@jit
def add_classes(tally: Any, score: Any, target: Any, block: Any, cycle: Any) -> Any:
    """The same of several classes, targets 0 to C-1."""
    by_block, by_cycle, scored = tally.by_block, tally.by_cycle, tally.scored
    centre = np.float64(tally.centre[0])
    for row in range(len(target)):
        own = np.int64(target[row])
        for k in range(score.shape[1]):
            best, top, total = 0, score[row, k, 0], np.float32(0.0)
            for c in range(1, score.shape[2]):
                if score[row, k, c] > top:
                    best, top = c, score[row, k, c]
            for c in range(score.shape[2]):
                total += decay(score[row, k, c] - top)
            value = np.log(total) + top - score[row, k, own]
            by_block[0, block[row], k] += value
            by_block[1, block[row], k] += best == own
            by_cycle[cycle[row], k] += value
            for c in range(score.shape[2]):
                share = decay(score[row, k, c] - top) / total
                odds = np.log(max(share, np.float32(1e-7)) / max(np.float32(1.0) - share, np.float32(1e-7)))
                scored[c, np.int64(c == own), k, bin_of(odds, centre)] += 1


@jit
def add_numbers(tally: Any, score: Any, target: Any, block: Any, cycle: Any) -> Any:
    """Squared and absolute errors."""
    by_block, by_cycle = tally.by_block, tally.by_cycle
    for row in range(len(target)):
        for k in range(score.shape[1]):
            miss = np.float64(score[row, k, 0]) - target[row]
            by_block[0, block[row], k] += miss * miss
            by_block[1, block[row], k] += abs(miss)
            by_cycle[cycle[row], k] += miss * miss
