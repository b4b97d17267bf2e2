"""The paper's bounds as functions, with corrections (losses are 1-Lipschitz, G = 1).

For a loss with Lipschitz constant G read G B for B in upper bounds, and divide steps by G.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, isfinite, log, nan, sqrt
from typing import NamedTuple

from semicyclic.method.hedge import prod_rate, steps_needed


class Bound(NamedTuple):
    """A quantity as stated in the paper, and corrected."""

    paper: float
    corrected: float


class BoundRow(NamedTuple):
    """A row of the table of bounds: the quantity, its values, and its conditions."""

    quantity: str
    bound: Bound
    holds: str


@dataclass(frozen=True)
class Setting:
    """K cycles of m blocks with n steps each, and solutions of norm at most B."""

    cycles: int
    blocks: int
    steps: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        for name in ("cycles", "blocks", "steps"):
            value = getattr(self, name)
            if value != int(value) or value < 1:
                raise ValueError(f"{name}={value!r}: must be a whole number, at least 1")
        if not (isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"radius={self.radius!r}: must be positive and finite")

    @property
    def total(self) -> int:
        """T = K m n."""
        return self.cycles * self.blocks * self.steps

    @property
    def own(self) -> int:
        """T/m, the steps of one block."""
        return self.cycles * self.steps

    # ---------------------------------------------------------------------- step sizes

    def step_size(self) -> Bound:
        """eta of the single chain: B / sqrt(2T) in the paper, B / sqrt(T) at best."""
        return Bound(self.radius / sqrt(2 * self.total), self.radius / sqrt(self.total))

    def separate_step_size(self) -> Bound:
        """eta of a block's own chain, which the paper does not give: B / sqrt(T/m)."""
        return Bound(nan, self.radius / sqrt(self.own))

    def hedge_rate(self) -> Bound:
        """nu of Prod: sqrt((m/T) ln(BT/m)) / (2B); NaN where its conditions fail."""
        if not self.radius * self.own > 1:
            return Bound(nan, nan)
        rate = prod_rate(self.own, self.radius)
        return Bound(rate, rate if self.is_hedgeable() else nan)

    def is_hedgeable(self) -> bool:
        """B >= 1 and T/m >= 4 ln(BT/m), which Theorem 4 needs and does not say."""
        return self.radius >= 1 and self.own >= steps_needed(self.radius)

    # ------------------------------------------------------------------------- regrets

    def regret(self) -> Bound:
        """Regret of online gradient descent, sum_t f(w_t, z_t) - f(w, z_t), at each column's step size."""
        size = self.radius * sqrt(self.total)
        return Bound(sqrt(2) * size, size)

    def regret_at(self, step_size: float) -> float:
        """B^2 / (2 eta) + eta T / 2, for any constant step."""
        if not step_size > 0:
            raise ValueError(f"step_size={step_size!r}: must be positive")
        return self.radius**2 / (2 * step_size) + step_size * self.total / 2

    def excess(self) -> Bound:
        """Of the i.i.d. average, and of pluralistic averages on cyclic data (Theorem 3)."""
        size = self.radius / sqrt(self.total)
        return Bound(sqrt(2) * size, size)

    def separate_excess(self) -> Bound:
        """Of separate chains, above every block's own optimum (Section 4; order only there)."""
        size = self.radius * sqrt(self.blocks / self.total)
        return Bound(size, size)

    def hedge_own_excess(self) -> Bound:
        """Of the hedge in one block, above that block's own optimum (Theorem 4)."""
        if not self.radius * self.own > 1:
            return Bound(nan, nan)
        root = 4 * sqrt(log(self.radius * self.own))
        size = self.radius / sqrt(self.own)
        return Bound(root * size, (root + 1) * size if self.is_hedgeable() else nan)

    def hedge_excess(self) -> Bound:
        """Of the hedge on average over blocks, above the best single solution (Theorem 4)."""
        B, T, m = self.radius, self.total, self.blocks
        paper = 4 * B / sqrt(T) if m <= B**2 * self.own else nan
        return Bound(paper, B / sqrt(T) + (1 + self.hedge_rate().corrected) * m / T)

    # -------------------------------------------------------------------- lower bounds

    def lower(self) -> Bound:
        """Lower bound for one model on cyclic data (Theorem 1), times (m-1)/m for odd m."""
        return Bound(self.radius / (96 * self.cycles), self._even() * 3 * self.radius / (256 * self.cycles))

    def lower_smooth(self) -> Bound:
        """The same for smooth losses (Theorem 2): 3 B^2 / (1024 K^2) where B <= 16 K."""
        if self.radius > 16 * self.cycles:
            return Bound(nan, self.lower().corrected)
        size = (self.radius / self.cycles) ** 2
        return Bound(size, self._even() * 3 * size / 1024)

    def _even(self) -> float:
        return 1.0 if self.blocks % 2 == 0 else (self.blocks - 1) / self.blocks

    # ----------------------------------------------------------------------- slow-downs

    def slow_down(self) -> Bound:
        """Factor by which one model is worse than i.i.d.: sqrt(mn/K); the paper states the order only."""
        return Bound(
            sqrt(self.blocks * self.steps / self.cycles), self.lower().corrected / self.excess().corrected
        )

    def slow_down_smooth(self) -> Bound:
        """The same for smooth losses: sqrt(B^2 mn / K^3)."""
        return Bound(
            self.radius * sqrt(self.blocks * self.steps / self.cycles**3),
            self.lower_smooth().corrected / self.excess().corrected,
        )

    def separate_slow_down(self) -> Bound:
        """Factor by which separate chains are worse than i.i.d. on identical blocks: sqrt(m)."""
        return Bound(sqrt(self.blocks), sqrt(self.blocks))

    def hurts_from(self) -> float:
        """Steps per cycle m n above which the lower bound exceeds the i.i.d. rate; infinite for m = 1."""
        return ceil(self.cycles * (256 / (3 * self._even())) ** 2) if self.blocks > 1 else inf

    # ------------------------------------------------------------------ cycles for epsilon

    def cycles_iid(self, epsilon: float) -> Bound:
        """Cycles after which i.i.d. or pluralistic averages are within epsilon."""
        need = (self.radius / _positive(epsilon)) ** 2 / (self.blocks * self.steps)
        return Bound(_cycles(2 * need), _cycles(need))

    def cycles_separate(self, epsilon: float) -> Bound:
        """Cycles after which separate chains are within epsilon of every block's own optimum."""
        need = _cycles((self.radius / _positive(epsilon)) ** 2 / self.steps)
        return Bound(need, need)

    def cycles_cyclic(self, epsilon: float) -> Bound:
        """Least number of cycles that one model needs on cyclic data, however many rows each has."""
        need = self.radius / _positive(epsilon)
        return Bound(_cycles(need / 96), _cycles(self._even() * 3 * need / 256))

    def cycles_cyclic_smooth(self, epsilon: float) -> Bound:
        """The same for smooth losses, B / sqrt(epsilon) by order in the paper."""
        root = self.radius / sqrt(_positive(epsilon))
        need = _cycles(sqrt(self._even() * 3 / 1024) * root)
        # Below K = B/16 the smooth bound does not apply, and the other one does.
        from_there = ceil(self.radius / 16)
        if need <= from_there:
            need = min(self.cycles_cyclic(epsilon).corrected, from_there)
        return Bound(_cycles(root), need)

    def table(self) -> list[BoundRow]:
        """Every bound of the paper, as stated and as corrected."""
        conditions = "B >= 1 and T/m >= 4 ln(BT/m), all chains projected"
        rows: list[tuple[str, Callable[[], Bound], str]] = [
            (
                "OGD regret",
                self.regret,
                "at the paper's own step 1.0607 B sqrt(T); its Section 6 has 2B sqrt(T)",
            ),
            ("i.i.d. and pluralistic average", self.excess, "whatever the number of blocks"),
            (
                "separate chains",
                self.separate_excess,
                "above every block's own optimum; paper: up to a constant",
            ),
            ("hedge, each block", self.hedge_own_excess, conditions),
            ("hedge, overall", self.hedge_excess, f"{conditions}; paper: m <= B^2 K n"),
            ("lower bound, Lipschitz", self.lower, "for one model"),
            (
                "lower bound, smooth",
                self.lower_smooth,
                "B <= 16 K, else the Lipschitz one; paper: up to a constant",
            ),
            (
                "slow-down, Lipschitz",
                self.slow_down,
                "lower bound / i.i.d. bound, below 1: none proven; paper: up to a constant",
            ),
            (
                "slow-down, smooth",
                self.slow_down_smooth,
                "lower bound / i.i.d. bound, below 1: none proven; paper: up to a constant",
            ),
            ("slow-down of separate chains", self.separate_slow_down, "blocks that are alike"),
        ]
        return [BoundRow(name, bound(), holds) for name, bound, holds in rows]


def hurts_from(cycles: int) -> int:
    """Rows per cycle m n above which the lower bound exceeds the i.i.d. rate.

    See docs/math.md#when-cyclic-order-hurts.
    """
    return ceil(cycles * (256 / 3) ** 2)


def _positive(epsilon: float) -> float:
    if not epsilon > 0:
        raise ValueError(f"epsilon={epsilon!r}: must be positive")
    return epsilon


def _cycles(need: float) -> float:
    return max(ceil(need * (1 - 1e-12)), 1) if need < inf else inf
