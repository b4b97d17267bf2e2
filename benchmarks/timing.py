"""Interleaved timing: machines are shared and noisy, so only ratios within one run count."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# The costs of our own jobs in this process, by name: seconds, or gigabytes. `--compare` reads them.
COSTS: dict[str, float] = {}


@dataclass
class Peers:
    """Whether the jobs we are compared with run at all; `--compare` leaves them out."""

    run: bool = True


PEERS = Peers()


@dataclass(frozen=True)
class Peer:
    """A job that is not ours: what a benchmark compares with."""

    job: Callable[[], object]


@dataclass(frozen=True)
class Figure:
    """One measured figure and its goal: at least or at most so much; or none, beside the others."""

    name: str
    value: float
    goal: float
    at_least: bool

    @property
    def passed(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    @property
    def distance(self) -> float:
        """How far on the wrong side of the goal, as a factor; below 1 on the right side."""
        return self.goal / self.value if self.at_least else self.value / self.goal

    @property
    def has_goal(self) -> bool:
        return self.goal == self.goal

    def row(self) -> dict[str, Any]:
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
    return Figure(name, value, goal, at_least=True)


def at_most(name: str, value: float, goal: float) -> Figure:
    return Figure(name, value, goal, at_least=False)


def no_goal(name: str, value: float) -> Figure:
    """A figure without a goal, told beside those that have one."""
    return Figure(name, value, float("nan"), at_least=False)


def timed(name: str, job: Callable[[], object], *, repeats: int = 1) -> float:
    """The shortest time of one of our jobs, noted as its cost."""
    seconds = min(_seconds(job) for _ in range(repeats))
    return note(name, min(seconds, COSTS.get(name, float("inf"))))


def peer_timed(job: Callable[[], object]) -> float:
    """The time of a job that is not ours; NaN where peers are left out."""
    return _seconds(job) if PEERS.run else float("nan")


def note(name: str, cost: float) -> float:
    """Note the cost of one of our jobs, in seconds or gigabytes."""
    COSTS[name] = cost
    return cost


def best_of(repeats: int, /, **jobs: Callable[[], object] | Peer) -> dict[str, float]:
    """The shortest time of each job, the jobs taking turns; each ran once before."""
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
    start = time.perf_counter()
    job()
    return time.perf_counter() - start
