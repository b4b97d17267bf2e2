"""The hard instances: exact facts, and the methods that fail on them and those that do not."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semicyclic.experiments.lower_bounds import (
    METHODS,
    Method,
    pluralistic,
    run_shuffled,
    sgd,
    sgd_average,
    tune,
)
from semicyclic.theory import hard_instances
from semicyclic.theory.hard_instances import HardInstance
from semicyclic.types import Array

INSTANCES = [
    HardInstance(4),
    HardInstance(4, smooth=True),
    HardInstance(2, radius=3.0),
    HardInstance(3, blocks=5),
    HardInstance(2, smooth=True, blocks=3),
]
every_instance = pytest.mark.parametrize("instance", INSTANCES, ids=repr)
seeds = st.integers(0, 10_000)


def points(instance: HardInstance, seed: int, count: int = 20) -> Array:
    rng = np.random.default_rng(seed)
    scale = instance.radius * np.exp(rng.uniform(-6, 1, (count, 1)))
    return rng.normal(size=(count, instance.dimension)) * scale


@every_instance
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_gradients_are_the_slopes_of_values(instance: HardInstance, seed: int) -> None:
    for w in points(instance, seed, 3):
        for block in (None, *range(instance.blocks)):
            slope = np.zeros(instance.dimension)
            for j in range(instance.dimension):
                step = np.zeros(instance.dimension)
                step[j] = 1e-7 * instance.radius
                slope[j] = (instance.value(w + step, block) - instance.value(w - step, block)) / (2 * step[j])
            assert np.allclose(slope, instance.gradient(w, block), atol=2e-5)


@every_instance
@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_each_block_is_convex_lipschitz_and_smooth_as_stated(instance: HardInstance, seed: int) -> None:
    smoothness = instance.eta / instance.radius**2
    one, other = points(instance, seed), points(instance, seed + 1)
    for w, v in zip(one, other, strict=True):
        for block in range(instance.blocks):
            g, h = instance.gradient(w, block), instance.gradient(v, block)
            assert np.linalg.norm(g) <= 1 + 1e-12
            assert np.linalg.norm(g - h) <= smoothness * np.linalg.norm(w - v) * (1 + 1e-9)
            assert instance.value(v, block) >= instance.value(w, block) + g @ (v - w) - 1e-12


def test_the_lipschitz_constant_is_tight() -> None:
    instance = HardInstance(4)
    alternate = np.where(np.arange(16) % 2 == 0, 1.0, -1.0)
    assert np.linalg.norm(instance.gradient(10 * alternate, 1)) == pytest.approx(1.0)


@every_instance
def test_the_optimum_is_where_it_is_said_to_be(instance: HardInstance) -> None:
    assert np.abs(instance.gradient(instance.optimum)).max() < 1e-12
    assert instance.value(instance.optimum) == pytest.approx(instance.least, rel=1e-9)
    assert np.linalg.norm(instance.optimum) <= 0.69 * instance.radius
    assert instance.gap(np.zeros(instance.dimension)) > 0


@every_instance
def test_no_point_of_the_first_half_of_the_directions_is_better_than_the_bound(
    instance: HardInstance,
) -> None:
    seen = 2 * instance.cycles
    best = np.zeros(instance.dimension)
    best[:seen] = instance.radius * instance.flat * np.arange(seen, 0, -1)
    assert instance.gap(best) == pytest.approx(instance.bound, rel=1e-9)
    assert np.abs(instance.gradient(best)[:seen]).max() < 1e-12
    rng = np.random.default_rng(0)
    for _ in range(100):
        near = best.copy()
        near[:seen] += rng.normal(size=seen) * instance.radius * instance.flat
        assert instance.gap(near) >= instance.bound - 1e-12


def test_the_bounds_are_those_of_the_corrected_theorems() -> None:
    assert HardInstance(4, radius=2.0).bound == pytest.approx(3 * 2.0 / (256 * 4))
    assert HardInstance(4, radius=2.0, smooth=True).bound == pytest.approx(3 * 2.0**2 / (1024 * 16))
    assert HardInstance(4, blocks=5).bound == pytest.approx(4 / 5 * 3 / (256 * 4))
    assert [HardInstance(1, blocks=5).kind(block) for block in range(5)] == [1, 1, 0, 2, 2]
    assert [HardInstance(1, blocks=4).kind(block) for block in range(4)] == [1, 1, 2, 2]


@every_instance
@given(seed=seeds, step=st.sampled_from([1e-3, 0.1, 1.0, 30.0]))
@settings(max_examples=30, deadline=None)
def test_a_prox_step_is_an_implicit_gradient_step(instance: HardInstance, seed: int, step: float) -> None:
    for w in points(instance, seed, 5):
        for block in range(instance.blocks):
            u = instance.prox(w, block, step)
            assert np.allclose(u, w - step * instance.gradient(u, block), atol=1e-10 * max(step, 1))


@every_instance
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_the_minimizer_of_a_block_is_least_over_the_ball_and_nearest(
    instance: HardInstance, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    start = points(instance, seed, 1)[0]
    start *= min(1.0, instance.radius / np.linalg.norm(start))
    for block in range(instance.blocks):
        w = instance.minimizer(block, start)
        assert np.linalg.norm(w) <= instance.radius * (1 + 1e-12)
        for other in rng.normal(size=(20, instance.dimension)):
            other *= instance.radius * rng.random() / np.linalg.norm(other)
            assert instance.value(other, block) >= instance.value(w, block) - 1e-12
            # Nearer points are worse: walk from w towards the start.
            if np.linalg.norm(w - start) > 1e-9:
                nearer = w + 0.01 * (start - w)
                assert instance.value(nearer, block) > instance.value(w, block)


@given(seed=seeds, blocks=st.integers(2, 3))
@settings(max_examples=10, deadline=None)
def test_a_rotation_changes_nothing_but_the_directions(seed: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    turned, plain = hard_instances.random_rotation(2, 40, rng, blocks=blocks), HardInstance(2, blocks=blocks)
    V = turned.rotation
    assert V is not None
    w = rng.normal(size=40)
    inside = V.T @ w
    for block in range(blocks):
        assert turned.value(w, block) == pytest.approx(plain.value(inside, block))
        assert np.allclose(V.T @ turned.gradient(w, block), plain.gradient(inside, block))
        moved = turned.prox(w, block, 0.3)
        assert np.allclose(V.T @ moved, plain.prox(inside, block, 0.3))
        assert np.allclose(moved - V @ (V.T @ moved), w - V @ inside)  # all else stays
    assert turned.gap(turned.optimum) == pytest.approx(0, abs=1e-12)
    inner = w / np.linalg.norm(w)
    assert np.linalg.norm(turned.minimizer(0, inner)) == pytest.approx(1.0)


# ------------------------------------------------------- methods on cyclic data, K cycles

K, N = 4, 1000
GRID = np.geomspace(1e-5, 1.0, 6)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_on_cyclic_data_no_method_falls_below_the_bound_however_it_is_tuned(method: Method) -> None:
    """K=4, m=2, n=1000, B=1, in the 4K coordinates: all stay above 3B/(256K)."""
    instance = HardInstance(K)
    steps = N if method in (sgd, sgd_average) else 250
    best = tune(method, instance, steps, GRID)
    assert best >= instance.bound * (1 - 1e-9)
    assert best < instance.gap(np.zeros(16))  # it did learn something


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_neither_with_a_thousand_steps_a_block_and_a_finer_grid(method: Method) -> None:
    instance = HardInstance(K)
    assert tune(method, instance, N, np.geomspace(1e-5, 1.0, 16)) >= instance.bound * (1 - 1e-9)


def test_nor_does_minimising_each_block_fully() -> None:
    instance = HardInstance(K)
    w, total, gaps = np.zeros(16), np.zeros(16), []
    for block in [0, 1] * K:
        w = instance.minimizer(block, w)
        total += w / (2 * K)
        gaps.append(instance.gap(w))
    assert min(*gaps, instance.gap(total)) >= instance.bound


def test_the_iid_average_does_fall_below_the_bound() -> None:
    instance = HardInstance(K)
    gaps = [run_shuffled(instance, N, np.random.default_rng(seed))[0] for seed in range(3)]
    assert max(gaps) < instance.bound


def test_pluralistic_averaging_falls_below_the_bound_and_even_below_the_best_single_model() -> None:
    """One chain on cyclic data, averaged per block: each block is judged by its own model."""
    instance = HardInstance(K)
    assert pluralistic(instance, N)[0] < 0 < instance.bound


def test_pluralistic_means_stay_in_the_ball_whatever_the_step() -> None:
    """A block alone falls for ever outside; within the ball no mean is below its block's least value."""
    instance = HardInstance(2)
    least = np.mean([instance.value(instance.minimizer(i, np.zeros(8)), i) for i in (0, 1)])
    gaps = pluralistic(instance, 50, np.array([1e-3, 0.1, 10.0]))
    assert (gaps >= least - instance.least - 1e-12).all()
    assert gaps.min() < 0
    # Unless told otherwise at the step of the theorem, B / sqrt(T).
    assert pluralistic(instance, 50)[0] == pluralistic(instance, 50, np.array([1 / np.sqrt(200)]))[0]
    one, other = (np.random.default_rng(0) for _ in range(2))
    assert (
        run_shuffled(instance, 50, one)[0]
        == run_shuffled(instance, 50, other, np.array([1 / np.sqrt(200)]))[0]
    )


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_several_points_at_once_are_as_one_by_one(seed: int) -> None:
    for instance in INSTANCES:
        several = points(instance, seed, 3)
        steps = np.array([0.01, 0.3, 5.0])
        for block in range(instance.blocks):
            assert np.allclose(
                instance.gradient(several, block), [instance.gradient(w, block) for w in several], atol=1e-15
            )
            one_by_one = [instance.prox(w, block, s) for w, s in zip(several, steps, strict=True)]
            assert np.allclose(instance.prox(several, block, steps), one_by_one, atol=1e-12)


