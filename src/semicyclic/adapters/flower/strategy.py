"""`PluralisticStrategy`: wraps any Flower strategy and keeps one model per block.

The strategy inside works as it always does; its global model is the chain w_1, w_2, ... of the paper, a round
a step. What is in force at the beginning of a round is averaged under the block of the clock (Theorem 3).
Clients need not change. On request every block has a chain of its own instead (Section 4), or both run side
by side and are hedged (Section 6): then clients report the loss of the model they were sent.
"""

from collections.abc import Callable, Iterable, Sequence
from logging import ERROR, INFO, WARNING
from os import PathLike
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.averages import Storage
from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.candidate_evaluation import (
    CandidateEvaluation,
    chain_losses,
    is_trial,
    keys_of,
)
from semicyclic.adapters.flower.chains import SHARED, ChainModel, Chains
from semicyclic.adapters.flower.client_selection import ClientDirectory, Selection, present, split_evenly
from semicyclic.adapters.flower.clock import Clock, WallClock
from semicyclic.adapters.flower.inner_strategy import InnerStrategy, StrategyFailed, copy_for_chains
from semicyclic.adapters.flower.read_outs import ReadOuts
from semicyclic.adapters.flower.reply_validation import (
    RejectedReply,
    ReplyValidator,
    check_not_misunderstood,
    unexpected_reply,
)
from semicyclic.adapters.flower.round_results import BlockResult, Round, tally
from semicyclic.adapters.flower.rounds import LoopOptions, run_rounds
from semicyclic.adapters.flower.serialization import record
from semicyclic.adapters.flower.server_state import ServerState, first_bets
from semicyclic.adapters.flower.strategy_settings import resolve_settings
from semicyclic.adapters.flower.strategy_state import classes
from semicyclic.adapters.flower.subset_grid import SubsetGrid, TooFewNodes, least_nodes
from semicyclic.method.hedge import AdaHedge, Prod
from semicyclic.schedule.schedule import Schedule


