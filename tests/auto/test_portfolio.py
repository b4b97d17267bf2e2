"""The portfolio: its candidates are the methods run alone, and nothing knows a label before its time."""

from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semicyclic as sc
from semicyclic.auto import portfolio as portfolio_
from semicyclic.auto.buffer import targets
from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import (
    ADAGRAD_RATES,
    LANES,
    READ_OUT_NAMES,
    STEP_SHARES,
    candidate_set_of,
    fit_to_memory,
)
from semicyclic.auto.column_map import ColumnMap
from semicyclic.auto.export import model_weights, weights_of
from semicyclic.auto.kernels.design_effect import (
    FIRST_DESIGN_EFFECT,
    add_to_unit,
    close_unit,
    design_effect,
)
from semicyclic.auto.kernels.mixing import STRATEGIES, fade_and_add
from semicyclic.auto.portfolio import Portfolio
from semicyclic.auto.protocol import freeze_units, freeze_walls
from semicyclic.datasets import regimes
from semicyclic.method import loss as losses
from semicyclic.method import train
from semicyclic.method.column_scale import ColumnScale
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows, with_fields
from semicyclic.method.step import adagrad, constant
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.visits import visits

DAY = 86_400_000_000
HOUR = 3_600_000_000
START = 1_700_438_400_000_000
UNEVEN = Schedule.daily(edges=["06:00", "13:30", "22:00"])


def some_rows(count: int, days: int, seed: int, *, kind: str = "two", unit: bool = False) -> Rows:
    """Rows at random times of some days; where asked, values of a column have one size."""
    rng = np.random.default_rng(seed)
    when = (np.sort(rng.integers(0, days * DAY, count)) + START) / 1e6
    X = rng.normal(size=(count, 4))
    if unit:
        X = np.sign(X) * [0.5, 1.0, 4.0, 16.0]
    label: Any = rng.random(count) < 1 / (1 + np.exp(-2 * X[:, 0]))
    if kind == "three":
        label = rng.integers(0, 3, count)
    if kind == "number":
        label = X[:, 0] + rng.normal(size=count)
    return Rows(X, label, when=when)


def loss_for(kind: str) -> Loss:
    return {"two": losses.logistic, "three": losses.softmax(3), "number": losses.squared}[kind]


def run_through(rows: Rows, schedule: Schedule, loss: Loss, **how: Any) -> tuple[Portfolio, list[Any]]:
    form = candidate_set_of(calendar_of(schedule))
    portfolio = Portfolio(form, loss, rows.width, **how)
    assert rows.labels is not None
    assert rows.when is not None
    target = targets(rows.labels.astype(float), loss)
    return portfolio, list(portfolio.add(rows, rows.when, rows.when, target))


def joined(answers: list[Any], name: str) -> Any:
    return np.concatenate([getattr(each, name) for each in answers])


def value_of(loss: Loss, score: Any, labels: Any) -> Any:
    target = targets(labels.astype(float), loss)
    return loss.value(score if loss.outputs > 1 else score[:, 0], target)


@pytest.mark.parametrize("kind", ["two", "three", "number"])
def test_a_candidate_scores_what_its_chain_run_alone_does(kind: str) -> None:
    """Live candidates of every kind and step: their losses are the progressive losses of `train.chain`.

    The chain is given normalized features.
    """
    rows = some_rows(700, 9, 1, kind=kind, unit=True)
    schedule, loss = Schedule.daily(6), loss_for(kind)
    portfolio, answers = run_through(rows, schedule, loss)
    rows = ColumnScale.empty(4).normalize(rows)
    scores = joined(answers, "progressive").astype(np.float64)
    calendar = portfolio.candidate_set.calendar
    assert rows.when is not None
    fine, cycle = calendar.place(rows.when), schedule.place(rows.when).cycle
    starts = visits(cycle, fine).start
    placed = rows.with_blocks(fine, cycle)
    marked = with_marks(placed, calendar)
    bare = with_marks(Rows(np.zeros((len(rows), 4)), rows.labels, block=fine, cycle=cycle), calendar)
    number = 0
    for part in portfolio.parts:
        for each in part.candidate_set.kinds:
            data = bare if each.bare else marked if each.marked else placed
            energy = float((each.basis.coefficient[0] ** 2).sum())
            for lane in range(LANES):
                # All rows have four values of size one, and the intercept.
                step = (
                    constant(STEP_SHARES[lane] / (5 * energy))
                    if lane < 4
                    else adagrad(ADAGRAD_RATES[lane - 4])
                )
                run = train.chain(data, calendar.size, each.basis, loss=loss, step_size=step, batch_size=1)
                alone = run.progressive_visits().loss
                own = value_of(loss, scores[:, number], rows.labels)
                mean = np.array([own[low:high].mean() for low, high in pairwise(starts)])
                # The largest rate saturates the logistic function: then the first step on a new column has
                # full length, whether or not its gradient is below single precision.
                if kind == "number" or lane < LANES - 1:
                    assert np.allclose(mean, alone, rtol=2e-3, atol=2e-4), (each.name, lane)
                number += 1
        number += LANES * len(READ_OUT_NAMES) * len(part.candidate_set.readings)


