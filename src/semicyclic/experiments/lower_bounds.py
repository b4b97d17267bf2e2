"""Lower bounds: every method on the hard instances (Section 3), and the cases of Section 4.

A method is a function of an instance, an array of step sizes and n, which runs through the K cycles
once for every step size, all at once, and returns the last iterates [sizes, d].
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from semicyclic.method import basis, train
from semicyclic.method.loss import absolute
from semicyclic.method.rows import Rows
from semicyclic.method.sparse import SparseRows
from semicyclic.theory.hard_instances import HardInstance
from semicyclic.types import Array

Method = Callable[[HardInstance, Array, int], Array]

BY_CYCLES, BY_STEPS = (2, 4, 8), (10, 30, 100, 300, 1000)
GRID = np.geomspace(1e-5, 1.0, 16)


def blocks_of(instance: HardInstance, n: int) -> Iterator[int]:
    """The blocks of all steps: n steps each, m blocks a cycle, K cycles."""
    for _ in range(instance.cycles):
        for block in range(instance.blocks):
            for _ in range(n):
                yield block


def _zeros(instance: HardInstance, steps: Array) -> tuple[Array, Array]:
    return np.zeros((len(steps), instance.dimension)), np.asarray(steps, dtype=float)[:, None]


def sgd(instance: HardInstance, steps: Array, n: int) -> Array:
    """The last iterate."""
    w, eta = _zeros(instance, steps)
    for block in blocks_of(instance, n):
        w -= eta * instance.gradient(w, block)
    return w


def sgd_average(instance: HardInstance, steps: Array, n: int) -> Array:
    """The mean of all iterates: one model."""
    w, eta = _zeros(instance, steps)
    total = np.zeros_like(w)
    for block in blocks_of(instance, n):
        total += w
        w -= eta * instance.gradient(w, block)
    return total / (instance.cycles * instance.blocks * n)


def _momentum(instance: HardInstance, steps: Array, n: int, ahead: float) -> Array:
    """Momentum 0.9, the gradient taken `ahead` times the present speed further on."""
    w, eta = _zeros(instance, steps)
    speed = np.zeros_like(w)
    for block in blocks_of(instance, n):
        speed = 0.9 * speed - eta * instance.gradient(w + ahead * speed, block)
        w += speed
    return w


def heavy_ball(instance: HardInstance, steps: Array, n: int) -> Array:
    """Momentum 0.9."""
    return _momentum(instance, steps, n, 0.0)


def nesterov(instance: HardInstance, steps: Array, n: int) -> Array:
    """Momentum 0.9, the gradient taken where it leads."""
    return _momentum(instance, steps, n, 0.9)


def adagrad(instance: HardInstance, steps: Array, n: int) -> Array:
    """Steps divided by the root of the sum of squares."""
    w, eta = _zeros(instance, steps)
    squares = np.zeros_like(w)
    for block in blocks_of(instance, n):
        g = instance.gradient(w, block)
        squares += g**2
        w -= eta * np.divide(g, np.sqrt(squares), out=np.zeros_like(g), where=squares > 0)
    return w


def adam(instance: HardInstance, steps: Array, n: int) -> Array:
    """With 0.9 and 0.999."""
    w, eta = _zeros(instance, steps)
    first, second = np.zeros_like(w), np.zeros_like(w)
    for t, block in enumerate(blocks_of(instance, n), start=1):
        g = instance.gradient(w, block)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        w -= eta * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return w


def prox(instance: HardInstance, steps: Array, n: int) -> Array:
    """Implicit steps."""
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


def tune(method: Method, instance: HardInstance, n: int, grid: Array = GRID) -> float:
    """The least gap to the optimum over a grid of step sizes: the best that tuning could do."""
    return min(instance.gap(w) for w in method(instance, grid, n))


def minimize_blocks(instance: HardInstance) -> float:
    """The gap after minimising every block fully, over and over: the limit of many steps a block."""
    w = np.zeros(instance.dimension)
    for block in blocks_of(instance, 1):
        w = instance.minimiser(block, w)
    return instance.gap(w)


def run_shuffled(
    instance: HardInstance, n: int, rng: np.random.Generator, steps: Array | None = None
) -> Array:
    """[sizes] the gaps of the average of SGD on the same blocks in random order.

    At B / sqrt(T) unless other steps are given.
    """
    order = rng.permutation(list(blocks_of(instance, n)))
    w, eta = _zeros(instance, _theorem_step(instance, n) if steps is None else steps)
    total = np.zeros_like(w)
    for block in order:
        total += w
        w -= eta * instance.gradient(w, int(block))
    return np.array([instance.gap(mean) for mean in total / len(order)])


def pluralistic(instance: HardInstance, n: int, steps: Array | None = None) -> Array:
    """[sizes] one chain on cyclic data, averaged per block, each mean judged on its block.

    Relative to the best single model, and it may well lie below it. At B / sqrt(T) unless other
    steps are given. Projected onto the ball ||w|| <= B: a block alone may fall for ever outside.
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
    return np.array([instance.radius / np.sqrt(instance.cycles * instance.blocks * n)])


