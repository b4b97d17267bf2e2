"""`PluralisticStrategy`: wraps any Flower strategy and keeps one model per block.

The inner strategy and the clients run unchanged. The global model is the chain w_1, w_2, ... of the paper,
one step per round. The model at the start of a round enters the mean of the clock's block (Theorem 3). Blocks
may have separate chains (Section 4), or both, hedged by losses that clients report (Section 6).
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
from semicyclic.adapters.flower.client_selection import (
    ClientDirectory,
    Selection,
    split_evenly,
    wait_for_nodes,
)
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
from semicyclic.adapters.flower.server_state import ServerState, initial_hedge
from semicyclic.adapters.flower.strategy_settings import resolve_settings
from semicyclic.adapters.flower.strategy_state import classes
from semicyclic.adapters.flower.subset_grid import SubsetGrid, TooFewNodes, min_nodes
from semicyclic.method.hedge import AdaHedge, Prod
from semicyclic.schedule.schedule import Schedule


class PluralisticStrategy(ReadOuts, Strategy):
    """Flower strategy that wraps another one and keeps one model per block of a schedule.

    Parameters
    ----------
    inner : Strategy
        Any strategy of `flwr.serverapp.strategy`, including wrappers of strategies.
    schedule : Schedule
        Division of the day, the week or any other period into m blocks.
    clock : Clock, optional
        Source of the time of each round. Default: real time.
    chains : Chains, optional
        Default: Chains.SPLIT, which acts like SHARED until a client has reported a loss (see `evaluators`);
        Chains.SHARED with differential privacy, `per_block` or `evaluators=0`.
    hedge : AdaHedge or Prod(bound=..., steps=...), default AdaHedge()
        Hedge for Chains.HEDGED and SPLIT.
    tail : int, default 2
        Number of recent cycles whose means are kept for `tail`. Each takes one model per block and sequence.
    selection : Selection, optional
        Selection of nodes. Default: all connected nodes, from which `inner` samples.
    loss : str, default "loss-before"
        Metric in which clients report the loss of the model they were sent (Chains.HEDGED).
    evaluators : int, optional
        Number of clients per round that evaluate candidates for `best` with their `@app.evaluate()`, on rows
        that they do not train on; 0 for none. Default: 10, or 0 with differential privacy.
    evaluation_loss : str, optional
        Metric in which they report that loss. Default: the first of LOSS_METRICS that a reply has.
    per_block : sequence of str, default ()
        Patterns of array names, such as "head.*", with separate means per block (default: all arrays). The
        other arrays, the body, have one mean over all rounds.
    storage : Storage, optional
        Location and precision of the means, for large models.
    weight, most_examples, largest : str, float and float, default "num-examples", 1e7 and 1e9
        Metric that weights replies, its largest accepted value, and the largest absolute value in an array.
    evaluate_means : bool, default False
        Send the block's mean to federated evaluation instead of the current model.
    seed : int, optional
        Seed of the selection of nodes, and of Python's and NumPy's global generators for `inner`. It makes a
        run repeatable. Do not set it with differential privacy, whose noise must not be repeatable.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid or the settings are incompatible.
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
        chains_given = chains is not None
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
        # `draws` seeds the selection of nodes and is checkpointed even if the caller gives no seed. Privacy
        # noise of the inner strategy is repeatable only with the caller's seed.
        self.seed = seed
        self.draws = int(np.random.SeedSequence().entropy) if seed is None else seed  # type: ignore[arg-type]
        inside = copy_for_chains(inner, chains.names(schedule.blocks), seed, required=chains_given)
        if inside is None:
            chains = Chains.SHARED
            inside = {SHARED: InnerStrategy(inner, SHARED, seed)}
        self.chains, self.inside = chains, inside
        hedge_state = initial_hedge(hedge, schedule.blocks) if chains.is_hedged else None
        self.server = ServerState(schedule, chains, tail, hedge_state, per_block=per_block, storage=storage)
        self.trials = CandidateEvaluation(schedule, evaluators, (evaluation_loss, weight), self.draws)
        # Number of clock reads, including rounds without participants.
        self.ticks = 0
        self.directory = ClientDirectory(schedule.blocks)
        self.known: dict[bool, object] = {}
        self.total: dict[str, Any] = {}
        self._round: Round | None = None
        # True if `start` runs the rounds, False if Flower's loop does.
        self.driven = False

    def __repr__(self) -> str:
        inner, rounds = classes(self.inner), self.total.get("rounds", 0)
        details = f"{inner}, {self.schedule.blocks} blocks, {self.chains}, {rounds} rounds done"
        return f"{type(self).__name__}({details})"

    @property
    def inner(self) -> Strategy:
        """Inner strategy; with several chains, the copy of the first chain."""
        return next(iter(self.inside.values())).strategy

    def summary(self) -> None:
        """Log the settings of the run."""
        log(INFO, "\t├──> Semi-cyclic:")
        log(INFO, "\t│\t├── %d blocks of a schedule in %s", self.schedule.blocks, self.schedule.zone)
        log(INFO, "\t│\t└── %s", self.chains.value)
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Select nodes and return messages with the models of the current block."""
        self.ticks += 1
        instant = self.clock.now(self.ticks)
        located = self.schedule.place(np.array([instant]))
        cycle, block = int(located.cycle[0]), int(located.block[0])
        self.server.begin(arrays)
        self.server.block = block
        nodes, rejected = self._select_nodes(grid, instant, block, self.ticks)
        self._round = Round(server_round, self.ticks, cycle, block, instant, nodes=nodes)
        self._reject(rejected)
        messages = []
        for name, chain_nodes in self._assign_nodes(block, nodes).items():
            settings = ConfigRecord({**config, "cycle": cycle, "block": block})
            sent = self.server.current[name].record
            try:
                messages += self.inside[name].configure_train(
                    server_round, sent, settings, SubsetGrid(grid, chain_nodes)
                )
            except TooFewNodes as few:
                self._round.note = str(few)
                log(WARNING, "round %d: %s", server_round, few)
                return []
        self._round.in_force = {name: self.server.current[name] for _, name in self.chains.moving(block)}
        asked = {message.metadata.dst_node_id for message in messages}
        self._round.asked = len(asked)
        self.directory.record_participation(sorted(asked), instant, self.selection.min_interval)
        return messages

    def _assign_nodes(self, block: int, nodes: list[int]) -> dict[str, list[int]]:
        """Return the chains to train in a round, and the nodes of each."""
        names = [name for _, name in self.chains.moving(block)]
        if self.chains is not Chains.SPLIT:
            return dict.fromkeys(names, nodes)
        if not self.trials.reports(block):
            return {SHARED: nodes}
        own = str(block)
        if not self.server.has_own(block):
            # A block's own chain starts from the shared model.
            self.server.current[own] = self.server.current[SHARED]
        rng = np.random.default_rng([self.draws, self.ticks, 1])
        if len(nodes) < 2 * min_nodes(self.inside[SHARED].strategy):
            # Too few nodes to split: train one of the two chains, chosen at random.
            return {names[int(rng.integers(2))]: nodes}
        return dict(zip(names, split_evenly(nodes, rng), strict=True))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Reject invalid replies, update the chains, and add the previous models to the means."""
        this = self._round
        if this is None or this.number != server_round:
            raise ValueError(f"round {server_round} was not configured: call configure_train first")
        by_chain: dict[str, list[Message]] = {}
        for reply in replies:
            by_chain.setdefault(reply.metadata.group_id.rpartition("/")[2], []).append(reply)
        names = [name for _, name in self.chains.moving(this.block)]
        unexpected = [reply for name, group in by_chain.items() if name not in names for reply in group]
        self._reject(unexpected_reply(reply) for reply in unexpected)
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
        before = self.server.frozen
        this.closed = self.server.step((this.cycle, this.block), moved, losses)
        this.began = self.server.frozen is not before
        this.moved = tuple(name for name in names if name in moved)
        return (moved[names[0]].record if names[0] in moved else None), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return evaluation messages of the inner strategy and for candidates, to nodes of this round."""
        this = self._round
        if this is None or not this.nodes:
            return []
        _, name = self.chains.moving(this.block)[0]
        sent = arrays if name == SHARED else self.server.current[name].record
        mean = self.server.mean_of(this.block) if self.evaluate_means else None
        if mean is not None:
            sent = record(mean)
        settings = ConfigRecord({**config, "cycle": this.cycle, "block": this.block})
        messages = self.trials.messages(this, self.server, config, keys_of(self.inner))
        try:
            subset = SubsetGrid(grid, this.nodes)
            return messages + self.inside[name].configure_evaluate(server_round, sent, settings, subset)
        except TooFewNodes as few:
            log(WARNING, "round %d, evaluation: %s", server_round, few)
            return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Reject invalid replies, score the candidates, and return the inner strategy's aggregate."""
        this = self._round
        if this is None:
            return None
        if not self.driven:
            this.came = this.used
            tally(self.total, this)
        ordinary: list[Message] = []
        candidates: list[Message] = []
        for reply in replies:
            (candidates if is_trial(reply) else ordinary).append(reply)
        if candidates:
            good, rejected = self._validator().check_evaluation(candidates)
            if self.trials.learn(this, self.server, (good, rejected), self.directory.name):
                self._reject(rejected)
        good, rejected = self._validator().check_evaluation(ordinary)
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
        """Run the rounds like Flower's loop; with `checkpoint`, resume an interrupted run.

        Parameters
        ----------
        grid, initial_arrays, num_rounds, train_config, evaluate_config, evaluate_fn
            As in Flower. Rounds without participants are repeated. `evaluate_fn` gets the model of `main()`.
        timeout : float, default 3600
            Time limit of a round in seconds; `selection.deadline_seconds` applies if it is shorter.
        evaluate_models : callable, optional
            Called with round and `best()` after the first round of a new cycle and after the last round;
            sets `evaluate_metrics_models` of the result.
        checkpoint : path-like, optional
            Folder for the state after every round. A restarted run resumes after the last complete round.
        on_round : callable, optional
            Called with the `Round` at the end of every round.
        tensorboard : path-like, optional
            Folder for TensorBoard scalars: metrics by block, and losses of candidates.

        Returns
        -------
        BlockResult

        Raises
        ------
        ValueError
            If `num_rounds` is less than 1, this strategy has run already, or `checkpoint` holds another run.
        TimeoutError
            If no client takes part for eight cycles.
        """
        hooks = LoopOptions(
            train_config, evaluate_config, evaluate_fn, evaluate_models, on_round, tensorboard
        )
        return run_rounds(self, grid, initial_arrays, num_rounds, timeout, hooks, checkpoint)

    def this_round(self) -> Round:
        """Return the round that was configured last."""
        if self._round is None:
            raise ValueError("no round was configured yet")
        return self._round

    def _select_nodes(
        self, grid: Grid, instant: int, block: int, tick: int
    ) -> tuple[list[int], list[RejectedReply]]:
        how = self.selection
        nodes = wait_for_nodes(grid, how.min_connected, how.wait_seconds)
        rejected = self.directory.query(grid, nodes, how.wait_seconds) if how.query_availability else []
        # One generator per round, so that checkpoints need not store its state.
        rng = np.random.default_rng([self.draws, tick])
        return self.directory.pick(nodes, how, (instant, block), rng), rejected

    def _usable_replies(self, replies: Sequence[Message]) -> list[Message]:
        """Return the valid replies of a chain, sorted by device number."""
        good, rejected = self._validator().check_training(replies)
        self._reject(rejected)
        if not good and self.this_round().number == 1:
            check_not_misunderstood(rejected)
        return sorted(good, key=lambda reply: self.directory.name(reply.metadata.src_node_id))

    def _advance_chain(
        self, name: str, this: Round, good: Sequence[Message]
    ) -> tuple[ChainModel | None, MetricRecord | None]:
        try:
            return self.inside[name].advance(this.number, good, self.server.layout)
        except StrategyFailed as failure:
            this.note = str(failure)
            log(ERROR, "round %d made no step: %s", this.number, this.note)
            return None, None

    def _validator(self) -> ReplyValidator:
        loss = self.loss if self.chains is Chains.HEDGED else None
        limits = self.weight, self.most_examples, self.largest
        return ReplyValidator(self.server.layout, *limits, loss, self.known, keys_of(self.inner).arrays)

    def _reject(self, rejected: Iterable[RejectedReply]) -> None:
        assert self._round is not None
        for reply in rejected:
            self._round.rejected[reply.reason] = self._round.rejected.get(reply.reason, 0) + 1
            log(
                WARNING,
                "round %d: reply of node %d rejected: %s",
                self._round.number,
                reply.node,
                reply.sentence,
            )
