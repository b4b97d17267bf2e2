"""One contract for every method, and the laws that bind them together."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.method import basis, train
from tests.method.random_streams import Case, case, seeds

Method = Callable[..., sc.Run]

METHODS: dict[str, Method] = {
    "consensus": train.consensus,
    "separate": train.separate,
    "pluralistic": train.pluralistic,
    "residual": train.residual,
    "hedged": train.hedged,
    "fourier": lambda rows, schedule=None, **more: train.chain(
        rows, schedule, lambda m: basis.fourier(m, 2), **more
    ),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
READOUTS: dict[str, Callable[[sc.Run], sc.Pluralistic]] = {
    "mean": lambda run: run.mean(),
    "last": lambda run: run.last(),
    "tail": lambda run: run.tail(2),
    "last_cycle": lambda run: run.last_cycle(),
    "fading": lambda run: run.fading(1.5),
    "random": lambda run: run.random(),
    "consensus": lambda run: run.consensus(),
    "consensus_last": lambda run: run.consensus_last(),
}


def taught(method: Method, made: Case, rows: Any = None, **more: Any) -> sc.Run:
    if made.problem.loss == sc.loss.logistic:
        more["classes"] = (0.0, 1.0)  # a part of a stream may hold one class only
    rng = np.random.default_rng(0)
    return method(made.rows if rows is None else rows, made.blocks, **made.settings, reservoir=rng, **more)


@every_method
@pytest.mark.filterwarnings("ignore:.*never visited")
class TestContract:
    """What every method keeps, whatever it learns."""

    @given(seed=seeds, loss=st.sampled_from(["logistic", "softmax", "squared"]))
    @settings(max_examples=6, deadline=None)
    def test_every_readout_is_a_finite_model_for_every_block(
        self, method: Method, seed: int, loss: str
    ) -> None:
        made = case(seed, loss=loss)
        run = taught(method, made)
        for name, read in READOUTS.items():
            model = read(run)
            assert model.weights.shape == (
                made.blocks,
                made.problem.loss.outputs,
                made.problem.X.shape[1] + 1,
            ), name
            assert np.isfinite(model.weights).all(), name
            assert len(model.predict(made.rows)) == len(made.rows)

    @given(seed=seeds)
    @settings(max_examples=6, deadline=None)
    def test_the_same_rows_give_the_same_bits(self, method: Method, seed: int) -> None:
        made = case(seed)
        for read in READOUTS.values():
            assert np.array_equal(read(taught(method, made)).weights, read(taught(method, made)).weights)

    @given(seed=seeds, cut=st.integers(0, 60), other=st.integers(0, 60), batch_size=st.integers(1, 5))
    @settings(max_examples=10, deadline=None)
    def test_a_stream_may_be_cut_anywhere(
        self, method: Method, seed: int, cut: int, other: int, batch_size: int
    ) -> None:
        made = case(seed, batch_size=batch_size)
        low, high = sorted((cut, other))
        rows = made.rows
        parts = [part for part in (rows[:low], rows[low:high], rows[high:]) if len(part)]
        whole, streamed = taught(method, made), taught(method, made, iter(parts))
        for name, read in READOUTS.items():
            assert np.allclose(read(whole).weights, read(streamed).weights, rtol=0, atol=1e-12), name
        begun = taught(method, made, [parts[0]])
        assert len(begun.log.table().weight) > 0

    @given(seed=seeds, cut=st.integers(1, 59))
    @settings(max_examples=6, deadline=None)
    def test_a_run_may_go_on_later(self, method: Method, seed: int, cut: int) -> None:
        made = case(seed)
        first = taught(method, made, [made.rows[:cut]])
        before = first.mean().weights.copy()
        later = train.extend(first, made.rows[cut:])
        assert np.array_equal(before, first.mean().weights)
        # The end of the first part ended its last minibatch: the same as two visits there.
        cycle = 2 * made.problem.cycle + (np.arange(60) >= cut)
        rows = sc.Rows(
            made.problem.X, made.rows.labels, block=made.problem.block, cycle=cycle, dtype=np.float64
        )
        whole = taught(method, made, rows)
        assert np.allclose(later.mean().weights, whole.mean().weights, rtol=0, atol=1e-12)
        assert np.allclose(later.last().weights, whole.last().weights, rtol=0, atol=1e-12)

    @given(seed=seeds)
    @settings(max_examples=6, deadline=None)
    def test_packed_rows_give_the_same_run(self, method: Method, seed: int) -> None:
        made = case(seed)
        settings_ = dict(made.settings)
        packed = sc.pack(
            made.rows, made.blocks, loss=settings_.pop("loss"), batch_size=settings_.pop("batch_size")
        )
        for _ in range(2):
            run = method(packed, **settings_)
            direct = method(made.rows, made.blocks, **made.settings)
            assert np.array_equal(run.mean().weights, direct.mean().weights)

    @given(seed=seeds)
    @settings(max_examples=6, deadline=None)
    def test_relabelling_blocks_permutes_the_models(self, method: Method, seed: int) -> None:
        made = case(seed)
        if method is METHODS["fourier"]:
            return  # neighbors matter to it
        order = np.random.default_rng(seed).permutation(made.blocks)
        renamed = sc.Rows(
            made.problem.X,
            made.rows.labels,
            block=order[made.problem.block],
            cycle=made.problem.cycle,
            dtype=np.float64,
        )
        for name, read in READOUTS.items():
            if name == "random":
                continue
            one, other = read(taught(method, made)).weights, read(taught(method, made, renamed)).weights
            assert np.allclose(one, other[order], atol=1e-12), name

    def test_it_says_when_it_diverges(self, method: Method) -> None:
        rows = sc.Rows(np.full((40, 1), 1e18), np.arange(40.0) * 1e18, block=[0] * 40)
        with pytest.raises(sc.Diverged, match=r"diverged in cycle 0, block 0: use a smaller step_size"):
            method(rows, 1, loss=sc.loss.squared, step_size=1e9, batch_size=1)


@pytest.mark.filterwarnings("ignore:.*never visited")
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_with_one_block_all_methods_agree(seed: int) -> None:
    made = case(seed)
    rows = sc.Rows(
        made.problem.X, made.rows.labels, block=[0] * 60, cycle=made.problem.cycle, dtype=np.float64
    )
    runs = [
        METHODS[name](rows, 1, **made.settings)
        for name in ("consensus", "separate", "pluralistic", "residual")
    ]
    for run in runs[1:]:
        assert np.array_equal(run.mean().weights, runs[0].mean().weights)
        assert np.array_equal(run.last().weights, runs[0].last().weights)


@pytest.mark.filterwarnings("ignore:.*never visited")
@given(seed=seeds, radius=st.sampled_from([float("inf"), 0.3]))
@settings(max_examples=20, deadline=None)
def test_separate_chains_are_independent_chains(seed: int, radius: float) -> None:
    made = case(seed, kind="separate", radius=radius)
    run = train.separate(made.rows, made.blocks, **made.settings)
    for block in np.unique(made.problem.block):
        own = np.flatnonzero(made.problem.block == block)
        rows = sc.Rows(
            made.problem.X[own],
            made.rows.labels[own] if made.rows.labels is not None else None,
            block=[0] * len(own),
            cycle=made.problem.cycle[own],
            dtype=np.float64,
        )
        alone = train.consensus(rows, 1, **made.settings, classes=(0.0, 1.0))
        assert np.allclose(run.mean().weights[block], alone.mean().weights[0], atol=1e-12)


def test_several_residuals_at_once_share_a_vector_and_add_up() -> None:
    held = basis.residual(6, [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1])
    assert held.vectors == 1 + 3 + 2
    assert held.active.tolist()[3] == [0, 2, 5]
    assert held.coefficient[3].tolist() == [1.0, 0.5, 0.5]


@pytest.mark.filterwarnings("ignore:.*never visited")
def test_a_residual_moves_a_quarter_as_far_as_what_is_shared() -> None:
    rows = sc.Rows([[2.0]], [1.0], block=[1], intercept=False, dtype=np.float64)
    run = train.residual(rows, 2, loss=sc.loss.squared, step_size=0.1, batch_size=1)
    shared, _, own = run.state.vectors[:, 0, 0]
    assert np.isclose(shared, 0.1 * 2.0)
    assert np.isclose(basis.SHARE * own, shared / 4)
    assert np.isclose(run.last().weights[1, 0, 0], shared * 1.25)


def test_step_sizes_follow_the_number_of_steps_of_each_chain() -> None:
    rows = sc.Rows(np.ones((12, 1)), [0, 1] * 6, block=[0] * 8 + [1] * 4)
    for step, factor in ((sc.step.paper(3.0, lipschitz=2.0), 2.0), (sc.step.tight(3.0, lipschitz=2.0), 1.0)):
        single = train.pluralistic(rows, 2, step_size=step, batch_size=2)
        assert np.allclose(single.log.plan.eta, 1.5 / np.sqrt(factor * 6))
        separate = train.separate(rows, 2, step_size=step, batch_size=2)
        assert np.allclose(separate.log.plan.eta, 1.5 / np.sqrt(factor * np.array([4, 2])))
    chi = 0.5**2 / (2 / 3) + 0.5**2 / (1 / 3)
    weighed = train.pluralistic(rows, 2, step_size=sc.step.tight(), batch_size=2, objective_shares=[0.5, 0.5])
    assert np.allclose(weighed.log.plan.eta, 1 / np.sqrt(6 * chi))
    known = train.pluralistic([rows], 2, step_size=sc.step.tight(total=100), batch_size=2)
    assert np.allclose(known.log.plan.eta, 0.1)


ROWS = sc.Rows([[1.0], [2.0]], [0, 1], block=[0, 1])
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no schedule": (lambda: train.pluralistic(ROWS), "give a schedule"),
    "no rows": (lambda: train.pluralistic([], 2), "the stream has no parts"),
    "packed twice": (
        lambda: train.pluralistic(sc.pack(ROWS, 2, loss=sc.loss.logistic), 2),
        "packed rows have their schedule",
    ),
    "batch size": (lambda: train.pluralistic(ROWS, 2, batch_size=0), "batch_size=0: must be a whole"),
    "radius": (lambda: train.pluralistic(ROWS, 2, radius=0.0), "radius=0.0: the ball"),
    "step": (lambda: train.pluralistic(ROWS, 2, step_size=-1.0), "step size -1.0: must be positive"),
    "box": (lambda: sc.step.adagrad(1.0, box=0.0), "box=0.0"),
    "total": (lambda: sc.step.tight(total=0), "total=0"),
    "ball": (
        lambda: train.pluralistic(ROWS, 2, step_size=sc.step.adagrad(), radius=1.0),
        "projected onto a box, not a ball",
    ),
    "unknown T": (lambda: train.pluralistic([ROWS], 2, step_size=sc.step.paper()), "give it as total="),
    "dual start": (
        lambda: train.pluralistic(ROWS, 2, step_size=sc.step.dual_averaging(), initial_weights=[0.0, 0.0]),
        "starts from zero",
    ),
    "start shape": (
        lambda: train.pluralistic(ROWS, 2, initial_weights=[0.0]),
        r"initial_weights has shape \(1,\)",
    ),
    "start value": (lambda: train.pluralistic(ROWS, 2, initial_weights=[0.0, np.nan]), "not finite"),
    "start basis": (
        lambda: train.chain(ROWS, 2, basis.of(np.full((2, 1), 0.5)), initial_weights=[0.0, 0.0]),
        "coefficient 1 in every block",
    ),
    "target": (lambda: train.pluralistic(ROWS, 2, objective_shares=[1.0, 1.0]), "2 shares that sum to 1"),
    "target unseen": (
        lambda: train.pluralistic(ROWS, 3, objective_shares=[0.5, 0.2, 0.3]),
        "block 2 is never visited",
    ),
    "target stream": (
        lambda: train.pluralistic([ROWS], 2, objective_shares=[0.5, 0.5]),
        "unknown for a stream",
    ),
    "basis blocks": (lambda: train.chain(ROWS, 2, basis.single(3)), "the basis has 3 blocks, the schedule 2"),
    "grouping": (lambda: basis.residual(3, [0, 1]), "give each of the 3 blocks a group"),
    "harmonics": (lambda: basis.fourier(3, 0), "at least one is needed"),
    "basis shape": (lambda: basis.of(np.zeros(3)), "finite table"),
    "basis idle": (lambda: basis.of(np.array([[1.0], [0.0]])), "block 1 has no active vector"),
    "basis unused": (lambda: basis.of(np.array([[1.0, 0.0]])), "active in no block"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_the_remedy(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_numbered_blocks_of_a_stream_go_on_counting_cycles() -> None:
    block = np.array([0, 0, 1, 1, 0, 1, 1, 0, 0, 1])
    X, y = np.ones((10, 1)), np.arange(10) % 2
    whole = sc.Rows(X, y, block=block)
    parts = [sc.Rows(X[s], y[s], block=block[s]) for s in (slice(0, 3), slice(3, 5), slice(5, 10))]
    for batch_size in (1, 2):
        one = train.pluralistic(whole, 2, batch_size=batch_size)
        other = train.pluralistic(parts, 2, batch_size=batch_size, classes=(0, 1))
        assert one.log.table().cycle.max() == 2
        assert sorted(set(other.log.table().cycle)) == [0, 1, 2]
        assert np.allclose(one.tail(1).weights, other.tail(1).weights)


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown setting 'stepsize': choose from loss, step_size"):
        train.pluralistic(ROWS, 2, stepsize=0.1)  # type: ignore[call-arg]


def test_going_on_twice_from_one_run_gives_the_same_run_twice() -> None:
    made = case(3)
    first = taught(METHODS["separate"], made, [made.rows[:30]])
    one, other = (train.extend(first, made.rows[30:]) for _ in range(2))
    assert np.array_equal(one.random().weights, other.random().weights)
    assert np.array_equal(one.last().weights, other.last().weights)


def test_a_run_that_was_left_open_goes_on_as_if_all_rows_had_come_at_once() -> None:
    made = case(11, batch_size=4)
    whole = train.pluralistic(made.rows, made.blocks, **made.settings)
    run = train.pluralistic(made.rows[:23], made.blocks, **made.settings, final=False, classes=(0.0, 1.0))
    run = train.extend(train.extend(run, made.rows[23:37], final=False), made.rows[37:])
    assert np.allclose(run.mean().weights, whole.mean().weights, rtol=0, atol=1e-12)
    assert run.log.column("weight").sum() == whole.log.column("weight").sum()


def test_a_view_of_a_run_cannot_go_on() -> None:
    run = train.pluralistic(ROWS, 2, batch_size=1)
    with pytest.raises(ValueError, match="extend the run itself"):
        train.extend(run.coarser(1, groups=[0, 0]), ROWS)


@pytest.mark.parametrize("rows", [np.ones((2, 2)), "rows.csv", [np.ones((2, 2))]])
def test_what_is_not_rows_is_refused(rows: Any) -> None:
    with pytest.raises(TypeError, match=r"make it Rows\(X, y, when=\.\.\.\)"):
        train.pluralistic(rows, 2)
    with pytest.raises(TypeError, match="make it Rows"):
        train.extend(train.pluralistic(ROWS, 2), rows)


def test_adaptive_steps_take_nothing_for_nothing() -> None:
    """Slopes that cancel leave no gradient, and a square that underflows no step."""
    for size in (6, 10, 50):
        labels = np.arange(size) >= size // 2
        rows = sc.Rows(np.zeros((size, 1)), labels, block=[0] * size)
        step: dict[str, Any] = {"batch_size": size, "step_size": sc.step.adagrad(0.5)}
        assert not train.pluralistic(rows, 1, **step).last().weights.any()
    rows = sc.Rows([[200.0, 0], [-200.0, 0], [200.0, 1.0]], [1, 0, 1], block=[0, 0, 0])
    last = train.pluralistic(rows, 1, batch_size=1, step_size=sc.step.adagrad(0.5)).last()
    assert np.abs(last.weights).max() <= 2


def test_losses_of_large_minibatches_do_not_drift() -> None:
    n = 200_000
    rows = sc.Rows(np.random.default_rng(0).normal(size=(n, 1)), np.arange(n) % 2, block=np.zeros(n, int))
    run = train.pluralistic(rows, 1, batch_size=n)
    assert np.isclose(run.progressive_loss(), np.log(2), rtol=1e-6)


def test_a_start_must_lie_where_the_chain_may_go() -> None:
    for more, sentence in (
        ({"radius": 1.0}, "outside the ball"),
        ({"step_size": sc.step.adagrad(1.0, box=1.0)}, "box"),
    ):
        with pytest.raises(ValueError, match=sentence):
            train.pluralistic(ROWS, 2, initial_weights=[3.0, 0.0], **more)
    bare = sc.Rows([[1.0], [2.0]], [0, 1], block=[0, 1], intercept=False)
    with pytest.raises(ValueError, match="start has an intercept"):
        train.pluralistic(bare, 2, initial_weights=[0.0, 1.0])


def test_runs_and_losses_can_be_copied_and_shown() -> None:
    run = train.pluralistic(ROWS, 2, loss=sc.loss.quantile(0.1234567), batch_size=1)
    assert copy.deepcopy(run.mean()).loss == run.loss
    assert repr(run) == "Run(2 blocks, 1 columns, loss.quantile(0.1234567), 1 cycles kept)"


def test_rows_may_be_overwritten_after_a_call() -> None:
    """An unfilled minibatch waits in a copy."""
    X, y, block = np.eye(6, dtype=np.float32), np.array([0.0, 1, 0, 1, 1, 0]), np.zeros(6, np.int64)
    runs = []
    for overwrite in (False, True):
        labels = y.copy()
        run = sc.train.pluralistic(
            [sc.Rows(X, labels, block=block)], 1, batch_size=4, classes=(0.0, 1.0), final=False
        )
        if overwrite:
            labels[:] = 1 - labels
        runs.append(sc.train.finish(run).last().weights)
    np.testing.assert_array_equal(runs[0], runs[1])
