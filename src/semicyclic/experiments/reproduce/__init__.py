"""Reproduction of the paper's experiment (Section 7 and Appendix B)."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.experiments.reproduce import approaches as approaches
    from semicyclic.experiments.reproduce import block_feature as block_feature
    from semicyclic.experiments.reproduce import granularity as granularity
    from semicyclic.experiments.reproduce import protocol as protocol
    from semicyclic.experiments.reproduce import repetition as repetition
    from semicyclic.experiments.reproduce import run as run
    from semicyclic.experiments.reproduce import summary as summary
    from semicyclic.experiments.reproduce import text_vs_script as text_vs_script
else:
    __getattr__ = lazy_submodules(__name__)
