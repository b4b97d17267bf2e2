"""Semi-cyclic SGD: one model for every block of the day, from one chain.

import semicyclic as sc

schedule = sc.Schedule.daily(blocks=6, zone="America/New_York")
rows = sc.read("flights.parquet", when="when", label="late")  # or sc.Rows(X, y, when=when)
run = sc.train.pluralistic(rows, schedule, loss=sc.loss.logistic, step_size=0.5)
model = run.mean()
model.predict(new_rows)
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from semicyclic.files import load_run, read
from semicyclic.method import basis, hard, loss, measure, step, theory, train
from semicyclic.method.average import Mean, merge
from semicyclic.method.certify import Certificate, certificate
from semicyclic.method.evaluate import Difference, Matrix, matrices, matrix, paired
from semicyclic.method.hedge import AdaHedge, Prod
from semicyclic.method.model import Pluralistic
from semicyclic.method.pack import Packed, pack
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.schedule import Numbered, Schedule, visits
from semicyclic.method.train import Diverged
from semicyclic.store.modelfile import Unreadable, load, save
from semicyclic.version import __version__ as __version__

if TYPE_CHECKING:
    from semicyclic.adapters.sklearn import CycleSplit as CycleSplit
    from semicyclic.adapters.sklearn import SemiCyclicClassifier as SemiCyclicClassifier
    from semicyclic.adapters.sklearn import SemiCyclicRegressor as SemiCyclicRegressor

__all__ = [
    "AdaHedge",
    "Certificate",
    "Difference",
    "Diverged",
    "Matrix",
    "Mean",
    "Numbered",
    "Packed",
    "Pluralistic",
    "Prod",
    "Rows",
    "Run",
    "Schedule",
    "Unreadable",
    "basis",
    "certificate",
    "hard",
    "load",
    "load_run",
    "loss",
    "matrices",
    "matrix",
    "measure",
    "merge",
    "pack",
    "paired",
    "read",
    "save",
    "step",
    "theory",
    "train",
    "visits",
]

# These load scikit-learn, so only when asked for; without it they are not offered.
ESTIMATORS = ("CycleSplit", "SemiCyclicClassifier", "SemiCyclicRegressor")
if find_spec("sklearn") is not None:
    __all__ += ESTIMATORS
    __all__.sort(key=lambda name: (name.islower(), name))


def __getattr__(name: str) -> Any:
    if name in ESTIMATORS:
        from semicyclic.adapters import sklearn

        return getattr(sklearn, name)
    raise AttributeError(f"module 'semicyclic' has no attribute {name!r}")
