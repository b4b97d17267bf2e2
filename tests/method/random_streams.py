"""Small random streams, as the package and as the oracle see them."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from semicyclic.method import basis as bases
from semicyclic.method import loss as losses
from semicyclic.method import step as steps
from semicyclic.method import train
from semicyclic.method.basis import Basis
from semicyclic.method.batches import Packed
from semicyclic.method.loss import Loss
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.types import Array
from tests.method import oracle


class Case(NamedTuple):
    """A stream, the settings of a run, and the same for the oracle."""

    rows: Rows
    blocks: int
    basis: Basis
    settings: dict[str, Any]
    problem: oracle.Problem


LOSSES: dict[str, Loss] = {
    "logistic": losses.logistic,
    "hinge": losses.hinge,
    "squared": losses.squared,
    "absolute": losses.absolute,
    "quantile": losses.quantile(0.3),
    "huber": losses.huber(0.5),
    "softmax": losses.softmax(3),
}

# Few columns, all of which most visits touch; or many, of which a visit touches a few. Kernels run on all
# columns in place for the first kind, and on the visit's own columns for the second; read-outs walk through
# all iterates, or sweep up what has changed.
WIDTHS = ("narrow", "wide")


def itinerary(rng: np.random.Generator, blocks: int, n: int) -> tuple[Array, Array]:
    """(cycle, block) of n rows: visits of any length, blocks in any order, some left out."""
    cycle: list[int] = []
    block: list[int] = []
    k = 0
    while len(cycle) < n:
        for i in rng.permutation(blocks) if rng.random() < 0.3 else range(blocks):
            length = int(rng.integers(0, 6))
            cycle += [k] * length
            block += [int(i)] * length
        k += 1
    return np.array(cycle[:n]), np.array(block[:n])


def case(
    seed: int,
    *,
    loss: str = "logistic",
    kind: str = "single",
    rule: str = "sgd",
    batch_size: int = 3,
    radius: float = float("inf"),
    l2: float = 0.0,
    weighted: bool = False,
    intercept: bool = True,
    dtype: type = np.float64,
    n: int = 60,
    width: str = "narrow",
) -> Case:
    """A random stream of n rows in up to four blocks, and a run on it."""
    rng = np.random.default_rng(seed)
    blocks, d = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    filled = 0.6
    if width == "wide":
        d, filled = 120, 0.02
    # Quarters are exact in float32 too; but they cancel, which adaptive steps cannot abide.
    adaptive = rule in ("adagrad", "normalized")
    X = rng.normal(size=(n, d)).astype(dtype) if adaptive else rng.integers(-4, 5, (n, d)) / 4
    X = X.astype(float) * (rng.random((n, d)) < filled)
    if rule == "normalized":
        X *= 10.0 ** rng.integers(-3, 4, d)
        X = X.astype(dtype).astype(float)
    cycle, block = itinerary(rng, blocks, n)
    if loss == "softmax":
        y = rng.integers(0, 3, n).astype(float)
        y[:3] = [0, 1, 2]
        target = y
    elif LOSSES[loss].classes:
        y = rng.integers(0, 2, n).astype(float)
        y[:2] = [0, 1]
        target = 2 * y - 1
    else:
        y = target = rng.normal(size=n).astype(dtype).astype(float)
    weight = rng.integers(0, 8, n) / 4 if weighted else None
    basis = make_basis(kind, blocks, rng)
    eta = float(rng.uniform(0.05, 0.8))
    step: Any = {
        "sgd": eta,
        "dual": steps.dual_averaging(eta),
        "adagrad": steps.adagrad(eta, box=0.7),
        "normalized": steps.normalized(eta),
    }[rule]
    settings: dict[str, Any] = {"loss": LOSSES[loss], "step_size": step, "batch_size": batch_size}
    if radius < float("inf"):
        settings["radius"] = radius
    if l2 > 0.0:
        settings["l2"] = l2
    rows = Rows(X, y, block=block, cycle=cycle, weight=weight, intercept=intercept, dtype=dtype)
    problem = oracle.Problem(
        X=X,
        target=target,
        cycle=cycle,
        block=block,
        batch_size=batch_size,
        loss=LOSSES[loss],
        basis=basis,
        step=steps.of(step),
        radius=radius,
        l2=l2,
        weight=weight,
        intercept=intercept,
    )
    return Case(rows, blocks, basis, settings, problem)


def make_basis(kind: str, blocks: int, rng: np.random.Generator) -> Basis:
    """One of the bases the package knows, or any other."""
    if kind == "single":
        return bases.single(blocks)
    if kind == "separate":
        return bases.separate(blocks)
    if kind == "residual":
        return bases.residual(blocks)
    if kind == "residuals":
        return bases.residual(blocks, range(blocks), (np.arange(blocks) // 2).tolist())
    if kind == "fourier":
        return bases.fourier(blocks, 2)
    table = rng.integers(-2, 3, (blocks, 3)) / 2
    table[:, 0] = 0.5
    table[0, 2] = 1.0
    return bases.of(table)


KINDS = ("single", "separate", "residual", "residuals", "fourier", "any")


def trained(made: Case, **more: Any) -> Run:
    """The run of a case."""
    return train.chain(made.rows, made.blocks, made.basis, **made.settings, **more)


def cell_columns(packed: Packed) -> Array:
    """The column of every cell of packed rows, whichever way they are laid out."""
    layout = packed.layout
    if layout.dense:
        return layout.columns
    cells = np.diff(layout.starts[layout.steps[layout.visits]])
    return np.asarray(layout.lists[np.repeat(layout.first[:-1], cells) + layout.columns])


seeds = st.integers(0, 2**32 - 1)