@pytest.mark.parametrize("kind", ["two", "three", "number"])
def test_the_units_of_features_do_not_matter(kind: str) -> None:
    """A power of two changes no bit of an answer, nor of a weight once it is divided by it."""
    rows, loss = some_rows(700, 9, 1, kind=kind), loss_for(kind)
    bits = np.array([20, 0, -20, 5])
    scaled = with_fields(rows, values=rows.values * (2.0 ** bits[rows.indices]).astype(np.float32))
    one, other = (run_through(each, Schedule.daily(6), loss) for each in (rows, scaled))
    for name in ("progressive", "progressive_auto", "forward", "forward_auto"):
        np.testing.assert_array_equal(joined(one[1], name), joined(other[1], name))
    weights, other_weights = model_weights(one[0]), model_weights(other[0])
    np.testing.assert_array_equal(weights[..., :-1], other_weights[..., :-1] * 2.0**bits)
    assert np.abs(weights[..., 0]).max() > 0.01


def with_marks(rows: Rows, calendar: Any) -> Rows:
    """The rows with a column for every time of day and weekday."""
    time, weekday = calendar.time[rows.block], calendar.weekday[rows.block]
    count = calendar.times + 7
    marks = np.zeros((len(rows), count))
    marks[np.arange(len(rows)), time] = 1.0
    marks[np.arange(len(rows)), calendar.times + weekday] = 1.0
    X = np.zeros((len(rows), rows.width))
    row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    X[row, rows.indices] = rows.values
    return Rows(np.hstack([X, marks]), rows.labels, block=rows.block, cycle=rows.cycle)


def test_a_read_out_scores_what_that_of_its_chain_does() -> None:
    """Means, fading means and last cycles of a run on normalized features, as of midnight."""
    rows = some_rows(900, 12, 2)
    schedule = Schedule.daily(4)
    portfolio, answers = run_through(rows, schedule, losses.logistic)
    rows = ColumnScale.empty(4).normalize(rows)
    scores = joined(answers, "forward")[:, :, 0]
    assert rows.when is not None
    cycle, block = schedule.place(rows.when)
    names = list(portfolio.names)
    placed = rows.with_blocks(block, cycle)
    step = adagrad(ADAGRAD_RATES[1])
    chains = {"single, by block": "pluralistic", "separate": "separate", "residual": "residual"}
    for chain, basis in chains.items():
        run = getattr(train, basis)(placed, 4, step_size=step, batch_size=1)
        for day in range(3, 12):
            through = int(cycle.min()) + day - 1
            models = {
                "mean": run.mean(through=through),
                "fading": run.fading(7.0, through=through),
                "last cycle": run.last_cycle(through=through),
            }
            today = np.flatnonzero(cycle == cycle.min() + day)
            for name, model in models.items():
                own = scores[today, names.index(f"{chain}, adaptive {ADAGRAD_RATES[1]:g}, {name}")]
                alone = model.score(placed[today], block=block[today])
                assert np.allclose(own, alone, atol=2e-4), (chain, name, day)
    one = train.pluralistic(placed, 4, step_size=step, batch_size=1)
    for day in range(3, 12):
        today = np.flatnonzero(cycle == cycle.min() + day)
        own = scores[today, names.index(f"single, one model, adaptive {ADAGRAD_RATES[1]:g}, mean")]
        alone = one.consensus(through=int(cycle.min()) + day - 1).score(placed[today], block=block[today])
        assert np.allclose(own, alone, atol=2e-4)


