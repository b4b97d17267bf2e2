"""Numba decorators: the options every kernel is compiled with.

Numba takes most of a second to import, so it is imported when the first function is compiled.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

# `contract` lets LLVM fuse multiply and add; sums are never reordered, so the same
# input gives the same bits on every run. Nothing is parallel, for the same reason.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compile at the first call, and cache the result on disk where that is possible."""
    import numba

    try:
        return numba.njit(cache=True, **OPTIONS, **options)(function)
    except RuntimeError:
        # No directory is writable for the cache (a read-only installation): compile per process.
        return numba.njit(**OPTIONS, **options)(function)


def loop(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates nothing, without reference counting.

    Numba counts references atomically whenever an array is taken from a tuple or passed to an inlined
    function: in visits of a hundred rows that took more than a third of the time.
    """
    return jit(function, _nrt=False)


@cache
def jit_together(functions: tuple[Callable[..., Any], ...]) -> tuple[Any, ...]:
    """Compile plain functions that call each other; the originals stay callable from Python."""
    from numba.extending import register_jitable

    for function in functions:
        register_jitable(function)
    return tuple(jit(function) for function in functions)


def inline(function: Callable[..., Any]) -> Any:
    """Compile as a part of the kernels that call it."""
    import numba

    return numba.njit(inline="always", **OPTIONS)(function)
