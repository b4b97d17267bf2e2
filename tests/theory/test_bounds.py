"""The table of bounds: numbers of the paper and corrected, and how they hang together."""

import math
from collections.abc import Callable
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semicyclic.theory import bounds
from semicyclic.theory.bounds import Bound, Setting
from semicyclic.theory.hard_instances import HardInstance

# The experiment of the paper: ten days of six blocks, 188 minibatches each.
PAPER = Setting(cycles=10, blocks=6, steps=188, radius=2.0)
settings_ = st.builds(
    Setting,
    cycles=st.integers(1, 40),
    blocks=st.integers(1, 24),
    steps=st.integers(1, 2000),
    radius=st.floats(0.1, 50),
)


def test_every_row_of_the_table_has_its_formula() -> None:
    B, K, m, T = 2.0, 10, 6, 11_280
    expected = {
        "OGD regret": (math.sqrt(2 * B**2 * T), B * math.sqrt(T)),
        "i.i.d. and pluralistic average": (math.sqrt(2 * B**2 / T), B / math.sqrt(T)),
        "separate chains": (B * math.sqrt(m / T), B * math.sqrt(m / T)),
        "hedge, each block": (
            4 * math.sqrt(B**2 * math.log(B * T / m) / (T / m)),
            (4 * math.sqrt(math.log(B * T / m)) + 1) * B / math.sqrt(T / m),
        ),
        "hedge, overall": (
            4 * B / math.sqrt(T),
            B / math.sqrt(T) + (1 + PAPER.hedge_rate().corrected) * m / T,
        ),
        "lower bound, Lipschitz": (B / (96 * K), 3 * B / (256 * K)),
        "lower bound, smooth": (B**2 / K**2, 3 * B**2 / (1024 * K**2)),
        "slow-down, Lipschitz": (math.sqrt(m * 188 / K), 3 / 256 * math.sqrt(m * 188 / K)),
        "slow-down, smooth": (
            math.sqrt(B**2 * m * 188 / K**3),
            3 / 1024 * math.sqrt(B**2 * m * 188 / K**3),
        ),
        "slow-down of separate chains": (math.sqrt(m), math.sqrt(m)),
    }
    table = {row.quantity: row.bound for row in PAPER.table()}
    assert table.keys() == expected.keys()
    for quantity, bound in table.items():
        assert bound == pytest.approx(expected[quantity]), quantity
    assert PAPER.hedge_rate().paper == pytest.approx(math.sqrt((m / T) * math.log(B * T / m)) / (2 * B))


@given(settings_)
def test_the_corrected_upper_bounds_are_never_above_the_papers_nor_the_lower_ones_below(
    setting: Setting,
) -> None:
    for upper in (setting.regret(), setting.excess()):
        assert upper.corrected <= upper.paper
    if setting.blocks % 2 == 0:
        assert setting.lower().corrected >= setting.lower().paper
    tight, paper = setting.step_size().corrected, setting.step_size().paper
    assert setting.regret_at(tight) == pytest.approx(setting.regret().corrected)
    assert setting.regret_at(paper) == pytest.approx(1.06066 * setting.regret().corrected, rel=1e-4)


@given(settings_, st.floats(1e-4, 1.0))
def test_the_cycles_for_epsilon_are_the_least_that_do(setting: Setting, epsilon: float) -> None:
    def at(cycles: float) -> Setting:
        return Setting(int(cycles), setting.blocks, setting.steps, setting.radius)

    checks: list[tuple[Callable[[float], Bound], Callable[[Setting], Bound]]] = [
        (setting.cycles_iid, Setting.excess),
        (setting.cycles_separate, Setting.separate_excess),
        (setting.cycles_cyclic, Setting.lower),
    ]
    for cycles, bound in checks:
        for which in ("paper", "corrected"):
            need = getattr(cycles(epsilon), which)
            assert getattr(bound(at(need)), which) <= epsilon * (1 + 1e-9)
            if need > 1:
                assert getattr(bound(at(need - 1)), which) >= epsilon * (1 - 1e-9)


