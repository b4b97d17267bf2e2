"""Packages whose modules are imported when first used.

Modules that need Numba, pyarrow or matplotlib would slow down `import semicyclic` and the help texts.
A package that sets `__getattr__ = lazy_submodules(__name__)` can be imported at the top of a file at no cost:
`kernels.sgd.run_sgd(...)` imports `kernels.sgd` when that line runs. For type checkers the package lists its
modules under `TYPE_CHECKING`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# Optional packages: what needs them, and the extra that installs them.
EXTRAS = {"pyarrow": ("reading tables and files", "files"), "flwr": ("federated training", "flower")}


def lazy_submodules(package: str) -> Callable[[str], ModuleType]:
    """A `__getattr__` for `package` that imports its submodules on access."""

    def load(name: str) -> ModuleType:
        full = f"{package}.{name}"
        if name.startswith("_") or find_spec(full) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return _import(full)

    return load


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for `package` that imports each name from the module `homes` gives for it."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(_import(homes[name]), name)

    return load


def _import(module: str) -> ModuleType:
    """Import a module; if an optional package is missing, say what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in EXTRAS:
            raise
        what, extra = EXTRAS[missing]
        raise ImportError(
            f"{what} needs {missing}, which is not installed: pip install 'semicyclic[{extra}]'"
        ) from None
