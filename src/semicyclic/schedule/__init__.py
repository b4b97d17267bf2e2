"""Schedules: from wall time to (cycle, block)."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.schedule import block_edges as block_edges
    from semicyclic.schedule import kernels as kernels
    from semicyclic.schedule import label_delay as label_delay
    from semicyclic.schedule import numbered as numbered
    from semicyclic.schedule import schedule as schedule
    from semicyclic.schedule import timestamps as timestamps
    from semicyclic.schedule import timezones as timezones
    from semicyclic.schedule import visits as visits
else:
    __getattr__ = lazy_submodules(__name__)
