"""A simulated fleet of devices, trained with Flower."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.experiments.federated import app as app
    from semicyclic.experiments.federated import availability as availability
    from semicyclic.experiments.federated import compare as compare
    from semicyclic.experiments.federated import fleet as fleet
    from semicyclic.experiments.federated import held_out as held_out
    from semicyclic.experiments.federated import kernels as kernels
    from semicyclic.experiments.federated import population as population
else:
    __getattr__ = lazy_submodules(__name__)
