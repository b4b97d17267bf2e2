"""The round loop: Flower's loop, made resumable."""

from collections.abc import Callable
from logging import ERROR, INFO, WARNING
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.chains import Chains
from semicyclic.adapters.flower.checkpoint import CheckpointDir
from semicyclic.adapters.flower.client_selection import gather, is_simulated, rest
from semicyclic.adapters.flower.round_results import BlockResult, Round, reply_counts, tally
from semicyclic.adapters.flower.strategy_state import carries_state, classes, unkept

if TYPE_CHECKING:
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
        "where each block has state of its own, or deploy best() and not mean()",
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
    keeper: CheckpointDir | None
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
        told = this.to_json()
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
