"""Scores of candidate models per block, from the losses that clients report.

In every round some clients of the block evaluate a few candidates on their held-out rows, which they do not
train on. A score is the difference between the loss of a candidate and the loss of one reference model on the
same clients. Candidates are frozen when a visit begins, so each is evaluated as it would have been deployed:
before the visit. Recent visits count more: the weight of a visit halves every `HALF_LIFE_VISITS` visits.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log, sqrt
from statistics import median
from typing import Any, NamedTuple

HALF_LIFE_VISITS = 2.0
# The weight of a client is capped at this multiple of the median number of examples.
MAX_MEDIAN_WEIGHTS = 4.0
# Losses are clipped to this many median absolute deviations from the median.
MAX_MEDIAN_DEVIATIONS = 4.0
# Minimum degrees of freedom for a standard error; with fewer it is infinite.
MIN_DEGREES_OF_FREEDOM = 2.0


class Candidate(NamedTuple):
    """Identifier of a model that could be deployed.

    chain: "shared", "own" or "hedged". read_out: "mean", "tail", "last", or "all" for the mean of all rounds.
    block: the block whose model it is; 0 for "all".
    """

    chain: str
    read_out: str
    block: int

    def __str__(self) -> str:
        return f"{self.chain}/{self.read_out}/{self.block}"

    @staticmethod
    def of(text: str) -> "Candidate":
        """Parse the output of `str`: "chain/read_out/block"."""
        chain, read_out, block = text.split("/")
        return Candidate(chain, read_out, int(block))


class CandidateScore(NamedTuple):
    """Mean loss of a candidate minus that of the reference, and its standard error.

    rounds: weighted number of rounds in which it was measured; recent rounds count more.
    margin: number of standard errors by which it must be better. A model of another block or of all blocks
        needs more evidence than a model of the block itself, increasing with the number of such models.
    """

    candidate: Candidate
    difference: float
    error: float
    rounds: float
    margin: float

    @property
    def bound(self) -> float:
        """Upper confidence bound of the difference: `margin` standard errors above it."""
        return self.difference + self.margin * self.error


class CandidateScores:
    """Reported losses, by block and candidate.

    sums: for each block and candidate, sums over rounds of: weight, weight squared, weight times difference,
        weight times difference squared.
    asked: per block, how often each candidate was sent to clients.
    cycle: per block, the cycle of its latest visit.
    """

    def __init__(self, blocks: int) -> None:
        self.sums: list[dict[str, list[float]]] = [{} for _ in range(blocks)]
        self.asked: list[dict[str, int]] = [{} for _ in range(blocks)]
        self.cycle: list[int | None] = [None] * blocks

    def visit(self, block: int, cycle: int) -> None:
        """Start a round of a block; if it opens a new visit, reduce the weight of earlier visits."""
        if self.cycle[block] not in (None, cycle):
            fade = 0.5 ** (1.0 / HALF_LIFE_VISITS)
            for sums in self.sums[block].values():
                sums[:] = [sums[0] * fade, sums[1] * fade * fade, sums[2] * fade, sums[3] * fade]
        self.cycle[block] = cycle

    def next(self, block: int, groups: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """Return one candidate per group to measure next: the one that was sent least often."""
        chosen = []
        for group in groups:
            if group:
                pick = min(group, key=lambda candidate: self.asked[block].get(str(candidate), 0))
                self.asked[block][str(pick)] = self.asked[block].get(str(pick), 0) + 1
                chosen.append(pick)
        return chosen

    def add(self, block: int, differences: Mapping[Candidate, float]) -> None:
        """Add the loss differences of one round: loss of each candidate minus loss of the reference."""
        for candidate, value in differences.items():
            sums = self.sums[block].setdefault(str(candidate), [0.0] * 4)
            sums[:] = [sums[0] + 1.0, sums[1] + 1.0, sums[2] + value, sums[3] + value * value]

    def scores(self, block: int) -> list[CandidateScore]:
        """Return the scores of all measured candidates, sorted by `bound`, best first."""
        # Sort by name: float sums depend on the order, and a checkpoint does not preserve it.
        rows = [(Candidate.of(name), sums) for name, sums in sorted(self.sums[block].items())]
        spread, freedom = 0.0, 0.0
        for _, (weight, squares, total, square) in rows:
            spread += max(square - total * total / weight, 0.0)
            freedom += max(weight - squares / weight, 0.0)
        # Pool the variance over all candidates: each one has too few measurements.
        variance = spread / freedom if freedom >= MIN_DEGREES_OF_FREEDOM else inf
        others = sum(not _is_own(candidate, block) for candidate, _ in rows)
        scores = []
        for candidate, (weight, squares, total, _) in rows:
            error = sqrt(variance * squares) / weight
            margin = 1.0 if _is_own(candidate, block) else 1.0 + sqrt(2.0 * log(1.0 + others))
            scores.append(CandidateScore(candidate, total / weight, error, weight, margin))
        return sorted(scores, key=lambda score: (score.bound, str(score.candidate)))

    def best(self, block: int, reference: Candidate) -> Candidate | None:
        """Return the candidate to deploy in a block; None if its clients have reported no losses."""
        scores = self.scores(block)
        if not scores:
            return None
        return scores[0].candidate if scores[0].bound < 0.0 else reference

    def foreign(self, block: int) -> CandidateScore | None:
        """Return the best score of another block's model if it beats the reference in this block."""
        for score in self.scores(block):
            if score.bound >= 0.0:
                return None
            if score.candidate.block != block and score.candidate.read_out != "all":
                return score
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"sums": self.sums, "asked": self.asked, "cycle": self.cycle}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self.sums, self.asked, self.cycle = state["sums"], state["asked"], state["cycle"]


def _is_own(candidate: Candidate, block: int) -> bool:
    """Return whether a candidate is a model of `block` itself."""
    return candidate.block == block and candidate.read_out != "all"


def mean_losses(
    reports: Iterable[tuple[int, str, float, float]], wanted: Sequence[str]
) -> dict[str, float] | None:
    """Return the mean loss of each model in `wanted` over the clients that reported all of them.

    None if no client reported all. Weights and losses far from the median are clipped, so that no single
    client dominates. reports: (client, model, loss, number of examples).
    """
    by_client: dict[int, dict[str, tuple[float, float]]] = {}
    for client, name, loss, examples in reports:
        by_client.setdefault(client, {})[name] = (loss, examples)
    complete = [losses for losses in by_client.values() if all(name in losses for name in wanted)]
    if not complete:
        return None
    counts = [losses[wanted[0]][1] for losses in complete]
    weights = [min(count, MAX_MEDIAN_WEIGHTS * median(counts)) for count in counts]
    return {name: _clipped_mean([losses[name][0] for losses in complete], weights) for name in wanted}


def _clipped_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted mean of values clipped to a range around their median."""
    middle = median(values)
    reach = MAX_MEDIAN_DEVIATIONS * median([abs(value - middle) for value in values])
    clipped = [min(max(value, middle - reach), middle + reach) for value in values]
    return sum(weight * value for weight, value in zip(weights, clipped, strict=True)) / sum(weights)
