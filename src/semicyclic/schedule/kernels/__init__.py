"""Compiled code of the schedules."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.schedule.kernels import locate as locate
else:
    __getattr__ = lazy_submodules(__name__)
