"""The paper's bounds, hard instances and certificates."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.theory import bounds as bounds
    from semicyclic.theory import certificate as certificate
    from semicyclic.theory import hard_instances as hard_instances
else:
    __getattr__ = lazy_submodules(__name__)
