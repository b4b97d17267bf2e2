"""Lower bounds: every method on the hard instances (Section 3), and the cases of Section 4.

A method is a function of an instance, an array of step sizes and n, the number of steps per block. It runs
K cycles with all step sizes in parallel and returns the final weights [sizes, d].
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from semicyclic.method import basis, train
from semicyclic.method.loss import absolute
from semicyclic.method.rows import Rows, SparseRows
from semicyclic.theory.hard_instances import HardInstance
from semicyclic.types import Array

Method = Callable[[HardInstance, Array, int], Array]

# Values of K, and of n, that the experiment compares.
CYCLE_COUNTS, STEPS_PER_BLOCK = (2, 4, 8), (10, 30, 100, 300, 1000)
STEP_SIZE_GRID = np.geomspace(1e-5, 1.0, 16)


def blocks_of(instance: HardInstance, n: int) -> Iterator[int]:
    """Yield the block of every step: n steps per block, m blocks per cycle, K cycles."""
    for _ in range(instance.cycles):
        for block in range(instance.blocks):
            for _ in range(n):
                yield block


def _zeros(instance: HardInstance, steps: Array) -> tuple[Array, Array]:
    """Return zero weights [sizes, d] and the step sizes as a column [sizes, 1]."""
    return np.zeros((len(steps), instance.dimension)), np.asarray(steps, dtype=float)[:, None]


def sgd(instance: HardInstance, steps: Array, n: int) -> Array:
    """SGD, last iterate."""
    w, eta = _zeros(instance, steps)
    for block in blocks_of(instance, n):
        w -= eta * instance.gradient(w, block)
    return w


def sgd_average(instance: HardInstance, steps: Array, n: int) -> Array:
    """SGD, mean of all iterates: one model."""
    w, eta = _zeros(instance, steps)
    total = np.zeros_like(w)
    for block in blocks_of(instance, n):
        total += w
        w -= eta * instance.gradient(w, block)
    return total / (instance.cycles * instance.blocks * n)


def _momentum(instance: HardInstance, steps: Array, n: int, ahead: float) -> Array:
    """SGD with momentum 0.9 and the gradient at w + ahead * velocity."""
    w, eta = _zeros(instance, steps)
    velocity = np.zeros_like(w)
    for block in blocks_of(instance, n):
        velocity = 0.9 * velocity - eta * instance.gradient(w + ahead * velocity, block)
        w += velocity
    return w


def heavy_ball(instance: HardInstance, steps: Array, n: int) -> Array:
    """Heavy-ball momentum 0.9."""
    return _momentum(instance, steps, n, 0.0)


def nesterov(instance: HardInstance, steps: Array, n: int) -> Array:
    """Nesterov momentum 0.9: the gradient at the look-ahead point."""
    return _momentum(instance, steps, n, 0.9)


def adagrad(instance: HardInstance, steps: Array, n: int) -> Array:
    """AdaGrad: per-coordinate steps divided by the root of the sum of squared gradients."""
    w, eta = _zeros(instance, steps)
    squares = np.zeros_like(w)
    for block in blocks_of(instance, n):
        g = instance.gradient(w, block)
        squares += g**2
        w -= eta * np.divide(g, np.sqrt(squares), out=np.zeros_like(g), where=squares > 0)
    return w


def adam(instance: HardInstance, steps: Array, n: int) -> Array:
    """Adam with beta1 = 0.9 and beta2 = 0.999."""
    w, eta = _zeros(instance, steps)
    first, second = np.zeros_like(w), np.zeros_like(w)
    for t, block in enumerate(blocks_of(instance, n), start=1):
        g = instance.gradient(w, block)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        w -= eta * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return w


def prox(instance: HardInstance, steps: Array, n: int) -> Array:
    """Proximal point method (implicit steps)."""
    w, eta = _zeros(instance, steps)
    for block in blocks_of(instance, n):
        w = instance.prox(w, block, eta[:, 0])
    return w


METHODS: dict[str, Method] = {
    "SGD": sgd,
    "SGD, average": sgd_average,
    "heavy ball": heavy_ball,
    "Nesterov": nesterov,
    "AdaGrad": adagrad,
    "Adam": adam,
    "prox": prox,
}


def tune(method: Method, instance: HardInstance, n: int, grid: Array = STEP_SIZE_GRID) -> float:
    """Smallest gap to the optimum over a grid of step sizes: the best result that tuning can give."""
    return min(instance.gap(w) for w in method(instance, grid, n))


def minimize_blocks(instance: HardInstance) -> float:
    """Gap after minimizing every block exactly, in turn: the limit of many steps per block."""
    w = np.zeros(instance.dimension)
    for block in blocks_of(instance, 1):
        w = instance.minimizer(block, w)
    return instance.gap(w)


def run_shuffled(
    instance: HardInstance, n: int, rng: np.random.Generator, steps: Array | None = None
) -> Array:
    """[sizes] gaps of averaged SGD on the same blocks in random order.

    steps: step sizes; by default B / sqrt(T).
    """
    order = rng.permutation(list(blocks_of(instance, n)))
    w, eta = _zeros(instance, _theorem_step(instance, n) if steps is None else steps)
    total = np.zeros_like(w)
    for block in order:
        total += w
        w -= eta * instance.gradient(w, int(block))
    return np.array([instance.gap(mean) for mean in total / len(order)])


def pluralistic(instance: HardInstance, n: int, steps: Array | None = None) -> Array:
    """[sizes] excess of one chain on cyclic data, averaged per block, each mean evaluated on its block.

    The excess is relative to the best single model and may be negative. Iterates are projected onto the
    ball ||w|| <= B, because a single block's objective may decrease without bound outside it.

    steps: step sizes; by default B / sqrt(T).
    """
    m = instance.blocks
    w, eta = _zeros(instance, _theorem_step(instance, n) if steps is None else steps)
    totals = np.zeros((m, *w.shape))
    for block in blocks_of(instance, n):
        totals[block] += w
        w -= eta * instance.gradient(w, block)
        w /= np.maximum(np.linalg.norm(w, axis=1, keepdims=True) / instance.radius, 1.0)
    means = totals / (instance.cycles * n)
    values = [[instance.value(mean, i) for mean in means[i]] for i in range(m)]
    return np.asarray(np.mean(values, axis=0) - instance.least)


def _theorem_step(instance: HardInstance, n: int) -> Array:
    """[1] step size B / sqrt(T) of Theorem 3."""
    return np.array([instance.radius / np.sqrt(instance.cycles * instance.blocks * n)])


# ------------------------------------------------------------------- Section 4


CASES = {
    "identical": "every block has the same solution",
    "orthogonal": "every block has features of its own",
    "opposite": "every other block has the opposite solution",
}
BLOCK_COUNTS = (2, 4, 8, 16)
READ_OUTS = ("consensus average", "pluralistic average", "separate average", "hedged by AdaHedge")


def case_of(case: str, m: int, K: int, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Excess loss of each read-out over the solutions of the blocks, for one of `CASES`.

    Absolute loss, no noise, and step sizes tuned to norm 1. Following Section 4, the solution of each
    block has norm 1 in the identical and opposite cases and 1 / sqrt(m) in the orthogonal case; the step
    size of the separate chains uses that norm.

    m, K, n: number of blocks, of cycles, and of steps per block.
    """
    d = 4
    star = rng.normal(size=(m, d))
    star /= np.linalg.norm(star, axis=1, keepdims=True)
    width = d * m if case == "orthogonal" else d
    best = np.zeros((m, width))
    for i in range(m):
        if case == "orthogonal":
            best[i, i * d : (i + 1) * d] = star[i] / np.sqrt(m)
        else:
            best[i] = star[0] * (-1 if case == "opposite" and i % 2 else 1)
    block = np.tile(np.repeat(np.arange(m), n), K)
    X, columns = _directions(case, block, d, rng)
    labels = (X * best[block[:, None], columns]).sum(axis=1)
    rows = Rows(_sparse_rows(X, columns, width), labels, block=block, intercept=False, dtype=np.float64)
    T = len(block)
    norm = 1 / np.sqrt(m) if case == "orthogonal" else 1.0
    settings: dict[str, Any] = {"loss": absolute, "batch_size": 1}
    single = train.pluralistic(rows, m, step_size=1 / np.sqrt(T), **settings)
    separate = train.separate(rows, m, step_size=norm / np.sqrt(T / m), **settings)
    chains = ((basis.single, 1 / np.sqrt(T)), (basis.separate, norm / np.sqrt(T / m)))
    hedged = train.hedged(rows, m, chains=chains, **settings)
    test_block = np.repeat(np.arange(m), 500)
    Z, test_columns = _directions(case, test_block, d, rng)
    excess = {}
    for name, model in zip(
        READ_OUTS, (single.consensus(), single.mean(), separate.mean(), hedged.mean()), strict=True
    ):
        error = model.weights[:, 0, :-1] - best
        excess[name] = float(np.abs((Z * error[test_block[:, None], test_columns]).sum(axis=1)).mean())
    return excess


