"""Evidence for the model to deploy in each block: losses of candidates, as clients report them.

In every round some clients of the block evaluate a few candidates on rows of their own that they do not train
on. What is compared is the difference of each candidate's loss to that of one reference, on the same clients.
Candidates are frozen when a visit begins, so each is judged as it would have been deployed: before the visit.
Recent visits count more: the weight of a visit halves with every `HALF_LIFE` visits that follow it.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

HALF_LIFE = 2.0
# By how many standard errors a candidate must be better than the reference: a model of another block, or one
# for all blocks, needs more evidence than one of the block's own.
MARGIN, FOREIGN_MARGIN = 1.0, 2.0


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


class Score(NamedTuple):
    """How much worse a candidate is than the reference: mean difference of losses, and its standard error.

    rounds: in how many rounds it was measured, recent ones counting more.
    """

    candidate: Candidate
    difference: float
    error: float
    rounds: float
    is_own: bool

    @property
    def bound(self) -> float:
        """The difference, less favourably: by some standard errors."""
        return self.difference + (MARGIN if self.is_own else FOREIGN_MARGIN) * self.error


class Evidence:
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

    def scores(self, block: int) -> list[Score]:
        """All candidates measured, best first by `bound`."""
        found = []
        spread, freedom = 0.0, 0.0
        for weight, squares, total, square in self.sums[block].values():
            spread += max(square - total * total / weight, 0.0)
            freedom += max(weight - squares / weight, 0.0)
        # One variance for all candidates: each alone is measured too seldom.
        variance = spread / freedom if freedom > 0.0 else 0.0
        for name, (weight, squares, total, _) in self.sums[block].items():
            error = sqrt(variance * squares) / weight
            candidate = Candidate.of(name)
            is_own = candidate.block == block and candidate.read_out != "all"
            found.append(Score(candidate, total / weight, error, weight, is_own))
        return sorted(found, key=lambda each: (each.bound, str(each.candidate)))

    def best(self, block: int, reference: Candidate) -> Candidate | None:
        """The candidate to deploy in a block; None if nothing was reported there."""
        scores = self.scores(block)
        if not scores:
            return None
        return scores[0].candidate if scores[0].bound < 0.0 else reference

    def foreign(self, block: int) -> Score | None:
        """The best model of another block, if it is better here than the block's own mean."""
        for each in self.scores(block):
            if each.bound >= 0.0:
                return None
            if not each.is_own and each.candidate.read_out != "all":
                return each
        return None

    def to_json(self) -> dict[str, Any]:
        return {"sums": self.sums, "asked": self.asked, "cycle": self.cycle}

    def restore(self, held: Mapping[str, Any]) -> None:
        """What `to_json` has given."""
        self.sums, self.asked, self.cycle = held["sums"], held["asked"], held["cycle"]


def mean_losses(
    reports: Iterable[tuple[int, str, float, float]], wanted: Sequence[str]
) -> dict[str, float] | None:
    """The mean loss of each model over the clients that have reported all of them; None if there are none.

    reports: (client, model, loss, number of examples).
    """
    told: dict[int, dict[str, tuple[float, float]]] = {}
    for client, name, loss, examples in reports:
        told.setdefault(client, {})[name] = (loss, examples)
    complete = [each for each in told.values() if all(name in each for name in wanted)]
    if not complete:
        return None
    total = sum(each[wanted[0]][1] for each in complete)
    return {name: sum(each[name][0] * each[wanted[0]][1] for each in complete) / total for name in wanted}