@pytest.mark.parametrize("horizon", [1, 3])
def test_walking_forward_is_answering_by_models_of_the_last_midnight(horizon: int) -> None:
    """Or by those of up to three midnights ago.

    Each day's answers are those that a portfolio gives which has met the days before only, and ended. A model
    that is saved at midnight has the scales of its columns as of then: these do not change here.
    """
    rows = some_rows(900, 16, 3, unit=True)
    schedule = Schedule.daily(4, zone="Europe/Paris")
    _, answers = run_through(rows, schedule, losses.logistic, horizon=horizon)
    forward, mixed = joined(answers, "forward")[:, :, 0], joined(answers, "forward_auto")[:, 0]
    assert rows.when is not None
    day = (rows.when + HOUR) // DAY  # in November Paris is an hour ahead
    # In the first nine days models are used for a third of the days before.
    ages = {1: range(17), 3: [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16]}[horizon]
    frozen = np.array(ages)[np.searchsorted(np.array(ages), day - day[0], side="right") - 1] + day[0]
    for each in np.unique(frozen)[1:]:
        before, now = np.flatnonzero(day < each), np.flatnonzero(frozen == each)
        alone, _ = run_through(rows[before], schedule, losses.logistic, horizon=horizon)
        alone.end()
        assert rows.labels is not None
        later = rows[now]
        assert later.labels is not None
        (found,) = alone.add(
            later, rows.when[now], rows.when[now], targets(later.labels.astype(float), losses.logistic)
        )
        assert np.allclose(found.forward[:, :, 0], forward[now], atol=1e-6)
        # The mixture as one model for each block, too: what is saved at midnight.
        alone, _ = run_through(rows[before], schedule, losses.logistic, horizon=horizon)
        alone.end()
        if alone.exported_protocol == "forward":
            model = sc.Pluralistic(model_weights(alone), alone.candidate_set.calendar.model, losses.logistic)
            assert np.allclose(model.score(later), mixed[now], atol=2e-3)


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
    st.sampled_from([0, HOUR, DAY]),
)
@settings(max_examples=15, deadline=None)
def test_however_rows_are_cut_they_are_met_alike(seed: int, sizes: list[int], delay: int) -> None:
    rows = some_rows(sum(sizes), 5, seed)
    schedule = Schedule.daily(3)
    whole, answers = run_through(rows, schedule, losses.logistic, delay=delay)
    parts = Portfolio(candidate_set_of(calendar_of(schedule)), losses.logistic, rows.width, delay=delay)
    found: list[Any] = []
    first = 0
    assert rows.when is not None
    assert rows.labels is not None
    for size in sizes:
        part = slice(first, first + size)
        target = targets(rows.labels[part].astype(float), losses.logistic)
        found += parts.add(rows[part], rows.when[part], rows.when[part], target)
        first += size
    for name in ("progressive", "progressive_auto", "forward", "forward_auto"):
        assert np.array_equal(joined(found, name), joined(answers, name)), name
    whole.end()
    parts.end()
    assert np.array_equal(model_weights(whole), model_weights(parts))


