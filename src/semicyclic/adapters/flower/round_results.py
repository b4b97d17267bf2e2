"""Results of rounds, and the counts and metrics of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from semicyclic.adapters.flower.chains import ChainModel


@dataclass
class Round:
    """Record of one round.

    number: number of the round. tick: number of clock reads so far, including rounds without participants,
        which are repeated under the same number.
    instant: time of the round in microseconds since the epoch, in `block` of `cycle`.
    nodes: selected nodes. asked: number of nodes that were sent a message. came: number that replied;
        failed: number that replied with an error only.
    replied: nodes whose replies were used. used: their number. rejected: rejected replies, by reason.
    moved: chains that made a step. in_force: each chain's model before the round.
    note: why the round made no step, if known. metrics: metrics by part, such as "train".
    losses: mean losses of candidates for `best`, as reported by clients.
    began: whether the round opened a visit. closed: (kind, block) of means that changed when a visit ended.
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
        """True if at least one node replied, if only with an error."""
        return self.came + self.failed > 0

    def to_json(self) -> dict[str, Any]:
        """Return the round as JSON values; equal runs return equal values."""
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
        row = {name: getattr(self, name) for name in names} | self.metrics
        row |= {"losses": self.losses} if self.losses else {}
        return row | ({"note": self.note} if self.note else {})


@dataclass(repr=False)
class BlockResult(Result):
    """Flower's `Result` with metrics by block.

    Attributes
    ----------
    by_block : dict from int to dict
        For each block, the metrics of its latest visit, averaged over the rounds of the visit: "train" and
        "evaluate" as aggregated by the inner strategy, and "losses" of candidates.
    evaluate_metrics_models : dict from int to MetricRecord
        Return values of `evaluate_models`, by round.
    """

    by_block: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)
    evaluate_metrics_models: dict[int, MetricRecord] = field(default_factory=dict)
    _visits: dict[int, tuple[int, list[dict[str, dict[str, float]]]]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add the metrics of a round.

        Parameters
        ----------
        row : mapping
            Output of `Round.to_json`.
        """
        number, block, cycle = row["number"], row["block"], row["cycle"]
        for name, by_round in (
            ("train", self.train_metrics_clientapp),
            ("evaluate", self.evaluate_metrics_clientapp),
            ("server", self.evaluate_metrics_serverapp),
            ("models", self.evaluate_metrics_models),
        ):
            if name in row:
                by_round[number] = MetricRecord(row[name])
        parts = {name: row[name] for name in ("train", "evaluate", "losses") if name in row}
        if not parts:
            return
        before = self._visits.get(block)
        rounds = [*(before[1] if before and before[0] == cycle else []), parts]
        self._visits[block] = (cycle, rounds)
        self.by_block[block] = {
            name: _means([metrics[name] for metrics in rounds if name in metrics])
            for name in ("train", "evaluate", "losses")
            if any(name in metrics for metrics in rounds)
        }


def _means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean of each numeric metric over the rows that have it."""
    by_name: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float):
                by_name.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in by_name.items()}


def tally(total: dict[str, Any], this: Round) -> None:
    """Add the counts of a round to the totals of the run, in place."""
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
    """Return the number of rounds and replies of a run by outcome.

    rounds_without_a_step: rounds that did not change the model. rounds_without_participants: repeated, and
    not in `rounds`. no_reply: nodes that did not reply, or not before the round had enough replies.
    failed: nodes that replied with an error. rejected: rejected replies by reason, including those to
    evaluation.
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