class PluralisticStrategy(ReadOuts, Strategy):
    """A strategy that wraps another one and keeps a model for every block of a schedule.

    inner: any strategy of `flwr.serverapp.strategy`, wrappers of strategies included.
    schedule: how the day, the week or any period is cut into blocks.
    clock: what time a round has; real time if not given.
    chains: one chain, separate ones, or both and a hedge between them. Chains.SPLIT if not given: both, the
        clients of a round divided between them. Until a client has reported a loss on rows of its own
        (`evaluators`), and with differential privacy or per_block=, that is Chains.SHARED.
    hedge: AdaHedge(), or Prod(bound=..., steps=...), with Chains.HEDGED or SPLIT.
    tail: of how many last cycles the means are kept for `tail`; each costs one model of memory a block.
    selection: who takes part; all nodes that are connected, as `inner` samples them, if not given.
    loss: the metric in which clients report the loss of the model they were sent (Chains.HEDGED).
    evaluators: how many clients of a round evaluate candidates for `best` with their `@app.evaluate()`, on
        rows that they do not train on; 0 for none.
    evaluation_loss: the metric in which they report the loss. Default: the first of LOSSES that is there.
    per_block: patterns of array names, such as "head.*". Blocks have separate means of these arrays only; all
        other arrays, the body, have one mean over all rounds.
    storage: `Storage(precision="half")` or `Storage(folder=...)`, for large models.
    weight, most_examples: the metric that replies are weighted by, and the largest number believed of it.
    largest: the largest value believed in a model; replies with larger ones are left out.
    evaluate_means: send the block's mean so far to federated evaluation, not the current model.
    seed: for the choice of nodes, and for what `inner` draws by Python's and NumPy's global generators.
        With one, a run can be repeated; noise for privacy must not be: leave it out then.
    """

    def __init__(
        self,
        inner: Strategy,
        schedule: Schedule,
        clock: Clock | None = None,
        *,
        chains: Chains | None = None,
        hedge: AdaHedge | Prod | None = None,
        tail: int = 2,
        selection: Selection | None = None,
        loss: str = "loss-before",
        evaluators: int | None = None,
        evaluation_loss: str | None = None,
        per_block: Sequence[str] = (),
        storage: Storage | None = None,
        weight: str = "num-examples",
        most_examples: float = 1e7,
        largest: float = 1e9,
        evaluate_means: bool = False,
        seed: int | None = None,
    ) -> None:
        stated = chains is not None
        chains, evaluators = resolve_settings(
            inner, schedule, chains, hedge=hedge, evaluators=evaluators, per_block=per_block
        )
        if tail < 0:
            raise ValueError(f"tail={tail}: must be 0 or more")
        if seed is not None and seed < 0:
            raise ValueError(f"seed={seed}: must be 0 or more")
        self.schedule = schedule
        self.clock: Clock = WallClock() if clock is None else clock
        self.selection = Selection() if selection is None else selection
        self.loss, self.weight, self.most_examples, self.largest = loss, weight, most_examples, largest
        self.evaluate_means = evaluate_means
        # Who takes part is drawn from `draws`, which a run without a seed keeps for when it goes on; noise
        # that a strategy inside adds for privacy is repeatable by a seed of the caller's only.
        self.seed = seed
        self.draws = int(np.random.SeedSequence().entropy) if seed is None else seed  # type: ignore[arg-type]
        inside = copy_for_chains(inner, chains.names(schedule.blocks), seed, required=stated)
        if inside is None:
            chains = Chains.SHARED
            inside = {SHARED: InnerStrategy(inner, SHARED, seed)}
        self.chains, self.inside = chains, inside
        bets = first_bets(hedge, schedule.blocks) if chains.is_hedged else None
        self.learnt = ServerState(schedule, chains, tail, bets, per_block=per_block, storage=storage)
        self.trials = CandidateEvaluation(schedule, evaluators, (evaluation_loss, weight), self.draws)
        # How often the clock was asked, rounds without participants included.
        self.ticks = 0
        self.directory = ClientDirectory(schedule.blocks)
        self.known: dict[bool, object] = {}
        self.total: dict[str, Any] = {}
        self._round: Round | None = None
        # Whether `start` runs the rounds, and not Flower's own loop.
        self.driven = False

    def __repr__(self) -> str:
        inner, rounds = classes(self.inner), self.total.get("rounds", 0)
        about = f"{inner}, {self.schedule.blocks} blocks, {self.chains}, {rounds} rounds done"
        return f"{type(self).__name__}({about})"

    @property
    def inner(self) -> Strategy:
        """The strategy inside; of several chains, that of the first."""
        return next(iter(self.inside.values())).strategy

    # What Flower calls, in this order.

    def summary(self) -> None:
        """Log how the run is set up."""
        log(INFO, "\t├──> Semi-cyclic:")
        log(INFO, "\t│\t├── %d blocks of a schedule in %s", self.schedule.blocks, self.schedule.zone)
        log(INFO, "\t│\t└── %s", self.chains.value)
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Choose nodes and send them the models of this block."""
        self.ticks += 1
        instant = self.clock.now(self.ticks)
        located = self.schedule.place(np.array([instant]))
        cycle, block = int(located.cycle[0]), int(located.block[0])
        self.learnt.begin(arrays)
        self.learnt.block = block
        nodes, rejected = self._choose(grid, instant, block, self.ticks)
        self._round = Round(server_round, self.ticks, cycle, block, instant, nodes=nodes)
        self._reject(rejected)
        messages = []
        for name, some in self._assign_nodes(block, nodes).items():
            told = ConfigRecord({**config, "cycle": cycle, "block": block})
            sent = self.learnt.current[name].record
            try:
                messages += self.inside[name].configure_train(
                    server_round, sent, told, SubsetGrid(grid, some)
                )
            except TooFewNodes as few:
                self._round.note = str(few)
                log(WARNING, "round %d: %s", server_round, few)
                return []
        self._round.in_force = {name: self.learnt.current[name] for _, name in self.chains.moving(block)}
        asked = {message.metadata.dst_node_id for message in messages}
        self._round.asked = len(asked)
        self.directory.took_part(sorted(asked), instant, self.selection.min_interval)
        return messages

    def _assign_nodes(self, block: int, nodes: list[int]) -> dict[str, list[int]]:
        """The chains that are to move in a round, and the nodes of each."""
        names = [name for _, name in self.chains.moving(block)]
        if self.chains is not Chains.SPLIT:
            return dict.fromkeys(names, nodes)
        if not self.trials.reports(block):
            return {SHARED: nodes}
        own = str(block)
        if not self.learnt.has_own(block):
            # A block's own chain sets out from the shared model.
            self.learnt.current[own] = self.learnt.current[SHARED]
        rng = np.random.default_rng([self.draws, self.ticks, 1])
        if len(nodes) < 2 * least_nodes(self.inside[SHARED].strategy):
            # Too few to be divided: the chains take turns.
            return {names[int(rng.integers(2))]: nodes}
        return dict(zip(names, split_evenly(nodes, rng), strict=True))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Leave out what cannot be used, let the chains move, and average what was in force before."""
        this = self._round
        if this is None or this.number != server_round:
            raise ValueError(f"round {server_round} was not configured: call configure_train first")
        by_chain: dict[str, list[Message]] = {}
        for reply in replies:
            by_chain.setdefault(reply.metadata.group_id.rpartition("/")[2], []).append(reply)
        names = [name for _, name in self.chains.moving(this.block)]
        strays = [reply for group, some in by_chain.items() if group not in names for reply in some]
        self._reject(unexpected_reply(reply) for reply in strays)
        used = {name: self._usable_replies(by_chain.get(name, [])) for name in names}
        replied = {reply.metadata.src_node_id for good in used.values() for reply in good}
        this.replied = sorted(replied, key=self.directory.name)
        this.used = len(replied)
        moved: dict[str, ChainModel] = {}
        metrics: MetricRecord | None = None
        for name in reversed(names):
            if used[name]:
                after, metrics = self._advance_chain(name, this, used[name])
                if after is not None:
                    moved[name] = after
        losses = None
        if self.chains is Chains.HEDGED:
            losses = chain_losses(used[SHARED], used[names[1]], self.loss, self.weight)
        before = self.learnt.frozen
        this.closed = self.learnt.step((this.cycle, this.block), moved, losses)
        this.began = self.learnt.frozen is not before
        this.moved = tuple(name for name in names if name in moved)
        return (moved[names[0]].record if names[0] in moved else None), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the strategy inside evaluate on the nodes of this round, and some of them the candidates."""
        this = self._round
        if this is None or not this.nodes:
            return []
        _, name = self.chains.moving(this.block)[0]
        sent = arrays if name == SHARED else self.learnt.current[name].record
        mean = self.learnt.mean_of(this.block) if self.evaluate_means else None
        if mean is not None:
            sent = record(mean)
        told = ConfigRecord({**config, "cycle": this.cycle, "block": this.block})
        messages = self.trials.messages(this, self.learnt, config, keys_of(self.inner))
        try:
            among = SubsetGrid(grid, this.nodes)
            return messages + self.inside[name].configure_evaluate(server_round, sent, told, among)
        except TooFewNodes as few:
            log(WARNING, "round %d, evaluation: %s", server_round, few)
            return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave out what cannot be used, and let the strategy inside sum up."""
        this = self._round
        if this is None:
            return None
        if not self.driven:
            this.came = this.used
            tally(self.total, this)
        mine: list[Message] = []
        candidates: list[Message] = []
        for reply in replies:
            (candidates if is_trial(reply) else mine).append(reply)
        if candidates:
            good, rejected = self._validator().check_evaluation(candidates)
            if self.trials.learn(this, self.learnt, (good, rejected), self.directory.name):
                self._reject(rejected)
        good, rejected = self._validator().check_evaluation(mine)
        self._reject(rejected)
        if not good:
            return None
        good.sort(key=lambda reply: self.directory.name(reply.metadata.src_node_id))
        _, name = self.chains.moving(this.block)[0]
        try:
            return self.inside[name].strategy.aggregate_evaluate(server_round, good)
        except Exception as error:
            log(ERROR, "round %d, evaluation: %s: %s", server_round, type(error).__name__, error)
            return None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        *,
        evaluate_models: Callable[[int, BlockModels], MetricRecord | None] | None = None,
        checkpoint: str | PathLike[str] | None = None,
        on_round: Callable[[Round], None] | None = None,
        tensorboard: str | PathLike[str] | None = None,
    ) -> BlockResult:
        """Run the rounds, as Flower's own loop does; with `checkpoint`, a folder, from where it stopped.

        A round without participants does not count: it is repeated. After every round all that
        matters is put into the folder. A server that was killed and is started again with the same folder
        goes on with the round after the last whole one.
        timeout: seconds for a round, at most; `selection.deadline_seconds` if that is shorter.
        evaluate_fn: called with the current model of the shared chain after every round, as in Flower's loop.
        evaluate_models: called with `best()` when a new cycle has begun and after the last round. What it
            returns is in `evaluate_metrics_models` of the result.
        on_round: is told of every round when it is over.
        tensorboard: a folder for TensorBoard scalars: metrics by block, and losses of candidates.
        """
        hooks = LoopOptions(
            train_config, evaluate_config, evaluate_fn, evaluate_models, on_round, tensorboard
        )
        return run_rounds(self, grid, initial_arrays, num_rounds, timeout, hooks, checkpoint)

    def this_round(self) -> Round:
        """The round that was configured last."""
        if self._round is None:
            raise ValueError("no round was configured yet")
        return self._round

    # How it is done.

    def _choose(
        self, grid: Grid, instant: int, block: int, tick: int
    ) -> tuple[list[int], list[RejectedReply]]:
        how = self.selection
        there = present(grid, how.min_connected, how.wait_seconds)
        rejected = self.directory.meet(grid, there, how.wait_seconds) if how.query_availability else []
        # A generator for one round: nothing of it has to be kept for a run that goes on.
        rng = np.random.default_rng([self.draws, tick])
        return self.directory.pick(there, how, (instant, block), rng), rejected

    def _usable_replies(self, replies: Sequence[Message]) -> list[Message]:
        """The replies of a chain that can be used, in the order of their devices."""
        good, rejected = self._validator().check_training(replies)
        self._reject(rejected)
        if not good and self.this_round().number == 1:
            check_not_misunderstood(rejected)
        return sorted(good, key=lambda reply: self.directory.name(reply.metadata.src_node_id))

    def _advance_chain(
        self, name: str, this: Round, good: Sequence[Message]
    ) -> tuple[ChainModel | None, MetricRecord | None]:
        try:
            return self.inside[name].advance(this.number, good, self.learnt.layout)
        except StrategyFailed as spoilt:
            this.note = str(spoilt)
            log(ERROR, "round %d made no step: %s", this.number, this.note)
            return None, None

    def _validator(self) -> ReplyValidator:
        loss = self.loss if self.chains is Chains.HEDGED else None
        limits = self.weight, self.most_examples, self.largest
        return ReplyValidator(self.learnt.layout, *limits, loss, self.known, keys_of(self.inner).arrays)

    def _reject(self, rejected: Iterable[RejectedReply]) -> None:
        assert self._round is not None
        for each in rejected:
            self._round.rejected[each.reason] = self._round.rejected.get(each.reason, 0) + 1
            log(WARNING, "round %d: node %d is left out: %s", self._round.number, each.node, each.sentence)
