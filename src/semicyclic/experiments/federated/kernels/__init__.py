"""Compiled training code of the simulated devices."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.experiments.federated.kernels import client_sgd as client_sgd
else:
    __getattr__ = lazy_submodules(__name__)
