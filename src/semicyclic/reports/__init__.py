"""Reports: HTML pages, figures and terminal tables, built only from the contents of a `results.json`."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.reports import backtest as backtest
    from semicyclic.reports import demo as demo
    from semicyclic.reports import diagnose as diagnose
    from semicyclic.reports import federate as federate
    from semicyclic.reports import format as format
    from semicyclic.reports import html as html
    from semicyclic.reports import inspect as inspect
    from semicyclic.reports import lower_bounds as lower_bounds
    from semicyclic.reports import output_files as output_files
    from semicyclic.reports import plot as plot
    from semicyclic.reports import reproduce as reproduce
    from semicyclic.reports import reproduce_findings as reproduce_findings
    from semicyclic.reports import terminal as terminal
    from semicyclic.reports import train as train
    from semicyclic.reports import what_if as what_if
else:
    __getattr__ = lazy_submodules(__name__)
