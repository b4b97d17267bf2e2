"""The hard instances of Theorems 1 and 2, on which one model fails with cyclic data.

4K coordinates x = V' w / B form a chain of links. The first half of the blocks sees every second link and a
linear term in x_1, the other half sees the links in between. A block can therefore reveal only one further
coordinate, and K cycles reveal 2K of them, however many steps each has.

    f(w, 1) = (eta/8) (-2 a x_1 + phi(x_4K) + sum_{k<2K} phi(x_2k - x_2k+1))
    f(w, 2) = (eta/8) sum_{k<=2K} phi(x_2k-1 - x_2k)

phi is flat up to a/2, then quadratic, and linear beyond gamma. The paper's phi(x) = 2 gamma |x|
would make the start optimal (docs/math.md#lower-bounds); this one serves both theorems. It is 1-Lipschitz,
and eta / B^2 smooth: eta = 4BK for Theorem 1, B^2 for Theorem 2 (where B <= 16K).
"""

from dataclasses import dataclass
from math import ceil, isfinite, log

import numpy as np

from semicyclic.types import Array


@dataclass(frozen=True, eq=False)
class HardInstance:
    """Hard instance of Theorem 1 or 2: value, gradient and proximal step of every block, and the optimum.

    cycles: K. radius: B. smooth: Theorem 2 instead of Theorem 1. blocks: m; for odd m the middle one has f =
    0.
    rotation: orthonormal columns [d, 4K] instead of the first 4K coordinates.
    """

    cycles: int
    radius: float = 1.0
    smooth: bool = False
    blocks: int = 2
    rotation: Array | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.cycles, int) or self.cycles < 1:
            raise ValueError(f"cycles={self.cycles!r}: must be a whole number, at least 1")
        if not isinstance(self.blocks, int) or self.blocks < 2:
            raise ValueError(f"blocks={self.blocks!r}: at least two are needed")
        if not (isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"radius={self.radius!r}: must be positive and finite")
        if self.smooth and self.radius > 16 * self.cycles:
            raise ValueError(f"radius={self.radius!r}: Theorem 2 needs B <= 16 K = {16 * self.cycles}")
        if self.rotation is not None:
            columns = np.asarray(self.rotation)
            square = columns.T @ columns if columns.ndim == 2 else np.zeros((0, 0))
            if square.shape != (self.links, self.links) or not np.allclose(square, np.eye(self.links)):
                raise ValueError(f"rotation must be [d, {self.links}] with orthonormal columns")

    @property
    def links(self) -> int:
        """4K, the number of coordinates that matter."""
        return 4 * self.cycles

    @property
    def dimension(self) -> int:
        """The length of w."""
        return self.links if self.rotation is None else len(self.rotation)

    @property
    def eta(self) -> float:
        return self.radius**2 if self.smooth else 4 * self.radius * self.cycles

    @property
    def flat(self) -> float:
        """a: phi is 0 up to a/2."""
        return float(1 / (8 * self.cycles**1.5))

    @property
    def gamma(self) -> float:
        """Beyond gamma phi is linear."""
        return float(2 * self.radius / (self.eta * self.cycles**0.5))

    @property
    def share(self) -> float:
        """Weight of each of the two functions in F: 1/2, or less for odd m."""
        return (self.blocks // 2) / self.blocks

    # ---------------------------------------------------------------- the objective

    def kind(self, block: int) -> int:
        """The function that a block sees: 1 in the first half, 2 in the second, 0 in the middle for odd m."""
        if not 0 <= block < self.blocks:
            raise ValueError(f"block {block}: there are 0 to {self.blocks - 1}")
        half = self.blocks // 2
        return 1 if block < half else 2 if block >= self.blocks - half else 0

    def value(self, w: Array, block: int | None = None) -> float:
        """f of a block at w; without one F, the mean over blocks."""
        if block is None:
            return self.share * (self._value(w, 1) + self._value(w, 2))
        return self._value(w, self.kind(block))

    def gradient(self, w: Array, block: int | None = None) -> Array:
        """The gradient of f of a block at w, or of F; w may be several [..., d] at once."""
        if block is None:
            return self.share * (self._gradient(w, 1) + self._gradient(w, 2))
        return self._gradient(w, self.kind(block))

    def prox(self, w: Array, block: int, step: float | Array) -> Array:
        """argmin_u f(u) + ||u - w||^2 / (2 step): an implicit step; for several w, of a size each."""
        if not np.all(np.asarray(step) > 0):
            raise ValueError(f"step={step!r}: must be positive")
        kind = self.kind(block)
        x = self._coordinates(w)
        if kind == 0:
            return np.array(w)
        pull = np.asarray(self.eta * step / (8 * self.radius**2))[..., None]
        new = x.copy()
        if kind == 1:
            new[..., 0] += 2 * self.flat * pull[..., 0]
            new[..., -1:] = self._prox(x[..., -1:], 1 / pull)
        one, other = self._pairs(kind)
        apart = x[..., one] - x[..., other]
        # A link holds both its ends: half the change each, at twice the ease.
        change = (self._prox(apart, 1 / (2 * pull)) - apart) / 2
        new[..., one] += change
        new[..., other] -= change
        return self._back(w, x, new)

    def minimizer(self, block: int, start: Array) -> Array:
        """A minimizer of f of a block over the ball ||w|| <= B, the nearest to `start` in it."""
        kind = self.kind(block)
        x = self._coordinates(start)
        if np.linalg.norm(start) > self.radius * (1 + 1e-9):
            raise ValueError(
                f"start has norm {np.linalg.norm(start):.4g}: it must lie in the ball of radius B"
            )
        if kind == 0:
            return np.array(start)
        if kind == 1:
            # f >= -2 a x_1 eta / 8 with equality at B v_1 only, where all links are slack.
            new = np.zeros_like(x)
            new[0] = 1.0
            return self._embed(new)
        one, other = self._pairs(kind)
        apart = x[one] - x[other]
        change = (np.clip(apart, -self.flat / 2, self.flat / 2) - apart) / 2
        new = x.copy()
        new[one] += change
        new[other] -= change
        return self._back(start, x, new)

    # ------------------------------------------------------------------- the truth

    @property
    def optimum(self) -> Array:
        """w*, with x_r = a (4K + 1 - r)."""
        return self._embed(self.flat * np.arange(self.links, 0, -1))

    @property
    def least(self) -> float:
        """F* = -(3/8) eta K a^2, times (m-1)/m for odd m."""
        return -2 * self.share * 3 / 8 * self.eta * self.cycles * self.flat**2

    def gap(self, w: Array) -> float:
        """F(w) - F*."""
        return self.value(w) - self.least

    @property
    def bound(self) -> float:
        """Least gap over the span of the first 2K directions: (3/32) eta a^2 2K."""
        return 2 * self.share * 3 / 32 * self.eta * self.flat**2 * 2 * self.cycles

    # --------------------------------------------------------------------- inside

    def _coordinates(self, w: Array) -> Array:
        w = np.asarray(w, dtype=np.float64)
        if w.shape[-1:] != (self.dimension,):
            raise ValueError(f"w has shape {w.shape}: it must be ({self.dimension},)")
        return np.asarray((w if self.rotation is None else w @ self.rotation) / self.radius)

    def _embed(self, x: Array) -> Array:
        return np.asarray(self.radius * (x if self.rotation is None else x @ self.rotation.T))

    def _back(self, w: Array, x: Array, new: Array) -> Array:
        """w with its coordinates changed from x to `new`."""
        return np.asarray(w) + self._embed(new - x)

    def _pairs(self, kind: int) -> tuple[Array, Array]:
        """The links of a function: x_2k - x_2k+1 or x_2k-1 - x_2k, counted from 1."""
        first = np.arange(1, self.links - 1, 2) if kind == 1 else np.arange(0, self.links, 2)
        return first, first + 1

    def _value(self, w: Array, kind: int) -> float:
        if kind == 0:
            return 0.0
        x = self._coordinates(w)
        one, other = self._pairs(kind)
        total = self.phi(x[one] - x[other]).sum()
        if kind == 1:
            total += self.phi(x[-1:])[0] - 2 * self.flat * x[0]
        return float(self.eta / 8 * total)

    def _gradient(self, w: Array, kind: int) -> Array:
        x = self._coordinates(w)
        slope = np.zeros_like(x)
        if kind:
            one, other = self._pairs(kind)
            link = self._slope(x[..., one] - x[..., other])
            slope[..., one] = link
            slope[..., other] = -link
        if kind == 1:
            slope[..., 0] = -2 * self.flat
            slope[..., -1:] = self._slope(x[..., -1:])
        return self._embed(self.eta / 8 * slope / self.radius**2)

    def phi(self, z: Array) -> Array:
        """Cost of a link whose ends differ by z: 0 up to a/2, then increasing."""
        a, size = self.flat, np.abs(z)
        return np.select(
            [size <= a / 2, size <= a, size <= self.gamma],
            [0 * size, 2 * (size - a / 2) ** 2, size**2 - a**2 / 2],
            2 * self.gamma * size - self.gamma**2 - a**2 / 2,
        )

    def _slope(self, z: Array) -> Array:
        a = self.flat
        # 0 up to a/2, then 4 |z| - 2a up to a, 2 |z| up to gamma, and from there on 2 gamma.
        size = np.minimum(np.abs(z), self.gamma)
        return np.asarray(np.copysign(np.minimum(np.maximum(4 * size - 2 * a, 0.0), 2 * size), z))

    def _prox(self, z: Array, mu: float | Array) -> Array:
        """argmin_y phi(y) + (mu / 2) (y - z)^2, piece by piece: y + phi'(y) / mu = z."""
        a, size = self.flat, np.abs(z)
        minimizer = np.select(
            [size <= a / 2, size <= a + 2 * a / mu, size <= self.gamma * (1 + 2 / mu)],
            [size, (size + 2 * a / mu) / (1 + 4 / mu), size / (1 + 2 / mu)],
            size - 2 * self.gamma / mu,
        )
        return np.asarray(np.sign(z) * minimizer)


def random_rotation(
    cycles: int,
    dimension: int,
    rng: np.random.Generator,
    *,
    radius: float = 1.0,
    smooth: bool = False,
    blocks: int = 2,
) -> HardInstance:
    """A hard instance in random directions of R^d, for methods that leave the span of gradients."""
    links = 4 * cycles
    if dimension < links:
        raise ValueError(f"dimension={dimension}: at least 4 K = {links} are needed")
    columns, triangle = np.linalg.qr(rng.normal(size=(dimension, links)))
    return HardInstance(cycles, radius, smooth, blocks, columns * np.sign(np.diag(triangle)))


def dimension_needed(cycles: int, steps: int, *, reach: float = 1.0, delta: float = 0.05) -> int:
    """Dimension in which unseen directions stay hidden from P points of norm at most reach * B.

    d >= 4K + 2048 R^2 K^3 ln(8KP / delta) (docs/math.md#discovery). steps: P, the queries and the output.
    """
    return 4 * cycles + ceil(2048 * reach**2 * cycles**3 * log(8 * cycles * steps / delta))
