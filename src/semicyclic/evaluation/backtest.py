"""Backtest: scores of every candidate, the automatic choice and baselines over past data.

Rows are predicted under two protocols. Progressive: by models trained on all labels known when the row
arrived. Forward (walk-forward): by models as of the row's freeze time, the last local midnight or the
beginning of the visit, as they would have been deployed. Rows of the warm-up are trained on but not scored.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from semicyclic.auto.calendar import calendar_of
from semicyclic.auto.candidates import candidate_set_of, fit_to_memory
from semicyclic.auto.export import weights_of
from semicyclic.auto.portfolio import PROTOCOLS, Portfolio
from semicyclic.evaluation import baselines
from semicyclic.evaluation.scores import ScoreSums
from semicyclic.method.loss import LOGISTIC, Loss
from semicyclic.method.rows import Rows, count_features
from semicyclic.schedule.block_edges import DAY
from semicyclic.schedule.label_delay import known_before
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.timezones import to_wall
from semicyclic.types import Array, ReportProgress

AUTO = "auto"
# Candidates with a default step size that also appear as baselines, under common names.
PLAIN_BASELINES = {
    "one SGD model": "single, adaptive 0.2, live",
    "SGD with hour and weekday": "block as a feature, adaptive 0.2, live",
    "one model per block": "separate, adaptive 0.2, live",
}
# Number of snapshots of the mixture weights over the stream, and the minimum of rows between them.
SNAPSHOTS = 200
MIN_ROWS_PER_SNAPSHOT = 64
# Numeric targets are standardized by at least this many of the first rows.
MIN_ROWS_FOR_SCALING = 100


class LabelledStream(NamedTuple):
    """A recorded stream: rows in order of arrival, with labels and times.

    ticks: times that determine the blocks; clock: arrival times. Both in microseconds since 1970 UTC.
    target: labels as encoded for the loss.
    units: factors that convert a squared (or log) loss and an absolute error to the units of the labels.
    origin: the label that corresponds to a target of 0.
    """

    rows: Rows
    ticks: Array
    clock: Array
    target: Array
    loss: Loss
    units: tuple[float, float] = (1.0, 1.0)
    origin: float = 0.0

    def scale_targets(self, rows: int) -> "LabelledStream":
        """Standardize numeric targets to mean 0 and standard deviation 1 over the first `rows` rows.

        Later rows are not used, since their labels are not known yet. Class labels are returned unchanged.
        """
        if self.loss.classes:
            return self
        y = self.target * self.units[1] + self.origin
        first = y[: max(rows, MIN_ROWS_FOR_SCALING)]
        origin, scale = float(first.mean()), float(first.std())
        scale = scale if scale > 0 else 1.0
        return self._replace(target=(y - origin) / scale, units=(scale**2, scale), origin=origin)

    def last(self, count: int) -> "LabelledStream":
        """Return the stream of the last `count` rows."""
        part = slice(max(len(self.clock) - count, 0), len(self.clock))
        columns = self.rows[part], self.ticks[part], self.clock[part], self.target[part]
        return LabelledStream(*columns, self.loss, self.units, self.origin)


class WeightSnapshot(NamedTuple):
    """Mixture weights at one time, averaged over slots.

    clock: microseconds since 1970 UTC. weights: [K] of the candidates.
    """

    clock: int
    weights: Array


class Backtest(NamedTuple):
    """Result of a backtest: per protocol, the scores of all models and snapshots of the mixture weights.

    names: of the candidates, then "auto", then the baselines; the order of the scores.
    candidates: number of candidates. tallies, looks: scores and snapshots by protocol.
    cycles: numbers of the cycles; days if the schedule's period is shorter than a day.
    warm_up: number of rows that were not scored. portfolio: the candidates after the last row.
    """

    names: tuple[str, ...]
    candidates: int
    tallies: Mapping[str, ScoreSums]
    looks: Mapping[str, list[WeightSnapshot]]
    cycles: Array
    warm_up: int
    portfolio: Portfolio


# A function of a stream and the number of labels known at each row [rows], which returns scores [rows, C].
ExternalBaseline = Callable[[LabelledStream, Array], Array]


def backtest(
    stream: LabelledStream,
    schedule: Schedule,
    *,
    delay: int = 0,
    freeze: str = "day",
    horizon: int = 1,
    warm_up: int = 0,
    peers: Mapping[str, ExternalBaseline] | None = None,
    memory: int = 1 << 27,
    report_progress: ReportProgress | None = None,
) -> Backtest:
    """Score all candidates, their mixture and the baselines on a recorded stream.

    stream: numeric targets should be standardized by `LabelledStream.scale_targets` over the warm-up.
    delay: time from a row's arrival until its label is known, in microseconds.
    freeze: freeze times of the walk-forward protocol: "day" (local midnight) or "visit" (its beginning).
    horizon: with freeze "day", the number of days that a model is used for.
    warm_up: number of first rows that are trained on but not scored.
    peers: external baselines by name. memory: maximum memory of the candidates, in bytes.
    report_progress: progress callback.
    """
    report = report_progress or (lambda _, __: None)
    calendar = calendar_of(schedule)
    loss, width = stream.loss, stream.rows.width
    features = count_features(stream.rows)
    form, room = fit_to_memory(candidate_set_of(calendar), loss.outputs, features, memory)
    portfolio = Portfolio(form, loss, width, delay=delay, freeze=freeze, horizon=horizon, max_columns=room)
    count = len(stream.clock)
    cycle, block = schedule.place(stream.ticks)
    frozen_at = portfolio.freeze_times(stream.clock, cycle, calendar.place(stream.ticks), schedule.zone)
    known = {
        name: known_before(stream.clock, until, delay)
        for name, until in zip(PROTOCOLS, (stream.clock, frozen_at), strict=True)
    }
    others = {name: baselines.simple(stream.loss, stream.target, block, known[name]) for name in PROTOCOLS}
    for name, peer in (peers or {}).items():
        for protocol in PROTOCOLS:
            report(0.0, f"{name}, {protocol}")
            others[protocol][name] = peer(stream, known[protocol])
    plain = {
        name: portfolio.names.index(candidate)
        for name, candidate in PLAIN_BASELINES.items()
        if candidate in portfolio.names
    }
    names = (*portfolio.names, AUTO, *others[PROTOCOLS[0]], *plain)
    if schedule.period < DAY:  # too short for standard errors over cycles: use days instead
        cycle = to_wall(schedule.zone, stream.ticks) // DAY
    numbers, index = np.unique(cycle, return_inverse=True)
    sizes, odds = (schedule.blocks, len(numbers), len(names)), _log_odds(stream, warm_up)
    tallies = {name: ScoreSums.none(*sizes, loss, odds) for name in PROTOCOLS}
    looks: dict[str, list[WeightSnapshot]] = {name: [] for name in PROTOCOLS}
    step = max(MIN_ROWS_PER_SNAPSHOT, count // SNAPSHOTS)
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        for predicted in portfolio.add(
            stream.rows[part], stream.clock[part], stream.ticks[part], stream.target[part]
        ):
            rows = slice(predicted.first, predicted.first + len(predicted.progressive))
            scored = slice(max(rows.start, warm_up), rows.stop)
            if scored.start >= scored.stop:
                continue
            after_warm_up = slice(scored.start - rows.start, None)
            for name, candidates, auto in (
                ("progressive", predicted.progressive, predicted.progressive_auto),
                ("forward", predicted.forward, predicted.forward_auto),
            ):
                baseline_scores = [scores[scored] for scores in others[name].values()]
                score = np.concatenate(
                    [
                        candidates[after_warm_up],
                        auto[after_warm_up][:, None],
                        *(scores[:, None].astype(np.float32) for scores in baseline_scores),
                        candidates[after_warm_up][:, list(plain.values())],
                    ],
                    axis=1,
                )
                tallies[name].add(stream.loss, score, stream.target[scored], block[scored], index[scored])
        for name in PROTOCOLS:
            looks[name].append(
                WeightSnapshot(int(stream.clock[part.stop - 1]), weights_of(portfolio, name).mean(axis=0))
            )
        report(part.stop / count, "walking through the rows")
    portfolio.end()
    return Backtest(names, portfolio.candidate_set.size, tallies, looks, numbers, warm_up, portfolio)


def _log_odds(stream: LabelledStream, warm_up: int) -> float:
    """Return the log odds of the second of two classes in the warm-up; 0 for other losses."""
    if stream.loss.code != LOGISTIC:
        return 0.0
    share = (float((stream.target[:warm_up] > 0).sum()) + 1.0) / (warm_up + 2.0)
    return float(np.log(share / (1.0 - share)))
