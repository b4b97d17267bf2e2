"""Numba, asked for in one place: how every kernel of the method is compiled.

Modules that import this one import Numba, so they are themselves imported only when used.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba.extending import register_jitable

# `contract` lets LLVM fuse multiply and add; sums are never reordered, so the same
# input gives the same bits on every run. Nothing is parallel, for the same reason.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compile at the first call, and keep the result on disk where that is possible."""
    try:
        return numba.njit(cache=True, **OPTIONS, **options)(function)
    except RuntimeError:
        # No folder is writable for the cache (a read-only installation): compile per process.
        return numba.njit(**OPTIONS, **options)(function)


def loop(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates nothing, without reference counting.

    Numba counts references atomically whenever an array is taken from a tuple or passed to an inlined
    function: in visits of a hundred rows that took more than a third of the time.
    """
    return jit(function, _nrt=False)


@cache
def jit_together(functions: tuple[Callable[..., Any], ...]) -> tuple[Any, ...]:
    """Compile plain functions that call each other, and leave them callable as they are."""
    for function in functions:
        register_jitable(function)
    return tuple(jit(function) for function in functions)


def inline(function: Callable[..., Any]) -> Any:
    """Compile as a part of the kernels that call it."""
    return numba.njit(inline="always", **OPTIONS)(function)
