"""`Pluralistic`: any Flower strategy, with a model for every block of the day.

The strategy inside works as it always does; its global model is the chain w_1, w_2, ... of the paper, a round
a step. What is in force at the beginning of a round is averaged under the block of the clock (Theorem 3).
Clients need not change. On request every block has a chain of its own instead (Section 4), or both run side
by side and are hedged (Section 6): then clients report the loss of the model they were sent.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from enum import Enum
from logging import ERROR, INFO, WARNING
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from semicyclic.adapters.flower.among import Among, TooFew
from semicyclic.adapters.flower.averages import Averages, Layout, Mean, as_type, merged
from semicyclic.adapters.flower.clock import Clock, WallClock
from semicyclic.adapters.flower.coding import decode, record
from semicyclic.adapters.flower.insides import classes, dump, load
from semicyclic.adapters.flower.models import BlockModels
from semicyclic.adapters.flower.rounds import Hooks, Round, lost, run_rounds
from semicyclic.adapters.flower.screening import Rejected, Screen, finite
from semicyclic.adapters.flower.selection import Directory, Selection, present
from semicyclic.method.bets import Bets
from semicyclic.method.hedge import AdaHedge, Prod, in_play, learn_losses
from semicyclic.method.schedule import Schedule

NDArray = npt.NDArray[Any]
# The chain that all blocks share; a block's own chain is called by its number.
SHARED = "shared"


class Chains(Enum):
    """Which chains a run has."""

    SHARED = "one chain for all blocks, averaged for each"
    SEPARATE = "a chain for every block"
    HEDGED = "both, hedged for each block"

    def moving(self, block: int) -> tuple[str, ...]:
        """The chains that move in a round of a block."""
        own = str(block)
        return {Chains.SHARED: (SHARED,), Chains.SEPARATE: (own,), Chains.HEDGED: (SHARED, own)}[self]


class Model(NamedTuple):
    """A chain's model as it is sent, and its arrays, which share the same bytes."""

    record: ArrayRecord
    values: Mapping[str, NDArray]

    @staticmethod
    def of(arrays: ArrayRecord) -> "Model":
        return Model(arrays, {name: decode(array) for name, array in arrays.items()})


