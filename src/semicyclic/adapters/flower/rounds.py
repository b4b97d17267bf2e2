"""The round loop: Flower's loop, made resumable."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from logging import ERROR, INFO, WARNING
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.chains import ChainModel, Chains
from semicyclic.adapters.flower.client_selection import gather, is_simulated, rest
from semicyclic.adapters.flower.strategy_state import carries_state, classes, unkept

if TYPE_CHECKING:
    from semicyclic.adapters.flower.checkpoint import CheckpointDir
    from semicyclic.adapters.flower.strategy import PluralisticStrategy

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
EvaluateModels = Callable[[int, BlockModels], MetricRecord | None]
# Flower's codes for messages and nodes that are not there any more.
GONE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
# Cycles of the clock without a participant after which a run gives up.
PATIENCE = 8
# In-process grids: number of tries after which a run gives up if the clock has hardly moved.
STUCK = 50
# Tries of a round without participants that are checkpointed: the first SOME, then one in MANY.
SOME, MANY = 5, 100


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

    def told(self) -> dict[str, Any]:
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


class LoopOptions(NamedTuple):
    """What a loop is told beside its rounds."""

    train_config: ConfigRecord | None
    evaluate_config: ConfigRecord | None
    evaluate: Evaluate | None
    evaluate_models: EvaluateModels | None
    on_round: Callable[[Round], None] | None
    tensorboard: str | PathLike[str] | None


def run_rounds(
    strategy: "PluralisticStrategy",
    grid: Grid,
    initial: ArrayRecord,
    rounds: int,
    timeout: float,
    hooks: LoopOptions,
    checkpoint: str | PathLike[str] | None,
) -> BlockResult:
    """All rounds that are left to do."""
    from semicyclic.adapters.flower.checkpoint import CheckpointDir

    if rounds < 1:
        raise ValueError(f"num_rounds={rounds}: must be at least 1")
    if strategy.total:
        raise ValueError(
            "this strategy has run already, and has its averages: make a new one for another run"
        )
    strategy.learnt.begin(initial)
    strategy.driven = True
    _warn_of_state(strategy)
    board = _board(hooks.tensorboard)
    result = BlockResult()
    keeper = None if checkpoint is None else CheckpointDir(Path(checkpoint))
    try:
        done = 0
        if keeper is not None:
            for name in unkept(strategy.inner):
                log(
                    WARNING,
                    "%s of the strategy inside cannot be kept: a run that goes on begins with a new one",
                    name,
                )
            done = keeper.restore(strategy, result)
        loop = _Loop(strategy, grid, timeout, hooks, keeper, result, board)
        return loop.run(initial, done, rounds)
    finally:
        if keeper is not None:
            keeper.close()
        if board is not None:
            board.close()


def _warn_of_state(strategy: "PluralisticStrategy") -> None:
    """Theorem 3 is about plain steps: momentum carries the model of one block into the next."""
    if strategy.chains is not Chains.SHARED or not carries_state(strategy.inner):
        return
    log(
        WARNING,
        "%s carries momentum or adaptive state from block to block, so the shared model lags behind the "
        "clock and the mean of a block may be another block's model: use chains=Chains.SPLIT or SEPARATE, "
        "where each block has state of its own, or deploy best() and not models()",
        classes(strategy.inner),
    )


def _board(folder: str | PathLike[str] | None) -> Any:
    """A writer of TensorBoard's scalars, if one is wanted."""
    if folder is None:
        return None
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ImportError(
            "tensorboard= needs tensorboardX, which is not installed: pip install tensorboardX"
        ) from None
    return SummaryWriter(str(folder))


