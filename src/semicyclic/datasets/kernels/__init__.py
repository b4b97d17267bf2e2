"""Compiled (Numba) functions of the datasets package."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.datasets.kernels import tokenizer as tokenizer
else:
    __getattr__ = lazy_submodules(__name__)
