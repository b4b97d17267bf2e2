"""Values and slopes of the losses for a minibatch, as `loss` defines them."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from semicyclic.jit import jit
from semicyclic.method.loss import ABSOLUTE, HINGE, HUBER, LOGISTIC, QUANTILE, SQUARED


def decay(x: Any) -> Any:
    """exp(x) for x <= 0."""
    return np.exp(x)


def log_one_plus(x: Any) -> Any:
    """log(1 + x) for 0 <= x <= 1."""
    return np.log1p(x)


@overload(decay, inline="always")  # type: ignore[untyped-decorator]
def _decay(x: Any) -> Any:
    def double(x: Any) -> Any:
        return np.exp(x)

    def single(x: Any) -> Any:
        # 2^(k+f) with |f| <= 1/2: a polynomial for 2^f (coefficients ln(2)^n / n!, the last
        # ones adjusted), and k put where a float keeps its exponent. Within 1e-7, and it
        # vectorizes where a library call would not.
        t = max(x, np.float32(-87.0)) * np.float32(1.4426950408889634)
        k = np.floor(t + np.float32(0.5))
        f = t - k
        p = np.float32(1.5353362e-4)
        p = p * f + np.float32(1.3398874e-3)
        p = p * f + np.float32(9.6184370e-3)
        p = p * f + np.float32(5.5503324e-2)
        p = p * f + np.float32(2.4022648e-1)
        p = p * f + np.float32(6.9314720e-1)
        p = p * f + np.float32(1.0)
        return p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)

    return single if x == types.float32 else double


@overload(log_one_plus, inline="always")  # type: ignore[untyped-decorator]
def _log_one_plus(x: Any) -> Any:
    def double(x: Any) -> Any:
        return np.log1p(x)

    def single(x: Any) -> Any:
        # log(1+x) = 2 artanh(x / (2+x)), and x / (2+x) <= 1/3: the series ends quickly.
        q = x / (np.float32(2.0) + x)
        s = q * q
        p = np.float32(1 / 13)
        p = p * s + np.float32(1 / 11)
        p = p * s + np.float32(1 / 9)
        p = p * s + np.float32(1 / 7)
        p = p * s + np.float32(1 / 5)
        p = p * s + np.float32(1 / 3)
        return np.float32(2.0) * q * (np.float32(1.0) + s * p)

    return single if x == types.float32 else double


@jit
def slopes(
    loss: Any,
    level: Any,
    count: Any,
    score: Any,
    first_score: Any,
    target: Any,
    first_target: Any,
    slope: Any,
    first_slope: Any,
    value: Any,
) -> Any:
    """Slope and value of a loss with one score, for the `count` rows of a minibatch.

    Whole arrays, each with the place of the first row: cutting slices for every minibatch, or
    taking arrays out of tuples, would cost as much as filling them.
    """
    # Unsigned, or every index would first be tested for being negative, and nothing vectorize.
    from_score = np.uint64(first_score)
    from_target = np.uint64(first_target)
    to = np.uint64(first_slope)
    one = score.dtype.type(1.0)
    zero = score.dtype.type(0.0)
    if loss == LOGISTIC:
        for r in range(np.uint64(count)):
            y = target[from_target + r]
            margin = score[from_score + r] * y
            small = decay(-abs(margin))
            slope[to + r] = -y * (small if margin > zero else one) / (one + small)
            value[r] = log_one_plus(small) + (zero if margin > zero else -margin)
    elif loss == HINGE:
        for r in range(np.uint64(count)):
            y = target[from_target + r]
            room = one - score[from_score + r] * y
            slope[to + r] = -y if room > zero else zero
            value[r] = room if room > zero else zero
    elif loss == SQUARED:
        for r in range(np.uint64(count)):
            miss = score[from_score + r] - target[from_target + r]
            slope[to + r] = miss
            value[r] = miss * miss / (one + one)
    elif loss == ABSOLUTE:
        for r in range(np.uint64(count)):
            miss = score[from_score + r] - target[from_target + r]
            slope[to + r] = one if miss > zero else (-one if miss < zero else zero)
            value[r] = abs(miss)
    elif loss == QUANTILE:
        under = score.dtype.type(level)
        for r in range(np.uint64(count)):
            miss = score[from_score + r] - target[from_target + r]
            slope[to + r] = one - under if miss > zero else (-under if miss < zero else zero)
            value[r] = miss * slope[to + r]
    elif loss == HUBER:
        threshold = score.dtype.type(level)
        half = one / (one + one)
        for r in range(np.uint64(count)):
            miss = score[from_score + r] - target[from_target + r]
            inner = min(max(miss, -threshold), threshold)
            slope[to + r] = inner
            value[r] = inner * (miss - half * inner)


@jit
def softmax_slopes(score: Any, target: Any, slope: Any, value: Any) -> Any:
    """Slopes [rows, C] and values of the softmax loss."""
    for r in range(len(score)):
        top = score[r, 0]
        for c in range(1, score.shape[1]):
            top = max(top, score[r, c])
        total = score.dtype.type(0.0)
        for c in range(score.shape[1]):
            slope[r, c] = np.exp(score[r, c] - top)
            total += slope[r, c]
        target_class = np.int64(target[r])
        for c in range(score.shape[1]):
            slope[r, c] /= total
        value[r] = np.log(total) + (top - score[r, target_class])
        slope[r, target_class] -= 1
