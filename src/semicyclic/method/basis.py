"""Bases: which vectors make up the model of each block.

In block i the model is w = sum_j c_ij v_j over the active vectors of the block, and a step moves every one of
them by -eta c_ij g, with the same gradient g. So all of these are one method, SGD on all vectors together, in
which B bounds the norm of all vectors of the best solution, and G becomes max_i ||c_i|| G:

    single      w = v                 one chain through all blocks                              (eq. 2)
    separate    w = v_i               m chains; chain i moves only in block i, from where it    (eq. 9)
                                      stopped in the previous cycle: w^i_{t+1} = w^i_t - eta g_t for t in S_i
    residual    w = v + u_i / 2       a shared vector and a difference u_i / 2 for each block, which moves a
                                      quarter as far: the additive structure mentioned in Section 4
    fourier     w = v_0 + sum_h cos(2 pi h s) a_h + sin(2 pi h s) b_h, s the middle of block i in the cycle

Separate chains have T/m steps each, but of independent draws of their own D_i. With w*^i the best model of
block i alone, F_i(w^i) <= F_i(w*^i) + O(sqrt(B^2 m/T)) (eq. 10), and averaged over blocks

    F~(w^1..w^m) <= (1/m) sum_i F_i(w*^i) + O(sqrt(B^2 m/T))                                         (eq. 11)
                 <= F(w*) + O(sqrt(B^2 m/T)),    since F_i(w*^i) <= F_i(w*)                          (eq. 12)

That is m times slower than one chain on i.i.d. data, in return for the F_i(w*^i), which may lie far below
F_i(w*) if blocks differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semicyclic.types import Array

# A residual moves a quarter as far as the shared vector: c = 1/2, c^2 = 1/4.
SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Basis:
    """For each of m blocks: its active vectors, their coefficients, and the chain that it moves.

    Parameters
    ----------
    active : array of shape [m, A]
        The active vectors of each block; -1 if it has fewer than A.
    coefficient : array of shape [m, A]
        Their coefficients; 0 where `active` is -1.
    chain : array of shape [m]
        The chain of each block. Chains share no vectors; each has its own step count, step size and ball to
        be projected onto.
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
        """Whether there is one vector, active everywhere: the paper's single chain."""
        return self.vectors == 1 and bool((self.coefficient == 1.0).all())

    def terms(self, block: int) -> list[tuple[int, float]]:
        """The active vectors of a block and their coefficients, as pairs (j, c_j)."""
        pairs = zip(self.active[block].tolist(), self.coefficient[block].tolist(), strict=True)
        return [(vector, coefficient) for vector, coefficient in pairs if vector >= 0]

    def owner(self) -> Array:
        """[vectors] the chain each vector belongs to."""
        owner = np.zeros(self.vectors, dtype=np.int64)
        is_active = self.active >= 0
        owner[self.active[is_active]] = np.broadcast_to(self.chain[:, None], is_active.shape)[is_active]
        return owner


def single(blocks: int) -> Basis:
    """One chain for all blocks (eq. 2 of the paper).

    Parameters
    ----------
    blocks : int
        m.

    Returns
    -------
    Basis
    """
    return _basis(np.zeros((blocks, 1)), np.ones((blocks, 1)), np.zeros(blocks))


def separate(blocks: int) -> Basis:
    """A chain for each block (eq. 9 of the paper).

    Parameters
    ----------
    blocks : int
        m.

    Returns
    -------
    Basis
    """
    return _basis(np.arange(blocks)[:, None], np.ones((blocks, 1)), np.arange(blocks))


def residual(blocks: int, *groupings: Sequence[int] | Array) -> Basis:
    """A shared vector, and one small difference per group of each grouping. With m = 1, the plain chain.

    Parameters
    ----------
    blocks : int
        m.
    *groupings : sequences of int
        Each gives every block its group, from 0, such as the weekday of each hour of the week. Without any,
        every block is its own group.

    Returns
    -------
    Basis

    Raises
    ------
    ValueError
        If a grouping does not give every block a group.
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
    """Weights that vary smoothly over the cycle: 1, cos(2 pi h s), sin(2 pi h s), h = 1..H.

    Parameters
    ----------
    blocks : int
        m.
    harmonics : int
        H, at least 1.
    middles : sequence of float, optional
        s, the middle of each block as a fraction of the cycle; those of equal blocks by default.

    Returns
    -------
    Basis
    """
    if harmonics < 1:
        raise ValueError(f"harmonics={harmonics!r}: at least one is needed")
    s = (np.arange(blocks) + 0.5) / blocks if middles is None else np.asarray(middles, float)
    waves = [np.ones(blocks)]
    for h in range(1, harmonics + 1):
        waves += [np.cos(2 * np.pi * h * s), np.sin(2 * np.pi * h * s)]
    return of(np.stack(waves, axis=1))


def of(coefficients: Array) -> Basis:
    """Any basis: w = sum_j coefficients[i, j] v_j in block i, one chain.

    Parameters
    ----------
    coefficients : array of shape [m, vectors]

    Returns
    -------
    Basis

    Raises
    ------
    ValueError
        If the table is not finite, a block has no active vector, or a vector is active in no block.
    """
    table = np.asarray(coefficients, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError("a basis is a finite table [blocks, vectors] of coefficients")
    idle = np.flatnonzero(~(table != 0).any(axis=1))
    if len(idle):
        raise ValueError(f"block {idle[0]} has no active vector: its coefficients are all 0")
    if not (table[:, -1] != 0).any():
        raise ValueError("the last vector of the basis is active in no block: leave it out")
    width = int((table != 0).sum(axis=1).max())
    active = np.full((len(table), width), -1)
    coefficient = np.zeros((len(table), width))
    for block, row in enumerate(table):
        nonzero = np.flatnonzero(row)
        active[block, : len(nonzero)] = nonzero
        coefficient[block, : len(nonzero)] = row[nonzero]
    return _basis(active, coefficient, np.zeros(len(table)))


def _basis(active: Array, coefficient: Array, chain: Array) -> Basis:
    return Basis(
        np.ascontiguousarray(active, dtype=np.int64),
        np.ascontiguousarray(coefficient, dtype=np.float64),
        np.ascontiguousarray(chain, dtype=np.int64),
    )
