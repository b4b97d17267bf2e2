"""The paper's experiment, whole: repetitions, grid, granularity and what they sum up to."""

import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from semicyclic import __version__
from semicyclic.data.datasets import Corpus
from semicyclic.data.tweets import Tweets
from semicyclic.experiments import approaches, protocol
from semicyclic.experiments.approaches import APPROACHES, CLASSES, MEASURES, Data, Steps
from semicyclic.experiments.choices import choices
from semicyclic.experiments.indicators import with_indicators
from semicyclic.experiments.protocol import SKEWS, Protocol
from semicyclic.method import train
from semicyclic.method.evaluate import paired
from semicyclic.method.pack import Order, Packed, pack
from semicyclic.method.rows import Rows

Array = npt.NDArray[Any]

# The paper's learning rates; of the logistic loss each is half the step (SPEC H4).
LEARNING_RATES = (0.1, 0.215, 0.464, 1.0, 2.15)
PAPER = Steps(single=2 * 0.464, separate=2 * 1.0)
GRANULARITY = (1, 2, 6, 24, 144, 1440)
# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
# Repetitions run at once at most: each holds four copies of the rows.
SIDE_BY_SIDE = 4
# Numbers a set of matrices may have at most to be written.
LARGEST = 100_000
GRAINS = ("pluralistic_average", "per_component_average")
# Paired differences worth a line of their own: which, than which.
CONTRASTS = (
    ("pluralistic_average", "pluralistic"),
    ("pluralistic", "iid"),
    ("iid", "consensus"),
    ("pluralistic", "consensus"),
    ("pluralistic_average", "iid_average"),
    ("consensus_average", "iid_average"),
    ("consensus_average", "consensus"),
    ("pluralistic_average", "per_component_average"),
    ("pluralistic_tail", "pluralistic_average"),
    ("hedged_adahedge", "pluralistic_average"),
    ("hedged_prod", "pluralistic_average"),
    ("residual", "pluralistic_average"),
    ("hour_feature", "pluralistic_average"),
)


@dataclass(frozen=True)
class Experiment:
    """What is to be run.

    steps: the logistic step sizes tried; with several, each approach takes its best.
    radius: of the ball onto which Prod's pair of chains is projected.
    """

    protocol: Protocol
    steps: tuple[Steps, ...] = (PAPER,)
    repetitions: int = 10
    seed: int = 0
    radius: float = 10.0
    granularity: tuple[int, ...] = GRANULARITY

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ValueError(f"--repetitions {self.repetitions}: must be at least 1")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: must be 0 or more")
        if not (np.isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"--radius {self.radius}: must be a positive number")
        for each in self.steps:
            if not all(np.isfinite(size) and size > 0 for size in each):
                raise ValueError(f"--step-size {each.single:g}: must be a positive number")


@dataclass
class Clock:
    """Seconds spent, added up over repetitions that may run side by side."""

    train: float = 0.0
    evaluate: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def add(self, what: str, since: float) -> None:
        with self.lock:
            setattr(self, what, getattr(self, what) + time.perf_counter() - since)


