"""Datasets: flights, Sentiment140, a synthetic replacement for it, and streams of a known regime."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.datasets import download as download
    from semicyclic.datasets import flights as flights
    from semicyclic.datasets import kernels as kernels
    from semicyclic.datasets import regimes as regimes
    from semicyclic.datasets import sentiment140 as sentiment140
    from semicyclic.datasets import synthetic_tweets as synthetic_tweets
else:
    __getattr__ = lazy_submodules(__name__)
