"""The package from outside: what it exports, what it loads, what it says of itself."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import semicyclic as sc

ROOT = Path(__file__).parent.parent
MAIN = "from semicyclic.cli.main import main; main"


def test_the_public_names_are_sorted_and_there() -> None:
    assert sc.__all__ == sorted(sc.__all__, key=lambda name: (name.islower(), name))
    for name in sc.__all__:
        assert getattr(sc, name) is not None


def test_dir_lists_the_public_names() -> None:
    assert sorted(dir(sc)) == sorted(sc.__all__)


def public_names() -> list[str]:
    """Every public name with the methods and fields of public classes, and every command with its options."""
    from semicyclic.adapters import flower
    from semicyclic.cli.main import app

    found = []
    for prefix, space in {"sc": sc, "semicyclic.adapters.flower": flower}.items():
        for name in space.__all__:
            thing = getattr(space, name)
            found += [f"{prefix}.{name}", *(f"{prefix}.{name}.{each}" for each in own_names(thing))]
    for command in app:
        if not command.startswith("-"):
            options = app[command].assemble_argument_collection()
            found.append(f"semicyclic {command}")
            found += [f"semicyclic {command} {each.names[0]}" for each in options if each.names[0] != "*"]
    return sorted(set(found))


def own_names(thing: Any) -> set[str]:
    """The public names that a class or module of this package defines, or that a class inherits from one."""
    if inspect.ismodule(thing) and hasattr(thing, "__path__"):
        return {each.name for each in pkgutil.iter_modules(thing.__path__)}
    if inspect.ismodule(thing):
        names = set(getattr(thing, "__all__", ())) or {
            name for name, value in vars(thing).items() if getattr(value, "__module__", "") == thing.__name__
        }
    elif inspect.isclass(thing):
        ours = [each for each in thing.__mro__ if each.__module__.startswith("semicyclic")]
        names = {name for each in ours for name in (*vars(each), *getattr(each, "__annotations__", {}))}
    else:
        return set()
    # scikit-learn adds methods set_..._request by itself.
    return {name for name in names if not name.startswith("_") and not name.endswith("_request")}


def test_the_public_names_are_those_listed() -> None:
    listed = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").splitlines()
    assert public_names() == listed


def test_importing_loads_nothing_heavy() -> None:
    heavy = ["numba", "polars", "matplotlib", "sklearn", "torch", "scipy", "pandas", "cyclopts", "rich"]
    code = f"import sys, semicyclic; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("missing", "code", "words"),
    [
        ("pyarrow", "import semicyclic as sc; sc.read('x.csv', when='t')", "pip install 'semicyclic[files]'"),
        (
            "pyarrow",
            f"{MAIN}(['train', 'x.csv', '--when', 't', '--label', 'y', '--out', 'none'])",
            "[files]'",
        ),
        ("flwr", f"{MAIN}(['federate', '--out', 'none'])", "pip install 'semicyclic[flower]'"),
        ("sklearn", "import semicyclic as sc; sc.SemiCyclicClassifier", "pip install 'semicyclic[sklearn]'"),
        ("pyarrow", f"{MAIN}(['theory', '--K', '2'])", ""),
    ],
)
def test_a_missing_extra_is_answered_with_what_to_install(
    missing: str, code: str, words: str, tmp_path: Path
) -> None:
    """A module that is None in `sys.modules` cannot be imported. The theory needs none of them."""
    hidden = f"import sys; sys.modules[{missing!r}] = None; {code}"
    done = subprocess.run(
        [sys.executable, "-c", hidden], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert words in done.stderr
    assert (done.returncode == 0) == (words == "")
    assert not list(tmp_path.iterdir())


def test_all_contains_every_other_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        need for name, needs in extras.items() if name not in ("all", "peers", "test") for need in needs
    }
    assert wanted <= set(extras["all"])
    assert project["version"] == sc.__version__


def test_constraints_hold_no_addresses() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert "--" not in text


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"])
def test_the_house_has_its_papers(name: str) -> None:
    assert (ROOT / name).stat().st_size > 300


def test_the_examples_in_docstrings_run() -> None:
    found = 0
    for path in (ROOT / "src" / "semicyclic").rglob("*.py"):
        if ">>> " in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
            result = doctest.testmod(importlib.import_module(name))
            assert result.failed == 0, name
            found += result.attempted
    assert found > 0


def resolve(name: str) -> tuple[Any, Any]:
    """A public name of the list above as (its class or module, the object itself, undecorated)."""
    space: Any = None
    thing: Any = sc
    for word in name.split(".")[1:]:
        # Properties are not called; a field without a default is not an attribute of its class.
        is_class = inspect.isclass(thing)
        space, thing = thing, inspect.getattr_static(thing, word, None) if is_class else getattr(thing, word)
    return space, thing.__func__ if isinstance(thing, (staticmethod, classmethod)) else thing


def callables() -> list[str]:
    """Every public function, method and class of this package, methods that Flower defines left out."""
    found = []
    for name in public_names():
        if name.startswith(("sc.", "semicyclic.adapters.flower.")):
            space, thing = resolve(name)
            ours = getattr(thing, "__module__", "").startswith("semicyclic.")
            bases = space.__mro__[1:] if inspect.isclass(space) else ()
            inherited = any(name.rpartition(".")[2] in vars(base) for base in bases)
            # Users do not construct errors, enumerations, dictionaries of settings and runs.
            built = inspect.isclass(thing) and not issubclass(thing, (Exception, Enum, dict, sc.Run))
            if ours and not inherited and (inspect.isfunction(thing) or built):
                found.append(name)
    return found


def documentation(space: Any, thing: Any) -> str:
    """The docstring of a function with that of its class, and of the functions it refers to."""
    text = inspect.getdoc(thing) or ""
    texts = [text, (inspect.getdoc(space) or "") if inspect.isclass(space) else ""]
    for reference in re.findall(r"`([\w.]+)`", text):
        if reference != getattr(thing, "__name__", ""):
            home = sys.modules[thing.__module__]
            other = getattr(space, reference, None) or getattr(home, reference.rpartition(".")[2], None)
            texts.append((inspect.getdoc(other) or "") if callable(other) else "")
    return " ".join(texts)


@pytest.mark.parametrize("name", callables())
def test_every_parameter_of_the_public_api_is_documented(name: str) -> None:
    space, thing = resolve(name)
    assert (inspect.getdoc(thing) or "").strip(), "no docstring"
    text = documentation(space, thing)
    given = [each for each in inspect.signature(thing).parameters if each not in ("self", "cls")]
    missing = [each for each in given if not each.startswith("_") and not re.search(rf"\b{each}\b", text)]
    assert missing == []
