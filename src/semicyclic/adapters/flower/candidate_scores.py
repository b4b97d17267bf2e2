"""Scores of candidate models per block, from the losses that clients report.

In every round some clients of the block evaluate a few candidates on rows of their own that they do not train
on. What is compared is the difference of each candidate's loss to that of one reference, on the same clients.
Candidates are frozen when a visit begins, so each is judged as it would have been deployed: before the visit.
Recent visits count more: the weight of a visit halves with every `HALF_LIFE` visits that follow it.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log, sqrt
from statistics import median
from typing import Any, NamedTuple

HALF_LIFE = 2.0
# A client counts for at most this many times the median number of examples; losses beyond this many median
# absolute deviations from the median are taken as if they were there.
MOST_WEIGHT, MOST_DEVIATIONS = 4.0, 4.0
# Fewer degrees of freedom tell nothing about a standard error.
FREEDOM = 2.0


class Candidate(NamedTuple):
    """A model that could be deployed: of which chain, read out how, and of which block.

    chain: "shared", "own" or "hedged". read_out: "mean", "tail", "last", or "all" for the mean of all rounds.
    """

    chain: str
    read_out: str
    block: int

    def __str__(self) -> str:
        return f"{self.chain}/{self.read_out}/{self.block}"

    @staticmethod
    def of(text: str) -> "Candidate":
        chain, read_out, block = text.split("/")
        return Candidate(chain, read_out, int(block))


class CandidateScore(NamedTuple):
    """How much worse a candidate is than the reference: mean difference of losses, and its standard error.

    rounds: in how many rounds it was measured, recent ones counting more. margin: by how many standard errors
    it must be better: a model of another block, or one for all blocks, needs more evidence than one of the
    block's own, and the more so the more of them there are.
    """

    candidate: Candidate
    difference: float
    error: float
    rounds: float
    margin: float

    @property
    def bound(self) -> float:
        """The difference, less favourably: by some standard errors."""
        return self.difference + self.margin * self.error


class CandidateScores:
    """Reported losses, by block and candidate.

    sums: for each block and candidate the weighted sums 1, weight, difference and difference squared.
    asked: how often each candidate was sent to clients. cycle: of each block's latest visit.
    """

    def __init__(self, blocks: int) -> None:
        self.sums: list[dict[str, list[float]]] = [{} for _ in range(blocks)]
        self.asked: list[dict[str, int]] = [{} for _ in range(blocks)]
        self.cycle: list[int | None] = [None] * blocks

    def visit(self, block: int, cycle: int) -> None:
        """A round of a block begins: what was measured in earlier visits counts less in a new one."""
        if self.cycle[block] not in (None, cycle):
            fade = 0.5 ** (1.0 / HALF_LIFE)
            for sums in self.sums[block].values():
                sums[:] = [sums[0] * fade, sums[1] * fade * fade, sums[2] * fade, sums[3] * fade]
        self.cycle[block] = cycle

    def next(self, block: int, groups: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """One candidate of each group to measure now: the one that was measured least often."""
        chosen = []
        for group in groups:
            if group:
                pick = min(group, key=lambda each: self.asked[block].get(str(each), 0))
                self.asked[block][str(pick)] = self.asked[block].get(str(pick), 0) + 1
                chosen.append(pick)
        return chosen

    def add(self, block: int, differences: Mapping[Candidate, float]) -> None:
        """The differences of losses to the reference's in one round."""
        for candidate, value in differences.items():
            sums = self.sums[block].setdefault(str(candidate), [0.0] * 4)
            sums[:] = [sums[0] + 1.0, sums[1] + 1.0, sums[2] + value, sums[3] + value * value]

    def scores(self, block: int) -> list[CandidateScore]:
        """All candidates measured, best first by `bound`."""
        # In order of names: sums of floats depend on their order, which a file does not keep.
        rows = [(Candidate.of(name), sums) for name, sums in sorted(self.sums[block].items())]
        spread, freedom = 0.0, 0.0
        for _, (weight, squares, total, square) in rows:
            spread += max(square - total * total / weight, 0.0)
            freedom += max(weight - squares / weight, 0.0)
        # One variance for all candidates: each alone is measured too seldom.
        variance = spread / freedom if freedom >= FREEDOM else inf
        others = sum(not _is_own(candidate, block) for candidate, _ in rows)
        found = []
        for candidate, (weight, squares, total, _) in rows:
            error = sqrt(variance * squares) / weight
            margin = 1.0 if _is_own(candidate, block) else 1.0 + sqrt(2.0 * log(1.0 + others))
            found.append(CandidateScore(candidate, total / weight, error, weight, margin))
        return sorted(found, key=lambda each: (each.bound, str(each.candidate)))

    def best(self, block: int, reference: Candidate) -> Candidate | None:
        """The candidate to deploy in a block; None if nothing was reported there."""
        scores = self.scores(block)
        if not scores:
            return None
        return scores[0].candidate if scores[0].bound < 0.0 else reference

    def foreign(self, block: int) -> CandidateScore | None:
        """The best model of another block, if it is better here than the block's own mean."""
        for each in self.scores(block):
            if each.bound >= 0.0:
                return None
            if each.candidate.block != block and each.candidate.read_out != "all":
                return each
        return None

    def to_json(self) -> dict[str, Any]:
        return {"sums": self.sums, "asked": self.asked, "cycle": self.cycle}

    def restore(self, held: Mapping[str, Any]) -> None:
        """What `to_json` has given."""
        self.sums, self.asked, self.cycle = held["sums"], held["asked"], held["cycle"]


def _is_own(candidate: Candidate, block: int) -> bool:
    """Whether it is a model of the block itself."""
    return candidate.block == block and candidate.read_out != "all"


def mean_losses(
    reports: Iterable[tuple[int, str, float, float]], wanted: Sequence[str]
) -> dict[str, float] | None:
    """The mean loss of each model over the clients that have reported all of them; None if there are none.

    No client decides alone: counts of examples and losses far from the others' are cut.
    reports: (client, model, loss, number of examples).
    """
    by_client: dict[int, dict[str, tuple[float, float]]] = {}
    for client, name, loss, examples in reports:
        by_client.setdefault(client, {})[name] = (loss, examples)
    complete = [each for each in by_client.values() if all(name in each for name in wanted)]
    if not complete:
        return None
    counts = [each[wanted[0]][1] for each in complete]
    weights = [min(count, MOST_WEIGHT * median(counts)) for count in counts]
    return {name: _mean([each[name][0] for each in complete], weights) for name in wanted}


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted mean, values far from the median cut."""
    middle = median(values)
    reach = MOST_DEVIATIONS * median([abs(value - middle) for value in values])
    cut = [min(max(value, middle - reach), middle + reach) for value in values]
    return sum(weight * value for weight, value in zip(weights, cut, strict=True)) / sum(weights)
