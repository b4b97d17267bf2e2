"""Which weights are in force in which block: one chain, many, or a shared one and residuals.

In block i the score is <z, x> with z = sum_j c_j w_j over the vectors in force there, and a
step moves every one of them by c_j times the same gradient. So all of these are one
method, plain SGD, in spaces of different size (SPEC B5, K1):

    single      z = w
    separate    z = w^i
    residual    z = w + v^i, where v^i moves a quarter as far: v = u / 2 and u takes full steps
    fourier     z = w_0 + sum_h cos(2 pi h t) a_h + sin(2 pi h t) b_h at the middle of block i
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# A residual moves a quarter as far as the shared vector (SPEC K1): c = 1/2, c^2 = 1/4.
SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Basis:
    """For each of m blocks: the vectors in force, their coefficients, and whose chain it is.

    active: [m, A] the vectors in force, -1 where a block has fewer than A.
    coefficient: [m, A], 0 where active is -1.
    chain: [m] the chain a block moves. Chains share no vectors; each has its own step
        count, step size and ball to be projected onto.
    """

    active: Array
    coefficient: Array
    chain: Array

    @property
    def blocks(self) -> int:
        return len(self.chain)

    @property
    def vectors(self) -> int:
        return int(self.active.max()) + 1

    @property
    def chains(self) -> int:
        return int(self.chain.max()) + 1

    @property
    def is_single(self) -> bool:
        """One vector, in force everywhere: the paper's single chain."""
        return self.vectors == 1 and bool((self.coefficient == 1.0).all())

    def owner(self) -> Array:
        """[vectors] the chain each vector belongs to."""
        owner = np.zeros(self.vectors, dtype=np.int64)
        held = self.active >= 0
        owner[self.active[held]] = np.broadcast_to(self.chain[:, None], held.shape)[held]
        return owner


def single(blocks: int) -> Basis:
    """One chain for all blocks (eq. 2 of the paper)."""
    return _basis(np.zeros((blocks, 1)), np.ones((blocks, 1)), np.zeros(blocks))


def separate(blocks: int) -> Basis:
    """A chain of its own for each block (Section 4)."""
    return _basis(np.arange(blocks)[:, None], np.ones((blocks, 1)), np.arange(blocks))


def residual(blocks: int, *groupings: Sequence[int] | Array) -> Basis:
    """A shared vector, and one small residual per group of each grouping.

    A grouping gives each block its group, such as the weekday of each hour of the week;
    without any, every block is its own group. With m = 1 this is the plain chain.
    """
    if blocks == 1:
        return single(1)
    grouping = [np.asarray(each, dtype=np.int64) for each in groupings] or [np.arange(blocks)]
    active = [np.zeros(blocks, dtype=np.int64)]
    used = 1
    for number, group in enumerate(grouping):
        if group.shape != (blocks,) or group.min() < 0:
            raise ValueError(
                f"grouping {number} has shape {group.shape}: it must give each of the "
                f"{blocks} blocks a group, counted from 0"
            )
        active.append(used + group)
        used += int(group.max()) + 1
    coefficient = np.full((blocks, len(active)), SHARE)
    coefficient[:, 0] = 1.0
    return _basis(np.stack(active, axis=1), coefficient, np.zeros(blocks))


def fourier(blocks: int, harmonics: int, middles: npt.ArrayLike | None = None) -> Basis:
    """Weights that vary smoothly over the cycle: 1, cos(2 pi h t), sin(2 pi h t), h = 1..H.

    t is the middle of each block as a fraction of the cycle; equal blocks unless given.
    """
    if harmonics < 1:
        raise ValueError(f"harmonics={harmonics!r}: at least one is needed")
    t = (np.arange(blocks) + 0.5) / blocks if middles is None else np.asarray(middles, float)
    waves = [np.ones(blocks)]
    for h in range(1, harmonics + 1):
        waves += [np.cos(2 * np.pi * h * t), np.sin(2 * np.pi * h * t)]
    return of(np.stack(waves, axis=1))


def of(coefficients: Array) -> Basis:
    """Any basis: score in block i = sum_j coefficients[i, j] <w_j, x>, one chain."""
    table = np.asarray(coefficients, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError("a basis is a finite table [blocks, vectors] of coefficients")
    idle = np.flatnonzero(~(table != 0).any(axis=1))
    if len(idle):
        raise ValueError(f"block {idle[0]} has no vector in force: its coefficients are all 0")
    if not (table[:, -1] != 0).any():
        raise ValueError("the last vector of the basis is in force nowhere: leave it out")
    width = int((table != 0).sum(axis=1).max())
    active = np.full((len(table), width), -1)
    coefficient = np.zeros((len(table), width))
    for block, row in enumerate(table):
        held = np.flatnonzero(row)
        active[block, : len(held)] = held
        coefficient[block, : len(held)] = row[held]
    return _basis(active, coefficient, np.zeros(len(table)))


def _basis(active: Array, coefficient: Array, chain: Array) -> Basis:
    return Basis(
        np.ascontiguousarray(active, dtype=np.int64),
        np.ascontiguousarray(coefficient, dtype=np.float64),
        np.ascontiguousarray(chain, dtype=np.int64),
    )
