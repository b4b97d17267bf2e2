"""Compiled kernels of the automatic choice."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.auto.kernels import candidate_sgd as candidate_sgd
    from semicyclic.auto.kernels import design_effect as design_effect
    from semicyclic.auto.kernels import mixing as mixing
    from semicyclic.auto.kernels import simd as simd
else:
    __getattr__ = lazy_submodules(__name__)
