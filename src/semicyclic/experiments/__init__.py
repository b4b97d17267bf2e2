"""Experiments: the paper's experiment, its lower bounds, flights, and simulated federated fleets."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.experiments import federated as federated
    from semicyclic.experiments import flights as flights
    from semicyclic.experiments import lower_bounds as lower_bounds
    from semicyclic.experiments import reproduce as reproduce
else:
    __getattr__ = lazy_submodules(__name__)