class _Loop(NamedTuple):
    """All that the rounds of a run need."""

    strategy: "PluralisticStrategy"
    grid: Grid
    timeout: float
    hooks: LoopOptions
    keeper: "CheckpointDir | None"
    result: BlockResult
    board: Any

    def run(self, initial: ArrayRecord, done: int, rounds: int) -> BlockResult:
        """The rounds that are left to do. A round without participants is repeated."""
        strategy, hooks, result = self.strategy, self.hooks, self.result
        if done >= rounds:
            log(
                WARNING,
                "the folder holds a finished run of %d rounds: there is nothing to do. Raise num_rounds, or "
                "name another folder",
                done,
            )
        else:
            log(INFO, "Starting %s: rounds %d to %d", type(strategy).__name__, done + 1, rounds)
        strategy.summary()
        if hooks.evaluate is not None:
            served = hooks.evaluate(0, initial)
            if served is not None:
                result.evaluate_metrics_serverapp[0] = served
        tries, since = 0, 0
        while done < rounds:
            this = _one(strategy, self.grid, done + 1, self.timeout, hooks, last=done + 1 == rounds)
            done += this.counts
            tries = 0 if this.counts else tries + 1
            since = this.instant if tries <= 1 else since
            self._finish(this, rounds, tries)
            if tries:
                self._wait(this, tries, since)
        result.arrays = strategy.main().record
        log(INFO, "Finished: %s", reply_counts(strategy.total))
        if not strategy.total.get("moved"):
            log(
                ERROR,
                "no round has changed the model; the last one: %s",
                strategy.total.get("note") or "no replies",
            )
        return result

    def _wait(self, this: Round, tries: int, since: int) -> None:
        """Wait before a round without participants is repeated, or give up."""
        period = self.strategy.schedule.period
        # Devices of this process do not come by waiting, if the clock does not move either.
        stuck = is_simulated(self.grid) and tries >= STUCK and this.instant - since < period // 100
        if stuck or this.instant - since > PATIENCE * period:
            raise TimeoutError(
                f"no client took part in round {this.number} in {tries} tries"
                + (f": {this.note}" if this.note else "")
                + ". A run with a checkpoint goes on from here when it is started again"
            )
        rest(self.grid, self.strategy.selection.wait_seconds)

    def _finish(self, this: Round, rounds: int, tries: int) -> None:
        """Count, keep and tell of a round; of many tries of one in a row, only of some."""
        strategy = self.strategy
        label = strategy.schedule.labels[this.block]
        if this.counts:
            words = "[ROUND %d/%d] block %s: %d asked, %d used"
            log(INFO, words, this.number, rounds, label, this.asked, this.used)
        else:
            words = "block %s: no client took part (%d asked); round %d of %d is repeated"
            log(WARNING, words, label, this.asked, this.number, rounds)
        tally(strategy.total, this)
        told = this.told()
        if this.counts:
            self.result.add(told)
        if self.board is not None:
            for part in ("train", "evaluate", "server", "models", "losses"):
                for name, value in told.get(part, {}).items():
                    if isinstance(value, int | float):
                        self.board.add_scalar(f"{part}/{label}/{name}", value, this.number)
        if self.keeper is not None and (tries <= SOME or tries % MANY == 0):
            self.keeper.keep(strategy, this)
        if self.hooks.on_round is not None:
            self.hooks.on_round(this)


def _one(
    strategy: "PluralisticStrategy",
    grid: Grid,
    number: int,
    timeout: float,
    hooks: LoopOptions,
    *,
    last: bool,
) -> Round:
    """One round: train, then evaluate."""
    config = ConfigRecord(dict(hooks.train_config or {}))
    wanted, deadline = (
        strategy.selection.clients_per_round,
        min(timeout, strategy.selection.deadline_seconds or timeout),
    )
    before = strategy.learnt.frozen
    messages = strategy.configure_train(number, strategy.main().record, config, grid)
    this = strategy.this_round()
    if wanted is not None and strategy.chains is Chains.SPLIT:
        # `wanted` is the number of replies of both chains together.
        wanted = -(-wanted // max(len({message.metadata.group_id for message in messages}), 1))
    replies = [reply for reply in gather(grid, messages, wanted, deadline) if not _gone(reply)]
    came = {reply.metadata.src_node_id for reply in replies if not reply.has_error()}
    this.came = len(came)
    this.failed = len({reply.metadata.src_node_id for reply in replies if reply.has_error()} - came)
    _, metrics = strategy.aggregate_train(number, replies)
    if metrics is not None:
        this.metrics["train"] = dict(metrics)
    config = ConfigRecord(dict(hooks.evaluate_config or {}))
    messages = strategy.configure_evaluate(number, strategy.main().record, config, grid)
    if messages:
        replies = gather(grid, messages, None, deadline)
        metrics = strategy.aggregate_evaluate(number, replies)
        if metrics is not None:
            this.metrics["evaluate"] = dict(metrics)
    if hooks.evaluate is not None and this.counts:
        served = hooks.evaluate(number, strategy.main().record)
        if served is not None:
            this.metrics["server"] = dict(served)
    new_cycle = before is not None and this.began and before.place[0] != this.cycle
    if (
        hooks.evaluate_models is not None
        and (new_cycle or last)
        and this.counts
        and strategy.learnt.has_means
    ):
        served = hooks.evaluate_models(number, strategy.best())
        if served is not None:
            this.metrics["models"] = dict(served)
    return this


def _gone(reply: Message) -> bool:
    """Whether it is not the node's reply, but Flower's: the node has gone."""
    return reply.has_error() and reply.error.code in GONE


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
