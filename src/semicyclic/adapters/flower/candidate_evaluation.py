"""Evaluation of candidate models by clients, and choice of a model for each block."""

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
from semicyclic.adapters.flower.reply_validation import MAX_LOSS, RejectedReply
from semicyclic.adapters.flower.round_results import Round
from semicyclic.adapters.flower.serialization import record
from semicyclic.adapters.flower.server_state import ServerState
from semicyclic.adapters.flower.strategy_state import innermost_of
from semicyclic.method.hedge import learn_losses
from semicyclic.schedule.schedule import Schedule
from semicyclic.types import Array

# Usual names of the metric in which clients report a loss on their held-out rows.
LOSS_METRICS = ("eval_loss", "eval-loss", "val_loss", "test_loss", "loss")
# Number of clients per round that evaluate candidates.
DEFAULT_EVALUATORS = 10
# Number of consecutive rounds without a report after which a block's clients are not asked in every round.
MAX_SILENT_ROUNDS = 3
# Marker in the group id of messages that evaluate a candidate; the label of the model follows it.
CANDIDATE_MARKER = "/candidate/"
# Prefix of the labels of current chain models, which are no candidates.
IN_FORCE = "in-force"


class RecordKeys(NamedTuple):
    """Names of the array record and the config record in a message."""

    arrays: str
    config: str


def keys_of(strategy: Strategy) -> RecordKeys:
    """Return the record names that a strategy uses in its messages."""
    inner = innermost_of(strategy)
    return RecordKeys(
        getattr(inner, "arrayrecord_key", "arrays"), getattr(inner, "configrecord_key", "config")
    )


def is_trial(message: Message) -> bool:
    """Return whether a message or reply belongs to the evaluation of candidate models on clients."""
    return CANDIDATE_MARKER in message.metadata.group_id


