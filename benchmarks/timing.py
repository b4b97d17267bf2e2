"""Interleaved timing: machines are shared and noisy, so only ratios within one run are meaningful."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Costs of our jobs in this process by name, in seconds or gigabytes; `--compare` reads them.
COSTS: dict[str, float] = {}


@dataclass
class Peers:
    """Switch for peer jobs: `run` is false under `--ours` and `--compare`, which skip them."""

    run: bool = True


PEERS = Peers()


@dataclass(frozen=True)
class Peer:
    """A job of another library, to compare with."""

    job: Callable[[], object]


@dataclass(frozen=True)
class Figure:
    """One measured figure and its goal, a lower or an upper bound; a NaN goal means no goal."""

    name: str
    value: float
    goal: float
    at_least: bool

    @property
    def passed(self) -> bool:
        """True if the value meets the goal."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    @property
    def distance(self) -> float:
        """Ratio of value and goal, above 1 if the goal is missed."""
        return self.goal / self.value if self.at_least else self.value / self.goal

    @property
    def has_goal(self) -> bool:
        """True unless the goal is NaN."""
        return self.goal == self.goal

    def row(self) -> dict[str, Any]:
        """Entry for results.json."""
        if not self.has_goal:
            return {"name": self.name, "value": round(self.value, 4), "goal": None, "pass": None}
        sense = "at least" if self.at_least else "at most"
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "goal": f"{sense} {self.goal:g}",
            "pass": self.passed,
        }


def at_least(name: str, value: float, goal: float) -> Figure:
    """Figure whose goal is a lower bound."""
    return Figure(name, value, goal, at_least=True)


def at_most(name: str, value: float, goal: float) -> Figure:
    """Figure whose goal is an upper bound."""
    return Figure(name, value, goal, at_least=False)


def no_goal(name: str, value: float) -> Figure:
    """Figure without a goal, reported in addition to those with one."""
    return Figure(name, value, float("nan"), at_least=False)


def timed(name: str, job: Callable[[], object], *, repeats: int = 1) -> float:
    """Return the shortest time of one of our jobs, in seconds, and record it as a cost."""
    seconds = min(_seconds(job) for _ in range(repeats))
    return note(name, min(seconds, COSTS.get(name, float("inf"))))


def peer_timed(job: Callable[[], object]) -> float:
    """Return the time of a peer's job, in seconds; NaN if peers are skipped."""
    return _seconds(job) if PEERS.run else float("nan")


def note(name: str, cost: float) -> float:
    """Record and return the cost of one of our jobs, in seconds or gigabytes."""
    COSTS[name] = cost
    return cost


def best_of(repeats: int, /, **jobs: Callable[[], object] | Peer) -> dict[str, float]:
    """Return the shortest time of each job, in seconds; jobs run in turns, after one warm-up run each."""
    calls = {name: job.job if isinstance(job, Peer) else job for name, job in jobs.items()}
    best = dict.fromkeys(jobs, float("nan"))
    chosen = [name for name, job in jobs.items() if PEERS.run or not isinstance(job, Peer)]
    for name in chosen:
        calls[name]()
        best[name] = float("inf")
    for _ in range(repeats):
        for name in chosen:
            best[name] = min(best[name], _seconds(calls[name]))
    for name in chosen:
        if not isinstance(jobs[name], Peer):
            note(name, best[name])
    return best


def _seconds(job: Callable[[], object]) -> float:
    """Time one run of a job."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start
