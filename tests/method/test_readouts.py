"""Read-outs of one run: what each means, what it needs, and what it refuses."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.method import average, train
from semicyclic.method.average import Mean, merge
from semicyclic.method.chain import Iterate
from semicyclic.types import Array
from tests.method import oracle
from tests.method.random_streams import WIDTHS, Case, case, seeds, trained

KINDS = ("single", "separate", "residual")


def by_block(made: Case, through: int | None = None) -> dict[int, list[Iterate]]:
    """The steps of each visited block, up to the end of cycle `through`."""
    steps, _ = oracle.run(made.problem)
    kept = [step for step in steps if through is None or step.cycle <= through]
    return {block: [s for s in kept if s.block == block] for block in {s.block for s in kept}}


def check(weights: Array, expected: dict[int, Array]) -> None:
    for block, value in expected.items():
        assert np.allclose(weights[block], value, rtol=0, atol=1e-12)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*never visited.*")
        yield


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, cycles=st.integers(1, 4), half_life=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=8, deadline=None)
def test_tail_and_fading_weigh_cycles_as_defined(
    width: str, kind: str, seed: int, cycles: int, half_life: float
) -> None:
    made = case(seed, width=width, kind=kind)
    run = trained(made)
    own = by_block(made)
    tails, lasts, faded = {}, {}, {}
    for block, steps in own.items():
        seen = sorted({step.cycle for step in steps})
        tails[block] = oracle.mean_of([s for s in steps if s.cycle in seen[-cycles:]])
        lasts[block] = oracle.mean_of([s for s in steps if s.cycle == seen[-1]])

        def fade(step: Iterate, newest: int = seen[-1]) -> float:
            return float(2.0 ** (-(newest - step.cycle) / half_life))

        faded[block] = oracle.mean_of(steps, fade)
    check(run.tail(cycles).weights, tails)
    check(run.last_cycle().weights, lasts)
    check(run.fading(half_life).weights, faded)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, exponent=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=8, deadline=None)
def test_polynomial_weights_grow_with_the_steps_of_a_block(
    width: str, kind: str, seed: int, exponent: float
) -> None:
    """By definition: a cycle has the integral of s^exponent over its steps, which share it evenly."""
    made = case(seed, width=width, kind=kind)
    expected = {}
    for block, steps in by_block(made).items():
        weight = np.array([step.weight for step in steps])
        cycles, cycle = np.unique([step.cycle for step in steps], return_inverse=True)
        bounds = np.r_[0.0, np.cumsum(np.bincount(cycle, weight, len(cycles)))]
        density = np.diff(bounds ** (exponent + 1)) / np.diff(bounds)
        share = density[cycle] * weight
        expected[block] = np.tensordot(share / share.sum(), np.stack([s.before for s in steps]), axes=1)
    check(trained(made).polynomial(exponent).weights, expected)


def test_polynomial_weights_do_not_depend_on_how_a_visit_is_recorded() -> None:
    """Parts of a stream end within visits, which then have two records."""
    made = case(3, n=200)
    whole, parts = trained(made), trained_in_parts(made, 10**9)
    assert len(parts.log.table().weight) > len(whole.log.table().weight)
    np.testing.assert_allclose(parts.polynomial(3.0).weights, whole.polynomial(3.0).weights, atol=1e-6)


def test_polynomial_weights_treat_hedged_experts_alike() -> None:
    """At the same probability, the mean of both experts in every cycle."""
    made = case(5, n=200)
    run = train.hedged(made.rows, made.blocks, step_size=0.1, loss=made.settings["loss"], batch_size=4)
    table = run.log.table()
    weights = average.polynomial(table, run.member, 3.0)
    for cycle in np.unique(table.cycle):
        for block in range(run.blocks):
            mine = (table.cycle[weights.record] == cycle) & (weights.model == block)
            by_expert = table.weight[weights.record[mine]]
            if len(by_expert):
                shares = weights.mean[mine] / weights.mean[mine].sum()
                np.testing.assert_allclose(shares, by_expert / by_expert.sum(), atol=1e-12)


def test_a_small_exponent_gives_the_mean_and_a_large_one_the_last_record() -> None:
    run = trained(case(3, n=300))
    np.testing.assert_allclose(run.polynomial(1e-9).weights, run.mean().weights, atol=1e-6)
    np.testing.assert_allclose(run.polynomial(1e6).weights, run.last_cycle().weights, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
@settings(max_examples=8, deadline=None)
def test_through_gives_a_run_as_it_stood_then(width: str, kind: str, seed: int) -> None:
    made = case(seed, width=width, kind=kind)
    run = trained(made)
    for cycle in np.unique(made.problem.cycle):
        own = by_block(made, int(cycle))
        check(run.mean(through=int(cycle)).weights, {b: oracle.mean_of(s) for b, s in own.items()})
        check(run.last(through=int(cycle)).weights, {b: s[-1].after for b, s in own.items()})
        everything = oracle.mean_of([step for steps in own.values() for step in steps])
        check(run.consensus(through=int(cycle)).weights, {0: everything})


@pytest.mark.parametrize("width", WIDTHS)
@given(seed=seeds, kind=st.sampled_from(KINDS))
@settings(max_examples=10, deadline=None)
def test_weighted_the_block_means_give_back_the_consensus_mean(width: str, seed: int, kind: str) -> None:
    made = case(seed, width=width, kind=kind)
    run = trained(made)
    total = Mean(np.zeros(run.mean().weights.shape[1:]), 0.0)
    for block, steps in by_block(made).items():
        total = merge(total, Mean(run.mean().weights[block], float(len(steps))))
    assert np.allclose(total.value, run.consensus().weights[0], atol=1e-12)


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 9)), min_size=1, max_size=6), st.integers(0, 6))
def test_means_are_a_monoid_under_merge(parts: list[tuple[float, int]], cut: int) -> None:
    nothing = Mean(np.zeros(1), 0.0)
    means = [Mean(np.array([value]), float(weight)) for value, weight in parts]

    def fold(some: list[Mean]) -> Mean:
        total = nothing
        for each in some:
            total = merge(total, each)
        return total

    whole, apart = fold(means), merge(fold(means[:cut]), fold(means[cut:]))
    assert whole.weight == apart.weight
    if whole.weight:
        assert np.allclose(whole.value, apart.value)
        assert np.allclose(merge(whole, nothing).value, whole.value)
        assert np.allclose(whole.value, sum(v * n for v, n in parts) / whole.weight)


@pytest.mark.parametrize("width", WIDTHS)
@given(seed=seeds)
@settings(max_examples=8, deadline=None)
def test_a_coarser_view_equals_a_run_with_fewer_blocks(width: str, seed: int) -> None:
    """Where minibatches do not cross the finer blocks anyway: single rows."""
    made = case(seed, width=width, batch_size=1)
    groups = np.random.default_rng(seed).integers(0, 2, made.blocks)
    fine = trained(made).coarser(2, groups=groups.tolist())
    made.problem.block = groups[made.problem.block]
    expected = {block: oracle.mean_of(steps) for block, steps in by_block(made).items()}
    check(fine.mean().weights, expected)
    check(fine.last().weights, {b: s[-1].after for b, s in by_block(made).items()})
    check(fine.tail(100).weights, expected)
    for block, steps in by_block(made).items():
        assert np.isclose(fine.progressive()[block], np.mean([sum(s.losses) for s in steps]))


def test_a_coarser_schedule_nests_in_a_finer_one() -> None:
    rng = np.random.default_rng(0)
    when = np.sort(rng.integers(0, 4 * 86400, 400))
    rows = sc.Rows(rng.normal(size=(400, 3)), rng.integers(0, 2, 400), when=when, dtype=np.float64)
    fine, coarse = sc.Schedule.daily(24), sc.Schedule.daily(6)
    run = sc.train.pluralistic(rows, fine, batch_size=1).coarser(coarse)
    assert np.allclose(
        run.mean().weights, sc.train.pluralistic(rows, coarse, batch_size=1).mean().weights, atol=1e-12
    )
    assert run.mean().schedule == coarse
    with pytest.raises(ValueError, match="every edge of it must be an edge"):
        run_of(rows).coarser(sc.Schedule.daily(5))


def run_of(rows: sc.Rows) -> sc.Run:
    return sc.train.pluralistic(rows, sc.Schedule.daily(6), batch_size=4)


@pytest.mark.parametrize("width", WIDTHS)
@given(seed=seeds)
@settings(max_examples=8, deadline=None)
def test_soft_membership_weighs_every_step_by_its_share(width: str, seed: int) -> None:
    made = case(seed, width=width)
    share = np.random.default_rng(seed).dirichlet(np.ones(3), made.blocks)
    soft = trained(made).soft(share, 3)
    steps, _ = oracle.run(made.problem)

    def weight(model: int) -> Any:
        return lambda step: share[step.block, model]

    check(soft.mean().weights, {q: oracle.mean_of(steps, weight(q)) for q in range(3)})
    if made.blocks > 1:
        with pytest.raises(ValueError, match="no meaning for soft membership"):
            soft.last()


@pytest.mark.parametrize("kind", ["separate", "residual"])
def test_only_the_single_chain_can_be_cut_anew(kind: str) -> None:
    made = next(made for made in (case(seed, kind=kind) for seed in range(9)) if made.blocks > 1)
    with pytest.raises(ValueError, match="need a run of their own"):
        trained(made).coarser(1, groups=[0] * made.blocks)


def test_a_block_never_visited_gets_the_consensus_mean_and_says_so() -> None:
    rows = sc.Rows([[1.0], [2.0], [3.0]], [0, 1, 1], block=[0, 2, 2], dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = sc.train.pluralistic(rows, 4, batch_size=1)
        with pytest.raises(UserWarning, match=r"block\(s\) 1, 3 were never visited"):
            run.mean()
    for model in (run.mean(), run.last(), run.tail(1), run.fading(2.0)):
        assert model.fallback == (1, 3)
        assert np.allclose(model.weights[[1, 3]], run.consensus().weights[0])
        assert "2 never visited" in repr(model)
    assert run.consensus().fallback == ()
    assert np.isnan(run.progressive()[[1, 3]]).all()


# ---------------------------------------------------------------------- the random iterate


@pytest.mark.parametrize("width", WIDTHS)
@given(seed=seeds)
@settings(max_examples=6, deadline=None)
def test_the_random_iterate_is_an_iterate_of_its_block(width: str, seed: int) -> None:
    made = case(seed, width=width, kind="single")
    run = trained(made, reservoir=np.random.default_rng(seed))
    for block, steps in by_block(made).items():
        gaps = [np.abs(run.random().weights[block] - step.before).max() for step in steps]
        assert min(gaps) < 1e-9
    plain = trained(made)
    assert np.allclose(plain.mean().weights, run.mean().weights, atol=1e-12)


def test_the_random_iterate_is_uniform_over_the_steps_of_its_block() -> None:
    made = case(2, batch_size=4, n=40)
    own = by_block(made)
    block = max(own, key=lambda each: len(own[each]))
    hits = np.zeros(len(own[block]))
    rng = np.random.default_rng(0)
    draws = 600
    for _ in range(draws):
        kept = trained(made, reservoir=rng).random().weights[block]
        hits[np.argmin([np.abs(kept - step.before).max() for step in own[block]])] += 1
    expected = draws / len(hits)
    # Chi-square with len-1 degrees of freedom: mean len-1, deviation sqrt(2 (len-1)).
    chi = ((hits - expected) ** 2 / expected).sum()
    assert chi < len(hits) - 1 + 5 * np.sqrt(2 * (len(hits) - 1))


def test_the_reservoir_does_not_depend_on_how_the_stream_is_cut() -> None:
    made = case(7, batch_size=2)
    rows, whole = made.rows, trained(made, reservoir=np.random.default_rng(3))
    parts = [rows[:17], rows[17:18], rows[18:]]
    streamed = train.pluralistic(parts, made.blocks, **made.settings, reservoir=np.random.default_rng(3))
    assert np.allclose(whole.random().weights, streamed.random().weights, atol=1e-12)


def test_random_without_a_reservoir_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"reservoir=numpy\.random\.default_rng"):
        trained(case(0)).random()


# ---------------------------------------------------------------------------- the budget


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rule", ["sgd", "dual", "adagrad"])
@given(seed=seeds, kind=st.sampled_from(KINDS), radius=st.sampled_from([float("inf"), 0.1]))
@settings(max_examples=6, deadline=None)
def test_a_small_budget_changes_no_mean_and_no_last(
    width: str, rule: str, seed: int, kind: str, radius: float
) -> None:
    radius = float("inf") if rule == "adagrad" else radius
    made = case(seed, width=width, kind=kind, rule=rule, radius=radius, n=120)
    large, small = trained_in_parts(made, 2**30), trained_in_parts(made, 1)
    assert large.log.past is None
    assert small.log.past is not None
    for name in ("mean", "last", "consensus", "consensus_last"):
        one, other = getattr(large, name)().weights, getattr(small, name)().weights
        assert np.allclose(one, other, rtol=0, atol=1e-11), name
    assert np.allclose(large.progressive(), small.progressive(), equal_nan=True)


def trained_in_parts(made: Case, memory: int) -> sc.Run:
    parts = [made.rows[low : low + 10] for low in range(0, len(made.rows), 10)]
    return train.chain(parts, made.blocks, made.basis, **made.settings, memory=memory)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rule", ["sgd", "dual", "adagrad"])
@given(seed=seeds, kind=st.sampled_from((*KINDS, "hedged")), cut=st.integers(1, 119), bare=st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_folded_run_goes_on_as_if_nothing_had_been_folded(
    width: str, rule: str, seed: int, kind: str, cut: int, bare: bool
) -> None:
    """Also where cycles are counted from the blocks."""
    made = case(seed, width=width, kind="single" if kind == "hedged" else kind, rule=rule, n=120)
    rows = made.rows.with_blocks(made.rows.block) if bare else made.rows  # type: ignore[arg-type]
    basis, told = made.basis, {**made.settings, "classes": tuple(np.unique(np.asarray(rows.labels)).tolist())}

    def start(part: sc.Rows, **more: Any) -> sc.Run:
        if kind == "hedged":
            return train.hedged(part, made.blocks, **told, **more, final=False)
        return train.chain(part, made.blocks, basis, **told, **more, final=False)

    run = start(rows[:cut])
    whole = train.extend(run, rows[cut:])
    folded = run.without_records()
    assert not folded.log.pages
    if run.log.pages:
        for name in ("mean", "last", "consensus"):
            assert np.allclose(getattr(run, name)().weights, getattr(folded, name)().weights, atol=1e-9)
    on = train.extend(folded.without_records(), rows[cut:])
    for name in ("mean", "last", "consensus", "consensus_last"):
        one, other = getattr(whole, name)().weights, getattr(on, name)().weights
        assert np.allclose(one, other, rtol=0, atol=1e-11), name
    assert np.allclose(whole.progressive(), on.progressive(), equal_nan=True)
    kept = on.log.table()
    assert (kept.cycle == whole.log.table().cycle[-len(kept.cycle) :]).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_what_was_dropped_is_refused_naming_the_budget(width: str) -> None:
    made = case(1, width=width, n=200)
    run = trained_in_parts(made, 1)
    held = len(np.unique(run.log.table().cycle))
    assert held < len(np.unique(made.problem.cycle))
    refused: list[Callable[[], object]] = [
        lambda: run.tail(100),
        lambda: run.fading(1000.0),
        lambda: run.polynomial(3.0),
        lambda: run.mean(through=int(made.problem.cycle[0])),
    ]
    for call in refused:
        with pytest.raises(ValueError, match="memory=1 bytes: train with a larger memory="):
            call()


def test_what_is_kept_stays_within_the_budget() -> None:
    for width in WIDTHS:
        made = case(4, n=3000, width=width)
        budget = 40_000
        run = trained_in_parts(made, budget)
        assert sum(page.nbytes for page in run.log.pages) <= budget
        assert run.log.past is not None


def test_bad_read_outs_are_refused() -> None:
    run = trained(case(0))
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: run.tail(0), "at least one cycle"),
        (lambda: run.fading(0.0), "positive number of cycles"),
        (lambda: run.polynomial(0.0), "must be positive"),
        (lambda: run.coarser(2), "give groups="),
        (lambda: run.coarser(2, groups=[9] * run.blocks), "a number below 2"),
        (lambda: run.soft(np.ones((run.blocks, 2)), 2), "must be distributions"),
    ]
    for call, sentence in refused:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_picks_of_an_empty_table_are_empty() -> None:
    none = np.zeros(0, np.int64)
    table = average.RecordTable(none, none, np.zeros(0), np.zeros(0), none)
    for picks in (
        average.block_means(table, average.own_models(3)),
        average.block_lasts(table, average.own_models(3)),
        average.tails(table, average.own_models(3), 2),
    ):
        assert len(picks.model) == 0


def test_a_cycle_that_was_dropped_in_part_does_not_count_as_kept() -> None:
    rng = np.random.default_rng(0)
    n = 600
    rows = sc.Rows(rng.normal(size=(n, 5)), rng.integers(0, 2, n), block=[0] * n, cycle=np.arange(n) // 200)
    parts = [rows[low : low + 5] for low in range(0, n, 5)]
    small = train.pluralistic(parts, 1, batch_size=5, classes=(0, 1), memory=1_000)
    assert np.unique(small.log.table().cycle).tolist() == [2]
    assert small.log.past is not None
    assert small.log.past.cycle.tolist() == [2]
    with pytest.raises(ValueError, match="train with a larger memory="):
        small.tail(1)


@pytest.mark.parametrize("first", [(0, 0), (0, 1)], ids=["one cycle", "two cycles"])
def test_the_last_of_dropped_blocks_is_the_one_that_came_last(first: tuple[int, int]) -> None:
    """Blocks 1 and 0, in this order, and then only block 2 until both are dropped."""
    rng = np.random.default_rng(0)
    block = np.r_[[1] * 6, [0] * 6, [2] * 348]
    cycle = np.r_[[first[0]] * 6, [first[1]] * 6, 2 + np.arange(348) // 6]
    rows = sc.Rows(
        rng.normal(size=(360, 3)), rng.integers(0, 2, 360), block=block, cycle=cycle, dtype=np.float64
    )
    parts = [rows[low : low + 6] for low in range(0, 360, 6)]
    found = []
    for memory in (1, 2**30):
        run = train.pluralistic(parts, 3, batch_size=3, classes=(0, 1), memory=memory)
        assert (run.log.past is None) == (memory > 1)
        found.append(run.coarser(2, groups=[0, 0, 1]).last().weights)
    assert np.allclose(found[0], found[1], atol=1e-12)


def test_fading_does_not_depend_on_how_cycles_are_counted() -> None:
    made = case(6)
    late = sc.Rows(
        made.problem.X,
        made.rows.labels,
        block=made.problem.block,
        cycle=made.problem.cycle + 20_000,
        dtype=np.float64,
    )
    one = train.pluralistic(made.rows, made.blocks, **made.settings).fading(3.0)
    other = train.pluralistic(late, made.blocks, **made.settings).fading(3.0)
    assert np.allclose(one.weights, other.weights, atol=1e-12)