class CandidateEvaluation:
    """Evaluation of candidates by clients.

    count: number of clients per round that evaluate. names: metric with the loss (None for the first of
        LOSS_METRICS that a reply has), and metric with the number of examples.
    draws: seed for the choice of clients. evidence: scores of the candidates.
    reporting: whether any client has ever reported a loss. unanswered: per block, the number of consecutive
        rounds without a report.
    """

    def __init__(self, schedule: Schedule, count: int, names: tuple[str | None, str], draws: int) -> None:
        self.schedule, self.count, self.names, self.draws = schedule, count, names, draws
        self.evidence = CandidateScores(schedule.blocks)
        self.reporting = False
        self.unanswered = [0] * schedule.blocks

    def messages(
        self, this: Round, state: ServerState, config: Mapping[str, Any], keys: RecordKeys
    ) -> list[Message]:
        """Return messages that ask some nodes of a round to evaluate candidates for its block."""
        # Nodes that replied to training in time are likely to reply again.
        count = min(self.count, len(this.replied))
        if not count or not this.moved:
            return []
        if self.unanswered[this.block] >= MAX_SILENT_ROUNDS and not (self.reporting and this.began):
            return []
        models = self._models(this, state)
        rng = np.random.default_rng([self.draws, this.tick, 2])
        nodes = [this.replied[k] for k in np.sort(rng.permutation(len(this.replied))[:count])]
        messages = []
        for label, arrays in models.items():
            settings = ConfigRecord({**config, "cycle": this.cycle, "block": this.block, "candidate": label})
            settings["server-round"] = this.number
            content = RecordDict({keys.arrays: arrays, keys.config: settings})
            group = f"{this.number}{CANDIDATE_MARKER}{label}"
            messages += [Message(content, node, MessageType.EVALUATE, group_id=group) for node in nodes]
        return messages

    def _models(self, this: Round, state: ServerState) -> dict[str, ArrayRecord]:
        """Return the models to evaluate in a round, by label.

        With Chains.SPLIT, the models of both chains before the round, for the hedge. In addition, frozen at
        the start of the visit: the reference, one candidate of the block and one of another block.
        """
        self.evidence.visit(this.block, this.cycle)
        models: dict[str, ArrayRecord] = {}
        if state.chains is Chains.SPLIT and state.has_own(this.block):
            models = {f"{IN_FORCE}/{name}": model.record for name, model in this.in_force.items()}
        reference, own, foreign = state.candidates(this.block)
        if not state.has_frozen(reference):
            if not self.reporting and not models:
                # No candidates yet: find out whether clients report losses at all.
                models[f"{IN_FORCE}/{this.moved[0]}"] = state.current[this.moved[0]].record
            return models
        best = self.evidence.best(this.block, reference)
        if best in foreign:
            own = [*own, best]
        for candidate in [reference, *self.evidence.next(this.block, (own, foreign))]:
            models[str(candidate)] = record(state.frozen_model(candidate))
        return models

    def learn(
        self,
        this: Round,
        state: ServerState,
        replies: tuple[Sequence[Message], Sequence[RejectedReply]],
        name: Callable[[int], int],
    ) -> bool:
        """Update scores and hedge with the reported losses; return whether there were any.

        replies: the usable and the rejected ones. name: returns the device number of a node.
        """
        reports = sorted(report for reply in replies[0] for report in self._reports(reply, name))
        if not reports:
            self._count_silent_round(this, *replies)
            return False
        self.reporting, self.unanswered[this.block] = True, 0
        labels = list(dict.fromkeys(label for _, label, _, _ in reports))
        pair = [f"{IN_FORCE}/{chain}" for _, chain in state.chains.moving(this.block)]
        if state.hedge_state is not None and state.chains is Chains.SPLIT:
            losses = mean_losses(reports, pair)
            if losses is not None:
                learn_losses(state.hedge_state, this.block, np.array([losses[label] for label in pair]))
                this.losses |= losses
        reference = str(Candidate(state.chains.kinds[0], "mean", this.block))
        differences: dict[Candidate, float] = {}
        for label in labels:
            both = None if label.startswith(IN_FORCE) else mean_losses(reports, [label, reference])
            if both is not None and label != reference:
                this.losses |= both
                differences[Candidate.of(label)] = both[label] - both[reference]
        self.evidence.add(this.block, differences)
        return True

    def _reports(self, reply: Message, name: Callable[[int], int]) -> list[tuple[int, str, float, float]]:
        """Return [(client, model, loss, number of examples)], or [] if the reply has no valid loss."""
        metrics = metrics_of(reply)
        key = self.names[0] or next((metric for metric in LOSS_METRICS if metric in metrics), "")
        loss, examples = metrics.get(key), metrics.get(self.names[1])
        if not isinstance(loss, int | float) or not isinstance(examples, int | float) or abs(loss) > MAX_LOSS:
            return []
        label = reply.metadata.group_id.partition(CANDIDATE_MARKER)[2]
        return [(name(reply.metadata.src_node_id), label, float(loss), float(examples))]

    def reports(self, block: int) -> bool:
        """Return whether clients of a block are expected to report losses."""
        return self.reporting and self.unanswered[block] < MAX_SILENT_ROUNDS

    def _count_silent_round(
        self, this: Round, good: Sequence[Message], rejected: Sequence[RejectedReply]
    ) -> None:
        """Count a round without reports; warn once per block."""
        self.unanswered[this.block] += 1
        if not self.reporting:
            # No client has ever reported: warn once for all blocks.
            self.unanswered = [self.unanswered[this.block]] * len(self.unanswered)
        if self.unanswered[this.block] != MAX_SILENT_ROUNDS:
            return
        reason = rejected[0].sentence if rejected else f"their metrics are {sorted(metrics_of(good[0]))}"
        log(
            WARNING,
            "round %d, block %s: no client reports a loss on held-out rows (%s), so best() has no evidence "
            "for this block. All clients train the shared chain, whose mean may be another block's model if "
            "the strategy carries momentum. Give the ClientApp an @app.evaluate() that reports %r, or set "
            "evaluators=0",
            this.number,
            self.schedule.labels[this.block],
            reason,
            self.names[0] or LOSS_METRICS[0],
        )

    def best(self, state: ServerState) -> BlockModels:
        """Return for each block the candidate with the lowest reported loss."""
        state.check_begun()
        kinds, labels = state.chains.kinds, self.schedule.labels
        chosen: list[Candidate] = []
        silent, swapped = [], []
        for block in range(self.schedule.blocks):
            pick = self.evidence.best(block, Candidate(kinds[0], "mean", block))
            if pick is None:
                silent.append(labels[block])
                # No reports: use the hedge if it has seen losses, else the mean of all rounds, which cannot
                # be the model of another block.
                hedged = state.hedge_state is not None and state.hedge_state.steps[block] > 0
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
                "mean: the shared model lags behind the clock, or the blocks are similar",
                ", ".join(swapped),
            )
        # Read each model once: several blocks may share one.
        models = {pick: state.model_of(pick) for pick in set(chosen)}
        fallback = tuple(block for block in range(self.schedule.blocks) if not state.has_visited(block))
        by_block = tuple(models[pick] for pick in chosen)
        return BlockModels(self.schedule, by_block, fallback, "best", tuple(map(str, chosen)))

    def table(self) -> list[dict[str, Any]]:
        """Return the scores of all measured candidates as rows, by block, best first."""
        return [
            {
                "block": label,
                "candidate": str(score.candidate),
                "difference": score.difference,
                "standard_error": score.error,
                "rounds": score.rounds,
            }
            for block, label in enumerate(self.schedule.labels)
            for score in self.evidence.scores(block)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the state for a checkpoint as JSON values."""
        return {"reporting": self.reporting, "unanswered": self.unanswered, **self.evidence.to_json()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self.reporting, self.unanswered = state["reporting"], state["unanswered"]
        self.evidence.restore(state)


def metrics_of(reply: Message) -> Mapping[str, Any]:
    """Return the metrics of a validated reply, which has exactly one metric record."""
    return next(iter(reply.content.metric_records.values()))


def chain_losses(shared: Sequence[Message], own: Sequence[Message], loss: str, weight: str) -> Array | None:
    """Return the mean losses, shape (2,), of the shared and the own chain over clients that reported both.

    None if no client did. loss, weight: names of the metrics with a client's loss and number of examples.
    """
    reports = []
    for name, replies in (("shared", shared), ("own", own)):
        for reply in replies:
            metrics = metrics_of(reply)
            reports.append((reply.metadata.src_node_id, name, metrics[loss], metrics[weight]))
    means = mean_losses(reports, ["shared", "own"])
    return None if means is None else np.array([means["shared"], means["own"]])