def test_asked_seldom_it_is_cut_alike_and_chooses_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long stream only some rows are asked, each standing for several; all are learned from."""
    monkeypatch.setattr(portfolio_, "SUBSAMPLING_ROWS", (400, 1000))
    stream = regimes.stream("opposite", 1, rows=6000, days=30)
    rows, schedule = stream.rows, Schedule.daily(2)
    whole, answers = run_through(rows, schedule, losses.logistic, subsample=True)
    assert len(joined(answers, "forward")) == 400 + 300 + 1250
    parts = Portfolio(candidate_set_of(calendar_of(schedule)), losses.logistic, rows.width, subsample=True)
    assert rows.when is not None
    for low in range(0, 6000, 333):
        part = slice(low, low + 333)
        target = targets(np.asarray(rows.labels)[part].astype(float), losses.logistic)
        for _ in parts.add(rows[part], rows.when[part], rows.when[part], target):
            pass
    whole.end()
    parts.end()
    assert np.array_equal(model_weights(whole), model_weights(parts))
    often, _ = run_through(rows, schedule, losses.logistic)
    often.end()
    for one, other in zip(whole.parts, often.parts, strict=True):
        assert np.array_equal(one.state.vectors, other.state.vectors)
    first, second = model_weights(whole), model_weights(often)
    assert np.abs(first - second).max() < 0.25 * np.abs(second).max()


def test_kept_and_restored_it_goes_on_as_if_nothing_had_happened() -> None:
    rows = some_rows(400, 6, 5)
    schedule = Schedule.daily(3)
    whole, answers = run_through(rows, schedule, losses.logistic, delay=HOUR)
    first, before = run_through(rows[:217], schedule, losses.logistic, delay=HOUR)
    second = Portfolio(candidate_set_of(calendar_of(schedule)), losses.logistic, rows.width, delay=HOUR)
    second.restore(first.arrays())
    assert rows.when is not None
    assert rows.labels is not None
    left = slice(217, 400)
    target = targets(rows.labels[left].astype(float), losses.logistic)
    after = list(second.add(rows[left], rows.when[left], rows.when[left], target))
    assert np.array_equal(joined(before + after, "forward_auto"), joined(answers, "forward_auto"))
    assert np.array_equal(model_weights(second), model_weights(whole))


def test_models_are_used_for_the_horizon_and_at_first_for_less() -> None:
    day = np.arange(100, 400)
    assert (freeze_units(day, 100, 1) == day).all()
    for horizon in (2, 7, 30):
        frozen = freeze_units(day, 100, horizon)
        age = day - frozen
        assert (np.diff(frozen) >= 0).all()
        assert age.min() == 0
        assert age.max() == horizon - 1
        assert (age <= np.maximum((frozen - 100) // 3, 1)).all()
        # A late row may be of a day before the first.
        assert freeze_units(np.array([90]), 100, horizon).tolist() == [90]


def test_on_the_first_day_models_are_used_for_hours_if_the_horizon_is_longer() -> None:
    wall = 100 * DAY + np.arange(0, 72 * HOUR, HOUR // 4)
    assert (freeze_walls(wall, 100, 1) == wall // DAY * DAY).all()
    frozen = freeze_walls(wall, 100, 7)
    hours = np.unique((frozen - 100 * DAY) // HOUR).tolist()
    assert hours == [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 24, 48]
    assert (frozen <= wall).all()


# ------------------------------------------------------------------------------------ the calendar


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule.daily(6, zone="America/New_York"),
        Schedule.daily(48),
        UNEVEN,
        Schedule.weekly(7, zone="Asia/Kolkata"),
        Schedule.weekly(edges=["Mon 06:30", "Sat 08:00"]),
    ],
)
def test_finest_blocks_are_hours_of_the_week_within_blocks(schedule: Schedule) -> None:
    calendar = calendar_of(schedule)
    ticks = np.random.default_rng(0).integers(START, START + 400 * DAY, 5000)
    fine = calendar.place(ticks)
    assert calendar.weekday is not None
    local = [datetime.fromtimestamp(each / 1e6, ZoneInfo(schedule.zone)) for each in ticks.tolist()]
    assert calendar.weekday[fine].tolist() == [each.weekday() for each in local]
    assert calendar.block[fine].tolist() == schedule.place(ticks).block.tolist()
    clock = np.array([each.hour + each.minute / 60 for each in local])
    hours = {int(time): set(clock[calendar.time[fine] == time].astype(int)) for time in set(calendar.time)}
    assert all(len(found) <= 1 for found in hours.values())
    assert (
        calendar.first_of(np.arange(schedule.blocks)) == np.unique(calendar.block, return_index=True)[1]
    ).all()


def test_a_calendar_takes_part_once_it_has_thirty_rows_per_block() -> None:
    """And from then on as if it had been as good as the mixture."""
    rows = some_rows(2000, 40, 4)
    portfolio, _ = run_through(rows[:100], Schedule.daily(6), losses.logistic)
    blocks = np.concatenate([part.candidate_set.blocks for part in portfolio.parts])
    assert {1, 6, 7, 24, 168} <= set(blocks.tolist())
    assert rows.labels is not None
    assert rows.when is not None
    for first, last in ((100, 600), (600, 1400)):
        taking_part = (blocks == 1) | (30 * blocks <= first)
        weights = weights_of(portfolio, "progressive")
        assert ((weights > 0) <= taking_part).all()
        assert (weights[:, taking_part] > 0).all()
        part = slice(first, last)
        target = targets(rows.labels[part].astype(float), losses.logistic)
        for _ in portfolio.add(rows[part], rows.when[part], rows.when[part], target):
            pass


def test_kinds_are_dropped_before_features_share_columns() -> None:
    whole = candidate_set_of(calendar_of(Schedule.daily(6)))
    sizes = []
    for features in (10, 1000, 4000, 8000, 16_000):
        kept, room = fit_to_memory(whole, 1, features, 10**8)
        sizes.append(kept.size)
        # Of the last there are too many for any candidates.
        assert room >= features + kept.marks or features == 16_000
    assert sizes[0] == whole.size
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 3
    assert fit_to_memory(whole, 3, 10, 1)[1] > whole.marks


# ------------------------------------------------------------------------------------- no leaks


@pytest.mark.parametrize(("delay", "grain"), [(0, 1), (0, HOUR), (2 * HOUR, 1), (2 * HOUR, HOUR), (DAY, DAY)])
def test_nothing_is_known_before_its_time(delay: int, grain: int) -> None:
    """Labels that are the same for all rows of an instant, and drawn anew for the next: nobody can tell them.

    A candidate that used the label of a row of the same instant, or before the delay, would be right.
    """
    rng = np.random.default_rng(7)
    count = 3000
    when = np.sort(rng.integers(0, 20 * DAY, count)) // grain * grain + START
    instant, index = np.unique(when // max(delay, 1) if delay else when, return_inverse=True)
    drawn = rng.random(len(instant)) < 0.5
    label = drawn[index]
    X = rng.normal(size=(count, 3))
    rows = Rows(X, label, when=when / 1e6)
    portfolio, answers = run_through(rows, Schedule.daily(6), losses.logistic, delay=delay)
    scored = slice(count // 3, None)
    clock = np.unique(when[scored])
    for name in ("progressive", "forward"):
        score = joined(answers, name)[scored, :, 0].astype(np.float64)
        own = np.logaddexp(0, -score * np.where(label[scored], 1, -1)[:, None])
        # Rows of an instant, or of a delay, are one draw: so many independent ones there are.
        draws = len(np.unique((when // max(delay, 1))[scored] if delay else clock))
        gain = np.log(2) - own.mean(axis=0)
        allowed = 4 * (own.std(axis=0).max() + 0.1) / np.sqrt(max(draws, 1))
        assert gain.max() < allowed, portfolio.names[int(gain.argmax())]


def test_with_labels_of_pure_chance_nobody_beats_the_constant() -> None:
    rng = np.random.default_rng(8)
    count = 6000
    when = np.sort(rng.integers(0, 30 * DAY, count)) + START
    rows = Rows(rng.normal(size=(count, 5)), rng.random(count) < 0.3, when=when / 1e6)
    for delay in (0, 6 * HOUR):
        portfolio, answers = run_through(rows, Schedule.daily(24), losses.logistic, delay=delay)
        y = np.where(np.asarray(rows.labels)[2000:], 1, -1)
        constant_loss = np.logaddexp(0, -np.log(0.3 / 0.7) * y)
        for name in ("progressive", "forward"):
            score = joined(answers, name)[2000:, :, 0].astype(np.float64)
            gap = constant_loss[:, None] - np.logaddexp(0, -score * y[:, None])
            error = gap.std(axis=0) / np.sqrt(len(y))
            assert (gap.mean(axis=0) < 4 * error + 1e-4).all(), portfolio.names[
                int(gap.mean(axis=0).argmax())
            ]
            mixed = np.logaddexp(0, -joined(answers, f"{name}_auto")[2000:, 0] * y)
            assert mixed.mean() < constant_loss.mean() + 0.02


def test_a_label_is_known_after_the_delay_and_not_at_that_instant() -> None:
    """With a delay of an hour, a row exactly an hour later does not know it, and one a second later does."""
    times = START + np.array([0, HOUR, HOUR + 1_000_000])
    rows = Rows(np.ones((3, 1)), np.array([True, False, True]), when=times / 1e6)
    _, answers = run_through(rows, Schedule.daily(1), losses.logistic, delay=HOUR)
    score = joined(answers, "progressive")[:, :, 0]
    assert (score[:2] == 0).all()
    assert (score[2] > 0).any()


NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("schedule", "kind", "delay"),
    [
        (UNEVEN, "two", 0),
        (UNEVEN, "number", 3 * HOUR),
        (Schedule.daily(48, zone=NEW_YORK), "two", 0),
        (Schedule.daily(6, zone=NEW_YORK), "number", 0),
        (Schedule.every(5400, 3), "two", 0),
        (Schedule.weekly(168, zone=NEW_YORK), "three", HOUR),
    ],
)
def test_a_label_changes_no_answer_before_it_is_known(schedule: Schedule, kind: str, delay: int) -> None:
    """Change one label, and look at what is answered differently: nothing that came, or was frozen, before.

    Over a night in which clocks are put back, with blocks that reach across midnight, and with outliers.
    """
    rng = np.random.default_rng(12)
    count = 240
    first = 1_699_056_000_000_000  # the fourth of November 2023
    when = np.sort(rng.integers(0, 3 * DAY, count)) // 60_000_000 * 60_000_000 + first
    X = rng.normal(size=(count, 2))
    label: Any = rng.random(count) < 0.5
    if kind != "two":
        label = rng.normal(size=count) if kind == "number" else rng.integers(0, 3, count)
    loss = loss_for(kind)
    portfolio, before = run_through(Rows(X, label, when=when / 1e6), schedule, loss, delay=delay)
    cycle, cell = schedule.place(when).cycle, portfolio.candidate_set.calendar.place(when)
    fresh = Portfolio(portfolio.candidate_set, loss, 2, delay=delay)
    frozen_at = fresh.freeze_times(when, cycle, cell, schedule.zone)
    for row in rng.integers(0, count, 12):
        other = label.copy()
        other[row] = 30.0 if kind == "number" else (not other[row] if kind == "two" else (other[row] + 1) % 3)
        _, after = run_through(Rows(X, other, when=when / 1e6), schedule, loss, delay=delay)
        for name, clock in (("progressive", when), ("forward", frozen_at)):
            for answers in (name, f"{name}_auto"):
                changed = (joined(before, answers) != joined(after, answers)).reshape(count, -1).any(axis=1)
                assert (clock[changed] > when[row] + delay).all(), (name, answers)


# ------------------------------------------------------------------------------- the mixture


def test_at_least_forty_candidates_whatever_the_schedule() -> None:
    for schedule in (
        Schedule.daily(1),
        Schedule.daily(6),
        Schedule.daily(24),
        Schedule.weekly(168),
        Schedule.weekly(7),
        Schedule.every(5400, 3),
        UNEVEN,
        3,
        1,
    ):
        form = candidate_set_of(calendar_of(schedule))
        assert form.size >= 40
        assert len(set(form.names)) == form.size
        names = {name for part in form.split(2) for name in part.names}
        assert names == set(form.names)


@pytest.mark.parametrize("schedule", [Schedule.weekly(168), Schedule.weekly(7), Schedule.every(5400, 3),
                                      UNEVEN])  # fmt: skip
def test_any_schedule_gives_a_model_that_answers_as_the_mixture_did(schedule: Schedule) -> None:
    rows = some_rows(600, 20, 11)
    portfolio, _ = run_through(rows[:500], schedule, losses.logistic)
    portfolio.end()
    model = sc.Pluralistic(model_weights(portfolio), portfolio.candidate_set.calendar.model, losses.logistic)
    assert np.isfinite(model.weights).all()
    later = rows[500:]
    assert rows.when is not None
    weights = weights_of(portfolio, portfolio.exported_protocol)
    assert np.allclose(weights.sum(axis=1), 1.0, atol=1e-4)
    (found,) = portfolio.add(later, rows.when[500:], rows.when[500:], np.ones(100))
    # At the first row nothing has been learned in between.
    calendar = portfolio.candidate_set.calendar
    slot = calendar.slot[calendar.place(rows.when[500:501])]
    scores = found.progressive[:1, :, 0]
    assert np.allclose(model.score(later[:1]), (scores * weights[slot]).sum(axis=1), atol=2e-3)


def test_the_design_effect_of_rows_that_share_a_loss_is_their_number() -> None:
    """Twenty rows a day: independent ones have a design effect of 1, equal ones of 20."""
    rng = np.random.default_rng(0)
    for shared, expected in ((False, 1.0), (True, 20.0)):
        unit, units = np.zeros((4, STRATEGIES)), np.zeros((8, STRATEGIES))
        assert design_effect(units) == FIRST_DESIGN_EFFECT
        for _ in range(2000):
            drawn = rng.normal(0.3, 1.0, (1 if shared else 20, STRATEGIES))
            for excess in np.broadcast_to(drawn, (20, STRATEGIES)):
                add_to_unit(unit, excess, 0.0, 1.0, 1.0)
            close_unit(unit, units)
        assert design_effect(units) == pytest.approx(expected, rel=0.08)
        assert not unit.any()


def test_the_choice_follows_a_late_winner() -> None:
    """First one model is right, then separate ones: within a few days the mixture has gone over."""
    rng = np.random.default_rng(3)
    count, days = 12_000, 40
    when = np.sort(rng.integers(0, days * DAY, count))
    X = rng.normal(size=(count, 5))
    w = 2.0 * np.ones(5) / np.sqrt(5)
    night = (when % DAY) // HOUR < 12
    flipped = night & (when > days // 2 * DAY)
    label = rng.random(count) < 1 / (1 + np.exp(-(X @ w) * np.where(flipped, -1, 1)))
    rows = Rows(X, label, when=(when + START) / 1e6)
    portfolio, answers = run_through(rows, Schedule.daily(2), losses.logistic)
    mixed = joined(answers, "progressive_auto")[:, 0]
    own = np.logaddexp(0, -mixed * np.where(label, 1, -1))
    late = when > 0.75 * days * DAY
    score = joined(answers, "progressive")[:, :, 0]
    every = np.logaddexp(0, -score[late] * np.where(label, 1, -1)[late, None]).mean(axis=0)
    assert own[late].mean() < 1.02 * every.min()
    whole = np.logaddexp(0, -score * np.where(label, 1, -1)[:, None]).mean(axis=0)
    assert own.mean() < 1.02 * whole.min()
    best = portfolio.names[int(every.argmin())]
    assert best.startswith(("separate", "residual"))


def test_features_that_find_no_room_share_columns() -> None:
    rng = np.random.default_rng(5)
    X = np.zeros((300, 60))
    X[np.arange(300), rng.integers(0, 60, 300)] = 1.0
    when = START + np.arange(300) * HOUR
    rows = Rows(X, rng.random(300) < 0.5, when=when / 1e6)
    portfolio, _ = run_through(rows, Schedule.daily(2), losses.logistic, max_columns=52)
    assert portfolio.parts[0].state.vectors.shape[1] <= 52
    weights = model_weights(portfolio)
    assert weights.shape[2] == 61
    held = [tuple(weights[:, 0, column]) for column in range(60)]
    assert len(set(held)) <= 52 - portfolio.candidate_set.marks - 1


def test_columns_are_shared_evenly() -> None:
    columns = ColumnMap(width=100, first=3, max_columns=23)
    columns.take_in(np.array([40, 41, 40, 42]))
    columns.take_in(np.arange(100))
    assert columns.column_of[[40, 41, 42]].tolist() == [3, 4, 5]
    assert columns.used == 23
    shared = np.bincount(columns.column_of, minlength=23)
    assert shared[:3].tolist() == [0, 0, 0]
    assert (shared[3:] >= 3).all()
    assert (shared[3:] <= 7).all()


def test_losses_of_long_ago_weigh_nothing() -> None:
    sums, none = np.zeros(2, np.float32), np.float32(0.0)
    one = np.float32(1.0)
    fade_and_add(sums, np.float32(0.9), one, np.array([5.0, 0.0], np.float32), none)
    assert sums[0] == 5.0
    for _ in range(200):
        fade_and_add(sums, np.float32(0.9), one, np.zeros(2, np.float32), none)
    assert sums[0] < 1e-6


def test_odd_labels_and_features_leave_finite_models() -> None:
    """Labels of a million, features of a thousand, rows without any."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(400, 3)) * [1.0, 1000.0, 1e-3]
    X[::7] = 0.0
    y = 1e6 * (rng.normal(size=400) + X[:, 0])
    when = START + np.arange(400) * HOUR
    portfolio, answers = run_through(Rows(X, y, when=when / 1e6), Schedule.daily(4), losses.squared)
    assert np.isfinite(joined(answers, "progressive_auto")).all()
    assert np.isfinite(model_weights(portfolio)).all()


