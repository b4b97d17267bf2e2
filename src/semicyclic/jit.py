"""Numba decorators: compiler options, the folder for compiled code, and a message when compiling takes long.

Numba takes most of a second to import, so it is imported when the first function is compiled.
"""

import hashlib
import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
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
# Compiled code of other versions is removed after this time.
UNUSED_SECONDS = 30 * 86_400.0
IMPORT = r"^from semicyclic\.([\w.]+) import ([\w, ]*)"
# Guards the replacement of Numba's setting of the cache folder.
_folder_lock = threading.Lock()


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compile at the first call, and cache the result on disk where that is possible."""
    import numba

    watch_compilation()
    with _folder_lock:
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(cache_folder())
        try:
            return numba.njit(cache=True, **OPTIONS, **options)(function)
        except RuntimeError:
            # No folder can be written to: compile per process.
            return numba.njit(**OPTIONS, **options)(function)
        finally:
            numba.config.CACHE_DIR = before


@cache
def cache_folder() -> Path:
    """Return the folder for compiled code: in NUMBA_CACHE_DIR, or in the user's folder for caches.

    Numba looks only at a function's own file to see whether its compiled code is outdated, not at the
    functions it calls. Therefore each version of the kernels has its own folder. Folders of other versions
    are removed a month after their last change.
    """
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or _user_cache()) / "semicyclic" / source_digest()
    with suppress(OSError):
        for other in [] if folder.exists() else folder.parent.iterdir():
            if other.stat().st_mtime < time.time() - UNUSED_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def source_digest(root: Path = Path(__file__).parent) -> str:
    """Return a digest of all modules with kernels and of those they import. root: folder of the package."""
    pending = {root / "jit.py", *root.glob("**/kernels/*.py")}
    contents: dict[Path, bytes] = {}
    while pending:
        path = pending.pop()
        contents[path] = path.read_bytes()
        for module, names in re.findall(IMPORT, contents[path].decode(), re.MULTILINE):
            folder = root.joinpath(*module.split("."))
            files = [folder.with_suffix(".py"), folder / "__init__.py"]
            files += [folder / f"{name.strip()}.py" for name in names.split(",")]
            pending |= {file for file in files if file.exists() and file not in contents}
    ordered = sorted((path.relative_to(root).as_posix(), content) for path, content in contents.items())
    return hashlib.sha256(repr(ordered).encode()).hexdigest()[:16]


def _user_cache() -> Path:
    """Return the user's folder for caches."""
    home = Path(os.path.expanduser("~"))  # unlike Path.home() it does not raise without a home
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


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
def watch_compilation() -> Any:
    """Log a message once this process has compiled for `NOTICE_SECONDS`. Loading from the cache is quick.

    Returns the listener; its `seconds` are those compiled so far.
    """
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

    listener = CompilationListener()
    event.register("numba:compile", listener)
    return listener
