"""Summary over repetitions: best step sizes, means, paired differences, matrices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from semicyclic.experiments.reproduce.approaches import APPROACHES, MEASURES, Grades
from semicyclic.experiments.reproduce.repetition import Experiment
from semicyclic.method.evaluate import paired_difference
from semicyclic.types import Array

# Larger matrices are left out of the results.
MAX_MATRIX_CELLS = 100_000
# Paired differences to report: (approach, reference).
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


# By repetition and step size.
AllGrades = Sequence[Sequence[Grades]]


def best(repetitions: AllGrades, plan: Experiment) -> tuple[dict[str, int], dict[str, dict[str, Array]]]:
    """Return the index of each approach's best step size and its scores [R, K] with it, by measure.

    The best step size has the highest mean accuracy on the last day.
    """
    best = {}
    scores: dict[str, dict[str, Array]] = {name: {} for name in MEASURES}
    for key in APPROACHES:
        last = [
            np.mean([by_step[k].scores["accuracy"][key][-1] for by_step in repetitions])
            for k in range(len(plan.steps))
        ]
        best[key] = int(np.argmax(last))
        for name in MEASURES:
            scores[name][key] = np.stack([by_step[best[key]].scores[name][key] for by_step in repetitions])
    return best, scores


def step(plan: Experiment, approach: str, index: int) -> list[float]:
    """Logistic step sizes that an approach used: of the single chain, of the separate chains, or both."""
    steps = plan.steps[index]
    if approach.startswith("per_component"):
        return [steps.separate]
    return [steps.single, steps.separate] if approach.startswith("hedged") else [steps.single]


def spread(values: Array) -> dict[str, list[float]]:
    """Mean and standard deviation over repetitions; the deviation is 0 for a single repetition."""
    std = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])
    return {"mean": values.mean(axis=0).tolist(), "std": std.tolist()}


def differences(scores: dict[str, Array]) -> list[dict[str, Any]]:
    """Paired differences on the last day, and whether they are significant.

    A single repetition has no standard error.
    """
    out: list[dict[str, Any]] = []
    for one, other in CONTRASTS:
        first, second = scores[one][:, -1], scores[other][:, -1]
        if len(first) > 1:
            gap = paired_difference(first, second)
            statistics: dict[str, Any] = {
                "mean": gap.mean,
                "standard_error": gap.error,
                "clear": gap.is_significant,
            }
        else:
            statistics = {"mean": float(first[0] - second[0]), "standard_error": None, "clear": False}
        out.append({"of": one, "over": other, **statistics})
    return out


def two_blocks(repetitions: AllGrades, best: int) -> dict[str, Any]:
    """Accuracy of the single chain after every block of every day, on the midnight and on the noon block."""
    table = np.stack([by_step[best].matrices["consensus"] for by_step in repetitions])
    m = table.shape[-1]
    flat = table.reshape(len(table), -1, m)
    return {"midnight": spread(flat[:, :, 0]), "noon": spread(flat[:, :, m // 2])}


def matrices(repetitions: AllGrades, best: dict[str, int]) -> dict[str, Any]:
    """Accuracy of every model on every block on the last day, mean over repetitions.

    The single chain has a matrix for every day as well: its mean is the consensus score, its diagonal
    the pluralistic score. Matrices that are too large to read are left out.
    """
    m = repetitions[0][0].matrices["consensus"].shape[-1]
    if m * m > MAX_MATRIX_CELLS:
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
        table = np.stack([by_step[best[key]].matrices[key] for by_step in repetitions]).mean(axis=0)
        name = "single_chain" if key == "consensus" else key
        out[name] = table[-1].tolist()
        if key == "consensus" and table.size <= MAX_MATRIX_CELLS:
            out["single_chain_by_day"] = table.tolist()
    return out