def _directions(case: str, block: Array, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw features [rows, d] of norm 1 and return them with their columns.

    In the orthogonal case each block has separate columns.
    """
    X = rng.normal(size=(len(block), d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    first = block * d if case == "orthogonal" else np.zeros(len(block), np.int64)
    return X, first[:, None] + np.arange(d)


def _sparse_rows(X: Array, columns: Array, width: int) -> SparseRows:
    """Return rows with d non-zero cells each as a sparse table of `width` columns."""
    n, d = X.shape
    return SparseRows(np.arange(0, n * d + 1, d), columns.ravel().astype(np.int32), X.ravel(), width)


# ------------------------------------------------------------- complete experiment


def run_hard(
    *,
    seed: int = 0,
    radius: float = 1.0,
    cycles: int = 4,
    steps: int = 300,
    progress: Callable[[float, str], None] = lambda _, __: None,
) -> dict[str, Any]:
    """Measure the excess of every method against K and against n, and run the cases of Section 4.

    radius: B. cycles: K of the comparison against n. steps: n of the comparison against K.
    progress: called with the completed share, 0 to 1, and the current task.

    Returns the results for JSON, including a table of phi.
    """
    if steps < 1 or cycles < 1:
        raise ValueError(f"cycles={cycles}, steps={steps}: both must be at least 1")
    cycle_counts = sorted({*CYCLE_COUNTS, cycles})
    step_counts = sorted({*(n for n in STEPS_PER_BLOCK if n <= 4 * steps), steps})
    if not 0 < radius <= 16 * cycle_counts[0]:
        raise ValueError(
            f"B={radius:g}: must be positive and at most 16 K = {16 * cycle_counts[0]} (Theorem 2)"
        )
    jobs = [("cycles", smooth, K, steps) for smooth in (False, True) for K in cycle_counts]
    jobs += [("steps", smooth, cycles, n) for smooth in (False, True) for n in step_counts]
    results: dict[str, Any] = {}
    weight = np.array([K * n for _, _, K, n in jobs], float)
    for number, (what, smooth, K, n) in enumerate(jobs):
        name = f"{'smooth' if smooth else 'Lipschitz'} instance, K = {K}, n = {n}"
        progress(float(weight[:number].sum() / weight.sum()), name)
        instance = HardInstance(K, radius=radius, smooth=smooth)
        # A smooth instance is flatter by the factor B / (4K), so plain steps may be larger by its inverse;
        # adaptive steps may not. The grid covers both ranges.
        max_step = radius * (4 * K / radius if smooth else 1.0)
        grid, rng = np.geomspace(1e-6 * radius, max_step, 24), np.random.default_rng([seed, K, n])
        row = {name: tune(method, instance, n, grid) for name, method in METHODS.items()}
        row["each block minimised"] = minimize_blocks(instance)
        row["i.i.d. average"] = float(
            np.mean([run_shuffled(instance, n, rng, grid) for _ in range(3)], axis=0).min()
        )
        row["pluralistic average"] = float(pluralistic(instance, n, grid).min())
        at_theorem = float(pluralistic(instance, n)[0])
        row["pluralistic average, step of Theorem 3"] = at_theorem
        row["lower bound"] = instance.bound
        curve = results.setdefault(
            f"{'smooth' if smooth else 'lipschitz'}_against_{what}", {"at": [], "excess": {}}
        )
        curve["at"].append(K if what == "cycles" else n)
        for key, value in row.items():
            curve["excess"].setdefault(key, []).append(value)
    progress(1.0, "the cases of Section 4")
    instance = HardInstance(cycles, radius=radius)
    z = np.linspace(-2 * instance.gamma, 2 * instance.gamma, 401)
    return {
        "settings": {"seed": seed, "radius": radius, "cycles": cycles, "steps": steps, "blocks": 2},
        "methods": [*METHODS],
        **results,
        "phi": {
            "a": instance.flat,
            "gamma": instance.gamma,
            "z": z.tolist(),
            "phi": instance.phi(z).tolist(),
        },
        "section4": _section4(seed),
    }


def _section4(seed: int) -> dict[str, Any]:
    """Run the three cases for several m; return mean and standard error over ten draws."""
    blocks, K, n, draws = BLOCK_COUNTS, 5, 40, 10
    out: dict[str, Any] = {"blocks": list(blocks), "cycles": K, "steps": n, "cases": {}}
    for number, case in enumerate(CASES):
        excess = {read_out: np.zeros((len(blocks), draws)) for read_out in READ_OUTS}
        for index, m in enumerate(blocks):
            for draw in range(draws):
                rng = np.random.default_rng([seed, number, m, draw])
                for read_out, value in case_of(case, m, K, n, rng).items():
                    excess[read_out][index, draw] = value
        out["cases"][case] = {
            read_out: {
                "mean": table.mean(axis=1).tolist(),
                "standard_error": (table.std(axis=1, ddof=1) / np.sqrt(draws)).tolist(),
            }
            for read_out, table in excess.items()
        }
    return out
