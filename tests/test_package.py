"""The package from outside: what it exports, what it loads, what it says of itself."""

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
import tomllib
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
