"""The experiment's protocol: split, skew, blocks and days, by the text and by the script."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semicyclic.experiments.reproduce import protocol
from semicyclic.experiments.reproduce.protocol import by_drop, by_rate, script, text
from semicyclic.types import Array

seeds = st.integers(0, 10_000)


def data(seed: int, n: int, m: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.random(n) < 0.5, rng.integers(0, m, n)


@given(seed=seeds, m=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_the_text_interpolates_the_rate_and_drops_one_label_of_a_block(seed: int, m: int) -> None:
    positive, block = data(seed, 4000, m)
    keep = by_rate(positive, block, m, np.random.default_rng(seed))
    for i in range(m):
        own = block == i
        rate = 2 / 3 - min(i, m - i) / max(m / 2, 1) / 3
        assert abs(positive[own & keep].mean() - rate) < 1.5 / (own & keep).sum()
        lost = own & ~keep
        assert not lost.any() or len(set(positive[lost].tolist())) == 1


def test_six_blocks_have_the_rates_of_the_paper() -> None:
    positive, block = data(0, 60_000, 6)
    rng = np.random.default_rng(0)
    for skew, rates in (
        (by_rate, [2 / 3, 5 / 9, 4 / 9, 1 / 3, 4 / 9, 5 / 9]),
        (by_drop, [2 / 3, 6 / 11, 5 / 11, 1 / 3, 5 / 11, 6 / 11]),
    ):
        keep = skew(positive, block, 6, rng)
        found = [positive[keep & (block == i)].mean() for i in range(6)]
        assert np.allclose(found, rates, atol=0.02)


def test_the_script_drops_shares_of_one_label() -> None:
    positive, block = data(1, 120_000, 6)
    keep = by_drop(positive, block, 6, np.random.default_rng(99))
    for i, share in enumerate((-1 / 2, -1 / 6, 1 / 6, 1 / 2, 1 / 6, -1 / 6)):
        for side in (True, False):
            own = (block == i) & (positive == side)
            expected = abs(share) if (share > 0) == side else 0.0
            assert abs((~keep[own]).mean() - expected) <= (0.02 if expected else 0.0)


@given(seed=seeds, rows=st.integers(10, 500))
@settings(max_examples=30, deadline=None)
def test_nine_rows_of_ten_are_learned_from(seed: int, rows: int) -> None:
    train, test = protocol.split(rows, np.random.default_rng(seed))
    assert len(train) == int(0.9 * rows)
    assert sorted([*train, *test]) == list(range(rows))


@given(seed=seeds, m=st.integers(1, 5), K=st.integers(1, 4), passes=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_the_text_divides_every_component_over_the_days(seed: int, m: int, K: int, passes: int) -> None:
    _, block = data(seed, 300, m)
    rows = np.random.default_rng(seed).permutation(300)[:200]
    how = text(blocks=m, cycles=K, passes=passes, batch_size=10_000)
    order = protocol.cyclic(how, rows, block, 300, np.random.default_rng(seed))
    assert np.array_equal(order.block, block[order.rows])
    visit = order.cycle * m + order.block
    assert (np.diff(visit) >= 0).all()
    assert visit.max() == K * m - 1
    sizes = np.bincount(visit)
    for i in range(m):
        own = np.flatnonzero(block[rows] == i)
        n = len(own) * passes // K
        assert (sizes[i::m] == n).all()
        used = np.bincount(order.rows[order.block == i], minlength=300)
        assert used.max() <= passes
        if passes == 1:  # in the order of the split, none twice
            assert np.array_equal(order.rows[order.block == i], rows[own][: n * K])


@given(seed=seeds, m=st.integers(1, 3), K=st.integers(1, 6), size=st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_the_text_learns_in_whole_minibatches_and_what_is_left_opens_the_next_day(
    seed: int, m: int, K: int, size: int
) -> None:
    _, block = data(seed, 300, m)
    rows = np.random.default_rng(seed).permutation(300)[:240]
    how = text(blocks=m, cycles=K, batch_size=size)
    order = protocol.cyclic(how, rows, block, 300, np.random.default_rng(seed))
    for i in range(m):
        own = [row for row in rows if block[row] == i]
        n = len(own) // K
        used = order.rows[order.block == i].tolist()
        assert used == own[: len(used)]  # in order, none left out and none twice
        sizes = np.bincount(order.cycle[order.block == i], minlength=K)
        assert (np.abs(np.cumsum(sizes) - n * np.arange(1, K + 1)) < size).all()
        if n >= size:
            assert (sizes % size == 0).all()
            assert (sizes > 0).all()
        else:
            assert (sizes == n).all()


@given(seed=seeds, m=st.sampled_from([1, 2, 4]), K=st.integers(1, 4), size=st.integers(1, 17))
@settings(max_examples=40, deadline=None)
def test_the_script_overruns_the_day_and_wraps_around(seed: int, m: int, K: int, size: int) -> None:
    _, block = data(seed, 300, m)
    rows = np.random.default_rng(seed).permutation(300)[:200]
    how = script(blocks=m, cycles=K, batch_size=size)
    order = protocol.cyclic(how, rows, block, 300, np.random.default_rng(seed))
    a_day = 300 // K // m
    expected = []
    for day in range(K):
        for i in range(m):
            own = [r for r in rows if block[r] == i]
            first = day * a_day
            while first < (day + 1) * a_day:
                expected += [own[(first + j) % len(own)] for j in range(size)]
                first += size
    assert order.rows.tolist() == expected
    assert np.array_equal(order.block, block[order.rows])


def test_paper_sizes_give_188_minibatches_a_block_in_the_script() -> None:
    rows = np.arange(1_440_000)
    order = protocol.cyclic(script(), rows, rows % 6, len(rows), np.random.default_rng(0))
    sizes = np.bincount(order.cycle * 6 + order.block)
    assert (sizes == 188 * 128).all()


def test_the_ideal_has_the_same_rows_and_visits_in_another_order() -> None:
    _, block = data(3, 300, 3)
    order = protocol.cyclic(text(blocks=3, cycles=4), np.arange(300), block, 300, np.random.default_rng(0))
    ideal = protocol.shuffle_visits(order, np.random.default_rng(1))
    assert sorted(ideal.rows) == sorted(order.rows)
    assert not np.array_equal(ideal.rows, order.rows)
    assert np.array_equal(ideal.block, order.block)
    assert np.array_equal(ideal.cycle, order.cycle)
    assert len({int(block[row]) for row in ideal.rows[:20]}) > 1


def test_the_unskewed_ideal_deals_rows_out_in_turn() -> None:
    how = text(blocks=3, cycles=2)
    order = protocol.deal_unskewed(how, np.arange(100), np.random.default_rng(0))
    assert np.array_equal(order.block, order.rows % 3)
    assert np.bincount(order.cycle * 3 + order.block).tolist() == [17, 16, 16, 17, 16, 16]
    rows, block = protocol.deal_test_rows(how, np.arange(10))
    assert rows.tolist() == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    assert block.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_the_script_cuts_incomplete_minibatches_of_test_rows() -> None:
    block = np.repeat([0, 1], [25, 17])
    for how, sizes in ((text(blocks=2, batch_size=8), [25, 17]), (script(blocks=2, batch_size=8), [24, 16])):
        rows, own = protocol.tests(how, np.arange(42), block)
        assert np.bincount(own).tolist() == sizes
        assert np.array_equal(block[rows], own)


def test_a_block_without_rows_is_named() -> None:
    rng = np.random.default_rng(0)
    nothing_at_noon = np.array([0, 1, 2, 4, 5] * 100)
    rows = np.arange(500)
    with pytest.raises(ValueError, match=r"block 3 \(12:00-16:00\) has 0 row\(s\) to learn from in 10 days"):
        protocol.cyclic(text(), rows, nothing_at_noon, 500, rng)
    with pytest.raises(
        ValueError, match=r"block 3 \(12:00-16:00\) has 0 row\(s\) to be tested on: choose fewer"
    ):
        protocol.tests(text(), rows, nothing_at_noon)
    with pytest.raises(
        ValueError, match=r"block 0 \(00:00-04:00\) has 100 row\(s\) and a minibatch takes 128"
    ):
        protocol.cyclic(script(), rows, nothing_at_noon, 500, rng)
    with pytest.raises(ValueError, match=r"block 0 .* has 100 .* to be tested on, and a minibatch takes 128"):
        protocol.tests(script(), rows, nothing_at_noon)
    with pytest.raises(ValueError, match="to learn from in 10 days"):
        protocol.cyclic(script(batch_size=1), np.arange(12), np.repeat(np.arange(6), 2), 12, rng)


@pytest.mark.parametrize("name", ["blocks", "cycles", "batch_size", "passes"])
def test_a_protocol_counts_from_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0: must be at least 1"):
        text(**{name: 0})
    with pytest.raises(ValueError, match="a day has 86400 seconds"):
        text(blocks=86_401)


def test_blocks_are_those_of_the_wall_clock() -> None:
    how = text()
    assert how.block_of(np.array([0, 14_399, 14_400, 43_200, 86_399])).tolist() == [0, 0, 1, 3, 5]
    assert [how.label(i) for i in (0, 3, 5)] == ["00:00-04:00", "12:00-16:00", "20:00-24:00"]