# ------------------------------------------------------------------- Section 4


CASES = {
    "identical": "every block has the same solution",
    "orthogonal": "every block has features of its own",
    "opposite": "every other block has the opposite solution",
}
SIZES = (2, 4, 8, 16)
READERS = ("consensus average", "pluralistic average", "separate average", "hedged by AdaHedge")


def case_of(case: str, m: int, K: int, n: int, rng: np.random.Generator) -> dict[str, float]:
    """Excess over every block's own solution: absolute loss, no noise, tight steps for norm 1.

    The solutions together have norm 1 in the identical and opposite cases in each block, and in
    the orthogonal case 1 / sqrt(m) each, as Section 4 has it; separate chains are told so.
    """
    d = 4
    star = rng.normal(size=(m, d))
    star /= np.linalg.norm(star, axis=1, keepdims=True)
    wide = d * m if case == "orthogonal" else d
    best = np.zeros((m, wide))
    for i in range(m):
        if case == "orthogonal":
            best[i, i * d : (i + 1) * d] = star[i] / np.sqrt(m)
        else:
            best[i] = star[0] * (-1 if case == "opposite" and i % 2 else 1)
    block = np.tile(np.repeat(np.arange(m), n), K)
    X, columns = _directions(case, block, d, rng)
    labels = (X * best[block[:, None], columns]).sum(axis=1)
    rows = Rows(_corpus(X, columns, wide), labels, block=block, intercept=False, dtype=np.float64)
    T = len(block)
    own = 1 / np.sqrt(m) if case == "orthogonal" else 1.0
    settings: dict[str, Any] = {"loss": absolute, "batch_size": 1}
    single = train.pluralistic(rows, m, step_size=1 / np.sqrt(T), **settings)
    separate = train.separate(rows, m, step_size=own / np.sqrt(T / m), **settings)
    chains = ((basis.single, 1 / np.sqrt(T)), (basis.separate, own / np.sqrt(T / m)))
    hedged = train.hedged(rows, m, chains=chains, **settings)
    test = np.repeat(np.arange(m), 500)
    Z, places = _directions(case, test, d, rng)
    found = {}
    for name, model in zip(
        READERS, (single.consensus(), single.mean(), separate.mean(), hedged.mean()), strict=True
    ):
        off = model.weights[:, 0, :-1] - best
        found[name] = float(np.abs((Z * off[test[:, None], places]).sum(axis=1)).mean())
    return found


