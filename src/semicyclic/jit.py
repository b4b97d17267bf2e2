"""Numba decorators: the options every kernel is compiled with, and a message when compiling takes long.

Numba takes most of a second to import, so it is imported when the first function is compiled.
"""

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Any

# `contract` lets LLVM fuse multiply and add; sums are never reordered, so the same
# input gives the same bits on every run. Nothing is parallel, for the same reason.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}

logger = logging.getLogger("semicyclic")
# After so many seconds of compilation a process says what it is doing.
NOTICE_SECONDS = 2.0
NOTICE = (
    "compiling: the first use on this machine takes some seconds, up to a minute; later processes load the "
    "compiled code from the cache"
)


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compile at the first call, and cache the result on disk where that is possible."""
    import numba

    watch_compilation()
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


@cache
def watch_compilation() -> None:
    """Log a message once this process has compiled for `NOTICE_SECONDS`. Loading from the cache is quick."""
    from numba.core import event

    class CompilationListener(event.Listener):  # type: ignore[misc]
        """Adds up the times of compilations that are not part of others."""

        def __init__(self) -> None:
            self.depth, self.began, self.seconds, self.noticed = 0, 0.0, 0.0, False

        def on_start(self, _event: Any) -> None:
            if self.depth == 0:
                self.began = time.monotonic()
            self.depth += 1
            self._notice(self.seconds + time.monotonic() - self.began)

        def on_end(self, _event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                self.seconds += time.monotonic() - self.began
                self._notice(self.seconds)

        def _notice(self, seconds: float) -> None:
            if seconds > NOTICE_SECONDS and not self.noticed:
                self.noticed = True
                logger.warning(NOTICE)

    event.register("numba:compile", CompilationListener())
