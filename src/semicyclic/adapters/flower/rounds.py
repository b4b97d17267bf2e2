"""The round loop: like Flower's, but resumable."""

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
from semicyclic.adapters.flower.client_selection import gather, is_simulated, pause
from semicyclic.adapters.flower.round_results import BlockResult, Round, reply_counts, tally
from semicyclic.adapters.flower.strategy_state import carries_state, classes, unserializable_attributes

if TYPE_CHECKING:
    from semicyclic.adapters.flower.strategy import PluralisticStrategy

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
EvaluateModels = Callable[[int, BlockModels], MetricRecord | None]
# Flower's error codes for messages and nodes that no longer exist.
GONE_ERROR_CODES = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
# Number of cycles without a participant after which a run gives up.
MAX_EMPTY_CYCLES = 8
# Number of tries after which a run on simulated time gives up if its clock has hardly advanced.
MAX_TRIES_WITHOUT_PROGRESS = 50
# Of consecutive tries of a round without participants, the first few are checkpointed, then every 100th.
FIRST_TRIES_CHECKPOINTED = 5
TRIES_PER_CHECKPOINT = 100


class LoopOptions(NamedTuple):
    """Configs, callbacks and TensorBoard folder of a run."""

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
    """Run the remaining rounds up to number `rounds`; with `checkpoint`, resume from that folder."""
    if rounds < 1:
        raise ValueError(f"num_rounds={rounds}: must be at least 1")
    if strategy.total:
        raise ValueError("this strategy has run already: create a new one for another run")
    strategy.server.begin(initial)
    strategy.driven = True
    _warn_of_state(strategy)
    board = _open_tensorboard(hooks.tensorboard)
    result = BlockResult()
    keeper = None if checkpoint is None else CheckpointDir(Path(checkpoint))
    try:
        done = 0
        if keeper is not None:
            for name in unserializable_attributes(strategy.inner):
                log(
                    WARNING,
                    "attribute %s of the inner strategy cannot be checkpointed: it is not restored on resume",
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
    """Warn if the inner strategy has momentum, which carries one block's model into the next.

    Theorem 3 assumes plain steps.
    """
    if strategy.chains is not Chains.SHARED or not carries_state(strategy.inner):
        return
    log(
        WARNING,
        "%s carries momentum or adaptive state from block to block, so the shared model lags behind the "
        "clock and the mean of a block may be another block's model: use chains=Chains.SPLIT or SEPARATE, "
        "where each block has separate state, or deploy best() instead of mean()",
        classes(strategy.inner),
    )


def _open_tensorboard(folder: str | PathLike[str] | None) -> Any:
    """Return a TensorBoard writer for `folder`; None if no folder is given."""
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
    """Loop over the rounds of a run."""

    strategy: "PluralisticStrategy"
    grid: Grid
    timeout: float
    hooks: LoopOptions
    keeper: CheckpointDir | None
    result: BlockResult
    board: Any

    def run(self, initial: ArrayRecord, done: int, rounds: int) -> BlockResult:
        """Run rounds `done` + 1 to `rounds`. A round without participants is repeated."""
        strategy, hooks, result = self.strategy, self.hooks, self.result
        if done >= rounds:
            log(
                WARNING,
                "the checkpoint folder holds a finished run of %d rounds: nothing to do. Raise num_rounds or "
                "use another folder",
                done,
            )
        else:
            log(INFO, "Starting %s: rounds %d to %d", type(strategy).__name__, done + 1, rounds)
        strategy.summary()
        if hooks.evaluate is not None:
            evaluated = hooks.evaluate(0, initial)
            if evaluated is not None:
                result.evaluate_metrics_serverapp[0] = evaluated
        tries, since = 0, 0
        while done < rounds:
            this = _run_round(strategy, self.grid, done + 1, self.timeout, hooks, last=done + 1 == rounds)
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
                "no round has changed the model; reason in the last round: %s",
                strategy.total.get("note") or "no replies",
            )
        return result

    def _wait(self, this: Round, tries: int, since: int) -> None:
        """Wait before a round without participants is repeated; raise TimeoutError to give up."""
        period = self.strategy.schedule.period
        # Simulated devices do not connect while the simulated clock does not advance.
        stuck = (
            is_simulated(self.grid)
            and tries >= MAX_TRIES_WITHOUT_PROGRESS
            and this.instant - since < period // 100
        )
        if stuck or this.instant - since > MAX_EMPTY_CYCLES * period:
            raise TimeoutError(
                f"no client took part in round {this.number} in {tries} tries"
                + (f": {this.note}" if this.note else "")
                + ". A run with a checkpoint resumes from here when it is restarted"
            )
        pause(self.grid, self.strategy.selection.wait_seconds)

    def _finish(self, this: Round, rounds: int, tries: int) -> None:
        """Count, log, checkpoint and report a round; of many consecutive tries, checkpoint only some."""
        strategy = self.strategy
        label = strategy.schedule.labels[this.block]
        if this.counts:
            template = "[ROUND %d/%d] block %s: %d asked, %d used"
            log(INFO, template, this.number, rounds, label, this.asked, this.used)
        else:
            template = "block %s: no client took part (%d asked); round %d of %d will be repeated"
            log(WARNING, template, label, this.asked, this.number, rounds)
        tally(strategy.total, this)
        row = this.to_json()
        if this.counts:
            self.result.add(row)
        if self.board is not None:
            for part in ("train", "evaluate", "server", "models", "losses"):
                for name, value in row.get(part, {}).items():
                    if isinstance(value, int | float):
                        self.board.add_scalar(f"{part}/{label}/{name}", value, this.number)
        if self.keeper is not None and (
            tries <= FIRST_TRIES_CHECKPOINTED or tries % TRIES_PER_CHECKPOINT == 0
        ):
            self.keeper.save(strategy, this)
        if self.hooks.on_round is not None:
            self.hooks.on_round(this)


