"""Compiled code of the method."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.method.kernels import adagrad as adagrad
    from semicyclic.method.kernels import advance as advance
    from semicyclic.method.kernels import batching as batching
    from semicyclic.method.kernels import column_scale as column_scale
    from semicyclic.method.kernels import delta as delta
    from semicyclic.method.kernels import general as general
    from semicyclic.method.kernels import general_step as general_step
    from semicyclic.method.kernels import hedge as hedge
    from semicyclic.method.kernels import losses as losses
    from semicyclic.method.kernels import prefetch as prefetch
    from semicyclic.method.kernels import readout as readout
    from semicyclic.method.kernels import scoring as scoring
    from semicyclic.method.kernels import sgd as sgd
    from semicyclic.method.kernels import simd as simd
    from semicyclic.method.kernels import visit as visit
else:
    __getattr__ = lazy_submodules(__name__)
