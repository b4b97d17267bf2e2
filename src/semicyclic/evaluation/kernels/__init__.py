"""Compiled kernels of the evaluation."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.evaluation.kernels import metrics as metrics
else:
    __getattr__ = lazy_submodules(__name__)