@pytest.mark.parametrize("smooth", [False, True], ids=["Lipschitz", "smooth"])
def test_the_gap_of_tuned_sgd_falls_with_the_cycles_as_the_theorems_say(smooth: bool) -> None:
    cycles = [2, 4, 8]
    gaps = []
    for number in cycles:
        instance = HardInstance(number, smooth=smooth)
        grid = np.geomspace(3e-4, 1e-2, 7) * (10 if smooth else 1)
        gaps.append(tune(sgd, instance, 250, grid))
    slope = np.polyfit(np.log(cycles), np.log(gaps), 1)[0]
    assert abs(slope - (-2 if smooth else -1)) <= 0.2, (slope, gaps)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "cycles": (lambda: HardInstance(0), "cycles=0"),
    "blocks": (lambda: HardInstance(2, blocks=1), "at least two"),
    "radius": (lambda: HardInstance(2, radius=-1.0), "radius=-1.0"),
    "smooth": (lambda: HardInstance(1, radius=20.0, smooth=True), "B <= 16 K = 16"),
    "rotation": (lambda: HardInstance(1, rotation=np.ones((5, 4))), "orthonormal"),
    "dimension": (
        lambda: hard_instances.random_rotation(4, 15, np.random.default_rng(0)),
        "at least 4 K = 16",
    ),
    "point": (lambda: HardInstance(1).value(np.zeros(5)), r"w has shape \(5,\)"),
    "float": (lambda: HardInstance(4.0), "cycles=4.0"),  # type: ignore[arg-type]
    "step": (lambda: HardInstance(1).prox(np.zeros(4), 0, 0.0), "step=0.0"),
    "outside": (lambda: HardInstance(1).minimizer(1, np.array([2.0, 0, 0, 0])), "must lie in the ball"),
    "block": (lambda: HardInstance(1).value(np.zeros(4), 2), "there are 0 to 1"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_instance_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_in_a_large_enough_dimension_unseen_directions_stay_unseen() -> None:
    """docs/math.md#discovery: no query of norm B comes nearer than a/4 to any direction it has not seen."""
    d = hard_instances.dimension_needed(1, 100, delta=0.05)
    assert d == 4 + int(np.ceil(2048 * np.log(8 * 100 / 0.05)))
    rng = np.random.default_rng(0)
    instance = hard_instances.random_rotation(1, d, rng)
    assert instance.rotation is not None
    queries = rng.normal(size=(100, d))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    assert np.abs(queries @ instance.rotation).max() <= instance.flat / 4
