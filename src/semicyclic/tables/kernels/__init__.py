"""Compiled (Numba) functions of the tables package."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.tables.kernels import hashing as hashing
    from semicyclic.tables.kernels import records as records
    from semicyclic.tables.kernels import timestamps as timestamps
else:
    __getattr__ = lazy_submodules(__name__)
