"""Interleaved timing: machines are shared and noisy, so only ratios within one run count."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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


def beside(name: str, value: float) -> Figure:
    """A figure without a goal, told beside those that have one."""
    return Figure(name, value, float("nan"), at_least=False)


def best_of(repeats: int, /, **jobs: Callable[[], object]) -> dict[str, float]:
    """The shortest time of each job, the jobs taking turns; each ran once before."""
    for job in jobs.values():
        job()
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