@given(settings_, st.floats(1e-4, 1.0))
def test_smooth_cycles_are_the_least_that_the_lower_bound_allows(setting: Setting, epsilon: float) -> None:
    need = setting.cycles_cyclic_smooth(epsilon).corrected

    def bound(cycles: float) -> float:
        return Setting(int(cycles), setting.blocks, setting.steps, setting.radius).lower_smooth().corrected

    assert bound(need) <= epsilon * (1 + 1e-9)
    # Fewer cycles cannot do what more cannot.
    if need > 1:
        assert max(bound(k) for k in range(int(need) - 1, int(need) + 60)) > epsilon * (1 - 1e-9)


def test_the_papers_smooth_cycles_are_b_over_root_epsilon() -> None:
    assert Setting(1, 2, 1, 3.0).cycles_cyclic_smooth(0.01).paper == 30


def test_a_hundred_times_more_rows_a_day_shorten_iid_learning_but_not_cyclic() -> None:
    few, many = Setting(1, 6, 1000), Setting(1, 6, 100_000)
    assert many.cycles_iid(0.001).corrected < few.cycles_iid(0.001).corrected / 50
    assert many.cycles_cyclic(0.001) == few.cycles_cyclic(0.001)


def test_the_lower_bounds_are_those_of_the_hard_instances() -> None:
    for K, m, B in ((4, 2, 1.0), (3, 5, 2.0), (2, 6, 0.5)):
        setting = Setting(K, m, 10, B)
        assert setting.lower().corrected == pytest.approx(HardInstance(K, B, blocks=m).bound)
        assert setting.lower_smooth().corrected == pytest.approx(HardInstance(K, B, True, m).bound)
    wide = Setting(1, 2, 10, 17.0)
    assert wide.lower_smooth().corrected == wide.lower().corrected
    assert math.isnan(wide.lower_smooth().paper)


def test_cyclic_data_hurts_from_7282_rows_per_cycle_and_cycle_on() -> None:
    assert bounds.hurts_from(1) == 7282
    for cycles in (1, 10):
        n = bounds.hurts_from(cycles)
        assert Setting(cycles, 1, n + 1).excess().corrected < 3 / (256 * cycles)
        assert Setting(cycles, 1, n - 1).excess().corrected > 3 / (256 * cycles)


def test_a_hedge_whose_conditions_fail_has_no_corrected_bound() -> None:
    for setting in (Setting(1, 2, 3, 2.0), Setting(10, 2, 100, 0.5)):
        assert not setting.is_hedgeable()
        assert math.isnan(setting.hedge_own_excess().corrected)
        assert math.isnan(setting.hedge_excess().corrected)
    assert math.isnan(Setting(1, 10, 1, 0.1).hedge_excess().paper)  # m > B^2 K n
    assert math.isnan(Setting(1, 10, 1, 0.1).hedge_own_excess().paper)


def test_the_hedge_bounds_hold_the_terms_of_prod() -> None:
    """4 nu M^2 T_i + ln(1/nu)/nu <= 4 M sqrt(T_i ln(M T_i)), and -ln(1-nu)/nu <= 1 + nu."""
    for setting in (PAPER, Setting(1, 1, 40, 1.0), Setting(5, 3, 4000, 30.0)):
        nu, M, T = setting.hedge_rate().corrected, setting.radius, setting.own
        own = 4 * nu * M**2 * T + math.log(1 / nu) / nu
        assert own <= 4 * M * math.sqrt(T * math.log(M * T)) + 1e-9
        assert -math.log(1 - nu) / nu <= 1 + nu
        assert nu <= 1 / (4 * M)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "cycles": (lambda: Setting(0, 1, 1), "cycles=0: must be a whole number"),
    "radius": (lambda: Setting(1, 1, 1, np.inf), "radius=inf"),
    "epsilon": (lambda: PAPER.cycles_iid(0.0), "epsilon=0.0"),
    "step": (lambda: PAPER.regret_at(0.0), "step_size=0.0"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_setting_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_bound_hurts_from_where_it_exceeds_the_iid_rate() -> None:
    for m, K in ((2, 5), (3, 5), (6, 4), (5, 2)):
        least = int(Setting(K, m, 1).hurts_from())
        for cycle, hurts in ((least // m - 1, False), (-(-least // m), True)):
            setting = Setting(K, m, cycle)
            assert (setting.lower().corrected >= setting.excess().corrected) == hurts, (m, K)
    assert Setting(5, 1, 10).hurts_from() == inf
