"""Backtests, baselines, and diagnosis of daily and weekly rhythms."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.evaluation import backtest as backtest
    from semicyclic.evaluation import backtest_results as backtest_results
    from semicyclic.evaluation import baselines as baselines
    from semicyclic.evaluation import diagnose as diagnose
    from semicyclic.evaluation import external_baselines as external_baselines
    from semicyclic.evaluation import kernels as kernels
    from semicyclic.evaluation import regime as regime
    from semicyclic.evaluation import score_tests as score_tests
    from semicyclic.evaluation import scores as scores
else:
    __getattr__ = lazy_submodules(__name__)
