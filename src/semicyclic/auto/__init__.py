"""Automatic choice of a model: many candidates trained in one pass and mixed by their recent losses."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.auto import buffer as buffer
    from semicyclic.auto import calendar as calendar
    from semicyclic.auto import candidate_state as candidate_state
    from semicyclic.auto import candidates as candidates
    from semicyclic.auto import column_map as column_map
    from semicyclic.auto import export as export
    from semicyclic.auto import kernels as kernels
    from semicyclic.auto import portfolio as portfolio
    from semicyclic.auto import protocol as protocol
else:
    __getattr__ = lazy_submodules(__name__)
