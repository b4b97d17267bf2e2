"""Semi-cyclic SGD. Read `loss`, `step`, `basis`, `chain`, `average` and `hedge` next to the paper."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.method import arrays as arrays
    from semicyclic.method import average as average
    from semicyclic.method import basis as basis
    from semicyclic.method import batches as batches
    from semicyclic.method import chain as chain
    from semicyclic.method import column_scale as column_scale
    from semicyclic.method import delta_weights as delta_weights
    from semicyclic.method import evaluate as evaluate
    from semicyclic.method import hedge as hedge
    from semicyclic.method import hedge_summary as hedge_summary
    from semicyclic.method import kernels as kernels
    from semicyclic.method import log as log
    from semicyclic.method import loss as loss
    from semicyclic.method import loss_stats as loss_stats
    from semicyclic.method import metrics as metrics
    from semicyclic.method import model as model
    from semicyclic.method import plan as plan
    from semicyclic.method import rows as rows
    from semicyclic.method import run as run
    from semicyclic.method import step as step
    from semicyclic.method import train as train
    from semicyclic.method import training_loop as training_loop
else:
    __getattr__ = lazy_submodules(__name__)
