"""The complete experiment: repetitions, step sizes, granularity and their summary."""

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import numpy as np

from semicyclic.datasets.sentiment140 import Tweets
from semicyclic.experiments.reproduce import protocol, summary
from semicyclic.experiments.reproduce.approaches import APPROACHES, MEASURES, Grades, StepSizes
from semicyclic.experiments.reproduce.block_feature import with_indicators
from semicyclic.experiments.reproduce.granularity import GRANULARITY_APPROACHES, granularity
from semicyclic.experiments.reproduce.protocol import SKEWS
from semicyclic.experiments.reproduce.repetition import PAPER, Experiment, Timings, generators, repetition
from semicyclic.experiments.reproduce.text_vs_script import choices
from semicyclic.method.rows import Rows, SparseRows
from semicyclic.types import Array
from semicyclic.version import __version__

# Upper limit on parallel repetitions: each holds four copies of the rows.
MAX_PARALLEL_REPETITIONS = 4


def run_experiment(
    tweets: Tweets, plan: Experiment, *, progress: Callable[[float, str], None] = lambda _, __: None
) -> dict[str, Any]:
    """Run the experiment and return its results as plain numbers, ready for JSON.

    The same seed gives the same results.

    progress: called with the completed share, 0 to 1, and the current task.
    """
    clock = Timings()
    corpus = SparseRows(tweets.start, tweets.words, tweets.counts, len(tweets.vocabulary))
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

    def repeat(seed: np.random.SeedSequence) -> list[Grades]:
        return repetition(rows, hour, plan, seed, clock, lambda: tick("training and testing"))

    progress(0.0, "training and testing (the first run compiles)")
    with ThreadPoolExecutor(min(plan.repetitions, os.cpu_count() or 1, MAX_PARALLEL_REPETITIONS)) as pool:
        repetitions = list(pool.map(repeat, seeds))
        best, scores = summary.best(repetitions, plan)
        chosen = StepSizes(
            plan.steps[best["pluralistic_average"]].single, plan.steps[best["per_component_average"]].separate
        )

        def measure_granularity(seed: np.random.SeedSequence) -> Array:
            accuracy = granularity(rows, tweets.second, plan, chosen, seed, clock)
            tick("cutting the day ever finer")
            return accuracy

        by_granularity = np.stack(list(pool.map(measure_granularity, seeds)))
    result: dict[str, Any] = {
        name: {key: summary.spread(values) for key, values in scores[name].items()} for name in MEASURES
    }
    result["step_sizes"] = {key: summary.step(plan, key, best[key]) for key in APPROACHES}
    result["repetitions"] = {
        name: {key: values.tolist() for key, values in scores[name].items()} for name in MEASURES
    }
    result["differences"] = {name: summary.differences(scores[name]) for name in MEASURES}
    result["two_blocks"] = summary.two_blocks(repetitions, best["consensus"])
    result["matrices"] = summary.matrices(repetitions, best)
    result["labels"] = _labels(tweets.positive, base, plan, seeds[0])
    result["granularity"] = {
        "blocks": list(plan.granularity),
        "steps": by_granularity[:, :, len(GRANULARITY_APPROACHES)].mean(axis=0).round().astype(int).tolist(),
        "step_sizes": [chosen.single, chosen.separate],
        **{key: summary.spread(by_granularity[:, :, k]) for k, key in enumerate(GRANULARITY_APPROACHES)},
    }
    result["prod"] = {
        "radius": plan.radius,
        "rate_of_theorem_4": all(by_step[0].has_theorems_rate for by_step in repetitions),
    }
    result["seconds"] = {"train": clock.train, "evaluate": clock.evaluate}
    return result


def describe(
    results: dict[str, Any], plan: Experiment, tweets: Tweets, *, protocol: str, file: str | None
) -> dict[str, Any]:
    """Return the results together with the data set, settings, names and versions that explain them.

    protocol: "text" or "script".
    file: name of the data file without its folder; None for the stand-in data.
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
        **results,
        "choices": choices(how, paper_steps=plan.steps == (PAPER,)),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of Python, semicyclic and the numerical libraries."""
    names = ("numpy", "numba", "llvmlite")
    return {
        "semicyclic": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def _labels(positive: Array, base: Array, plan: Experiment, seed: np.random.SeedSequence) -> dict[str, Any]:
    """Count the rows of each label in every block, before and after the skew."""
    m = plan.protocol.blocks
    everything = np.arange(len(positive))
    kept = protocol.apply_skew(plan.protocol, everything, positive, base, generators(seed)[-1])
    return {
        name: {
            side: np.bincount(base[rows][positive[rows] == sign], minlength=m).tolist()
            for side, sign in (("positive", True), ("negative", False))
        }
        for name, rows in (("raw", everything), ("skewed", kept))
    }