def test_rows_of_no_weight_teach_nothing() -> None:
    rows = some_rows(200, 4, 9)
    weight = np.where(np.arange(200) % 3, 1.0, 0.0)
    assert rows.when is not None
    heavy = Rows(dense(rows), rows.labels, when=rows.when / 1e6, weight=weight)
    kept = Rows(
        dense(rows)[weight > 0], np.asarray(rows.labels)[weight > 0], when=rows.when[weight > 0] / 1e6
    )
    first, _ = run_through(heavy, Schedule.daily(3), losses.logistic)
    second, _ = run_through(kept, Schedule.daily(3), losses.logistic)
    for one, other in zip(first.parts, second.parts, strict=True):
        assert np.allclose(one.state.vectors, other.state.vectors, atol=1e-6)


def dense(rows: Rows) -> Any:
    X = np.zeros((len(rows), rows.width))
    X[np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), rows.indices] = rows.values
    return X


def test_one_candidate_that_is_not_finite_does_not_spoil_the_model() -> None:
    """A feature of 1e20 makes constant steps overflow; the others go on, and the model is theirs."""
    rows = some_rows(2000, 20, 13)
    X = dense(rows)
    X[700, 2] = 1e20
    assert rows.when is not None
    odd = Rows(X, rows.labels, when=rows.when / 1e6)
    portfolio, _ = run_through(odd, Schedule.daily(3), losses.logistic)
    portfolio.end()
    model = sc.Pluralistic(model_weights(portfolio), portfolio.candidate_set.calendar.model, losses.logistic)
    assert np.isfinite(model.weights).all()
    told = model.score(rows) > 0
    assert (told == np.asarray(rows.labels)).mean() > 0.7