def run_experiment(
    tweets: Tweets, plan: Experiment, *, progress: Callable[[float, str], None] = lambda _, __: None
) -> dict[str, Any]:
    """Run it. The result is plain numbers, ready for JSON; the same for the same seed."""
    clock = Clock()
    corpus = Corpus(tweets.start, tweets.words, tweets.counts, len(tweets.vocabulary))
    base = plan.protocol.block_of(tweets.second)
    rows = Rows(corpus, tweets.positive, block=base)
    began = time.perf_counter()
    hour = with_indicators(rows, plan.protocol.blocks)
    clock.add("train", began)
    seeds = np.random.SeedSequence(plan.seed).spawn(plan.repetitions)
    total = plan.repetitions * (len(plan.steps) + 1)
    done = 0

    def tick(what: str) -> None:
        nonlocal done
        done += 1
        progress(done / total, what)

    def repeat(seed: np.random.SeedSequence) -> list[Any]:
        return _repetition(rows, hour, plan, seed, clock, lambda: tick("training and testing"))

    progress(0.0, "training and testing (the first run compiles)")
    with ThreadPoolExecutor(min(plan.repetitions, os.cpu_count() or 1, SIDE_BY_SIDE)) as pool:
        repetitions = list(pool.map(repeat, seeds))
        best, scores = _best(repetitions, plan)
        chosen = Steps(
            plan.steps[best["pluralistic_average"]].single, plan.steps[best["per_component_average"]].separate
        )

        def grains(seed: np.random.SeedSequence) -> Array:
            found = _granularity(rows, tweets.second, plan, chosen, seed, clock)
            tick("cutting the day ever finer")
            return found

        by_grain = np.stack(list(pool.map(grains, seeds)))
    result: dict[str, Any] = {
        name: {key: _spread(values) for key, values in scores[name].items()} for name in MEASURES
    }
    result["step_sizes"] = {key: _step(plan, key, best[key]) for key in APPROACHES}
    result["repetitions"] = {
        name: {key: values.tolist() for key, values in scores[name].items()} for name in MEASURES
    }
    result["differences"] = {name: _differences(scores[name]) for name in MEASURES}
    result["two_blocks"] = _two_blocks(repetitions, best["consensus"])
    result["matrices"] = _matrices(repetitions, best)
    result["labels"] = _labels(tweets.positive, base, plan, seeds[0])
    result["granularity"] = {
        "blocks": list(plan.granularity),
        "steps": by_grain[:, :, len(GRAINS)].mean(axis=0).round().astype(int).tolist(),
        "step_sizes": [chosen.single, chosen.separate],
        **{key: _spread(by_grain[:, :, k]) for k, key in enumerate(GRAINS)},
    }
    result["prod"] = {"radius": plan.radius, "rate_of_theorem_4": all(each[0][2] for each in repetitions)}
    result["seconds"] = {"train": clock.train, "evaluate": clock.evaluate}
    return result


def described(
    found: dict[str, Any], plan: Experiment, tweets: Tweets, *, protocol: str, file: str | None
) -> dict[str, Any]:
    """A result with all that is needed to read it: what it is of, and how it came about.

    file: the name of the file, without its folder; None for the stand-in.
    """
    how = plan.protocol
    return {
        "experiment": "Semi-Cyclic SGD (ICML 2019), Section 7",
        "data": {
            "name": "stand-in for Sentiment140, made by semicyclic" if file is None else file,
            "stand_in": file is None,
            "rows": len(tweets),
            "positive": int(tweets.positive.sum()),
        },
        "settings": {
            "protocol": protocol,
            "blocks": how.blocks,
            "block_labels": [how.label(block) for block in range(how.blocks)],
            "cycles": how.cycles,
            "vocabulary": len(tweets.vocabulary),
            "batch_size": how.batch_size,
            "skew": SKEWS[how.skew],
            "passes": how.passes,
            "step_sizes": [list(steps) for steps in plan.steps],
            "radius": plan.radius,
            "repetitions": plan.repetitions,
            "seed": plan.seed,
        },
        "approaches": dict(APPROACHES),
        **found,
        "choices": choices(how, paper_steps=plan.steps == (PAPER,)),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What computed the result."""
    names = ("numpy", "numba", "llvmlite")
    return {
        "semicyclic": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def _generators(seed: np.random.SeedSequence) -> list[np.random.Generator]:
    """Split, skew of train and test, order, shuffle, unskewed order, start, grains: each its own."""
    return [
        np.random.default_rng(child)
        for child in np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key).spawn(8)
    ]


def _repetition(
    rows: Rows,
    hour: Rows,
    plan: Experiment,
    seed: np.random.SeedSequence,
    clock: Clock,
    tick: Callable[[], None],
) -> list[Any]:
    """For every step size: the scores by measure and approach, and the matrices."""
    began = time.perf_counter()
    split_rng, skew_rng, test_rng, order_rng, mixed_rng, ideal_rng, start_rng, _ = _generators(seed)
    how, labels, base = plan.protocol, rows.labels, _narrow(rows)
    assert labels is not None
    parts = protocol.split(len(rows), split_rng)
    kept = protocol.skewed(how, parts.train, labels, base, skew_rng)
    order = protocol.cyclic(how, kept, base, len(parts.train), order_rng)
    tested = protocol.skewed(how, parts.test, labels, base, test_rng)
    test = _tested(rows, *protocol.tests(how, tested, base))
    unskewed_test = _tested(rows, *protocol.dealt(how, parts.test))
    data = Data(
        _packed(rows, how, order),
        _packed(rows, how, protocol.mixed(order, mixed_rng)),
        _packed(rows, how, protocol.unskewed(how, parts.train, ideal_rng)),
        _packed(hour, how, order),
        test,
        unskewed_test,
    )
    start = approaches.starts(how, rows.width, start_rng)
    clock.add("train", began)
    found = []
    for steps in plan.steps:
        began = time.perf_counter()
        bank = approaches.fit(data, how, start, steps, plan.radius)
        clock.add("train", began)
        began = time.perf_counter()
        found.append(
            (*approaches.grade(bank, data, how), approaches.has_theorems_rate(data.cyclic, plan.radius))
        )
        clock.add("evaluate", began)
        tick()
    return found


def _narrow(rows: Rows) -> Array:
    """The blocks of rows in small integers, which are sorted faster."""
    assert rows.block is not None
    return rows.block.astype(np.uint16) if rows.block.max() < 2**16 else rows.block


def _packed(rows: Rows, how: Protocol, order: Order, blocks: int | None = None) -> Packed:
    """Rows in an order, ready to be learnt from."""
    count = how.blocks if blocks is None else blocks
    return pack(rows, count, loss=how.loss, batch_size=how.batch_size, classes=CLASSES, order=order)


def _tested(rows: Rows, chosen: Array, block: Array) -> Rows:
    return rows[chosen].placed(block)


def _best(repetitions: list[Any], plan: Experiment) -> tuple[dict[str, int], dict[str, dict[str, Array]]]:
    """Each approach's best step, by its mean accuracy on the last day; and its scores [R, K] at it."""
    best = {}
    scores: dict[str, dict[str, Array]] = {name: {} for name in MEASURES}
    for key in APPROACHES:
        last = [
            np.mean([found[k][0]["accuracy"][key][-1] for found in repetitions])
            for k in range(len(plan.steps))
        ]
        best[key] = int(np.argmax(last))
        for name in MEASURES:
            scores[name][key] = np.stack([found[best[key]][0][name][key] for found in repetitions])
    return best, scores


def _step(plan: Experiment, approach: str, index: int) -> list[float]:
    """The logistic steps an approach used: of the single chain, of a block's own, or both."""
    steps = plan.steps[index]
    if approach.startswith("per_component"):
        return [steps.separate]
    return [steps.single, steps.separate] if approach.startswith("hedged") else [steps.single]


def _spread(values: Array) -> dict[str, list[float]]:
    """Mean and standard deviation over repetitions; of a single one, 0."""
    std = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])
    return {"mean": values.mean(axis=0).tolist(), "std": std.tolist()}


