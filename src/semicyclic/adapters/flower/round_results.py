"""Results of rounds: what happened in each, and counts and metrics of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from semicyclic.adapters.flower.chains import ChainModel

if TYPE_CHECKING:
    pass


@dataclass
class Round:
    """What happened in a round.

    tick: how often the clock had been asked by then. It also counts rounds without participants, which are
        repeated under the same number.
    nodes: whom it chose; replied: those whose replies were used, and used: how many. asked: to how many
        something was sent; came: how many replied.
    rejected: replies that were not used, by reason. moved: the chains that made a step.
    losses: of candidates for `best`, as clients have reported them. in_force: each chain's model before the
        round.
    began: whether a visit began with it. closed: the means that have changed as another visit ended.
    """

    number: int
    tick: int
    cycle: int
    block: int
    instant: int
    nodes: list[int] = field(default_factory=list, repr=False)
    replied: list[int] = field(default_factory=list, repr=False)
    asked: int = 0
    came: int = 0
    failed: int = 0
    used: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    note: str = ""
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    in_force: dict[str, ChainModel] = field(default_factory=dict, repr=False)
    began: bool = False
    closed: list[tuple[str, int]] = field(default_factory=list, repr=False)

    @property
    def counts(self) -> bool:
        """Whether anybody has answered."""
        return self.came + self.failed > 0

    def to_json(self) -> dict[str, Any]:
        """A value for JSON; the same run tells the same."""
        names = (
            "number",
            "tick",
            "cycle",
            "block",
            "instant",
            "asked",
            "came",
            "failed",
            "used",
            "rejected",
            "moved",
        )
        found = {name: getattr(self, name) for name in names} | self.metrics
        found |= {"losses": self.losses} if self.losses else {}
        return found | ({"note": self.note} if self.note else {})


@dataclass(repr=False)
class BlockResult(Result):
    """Flower's `Result`, and what was measured by block.

    by_block: for each block the metrics of its latest visit, each the mean over the rounds of the visit:
        "train" and "evaluate" as the inner strategy aggregates them, and "losses" of candidates.
    evaluate_metrics_models: what `evaluate_models` has returned, by round.
    """

    by_block: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)
    evaluate_metrics_models: dict[int, MetricRecord] = field(default_factory=dict)
    _visits: dict[int, tuple[int, list[dict[str, dict[str, float]]]]] = field(default_factory=dict)

    def add(self, told: Mapping[str, Any]) -> None:
        """Count a round, as `Round.told` has it."""
        number, block, cycle = told["number"], told["block"], told["cycle"]
        for name, place in (
            ("train", self.train_metrics_clientapp),
            ("evaluate", self.evaluate_metrics_clientapp),
            ("server", self.evaluate_metrics_serverapp),
            ("models", self.evaluate_metrics_models),
        ):
            if name in told:
                place[number] = MetricRecord(told[name])
        parts = {name: told[name] for name in ("train", "evaluate", "losses") if name in told}
        if not parts:
            return
        before = self._visits.get(block)
        rounds = [*(before[1] if before and before[0] == cycle else []), parts]
        self._visits[block] = (cycle, rounds)
        self.by_block[block] = {
            name: _means([each[name] for each in rounds if name in each])
            for name in ("train", "evaluate", "losses")
            if any(name in each for each in rounds)
        }


def _means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The mean of each number over the rows that have it."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float):
                found.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}


def tally(total: dict[str, Any], this: Round) -> None:
    """Add a round to what is known of all."""
    for name in ("asked", "came", "failed", "used"):
        total[name] = total.get(name, 0) + getattr(this, name)
    total["rounds"] = total.get("rounds", 0) + this.counts
    total["empty"] = total.get("empty", 0) + (not this.counts)
    by_block = total.setdefault("by_block", {})
    by_block[str(this.block)] = by_block.get(str(this.block), 0) + this.used
    total["moved"] = total.get("moved", 0) + bool(this.moved)
    total["note"] = this.note
    rejected = total.setdefault("rejected", {})
    for reason, count in this.rejected.items():
        rejected[reason] = rejected.get(reason, 0) + count


def reply_counts(total: dict[str, Any]) -> dict[str, Any]:
    """Rounds and replies of a run, counted by what became of them.

    Rounds without a step; rounds without participants, which are repeated and not counted; nodes that were
    asked and whose reply did not come, or not before the round had enough of them; nodes that answered
    with a failure; replies that were not used, to evaluation included.
    """
    return {
        "rounds": total.get("rounds", 0),
        "rounds_without_a_step": total.get("rounds", 0) - total.get("moved", 0),
        "rounds_without_participants": total.get("empty", 0),
        "asked": total.get("asked", 0),
        "no_reply": total.get("asked", 0) - total.get("came", 0) - total.get("failed", 0),
        "failed": total.get("failed", 0),
        "used": total.get("used", 0),
        "rejected": dict(total.get("rejected", {})),
    }