def test_a_row_of_long_ago_does_not_spoil_the_model() -> None:
    """Used as it comes (--late keep), it counts as one of the latest cycle."""
    rows = some_rows(900, 10, 14)
    assert rows.when is not None
    ticks = rows.when.copy()
    ticks[400] = 1_000_000
    portfolio = Portfolio(candidate_set_of(calendar_of(Schedule.daily(3))), losses.logistic, 4)
    assert rows.labels is not None
    for _ in portfolio.add(rows, rows.when, ticks, targets(rows.labels.astype(float), losses.logistic)):
        pass
    portfolio.end()
    weights = model_weights(portfolio)
    assert (np.abs(weights).max(axis=(1, 2)) > 0.1).all()


def test_very_many_blocks_are_told_apart_in_groups() -> None:
    calendar = calendar_of(Schedule.daily(1440))
    assert calendar.size == 168
    form = candidate_set_of(calendar)
    assert form.column_bytes(1) < 1_000_000
    rows = some_rows(300, 4, 15)
    portfolio, _ = run_through(rows, Schedule.daily(1440), losses.logistic)
    assert model_weights(portfolio).shape == (1440, 1, 5)
    assert len(portfolio.protocols["forward"].mixing.block_losses) == 1440


# ------------------------------------------------------------------------- synthetic regimes


