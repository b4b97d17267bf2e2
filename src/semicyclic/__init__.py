"""Semi-cyclic SGD: one model for every block of the day, from one chain.

import semicyclic as sc

model = sc.fit(table, when="when", label="late", zone="America/New_York")  # a data frame, or files
model.predict_proba(new_table)  # or one row, as a dict

schedule = sc.Schedule.daily(blocks=6, zone="America/New_York")
rows = sc.read(table, when="when", label="late")  # or sc.Rows(X, y, when=when)
run = sc.train.pluralistic(rows, schedule, loss=sc.loss.logistic, step_size=0.5)
model = run.mean()
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from semicyclic import theory as theory
from semicyclic.lazy import lazy_names
from semicyclic.method import basis, loss, metrics, step, train
from semicyclic.method.average import Mean, merge
from semicyclic.method.batches import Packed, pack
from semicyclic.method.evaluate import Difference, Matrix, matrices, matrix, paired_difference
from semicyclic.method.hedge import AdaHedge, Prod
from semicyclic.method.model import Pluralistic
from semicyclic.method.rows import Rows
from semicyclic.method.run import Run
from semicyclic.method.train import Diverged
from semicyclic.schedule.numbered import Numbered
from semicyclic.schedule.schedule import Schedule
from semicyclic.schedule.visits import visits
from semicyclic.store.model_file import save
from semicyclic.store.sealed import Unreadable
from semicyclic.theory.certificate import Certificate, certificate
from semicyclic.training.open_model import load
from semicyclic.version import __version__ as __version__

if TYPE_CHECKING:
    from semicyclic.adapters.sklearn import CycleSplit as CycleSplit
    from semicyclic.adapters.sklearn import SemiCyclicClassifier as SemiCyclicClassifier
    from semicyclic.adapters.sklearn import SemiCyclicRegressor as SemiCyclicRegressor
    from semicyclic.tables.load import read as read
    from semicyclic.training.fit import fit as fit
    from semicyclic.training.run_dir import load_run as load_run

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
    "fit",
    "load",
    "load_run",
    "loss",
    "matrices",
    "matrix",
    "merge",
    "metrics",
    "pack",
    "paired_difference",
    "read",
    "save",
    "step",
    "theory",
    "train",
    "visits",
]
# Exported only where scikit-learn is installed.
ESTIMATORS = ("CycleSplit", "SemiCyclicClassifier", "SemiCyclicRegressor")
if find_spec("sklearn") is not None:
    __all__ += ESTIMATORS
    __all__.sort(key=lambda name: (name.islower(), name))


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:
    # These import pyarrow or scikit-learn, so only on access.
    __getattr__ = lazy_names(
        __name__,
        {
            "fit": "semicyclic.training.fit",
            "load_run": "semicyclic.training.run_dir",
            "read": "semicyclic.tables.load",
            **dict.fromkeys(ESTIMATORS, "semicyclic.adapters.sklearn"),
        },
    )
