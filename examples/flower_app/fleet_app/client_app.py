"""A client like any other: it learns from the rows of its own device.

It answers one more question, `query`: when it is available. A client that does not is chosen at any time.
"""

from semicyclic.experiments.fleet.app import client as app

__all__ = ["app"]