class Pluralistic(Strategy):
    """A strategy that wraps another one and keeps a model for every block of a schedule.

    inner: any strategy of `flwr.serverapp.strategy`, wrappers of strategies included.
    schedule: how the day, the week or any period is cut into blocks.
    clock: what time a round has; real time if not given.
    chains: one chain, separate ones, or both and a hedge between them.
    hedge: AdaHedge(), or Prod(bound=..., steps=...), with Chains.HEDGED.
    tail: of how many last cycles the means are kept for `tails`; each costs one model of memory a block.
    selection: who takes part; all nodes that are connected, as `inner` samples them, if not given.
    loss: the metric in which clients report the loss of the model they were sent (Chains.HEDGED).
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
        chains: Chains = Chains.SHARED,
        hedge: AdaHedge | Prod | None = None,
        tail: int = 2,
        selection: Selection | None = None,
        loss: str = "loss-before",
        weight: str = "num-examples",
        most_examples: float = 1e7,
        largest: float = 1e9,
        evaluate_means: bool = False,
        seed: int | None = None,
    ) -> None:
        if not isinstance(inner, Strategy):
            raise TypeError(f"inner={inner!r}: give a strategy of flwr.serverapp.strategy")
        if hedge is not None and chains is not Chains.HEDGED:
            raise ValueError("hedge= is for chains=Chains.HEDGED")
        if not isinstance(chains, Chains):
            raise TypeError(f"chains={chains!r}: give Chains.SHARED, Chains.SEPARATE or Chains.HEDGED")
        if "Xgb" in classes(inner):
            raise ValueError(f"{classes(inner)} makes trees: only arrays of one shape can be averaged")
        if tail < 0:
            raise ValueError(f"tail={tail}: must be 0 or more")
        if seed is not None and seed < 0:
            raise ValueError(f"seed={seed}: must be 0 or more")
        self.schedule, self.chains, self.tail = schedule, chains, tail
        self.clock: Clock = WallClock() if clock is None else clock
        self.selection = Selection() if selection is None else selection
        self.loss, self.weight, self.most_examples = loss, weight, most_examples
        self.evaluate_means = evaluate_means
        self.largest = largest
        # Who takes part is drawn from `draws`, which a run without a seed keeps for when it goes on; noise
        # that a strategy inside adds for privacy is repeatable by a seed of the caller's only.
        self.seed = seed
        self.draws = int(np.random.SeedSequence().entropy) if seed is None else seed  # type: ignore[arg-type]
        blocks = schedule.blocks
        names = [SHARED, *map(str, range(blocks))] if chains is Chains.HEDGED else None
        names = names or ([SHARED] if chains is Chains.SHARED else list(map(str, range(blocks))))
        # Each chain has the server's own state, such as momentum, for itself.
        self.inner = {name: inner if name == names[0] else deepcopy(inner) for name in names}
        self.fresh = {name: dump(each)[0] for name, each in self.inner.items()}
        self.known: dict[bool, object] = {}
        self.bets: Bets | None = _bets(hedge, blocks) if chains is Chains.HEDGED else None
        self.directory = Directory(blocks)
        self.layout: Layout | None = None
        self.current: dict[str, Model] = {}
        self.last: dict[str, list[Mapping[str, NDArray] | None]] = {}
        self.averages: dict[str, Averages] = {}
        self.total: dict[str, Any] = {}
        self.block = 0
        self._round: Round | None = None

    # What Flower calls, in this order.

    def summary(self) -> None:
        """Log how the run is set up."""
        log(INFO, "\t├──> Semi-cyclic:")
        log(INFO, "\t│\t├── %d blocks of a schedule in %s", self.schedule.blocks, self.schedule.zone)
        log(INFO, "\t│\t└── %s", self.chains.value)
        next(iter(self.inner.values())).summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Choose nodes and send them the models of this block."""
        instant = self.clock.now(server_round)
        located = self.schedule.place(np.array([instant]))
        cycle, block = int(located.cycle[0]), int(located.block[0])
        self.begin(arrays)
        self.block = block
        nodes, rejected = self._choose(grid, instant, block, server_round)
        self._round = Round(server_round, cycle, block, instant, nodes=nodes)
        self._reject(rejected)
        messages = []
        for name in self.chains.moving(block):
            told = ConfigRecord({**config, "cycle": cycle, "block": block})
            sent = self.current[name].record
            try:
                with self._sampling(server_round, 0):
                    asked = list(
                        self.inner[name].configure_train(server_round, sent, told, Among(grid, nodes))
                    )
            except TooFew as few:
                self._round.note = str(few)
                log(WARNING, "round %d: %s", server_round, few)
                return []
            for message in asked:
                message.metadata.group_id = name
            messages += asked
        self._round.asked = len({message.metadata.dst_node_id for message in messages})
        asked_nodes = (message.metadata.dst_node_id for message in messages)
        self.directory.took_part(asked_nodes, instant, self.selection.separation)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Leave out what cannot be used, let the chains move, and average what was in force before."""
        this = self._round
        if this is None or this.number != server_round or self.layout is None:
            raise ValueError(f"round {server_round} was not configured: call configure_train first")
        by_chain: dict[str, list[Message]] = {}
        for reply in replies:
            by_chain.setdefault(reply.metadata.group_id, []).append(reply)
        screen = self._screen()
        moved: dict[str, Model] = {}
        used: dict[str, list[Message]] = {}
        metrics: MetricRecord | None = None
        names = self.chains.moving(this.block)
        strays = [reply for group, some in by_chain.items() if group not in names for reply in some]
        self._reject(_stray(reply) for reply in strays)
        for name in names:
            good, rejected = screen.trained(by_chain.get(name, ()))
            self._reject(rejected)
            self._check_losses(good, rejected)
            good.sort(key=lambda reply: self.directory.name(reply.metadata.src_node_id))
            used[name] = good
            after, told = self._moved(name, server_round, good)
            metrics = told if metrics is None else metrics
            if after is not None:
                moved[name] = after
        this.used = len({reply.metadata.src_node_id for good in used.values() for reply in good})
        self._learn(this, moved, used)
        main = names[0]
        return (moved[main].record if main in moved else None), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Let the strategy inside evaluate on the nodes of this round."""
        this = self._round
        if this is None or not this.nodes:
            return []
        name = self.chains.moving(this.block)[0]
        sent = arrays if name == SHARED else self.current[name].record
        if self.evaluate_means and any(mean is not None for mean in self._means(None)):
            sent = record(dict(self.models().models[this.block]))
        told = ConfigRecord({**config, "cycle": this.cycle, "block": this.block})
        try:
            with self._sampling(server_round, 1):
                return list(
                    self.inner[name].configure_evaluate(server_round, sent, told, Among(grid, this.nodes))
                )
        except TooFew as few:
            log(WARNING, "round %d, evaluation: %s", server_round, few)
            return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave out what cannot be used, and let the strategy inside sum up."""
        this = self._round
        if this is None or self.layout is None:
            return None
        good, rejected = self._screen().evaluated(replies)
        self._reject(rejected)
        good.sort(key=lambda reply: self.directory.name(reply.metadata.src_node_id))
        name = self.chains.moving(this.block)[0]
        if not good:
            return None
        try:
            return self.inner[name].aggregate_evaluate(server_round, good)
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
        checkpoint: str | PathLike[str] | None = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> Result:
        """Run the rounds, as Flower's own loop does; with `checkpoint`, a folder, from where it stopped.

        After every round all that matters is put into the folder. A server that was killed and is started
        again with the same folder goes on with the round after the last whole one.
        timeout: seconds for a round, at most; `selection.deadline` is the earlier end if it is shorter.
        on_round: is told of every round when it is over.
        """
        hooks = Hooks(train_config, evaluate_config, evaluate_fn, on_round)
        return run_rounds(self, grid, initial_arrays, num_rounds, timeout, hooks, checkpoint)

    # What is read out.

    def models(self, *, of: str | None = None) -> BlockModels:
        """The mean of each block (Theorem 3): what to deploy.

        of: with Chains.HEDGED the hedged mixture; "shared" for the means of the shared chain alone,
            "own" for those of the blocks' own.
        """
        return self._read(self._means(of), "mean")

    def tails(self, cycles: int = 1, *, of: str | None = None) -> BlockModels:
        """The mean of each block over its own last `cycles` cycles."""
        self._begun()
        return self._read(self.averages[self._which(of)].tails(cycles), f"tail:{cycles}")

    def lasts(self, *, of: str | None = None) -> BlockModels:
        """The model after the latest round in each block (what the paper's experiment uses).

        With Chains.HEDGED both chains' in proportion to their probabilities, unless `of` says otherwise.
        """
        self._begun()
        which = self._which(of)
        found = [self._last(which, block) for block in range(self.schedule.blocks)]
        empty = tuple(block for block, model in enumerate(found) if model is None)
        whole = tuple(self.main().values if model is None else model for model in found)
        return BlockModels(self.schedule, whole, empty, "last")

    def _last(self, which: str, block: int) -> Mapping[str, NDArray] | None:
        if which != "hedged":
            return self.last[which][block]
        shared, own = self.last["shared"][block], self.last["own"][block]
        if shared is None or own is None or self.bets is None:
            return shared
        share, layout = self.bets.share[block], self._begun()
        return layout.cast(share[0] * shared[name] + share[1] * own[name] for name in layout.names)

    def consensus(self) -> dict[str, NDArray]:
        """The mean over all rounds: one model for all blocks."""
        layout = self._begun()
        whole: Mean | None = None
        for mean in self._means("own" if self.chains is Chains.SEPARATE else "shared"):
            whole = merged(whole, mean)
        if whole is None:
            raise ValueError("no round has changed the model yet")
        return layout.cast(whole.values)

    def hedge_shares(self) -> NDArray:
        """[m, 2] how probable the shared and the own chain of each block are by now."""
        if self.bets is None:
            raise ValueError("there is no hedge: use chains=Chains.HEDGED")
        return self.bets.share.copy()

    @property
    def participation(self) -> NDArray:
        """[m] how many replies were learnt from in each block."""
        by_block = self.total.get("by_block", {})
        return np.array([by_block.get(str(block), 0) for block in range(self.schedule.blocks)])

    def lost(self) -> dict[str, Any]:
        """What a run has lost: rounds without a step, and replies by the reason they were not used."""
        return lost(self.total)

    # How it is done.

    def begin(self, arrays: ArrayRecord) -> None:
        """Take the initial model, or the shared one as the loop has it."""
        if self.layout is None:
            given = Model.of(arrays)
            self.layout = Layout.of(given.values)
            self.current = dict.fromkeys(self.inner, given)
            for name in self._kinds():
                self.averages[name] = Averages(self.layout, self.schedule.blocks, self.tail)
            self.last = {name: [None] * self.schedule.blocks for name in self._kinds() if name != "hedged"}
        elif SHARED in self.current and arrays is not self.current[SHARED].record:
            given = Model.of(arrays)
            if Layout.of(given.values)[:2] != self.layout[:2]:
                raise ValueError("the arrays have other names or shapes than those of the run so far")
            self.current[SHARED] = given

    def main(self) -> Model:
        """The model of the chain that the latest round has moved; the shared one if there is one."""
        self._begun()
        if SHARED in self.current:
            return self.current[SHARED]
        return self.current[str(self.block)]

    def moving(self, block: int) -> tuple[tuple[str, str], ...]:
        """The chains that move in a block: whether each is "shared" or "own", and its name."""
        return tuple(("shared" if name == SHARED else "own", name) for name in self.chains.moving(block))

    def this_round(self) -> Round:
        """The round that was configured last."""
        if self._round is None:
            raise ValueError("no round was configured yet")
        return self._round

    def _kinds(self) -> tuple[str, ...]:
        """The sequences of models that are averaged."""
        kinds = {Chains.SHARED: ("shared",), Chains.SEPARATE: ("own",)}
        return kinds.get(self.chains, ("shared", "own", "hedged"))

    def _choose(
        self, grid: Grid, instant: int, block: int, server_round: int
    ) -> tuple[list[int], list[Rejected]]:
        how = self.selection
        there = present(grid, how.least, how.patience)
        rejected = self.directory.meet(grid, there, how.patience) if how.ask else []
        rng = self._rng(server_round, 1)
        return self.directory.pick(there, how, (instant, block), rng), rejected

    def _rng(self, server_round: int, use: int) -> np.random.Generator:
        """A generator for one use in one round: nothing of it has to be kept for a resumed run."""
        return np.random.default_rng([self.draws, server_round, use])

    @contextmanager
    def _sampling(self, server_round: int, use: int) -> Iterator[None]:
        """With a seed, which nodes the strategy inside draws (by Python's generator) depends on the round."""
        if self.seed is None:
            yield
            return
        held = random.getstate()
        random.seed((self.seed << 40) + (server_round << 2) + use)
        try:
            yield
        finally:
            random.setstate(held)

    @contextmanager
    def _noise(self, server_round: int, chain: str) -> Iterator[None]:
        """With a seed, what the strategy inside adds (by NumPy's generator) depends on round and chain."""
        if self.seed is None:
            yield
            return
        number = 0 if chain == SHARED else 1 + int(chain)
        held = np.random.get_state()  # noqa: NPY002
        np.random.seed([self.seed % 2**32, server_round, number])  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(held)  # noqa: NPY002

    def _moved(
        self, name: str, server_round: int, good: Sequence[Message]
    ) -> tuple[Model | None, MetricRecord | None]:
        """The chain's next model, if there is one that is finite."""
        assert self._round is not None
        assert self.layout is not None
        if not good:
            return None, None
        inner = self.inner[name]
        held = dump(inner)
        metrics: MetricRecord | None = None
        try:
            with self._noise(server_round, name):
                arrays, metrics = inner.aggregate_train(server_round, good)
            if arrays is None:
                return None, metrics
            return self._checked(arrays, inner), metrics
        except Exception as error:
            # Whatever the strategy inside has made of it, its own state included, did not happen.
            load(inner, *held)
            self._round.note = f"{type(error).__name__}: {error}"
            log(ERROR, "round %d made no step: %s", server_round, self._round.note)
            return None, None

    def _checked(self, arrays: ArrayRecord, inner: Strategy) -> Model:
        """The new model in the types of the first one, if all of it and of the strategy's state is finite."""
        layout = self._begun()
        if set(arrays) != set(layout.names):
            raise ValueError("the strategy's new model has other arrays than the old one")
        found = {}
        for name, shape, dtype in zip(*layout, strict=True):
            value = decode(arrays[name])
            if value.shape != shape:
                raise ValueError(
                    f"array {name!r} of the strategy's new model has shape {value.shape}, not {shape}"
                )
            found[name] = as_type(value, dtype)
            if not finite(found[name]):
                raise ValueError(f"array {name!r} of the strategy's new model is not finite")
        for name, value in dump(inner)[1].items():
            if not finite(value):
                raise ValueError(f"{name} of the strategy itself is not finite")
        same = all(found[name].dtype == decode(arrays[name]).dtype for name in found)
        return Model(arrays if same else record(found), found)

    def _learn(self, this: Round, moved: Mapping[str, Model], used: Mapping[str, Sequence[Message]]) -> None:
        """Average what was in force before the update, then let the update be."""
        own, place = str(this.block), (this.cycle, this.block)
        moving = [(kind, name) for kind, name in self.moving(this.block) if name in moved]
        for kind, name in moving:
            self._note_change(kind, self.averages[kind].record(place, [(1.0, self.current[name].values)]))
        if self.bets is not None and SHARED in moved and own in moved:
            share = in_play(self.bets, this.block, None)
            models = self.current[SHARED].values, self.current[own].values
            force = list(zip(share.tolist(), models, strict=True))
            self._note_change("hedged", self.averages["hedged"].record(place, force))
            losses = self._losses(used[SHARED], used[own])
            if losses is not None:
                learn_losses(self.bets, this.block, losses)
        for kind, name in moving:
            self.current[name] = moved[name]
            self.last[kind][this.block] = moved[name].values
        this.moved = tuple(name for _, name in moving)

    def _note_change(self, kind: str, block: int | None) -> None:
        assert self._round is not None
        if block is not None:
            self._round.closed.append((kind, block))

    def _losses(self, shared: Sequence[Message], own: Sequence[Message]) -> NDArray | None:
        """The mean losses of both models on the nodes that have reported both."""
        told = [{each.metadata.src_node_id: _metrics(each) for each in some} for some in (shared, own)]
        nodes = [node for node in told[0] if node in told[1]]
        if not nodes:
            return None
        weights = np.array([told[0][node][self.weight] for node in nodes], np.float64)
        table = np.array([[each[node][self.loss] for each in told] for node in nodes], np.float64)
        return np.asarray(weights @ table / weights.sum())

    def _screen(self) -> Screen:
        loss = self.loss if self.bets is not None else None
        return Screen(self._begun(), self.weight, self.most_examples, self.largest, loss, self.known)

    def _check_losses(self, good: Sequence[Message], rejected: Sequence[Rejected]) -> None:
        """Clients of which none reports a loss are not bad, they do not know that it is wanted."""
        if (
            rejected
            and not good
            and not self.total.get("moved")
            and {each.reason for each in rejected} == {"loss"}
        ):
            raise ValueError(
                f"no client reports {self.loss!r}, the loss of the model it was sent before training, among "
                "its metrics: a hedge needs it"
            )

    def _reject(self, rejected: Iterable[Rejected]) -> None:
        assert self._round is not None
        for each in rejected:
            self._round.rejected[each.reason] = self._round.rejected.get(each.reason, 0) + 1
            log(WARNING, "round %d: node %d is left out: %s", self._round.number, each.node, each.sentence)

    def _begun(self) -> Layout:
        if self.layout is None:
            raise ValueError("no round was run yet")
        return self.layout

    def _which(self, of: str | None) -> str:
        kinds = self._kinds()
        if of is None:
            return kinds[-1]
        if of not in kinds:
            raise ValueError(f"of={of!r}: this run has {', '.join(kinds)}")
        return of

    def _means(self, of: str | None) -> list[Mean | None]:
        self._begun()
        return self.averages[self._which(of)].means()

    def _read(self, means: Sequence[Mean | None], read_out: str) -> BlockModels:
        """Means as models; blocks that were never visited have the mean of all."""
        layout = self._begun()
        whole: Mean | None = None
        for mean in means:
            whole = merged(whole, mean)
        if whole is None:
            raise ValueError("no round has changed the model yet")
        empty = tuple(block for block, mean in enumerate(means) if mean is None)
        models = tuple(layout.cast((whole if mean is None else mean).values) for mean in means)
        return BlockModels(self.schedule, models, empty, read_out)


def _stray(reply: Message) -> Rejected:
    words = str(reply.error.reason) if reply.has_error() else "it replies to no chain of this round"
    return Rejected(reply.metadata.src_node_id, "failed" if reply.has_error() else "names", words)


def _metrics(reply: Message) -> Mapping[str, Any]:
    return next(iter(reply.content.metric_records.values()))


def _bets(hedge: AdaHedge | Prod | None, blocks: int) -> Bets:
    rule = AdaHedge() if hedge is None else hedge
    if rule.coin is not None:
        raise ValueError("hedges of federated chains mix the models: leave coin= out")
    if isinstance(rule, AdaHedge):
        return rule.first(2, blocks)
    if rule.steps is None:
        raise ValueError("Prod's rate is for a number of rounds told beforehand: Prod(bound=..., steps=...)")
    return rule.first(2, np.broadcast_to(np.asarray(rule.steps), (blocks,)))
