"""Evaluation of candidate models by clients, and the choice of a model for each block."""

from collections.abc import Callable, Mapping, Sequence
from logging import WARNING
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.candidate_scores import Candidate, CandidateScores, mean_losses
from semicyclic.adapters.flower.chains import Chains
from semicyclic.adapters.flower.reply_validation import WORST, RejectedReply
from semicyclic.adapters.flower.round_results import Round
from semicyclic.adapters.flower.serialization import record
from semicyclic.adapters.flower.server_state import ServerState
from semicyclic.adapters.flower.strategy_state import innermost_of
from semicyclic.method.hedge import learn_losses
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array

# The names of metrics in which clients usually report a loss on rows of their own.
LOSSES = ("eval_loss", "eval-loss", "val_loss", "test_loss", "loss")
EVALUATORS = 10
# Number of rounds without any report after which the clients of a block are not asked in every round.
TRIES = 3
# How messages that evaluate a candidate are marked: what follows in their group names the model.
MARK, IN_FORCE = "/candidate/", "in-force"


class RecordKeys(NamedTuple):
    """Under which names a message has its arrays and its settings."""

    arrays: str
    config: str


def keys_of(strategy: Strategy) -> RecordKeys:
    """The names that a strategy uses in its messages."""
    inner = innermost_of(strategy)
    return RecordKeys(
        getattr(inner, "arrayrecord_key", "arrays"), getattr(inner, "configrecord_key", "config")
    )


def is_trial(message: Message) -> bool:
    """Whether a message, or a reply to one, evaluates a candidate."""
    return MARK in message.metadata.group_id