def _run_round(
    strategy: "PluralisticStrategy",
    grid: Grid,
    number: int,
    timeout: float,
    hooks: LoopOptions,
    *,
    last: bool,
) -> Round:
    """Run one round: train, then evaluate."""
    config = ConfigRecord(dict(hooks.train_config or {}))
    wanted, deadline = (
        strategy.selection.clients_per_round,
        min(timeout, strategy.selection.deadline_seconds or timeout),
    )
    before = strategy.server.frozen
    messages = strategy.configure_train(number, strategy.main().record, config, grid)
    this = strategy.this_round()
    if wanted is not None and strategy.chains is Chains.SPLIT:
        # `clients_per_round` counts the replies of both chains together: divide it among them.
        wanted = -(-wanted // max(len({message.metadata.group_id for message in messages}), 1))
    replies = [reply for reply in gather(grid, messages, wanted, deadline) if not _is_gone(reply)]
    replied = {reply.metadata.src_node_id for reply in replies if not reply.has_error()}
    this.came = len(replied)
    this.failed = len({reply.metadata.src_node_id for reply in replies if reply.has_error()} - replied)
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
        evaluated = hooks.evaluate(number, strategy.main().record)
        if evaluated is not None:
            this.metrics["server"] = dict(evaluated)
    new_cycle = before is not None and this.began and before.place[0] != this.cycle
    if (
        hooks.evaluate_models is not None
        and (new_cycle or last)
        and this.counts
        and strategy.server.has_means
    ):
        evaluated = hooks.evaluate_models(number, strategy.best())
        if evaluated is not None:
            this.metrics["models"] = dict(evaluated)
    return this


def _is_gone(reply: Message) -> bool:
    """Return whether a reply is Flower's notice that the node or message no longer exists."""
    return reply.has_error() and reply.error.code in GONE_ERROR_CODES