def _differences(scores: dict[str, Array]) -> list[dict[str, Any]]:
    """Paired differences on the last day, and whether they stand out; a single repetition has no error."""
    out: list[dict[str, Any]] = []
    for one, other in CONTRASTS:
        first, second = scores[one][:, -1], scores[other][:, -1]
        if len(first) > 1:
            gap = paired(first, second)
            clear = abs(gap.mean) > beyond(len(first)) * gap.error
            told: dict[str, Any] = {"mean": gap.mean, "standard_error": gap.error, "clear": bool(clear)}
        else:
            told = {"mean": float(first[0] - second[0]), "standard_error": None, "clear": False}
        out.append({"of": one, "over": other, **told})
    return out


def beyond(repetitions: int) -> float:
    """Standard errors that a difference must exceed to stand out: Student's t, 95 %, never below 2."""
    return max(T_95[min(repetitions - 2, len(T_95) - 1)], 2.0)


def _two_blocks(repetitions: list[Any], best: int) -> dict[str, Any]:
    """The single chain after every block of every day, on the midnight and on the noon block."""
    table = np.stack([found[best][1]["consensus"] for found in repetitions])
    m = table.shape[-1]
    flat = table.reshape(len(table), -1, m)
    return {"midnight": _spread(flat[:, :, 0]), "noon": _spread(flat[:, :, m // 2])}


def _matrices(repetitions: list[Any], best: dict[str, int]) -> dict[str, Any]:
    """Accuracy of every model on every block, mean over repetitions, on the last day.

    Of the single chain, whose mean is the consensus and whose diagonal the pluralistic score, on
    every day as well. Left out where they would be too large to be read.
    """
    first = repetitions[0][0][1]
    m = first["consensus"].shape[-1]
    if m * m > LARGEST:
        return {}
    out: dict[str, Any] = {}
    for key in (
        "consensus",
        "iid",
        "iid_unskewed",
        "per_component",
        "per_component_average",
        "pluralistic_average",
    ):
        table = np.stack([found[best[key]][1][key] for found in repetitions]).mean(axis=0)
        name = "single_chain" if key == "consensus" else key
        out[name] = table[-1].tolist()
        if key == "consensus" and table.size <= LARGEST:
            out["single_chain_by_day"] = table.tolist()
    return out


def _labels(positive: Array, base: Array, plan: Experiment, seed: np.random.SeedSequence) -> dict[str, Any]:
    """How many rows of each label every block has: all of them, and those the skew keeps."""
    m = plan.protocol.blocks
    everything = np.arange(len(positive))
    kept = protocol.skewed(plan.protocol, everything, positive, base, _generators(seed)[-1])
    return {
        name: {
            side: np.bincount(base[rows][positive[rows] == sign], minlength=m).tolist()
            for side, sign in (("positive", True), ("negative", False))
        }
        for name, rows in (("raw", everything), ("skewed", kept))
    }


def _granularity(
    rows: Rows,
    second: Array,
    plan: Experiment,
    steps: Steps,
    seed: np.random.SeedSequence,
    clock: Clock,
) -> Array:
    """[grains, approaches + 1] accuracy when the same skewed data are cut into ever more blocks.

    Scores are means over the experiment's own blocks, so that they can be compared. Every row is
    used: a block's rows are spread evenly over the days, however few they are, and with several
    passes once in each. A block without any is joined to the one before it. The last column is the
    number of steps, which grows with m: a minibatch ends with its block.
    """
    split_rng, skew_rng, test_rng, *_, grain_rng = _generators(seed)
    how, labels, base = plan.protocol, rows.labels, _narrow(rows)
    assert labels is not None
    began = time.perf_counter()
    parts = protocol.split(len(rows), split_rng)
    kept = protocol.skewed(how, parts.train, labels, base, skew_rng)
    tested = protocol.skewed(how, parts.test, labels, base, test_rng)
    passes = [kept, *(grain_rng.permutation(kept) for _ in range(how.passes - 1))]
    learnt = np.concatenate(passes)
    out = np.empty((len(plan.granularity), len(GRAINS) + 1))
    test, component = rows[tested], base[tested]
    count = np.bincount(component, minlength=how.blocks)
    for g, blocks in enumerate(plan.granularity):
        fine, used = _cut(second, kept, blocks)
        order = _evenly(learnt, fine[learnt], how.cycles, used)
        packed = _packed(rows, how, order, used)
        here = test.placed(fine[tested].astype(np.int64))
        start = approaches.starts(replace(how, blocks=used), rows.width, grain_rng)
        runs = (
            train.pluralistic(packed, step_size=steps.single * how.scale, start=start.one),
            train.separate(packed, step_size=steps.separate * how.scale, start=start.each),
        )
        out[g, -1] = packed.steps.sum()
        clock.add("train", began)
        began = time.perf_counter()
        for a, run in enumerate(runs):
            hits = run.mean().classify(here) == here.labels
            out[g, a] = np.mean(np.bincount(component, hits, how.blocks)[count > 0] / count[count > 0])
        clock.add("evaluate", began)
        began = time.perf_counter()
    return out


def _cut(second: Array, kept: Array, blocks: int) -> tuple[Array, int]:
    """The block of every row when the day has so many, those without rows left out; and their number."""
    fine = (second * np.int64(blocks) // protocol.DAY).astype(np.uint32)
    seen = np.bincount(fine[kept], minlength=blocks) > 0
    number = np.maximum(np.cumsum(seen) - 1, 0).astype(np.uint16 if blocks <= 2**16 else np.uint32)
    if not seen[0]:
        number[: int(seen.argmax())] = seen.sum() - 1
    return number[fine], int(seen.sum())


def _evenly(rows: Array, block: Array, cycles: int, blocks: int) -> Order:
    """All rows of every block, spread evenly over the days."""
    size = np.bincount(block, minlength=blocks)
    order = np.argsort(block, kind="stable")
    cycle = (np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)) * cycles // np.repeat(size, size)
    visit = cycle * blocks + np.repeat(np.arange(blocks), size)
    again = np.argsort(visit.astype(np.uint16) if cycles * blocks <= 2**16 else visit, kind="stable")
    cycle, block = np.divmod(visit[again], blocks)
    return Order(rows[order[again]], cycle, block)


def grid(sizes: Sequence[float]) -> tuple[Steps, ...]:
    """Logistic step sizes to be tried for every chain."""
    return tuple(Steps(size, size) for size in sizes)