def _directions(case: str, block: Array, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Features of norm 1, and their columns: the block's own ones in the orthogonal case."""
    X = rng.normal(size=(len(block), d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    first = block * d if case == "orthogonal" else np.zeros(len(block), np.int64)
    return X, first[:, None] + np.arange(d)


def _corpus(X: Array, columns: Array, wide: int) -> SparseRows:
    n, d = X.shape
    return SparseRows(np.arange(0, n * d + 1, d), columns.ravel().astype(np.int32), X.ravel(), wide)


# ---------------------------------------------------------------------- all of it


def run_hard(
    *,
    seed: int = 0,
    radius: float = 1.0,
    cycles: int = 4,
    steps: int = 300,
    progress: Callable[[float, str], None] = lambda _, __: None,
) -> dict[str, Any]:
    """Excess against K and against n of every method, phi itself, and the cases of Section 4."""
    if steps < 1 or cycles < 1:
        raise ValueError(f"--K {cycles} --n {steps}: both must be at least 1")
    by_cycles = sorted({*BY_CYCLES, cycles})
    by_steps = sorted({*(n for n in BY_STEPS if n <= 4 * steps), steps})
    if not 0 < radius <= 16 * by_cycles[0]:
        raise ValueError(
            f"--B {radius:g}: must be positive and at most 16 K = {16 * by_cycles[0]} (Theorem 2)"
        )
    jobs = [("cycles", smooth, K, steps) for smooth in (False, True) for K in by_cycles]
    jobs += [("steps", smooth, cycles, n) for smooth in (False, True) for n in by_steps]
    found: dict[str, Any] = {}
    weight = np.array([K * n for _, _, K, n in jobs], float)
    for number, (what, smooth, K, n) in enumerate(jobs):
        name = f"{'smooth' if smooth else 'Lipschitz'} instance, K = {K}, n = {n}"
        progress(float(weight[:number].sum() / weight.sum()), name)
        instance = HardInstance(K, radius=radius, smooth=smooth)
        # A smooth instance is flatter by B / (4K), and plain steps may be as much larger; adaptive
        # ones may not. So the grid reaches from the least of one to the most of the other.
        most = radius * (4 * K / radius if smooth else 1.0)
        grid, rng = np.geomspace(1e-6 * radius, most, 24), np.random.default_rng([seed, K, n])
        row = {name: tune(method, instance, n, grid) for name, method in METHODS.items()}
        row["each block minimised"] = minimize_blocks(instance)
        row["i.i.d. average"] = float(
            np.mean([run_shuffled(instance, n, rng, grid) for _ in range(3)], axis=0).min()
        )
        row["pluralistic average"] = float(pluralistic(instance, n, grid).min())
        at_theorem = float(pluralistic(instance, n)[0])
        row["pluralistic average, step of Theorem 3"] = at_theorem
        row["lower bound"] = instance.bound
        held = found.setdefault(
            f"{'smooth' if smooth else 'lipschitz'}_against_{what}", {"at": [], "excess": {}}
        )
        held["at"].append(K if what == "cycles" else n)
        for key, value in row.items():
            held["excess"].setdefault(key, []).append(value)
    progress(1.0, "the cases of Section 4")
    instance = HardInstance(cycles, radius=radius)
    z = np.linspace(-2 * instance.gamma, 2 * instance.gamma, 401)
    return {
        "settings": {"seed": seed, "radius": radius, "cycles": cycles, "steps": steps, "blocks": 2},
        "methods": [*METHODS],
        **found,
        "phi": {
            "a": instance.flat,
            "gamma": instance.gamma,
            "z": z.tolist(),
            "phi": instance.phi(z).tolist(),
        },
        "section4": _section4(seed),
    }


def _section4(seed: int) -> dict[str, Any]:
    """The three cases for several m, mean and standard error over ten draws."""
    blocks, K, n, draws = SIZES, 5, 40, 10
    out: dict[str, Any] = {"blocks": list(blocks), "cycles": K, "steps": n, "cases": {}}
    for number, case in enumerate(CASES):
        found = {reader: np.zeros((len(blocks), draws)) for reader in READERS}
        for place, m in enumerate(blocks):
            for draw in range(draws):
                rng = np.random.default_rng([seed, number, m, draw])
                for reader, value in case_of(case, m, K, n, rng).items():
                    found[reader][place, draw] = value
        out["cases"][case] = {
            reader: {
                "mean": table.mean(axis=1).tolist(),
                "standard_error": (table.std(axis=1, ddof=1) / np.sqrt(draws)).tolist(),
            }
            for reader, table in found.items()
        }
    return out
