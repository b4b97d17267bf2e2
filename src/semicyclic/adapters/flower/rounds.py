"""The rounds of a run, one after the other: what Flower's loop does, that can be stopped and go on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from logging import ERROR, INFO, WARNING
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from semicyclic.adapters.flower.memory import unkept
from semicyclic.adapters.flower.selection import gather

if TYPE_CHECKING:
    from semicyclic.adapters.flower.keeping import Keeper
    from semicyclic.adapters.flower.strategy import Pluralistic

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass
class Round:
    """What happened in a round.

    nodes: whom it chose; asked: to how many something was sent; came: how many replies; used: how many nodes
    were learnt from. rejected: replies that were not used, by reason. moved: the chains that made a step.
    """

    number: int
    cycle: int
    block: int
    instant: int
    nodes: list[int] = field(default_factory=list, repr=False)
    asked: int = 0
    came: int = 0
    failed: int = 0
    used: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    note: str = ""
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    closed: list[tuple[str, int]] = field(default_factory=list, repr=False)

    def told(self) -> dict[str, Any]:
        """A value for JSON; the same run tells the same."""
        names = (
            "number",
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
        return found | ({"note": self.note} if self.note else {})


class Hooks(NamedTuple):
    """What a loop is told beside its rounds."""

    train_config: ConfigRecord | None
    evaluate_config: ConfigRecord | None
    evaluate: Evaluate | None
    on_round: Callable[[Round], None] | None


def run_rounds(
    strategy: "Pluralistic",
    grid: Grid,
    initial: ArrayRecord,
    rounds: int,
    timeout: float,
    hooks: Hooks,
    checkpoint: str | PathLike[str] | None,
) -> Result:
    """All rounds that are left to do."""
    from semicyclic.adapters.flower.keeping import Keeper

    if rounds < 1:
        raise ValueError(f"num_rounds={rounds}: must be at least 1")
    if strategy.total:
        raise ValueError(
            "this strategy has run already, and has its averages: make a new one for another run"
        )
    strategy.learnt.begin(initial)
    if checkpoint is None:
        return _rounds(strategy, grid, initial, (0, rounds), timeout, hooks, None, Result())
    keeper, result = Keeper(Path(checkpoint)), Result()
    try:
        for name in unkept(next(iter(strategy.inside.values())).strategy):
            log(
                WARNING,
                "%s of the strategy inside cannot be kept: a run that goes on begins with a new one",
                name,
            )
        done = keeper.restore(strategy, result)
        return _rounds(strategy, grid, initial, (done, rounds), timeout, hooks, keeper, result)
    finally:
        keeper.close()


def _rounds(
    strategy: "Pluralistic",
    grid: Grid,
    initial: ArrayRecord,
    span: tuple[int, int],
    timeout: float,
    hooks: Hooks,
    keeper: "Keeper | None",
    result: Result,
) -> Result:
    done, rounds = span
    if done >= rounds:
        log(
            WARNING,
            "the folder holds a finished run of %d rounds: there is nothing to do. Raise num_rounds, or name "
            "another folder",
            done,
        )
    else:
        log(INFO, "Starting %s: rounds %d to %d", type(strategy).__name__, done + 1, rounds)
    strategy.summary()
    if hooks.evaluate is not None:
        _served(result, 0, hooks.evaluate(0, initial))
    for number in range(done + 1, rounds + 1):
        this = _one(strategy, grid, number, timeout, hooks, result)
        label = strategy.schedule.labels[this.block]
        log(INFO, "[ROUND %d/%d] block %s: %d asked, %d used", number, rounds, label, this.asked, this.used)
        tally(strategy.total, this)
        if keeper is not None:
            keeper.keep(strategy, this)
        if hooks.on_round is not None:
            hooks.on_round(this)
    result.arrays = strategy.main().record
    log(INFO, "Finished: %s", lost(strategy.total))
    if not strategy.total.get("moved"):
        log(
            ERROR,
            "no round has changed the model; the last one: %s",
            strategy.total.get("note") or "no replies",
        )
    return result


def _one(
    strategy: "Pluralistic", grid: Grid, number: int, timeout: float, hooks: Hooks, result: Result
) -> Round:
    """One round: train, then evaluate."""
    config = ConfigRecord(dict(hooks.train_config or {}))
    wanted, deadline = strategy.selection.wanted, min(timeout, strategy.selection.deadline or timeout)
    messages = strategy.configure_train(number, strategy.main().record, config, grid)
    this = strategy.this_round()
    replies = gather(grid, messages, wanted, deadline)
    came = {reply.metadata.src_node_id for reply in replies if not reply.has_error()}
    this.came = len(came)
    this.failed = len({reply.metadata.src_node_id for reply in replies if reply.has_error()} - came)
    _, metrics = strategy.aggregate_train(number, replies)
    if metrics is not None:
        result.train_metrics_clientapp[number] = metrics
        this.metrics["train"] = dict(metrics)
    config = ConfigRecord(dict(hooks.evaluate_config or {}))
    messages = strategy.configure_evaluate(number, strategy.main().record, config, grid)
    if messages:
        replies = gather(grid, messages, None, deadline)
        metrics = strategy.aggregate_evaluate(number, replies)
        if metrics is not None:
            result.evaluate_metrics_clientapp[number] = metrics
            this.metrics["evaluate"] = dict(metrics)
    if hooks.evaluate is not None:
        served = hooks.evaluate(number, strategy.main().record)
        _served(result, number, served)
        if served is not None:
            this.metrics["server"] = dict(served)
    return this


def _served(result: Result, number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        result.evaluate_metrics_serverapp[number] = metrics


def tally(total: dict[str, Any], this: Round) -> None:
    """Add a round to what is known of all."""
    for name in ("asked", "came", "failed", "used"):
        total[name] = total.get(name, 0) + getattr(this, name)
    total["rounds"] = total.get("rounds", 0) + 1
    by_block = total.setdefault("by_block", {})
    by_block[str(this.block)] = by_block.get(str(this.block), 0) + this.used
    total["moved"] = total.get("moved", 0) + bool(this.moved)
    total["note"] = this.note
    rejected = total.setdefault("rejected", {})
    for reason, count in this.rejected.items():
        rejected[reason] = rejected.get(reason, 0) + count


def lost(total: dict[str, Any]) -> dict[str, Any]:
    """What a run has lost, by a name for each way.

    Rounds without a step; nodes that were asked and whose reply did not come, or not before the round had
    enough of them; nodes that answered with a failure; replies that were not used, to evaluation included.
    """
    return {
        "rounds": total.get("rounds", 0),
        "rounds_without_a_step": total.get("rounds", 0) - total.get("moved", 0),
        "asked": total.get("asked", 0),
        "no_reply": total.get("asked", 0) - total.get("came", 0) - total.get("failed", 0),
        "failed": total.get("failed", 0),
        "used": total.get("used", 0),
        "rejected": dict(total.get("rejected", {})),
    }