@pytest.mark.slow
@pytest.mark.parametrize("regime", regimes.NAMES + regimes.DEPENDENT)
def test_the_choice_is_about_as_good_as_the_best_fixed_candidate(regime: str) -> None:
    """Mean of ten seeds of the excess over the best possible prediction, after a warm-up of 30 %."""
    own, every = [], []
    for seed in range(10):
        stream = regimes.stream(regime, seed)
        rows = stream.rows
        _, answers = run_through(rows, Schedule.daily(24), losses.logistic)
        y = np.where(np.asarray(rows.labels), 1, -1)
        first = 3 * len(y) // 10
        bayes = np.logaddexp(0, -stream.score * y)[first:].mean()
        mixed = joined(answers, "progressive_auto")[first:, 0]
        own.append(np.logaddexp(0, -mixed * y[first:]).mean() - bayes)
        scores = joined(answers, "progressive")[first:, :, 0]
        every.append(np.logaddexp(0, -scores * y[first:, None]).mean(axis=0) - bayes)
    best = np.mean(every, axis=0).min()
    each = np.min(every, axis=1).mean()
    print(f"{regime}: {np.mean(own):.5f}, best fixed {best:.5f}, best of each seed {each:.5f}")
    # With one model for all the best candidate is as good as can be, and the search costs a few nats in all.
    assert np.mean(own) < (1.3 if regime == "none" else 1.15) * best


def test_a_huber_loss_with_a_huge_threshold_is_the_squared_loss() -> None:
    """To the bit: chains, losses and the weights of the mixture."""
    rows, schedule = some_rows(500, 6, 1, kind="number"), Schedule.daily(3)
    squared, huber = (run_through(rows, schedule, loss) for loss in (losses.squared, losses.huber(1e6)))
    np.testing.assert_array_equal(joined(huber[1], "progressive"), joined(squared[1], "progressive"))
    np.testing.assert_array_equal(
        joined(huber[1], "progressive_auto"), joined(squared[1], "progressive_auto")
    )
