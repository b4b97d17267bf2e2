"""What engines are given and what they write: plain arrays, so that Numba can read them too.

An engine (`chain` in NumPy, `kernels` in Numba) runs steps of the chain and writes one record
per visit, or per part of a visit. The weights in force are w = scale * z, with
z = sum_j c_j v_j over the vectors v_j of the basis; `scale` carries the projection and dual
averaging, so that neither has to touch every column at every step.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semicyclic.method.step import ADAGRAD, DUAL

Array = npt.NDArray[Any]


class Layout(NamedTuple):
    """Rows cut into minibatches and visits.

    Row r has the columns columns[starts[r]:starts[r+1]]; step t is rows steps[t]:steps[t+1];
    visit v is steps visits[v]:visits[v+1]. `weights` is empty where all rows count alike.
    """

    columns: Array
    values: Array
    starts: Array
    targets: Array
    weights: Array
    steps: Array
    visits: Array
    block: Array


class Plan(NamedTuple):
    """All that stays the same during a run (see `loss`, `step` and `basis`).

    rule, radius, box, eta: by chain. chain, active, coefficient, emphasis: by slot. A slot is a
    block; or, where several chains are hedged, a block as one of them sees it: expert e has the
    slots e * m to e * m + m - 1.
    """

    loss: int
    level: float
    intercept: float
    rule: Array
    radius: Array
    box: Array
    eta: Array
    chain: Array
    active: Array
    coefficient: Array
    emphasis: Array
    owner: Array


class State(NamedTuple):
    """A chain between two steps: its vectors [M, d+1, C] and, per chain, its scalars.

    `norm` is the squared norm of the unscaled vectors, kept up to date where there is a ball
    to project onto; `squares` are AdaGrad's sums of squared gradients, empty otherwise.
    `heard` [m, 2] is how many steps each block has had, and the sum of their losses.
    """

    vectors: Array
    scale: Array
    norm: Array
    steps: Array
    squares: Array
    heard: Array

    def copy(self) -> "State":
        return State(*(array.copy() for array in self))


def first_state(plan: Plan, vectors: Array) -> State:
    """The state before the first step."""
    chains = len(plan.eta)
    scale = np.where(plan.rule == DUAL, plan.eta, 1.0)
    norm = np.zeros(chains)
    for vector, owner in zip(vectors, plan.owner, strict=True):
        norm[owner] += np.sum(vector.astype(np.float64) ** 2)
    squares = np.zeros_like(vectors) if (plan.rule == ADAGRAD).any() else vectors[:0].copy()
    heard = np.zeros((len(plan.chain), 2))
    return State(vectors, scale, norm, np.zeros(chains, np.int64), squares, heard)


class Page(NamedTuple):
    """Records of consecutive parts of a run, each one visit or a part of one.

    Every record has its visit, the sum of its steps' weights, their sum times scale (`mass`),
    the scale at its end, the factor by which the vectors were scaled afterwards (`fold`), the
    progressive loss summed over rows and the weight of these; the number of steps, the sum of
    their losses, the largest, and how far each lay from the mean of those before it in the
    block, squared and summed (`steps`, `step_loss`, `most`, `spread`); and its share in what is
    in force afterwards (`force`: 1, or a hedge's probability). Of chains that are hedged, each
    has its record of every visit, its steps counted by their probabilities; what is known of
    whole steps stands in the first one's. Then either

    - a table: the mean of the iterates before their updates, and the iterate after the last;
    - or a trace: the slope of every row, and of every step its gain (what a gradient is
      multiplied by), the mass of its record until then, and its record. Slopes are all that
      couples the columns of a linear model: given them, each column can be replayed alone.
    """

    visit: Array
    weight: Array
    mass: Array
    scale: Array
    fold: Array
    loss: Array
    rows: Array
    steps: Array
    step_loss: Array
    most: Array
    spread: Array
    force: Array
    mean: Array
    after: Array
    slope: Array
    gain: Array
    until: Array
    record: Array

    @property
    def is_table(self) -> bool:
        return len(self.mean) > 0

    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)


# How many numbers a record has beside its visit.
NUMBERS = 11


def blank_table(records: int, shape: tuple[int, int], kind: Any) -> Page:
    """Room for `records` records as a table."""
    pair = np.empty((records, *shape), kind), np.empty((records, *shape), kind)
    return _blank(records, *pair, np.empty((0, shape[1]), kind), 0)


def blank_trace(records: int, rows: int, steps: int, outputs: int, kind: Any) -> Page:
    """Room for `records` records as a trace of so many rows and steps."""
    none = np.empty((0, 0, outputs), kind)
    return _blank(records, none, none, np.empty((rows, outputs), kind), steps)


def _blank(records: int, mean: Array, after: Array, slope: Array, steps: int) -> Page:
    numbers = [np.zeros(records) for _ in range(NUMBERS)]
    per_step = np.zeros(steps), np.zeros(steps), np.zeros(steps, np.int64)
    return Page._make([np.zeros(records, np.int64), *numbers, mean, after, slope, *per_step])


def cut_page(page: Page, experts: int, records: int, rows: int, steps: int) -> list[Page]:
    """A page for each expert, without the room that was not used."""
    return [_cut(page, e, experts, records, rows, steps) for e in range(experts)]


def _cut(page: Page, expert: int, experts: int, records: int, rows: int, steps: int) -> Page:
    def part(array: Array, length: int) -> Array:
        first = expert * (len(array) // experts)
        return array[first : first + length]

    front = [part(array, records) for array in page[: 1 + NUMBERS]]
    tables = [part(array, records) for array in (page.mean, page.after)]
    own = part(page.record, steps) - expert * (len(page.weight) // experts)
    per_step = part(page.gain, steps), part(page.until, steps), own
    return Page._make([*front, *tables, part(page.slope, rows), *per_step])


class Running(NamedTuple):
    """The mean of each block's iterates so far, [m, d+1, C], and its weight."""

    mean: Array
    weight: Array


class ByColumn(NamedTuple):
    """The rows of a trace by column: column j has the cells first[j]:first[j+1], in time order."""

    first: Array
    row: Array
    value: Array
    step: Array
