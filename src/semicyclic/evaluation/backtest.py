"""Backtest: every candidate, the automatic choice and baselines over past data.

Progressive: each row is answered with all that was known when it came. Forward: by models that were frozen
at the last local midnight (or when the visit began), as they would have been used. Rows of the warm-up are
learnt from and not scored.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import fitting, form_of
from semicyclic.auto.export import weights_of
from semicyclic.auto.portfolio import QUESTIONS, Portfolio
from semicyclic.evaluation import baselines
from semicyclic.evaluation.scores import ScoreSums
from semicyclic.method.loss import LOGISTIC, Loss
from semicyclic.method.rows import Rows
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.label_delay import known_before
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import to_wall
from semicyclic.types import Array, ReportProgress

AUTO = "auto"
# Candidates with the step that a practitioner would try first, by what he calls them.
PLAIN = {
    "one SGD model": "single, adaptive 0.2, live",
    "SGD with hour and weekday": "block as a feature, adaptive 0.2, live",
    "one model per block": "separate, adaptive 0.2, live",
}
# The choice is looked at so often over the whole stream.
LOOKS = 200
LEAST = 64
# Numbers are scaled by at least so many of the first.
FEW = 100


class LabelledStream(NamedTuple):
    """A stream that is past: rows in the order in which they came, and all that is known of them.

    ticks: the times that tell their blocks; clock: when they came. target: labels as the loss wants them.
    units: what a squared (or log) loss and an absolute error are multiplied by, to be the labels' own.
    origin: the label that is learnt from as 0.
    """

    rows: Rows
    ticks: Array
    clock: Array
    target: Array
    loss: Loss
    units: tuple[float, float] = (1.0, 1.0)
    origin: float = 0.0

    def scale_targets(self, rows: int) -> "LabelledStream":
        """Numbers as targets of mean 0 and spread 1 by the first rows alone: no later one is known."""
        if self.loss.classes:
            return self
        y = self.target * self.units[1] + self.origin
        first = y[: max(rows, FEW)]
        origin, scale = float(first.mean()), float(first.std())
        scale = scale if scale > 0 else 1.0
        return self._replace(target=(y - origin) / scale, units=(scale**2, scale), origin=origin)

    def last(self, count: int) -> "LabelledStream":
        """The last rows of it."""
        part = slice(max(len(self.clock) - count, 0), len(self.clock))
        held = self.rows[part], self.ticks[part], self.clock[part], self.target[part]
        return LabelledStream(*held, self.loss, self.units, self.origin)


class WeightSnapshot(NamedTuple):
    """The weights of candidates at one moment, mean over slots."""

    clock: int
    weights: Array


class Backtest(NamedTuple):
    """What came of it: by question the tally of all, and looks at the choice.

    names: of candidates, then "auto", then baselines; the tallies' order. cycles: their numbers.
    """

    names: tuple[str, ...]
    candidates: int
    tallies: Mapping[str, ScoreSums]
    looks: Mapping[str, list[WeightSnapshot]]
    cycles: Array
    warm_up: int
    portfolio: Portfolio


# Other answers to the same questions: of a stream and what is known at each row the scores [rows, C].
ExternalBaseline = Callable[[LabelledStream, Array], Array]


def backtest(
    stream: LabelledStream,
    schedule: Schedule,
    *,
    delay: int = 0,
    freeze: str = "day",
    warm_up: int = 0,
    peers: Mapping[str, ExternalBaseline] | None = None,
    memory: int = 4 * 10**9,
    tell: ReportProgress | None = None,
) -> Backtest:
    """Ask all candidates, their mixture and baselines what they would have answered.

    Numbers should be `scaled` by the warm-up. memory: bytes that candidates may use.
    """
    say = tell or (lambda _, __: None)
    calendar = calendar_of(schedule)
    late = bool((stream.clock != stream.ticks).any())
    loss, width = stream.loss, stream.rows.width
    form, room = fitting(form_of(calendar), loss.outputs, width, memory)
    portfolio = Portfolio(form, loss, width, delay=delay, freeze=freeze, apart=late, room=room)
    count = len(stream.clock)
    cycle, block = schedule.place(stream.ticks)
    dawn = portfolio.dawns(stream.clock, cycle, calendar.place(stream.ticks), schedule.zone)
    known = {
        name: known_before(stream.clock, until, delay)
        for name, until in zip(QUESTIONS, (stream.clock, dawn), strict=True)
    }
    others = {name: baselines.simple(stream.loss, stream.target, block, known[name]) for name in QUESTIONS}
    for name, peer in (peers or {}).items():
        for question in QUESTIONS:
            say(0.0, f"{name}, {question}")
            others[question][name] = peer(stream, known[question])
    plain = {name: portfolio.names.index(of) for name, of in PLAIN.items() if of in portfolio.names}
    names = (*portfolio.names, AUTO, *others[QUESTIONS[0]], *plain)
    if schedule.period < DAY:  # cycles are to be compared, and these are too short for that
        cycle = to_wall(schedule.zone, stream.ticks) // DAY
    numbers, index = np.unique(cycle, return_inverse=True)
    sizes, odds = (schedule.blocks, len(numbers), len(names)), _odds(stream, warm_up)
    tallies = {name: ScoreSums.none(*sizes, loss, odds) for name in QUESTIONS}
    looks: dict[str, list[WeightSnapshot]] = {name: [] for name in QUESTIONS}
    step = max(LEAST, count // LOOKS)
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        for answers in portfolio.add(
            stream.rows[part], stream.clock[part], stream.ticks[part], stream.target[part]
        ):
            rows = slice(answers.first, answers.first + len(answers.progressive))
            scored = slice(max(rows.start, warm_up), rows.stop)
            if scored.start >= scored.stop:
                continue
            own = slice(scored.start - rows.start, None)
            for name, candidates, auto in (
                ("progressive", answers.progressive, answers.progressive_auto),
                ("forward", answers.forward, answers.forward_auto),
            ):
                beside = [each[scored] for each in others[name].values()]
                score = np.concatenate(
                    [
                        candidates[own],
                        auto[own][:, None],
                        *(each[:, None].astype(np.float32) for each in beside),
                        candidates[own][:, list(plain.values())],
                    ],
                    axis=1,
                )
                tallies[name].add(stream.loss, score, stream.target[scored], block[scored], index[scored])
        for name in QUESTIONS:
            looks[name].append(
                WeightSnapshot(int(stream.clock[part.stop - 1]), weights_of(portfolio, name).mean(axis=0))
            )
        say(part.stop / count, "walking through the rows")
    portfolio.end()
    return Backtest(names, portfolio.form.size, tallies, looks, numbers, warm_up, portfolio)


def _odds(stream: LabelledStream, warm_up: int) -> float:
    """The log odds around which scores will lie, of two classes."""
    if stream.loss.code != LOGISTIC:
        return 0.0
    share = (float((stream.target[:warm_up] > 0).sum()) + 1.0) / (warm_up + 2.0)
    return float(np.log(share / (1.0 - share)))