class CandidateEvaluation:
    """Evaluations of candidates by clients.

    count: how many clients of a round evaluate. names: of the metrics with the loss (None for any of LOSSES)
    and with the number of examples. reporting: whether a loss was ever reported. unanswered: by block, for
    how many rounds in a row none was.
    """

    def __init__(self, schedule: Schedule, count: int, names: tuple[str | None, str], draws: int) -> None:
        self.schedule, self.count, self.names, self.draws = schedule, count, names, draws
        self.evidence = CandidateScores(schedule.blocks)
        self.reporting = False
        self.unanswered = [0] * schedule.blocks

    def messages(
        self, this: Round, learnt: ServerState, config: Mapping[str, Any], keys: RecordKeys
    ) -> list[Message]:
        """Messages to some nodes of a round: evaluate models that could be deployed in its block."""
        # Those that have replied to training in time will reply again.
        count = min(self.count, len(this.replied))
        if not count or not this.moved:
            return []
        if self.unanswered[this.block] >= TRIES and not (self.reporting and this.began):
            return []
        models = self._models(this, learnt)
        rng = np.random.default_rng([self.draws, this.tick, 2])
        nodes = [this.replied[k] for k in np.sort(rng.permutation(len(this.replied))[:count])]
        messages = []
        for label, arrays in models.items():
            settings = ConfigRecord({**config, "cycle": this.cycle, "block": this.block, "candidate": label})
            settings["server-round"] = this.number
            content = RecordDict({keys.arrays: arrays, keys.config: settings})
            group = f"{this.number}{MARK}{label}"
            messages += [Message(content, node, MessageType.EVALUATE, group_id=group) for node in nodes]
        return messages

    def _models(self, this: Round, learnt: ServerState) -> dict[str, ArrayRecord]:
        """The models to evaluate in a round.

        With Chains.SPLIT those that both chains had before the round, for the hedge. Of the candidates, as
        the visit began with them: the reference, one of the block's own and one of another block's.
        """
        self.evidence.visit(this.block, this.cycle)
        models: dict[str, ArrayRecord] = {}
        if learnt.chains is Chains.SPLIT and learnt.has_own(this.block):
            models = {f"{IN_FORCE}/{name}": model.record for name, model in this.in_force.items()}
        reference, own, foreign = learnt.candidates(this.block)
        if not learnt.has_frozen(reference):
            if not self.reporting and not models:
                # Too early for candidates: find out whether clients report losses at all.
                models[f"{IN_FORCE}/{this.moved[0]}"] = learnt.current[this.moved[0]].record
            return models
        best = self.evidence.best(this.block, reference)
        if best in foreign:
            own = [*own, best]
        for each in [reference, *self.evidence.next(this.block, (own, foreign))]:
            models[str(each)] = record(learnt.frozen_model(each))
        return models

    def learn(
        self,
        this: Round,
        learnt: ServerState,
        replies: tuple[Sequence[Message], Sequence[RejectedReply]],
        name: Callable[[int], int],
    ) -> bool:
        """Learn from the losses in replies that can be used; whether there were any.

        replies: those that can be used, and the others. name: the number of a client, by its node.
        """
        reports = sorted(report for reply in replies[0] for report in self._reports(reply, name))
        if not reports:
            self._complain(this, *replies)
            return False
        self.reporting, self.unanswered[this.block] = True, 0
        labels = list(dict.fromkeys(label for _, label, _, _ in reports))
        pair = [f"{IN_FORCE}/{chain}" for _, chain in learnt.chains.moving(this.block)]
        if learnt.bets is not None and learnt.chains is Chains.SPLIT:
            losses = mean_losses(reports, pair)
            if losses is not None:
                learn_losses(learnt.bets, this.block, np.array([losses[each] for each in pair]))
                this.losses |= losses
        reference = str(Candidate(learnt.chains.kinds[0], "mean", this.block))
        found: dict[Candidate, float] = {}
        for label in labels:
            both = None if label.startswith(IN_FORCE) else mean_losses(reports, [label, reference])
            if both is not None and label != reference:
                this.losses |= both
                found[Candidate.of(label)] = both[label] - both[reference]
        self.evidence.add(this.block, found)
        return True

    def _reports(self, reply: Message, name: Callable[[int], int]) -> list[tuple[int, str, float, float]]:
        """(client, model, loss, number of examples), if the reply has a loss."""
        metrics = metrics_of(reply)
        key = self.names[0] or next((each for each in LOSSES if each in metrics), "")
        loss, examples = metrics.get(key), metrics.get(self.names[1])
        if not isinstance(loss, int | float) or not isinstance(examples, int | float) or abs(loss) > WORST:
            return []
        label = reply.metadata.group_id.partition(MARK)[2]
        return [(name(reply.metadata.src_node_id), label, float(loss), float(examples))]

    def reports(self, block: int) -> bool:
        """Whether clients of a block can be expected to report losses."""
        return self.reporting and self.unanswered[block] < TRIES

    def _complain(self, this: Round, good: Sequence[Message], rejected: Sequence[RejectedReply]) -> None:
        """Count a round without reports; warn once per block."""
        self.unanswered[this.block] += 1
        if not self.reporting:
            # No client ever has: one warning for all blocks.
            self.unanswered = [self.unanswered[this.block]] * len(self.unanswered)
        if self.unanswered[this.block] != TRIES:
            return
        reason = rejected[0].sentence if rejected else f"their metrics are {sorted(metrics_of(good[0]))}"
        log(
            WARNING,
            "round %d, block %s: no client reports a loss on rows of its own (%s), so there is no evidence "
            "for best() here. All clients train the shared chain, whose mean may be another block's model if "
            "the strategy carries momentum. Give the ClientApp an @app.evaluate() that reports %r, or set "
            "evaluators=0",
            this.number,
            self.schedule.labels[this.block],
            reason,
            self.names[0] or LOSSES[0],
        )

    def best(self, learnt: ServerState) -> BlockModels:
        """For each block the candidate with the least loss by what was reported."""
        learnt.check_begun()
        kinds, labels = learnt.chains.kinds, self.schedule.labels
        chosen: list[Candidate] = []
        silent, swapped = [], []
        for block in range(self.schedule.blocks):
            pick = self.evidence.best(block, Candidate(kinds[0], "mean", block))
            if pick is None:
                silent.append(labels[block])
                # Nothing is known: what a hedge has found, or else what cannot be another block's model.
                hedged = learnt.bets is not None and learnt.bets.steps[block] > 0
                pick = Candidate("hedged", "mean", block) if hedged else Candidate(kinds[0], "all", 0)
                silent[-1] += " (the hedge's mean)" if hedged else " (the mean of all rounds)"
            elif self.evidence.foreign(block) is not None:
                swapped.append(labels[block])
            chosen.append(pick)
        if silent:
            log(
                WARNING,
                "best(): no client has reported losses of candidates in block(s) %s",
                ", ".join(silent),
            )
        if swapped:
            log(
                WARNING,
                "best(): in block(s) %s a model of another block has a smaller loss than the block's own "
                "mean: the shared model lags behind the clock, or blocks are alike",
                ", ".join(swapped),
            )
        # Several blocks may have the same model.
        models = {pick: learnt.model_of(pick) for pick in set(chosen)}
        fallback = tuple(block for block in range(self.schedule.blocks) if not learnt.has_visited(block))
        found = tuple(models[pick] for pick in chosen)
        return BlockModels(self.schedule, found, fallback, "best", tuple(map(str, chosen)))

    def table(self) -> list[dict[str, Any]]:
        """All candidates that were measured, by block, best first."""
        return [
            {
                "block": label,
                "candidate": str(each.candidate),
                "difference": each.difference,
                "standard_error": each.error,
                "rounds": each.rounds,
            }
            for block, label in enumerate(self.schedule.labels)
            for each in self.evidence.scores(block)
        ]

    def to_json(self) -> dict[str, Any]:
        """What a run that goes on has to know."""
        return {"reporting": self.reporting, "unanswered": self.unanswered, **self.evidence.to_json()}

    def restore(self, held: Mapping[str, Any]) -> None:
        """What `to_json` has given."""
        self.reporting, self.unanswered = held["reporting"], held["unanswered"]
        self.evidence.restore(held)


def metrics_of(reply: Message) -> Mapping[str, Any]:
    """The metrics of a reply that has one record of them."""
    return next(iter(reply.content.metric_records.values()))


def chain_losses(shared: Sequence[Message], own: Sequence[Message], loss: str, weight: str) -> Array | None:
    """The mean losses of the shared and the own chain's model on the clients that reported both.

    loss, weight: the names of the metrics with a client's loss and its number of examples.
    """
    reports = []
    for name, replies in (("shared", shared), ("own", own)):
        for reply in replies:
            metrics = metrics_of(reply)
            reports.append((reply.metadata.src_node_id, name, metrics[loss], metrics[weight]))
    means = mean_losses(reports, ["shared", "own"])
    return None if means is None else np.array([means["shared"], means["own"]])
