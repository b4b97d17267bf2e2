"""Fixture of all Flower tests."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> Iterator[None]:
    """Flower collects garbage with every array it reads: let it not look at what the tests hold each time.

    With the modules that a test process has loaded, a collection takes a quarter of a second.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
