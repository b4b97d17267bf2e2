"""Layout of the source tree: sizes, names that exist once, compiled code in kernels folders, documents."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "semicyclic"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400
MAX_MODULES = 22
# What makes a function compiled: a decorator of `jit.py`, or one of Numba's own.
COMPILERS = {"jit", "loop", "inline", "njit", "intrinsic", "overload", "register_jitable", "vectorize"}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def decorators(node: ast.FunctionDef) -> set[str]:
    """The last names of a function's decorators: `jit` of `@semicyclic.jit.jit(...)`."""
    called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return {ast.unparse(each).rpartition(".")[2] for each in called}


def test_a_public_class_name_exists_once() -> None:
    names = Counter(
        node.name
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_compiled_functions_are_in_kernels_folders() -> None:
    for path in MODULES:
        compiled = [
            node.name
            for node in ast.walk(tree(path))
            if isinstance(node, ast.FunctionDef) and decorators(node) & COMPILERS
        ]
        assert not compiled or path.parent.name == "kernels", path


def test_only_jit_and_kernels_name_numba() -> None:
    for path in MODULES:
        named = any(
            "numba" in ast.unparse(node) or "llvmlite" in ast.unparse(node)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Import | ast.ImportFrom)
        )
        assert not named or path.parent.name == "kernels" or path.name == "jit.py", path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_are_small_and_say_what_they_define(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(tree(path)), "a module needs a docstring"


def test_folders_are_small() -> None:
    for folder in {path.parent for path in MODULES}:
        assert len(list(folder.glob("*.py"))) <= MAX_MODULES, folder


def test_lazy_packages_list_their_modules() -> None:
    """What a type checker sees under TYPE_CHECKING is what `lazy_submodules` can import."""
    lazy = [path for path in PACKAGE.rglob("__init__.py") if "lazy_submodules(__name__)" in path.read_text()]
    assert len(lazy) > 10
    for path in lazy:
        listed = re.findall(r"import (\w+) as \1$", path.read_text(), flags=re.MULTILINE)
        modules = {each.stem for each in path.parent.glob("*.py")} - {"__init__"}
        folders = {each.parent.name for each in path.parent.glob("*/__init__.py")}
        assert set(listed) == modules | folders, path


def test_imports_stand_at_the_top() -> None:
    """Modules of the package are imported lazily by their package, not inside functions."""
    inside = [
        (path.relative_to(PACKAGE), node.lineno)
        for path in MODULES
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("semicyclic")
    ]
    assert inside == []


def test_the_table_of_features_names_what_exists() -> None:
    rows = re.findall(r"^\| (.+?) \| `(\S+?)`(?: `(\S+?)`)?(?:: .*?)? \| (.+?) \|$", table(), re.MULTILINE)
    assert len(rows) > 120
    tests = " ".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    for feature, path, function, fails in rows:
        text = (PACKAGE / path).read_text(encoding="utf-8")
        assert not function or re.search(rf"\b{re.escape(function.rpartition('.')[2])}\b", text), feature
        for test in re.findall(r"test_\w+", fails):
            assert f"def {test}(" in tests, feature


def table() -> str:
    """The table in `tests/README.md`."""
    return (Path(__file__).parent / "README.md").read_text(encoding="utf-8").partition("|---|")[2]


def test_tests_mirror_the_source() -> None:
    for path in Path(__file__).parent.rglob("test_*.py"):
        folder = path.parent.relative_to(Path(__file__).parent)
        assert (PACKAGE / folder).is_dir(), f"{folder} is no folder of the package"


def test_references_to_documents_resolve() -> None:
    """`docs/math.md#regret` names a heading. Documents outside the repository are not cited."""
    sources = [*MODULES, *Path(__file__).parent.rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    cited = 0
    for path in sources:
        text = path.read_text(encoding="utf-8")
        assert path == Path(__file__) or not re.search(r"\bSPEC\b", text), path
        for page, anchor in re.findall(r"(docs/[\w-]+\.md)(?:#([\w-]+))?", text):
            assert (ROOT / page).exists(), path
            assert not anchor or anchor in anchors(ROOT / page), f"{path}: {page}#{anchor}"
            cited += bool(anchor)
    assert cited > 20


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
# These strings are command lines of another program.
OTHER_PROGRAMS = "external_baselines.py"


def test_only_the_command_line_names_flags() -> None:
    """Below `cli`, messages name arguments: they are also read by callers from Python."""
    below = [path for path in MODULES if "cli" not in path.relative_to(PACKAGE).parts]
    named = [
        (path.name, node.lineno, node.value)
        for path in below
        if path.name != OTHER_PROGRAMS
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FLAG.search(node.value)
    ]
    for path in PACKAGE.rglob("*.html"):
        # Style sheets have custom properties such as `--ink`.
        text = re.sub(r"<style>.*?</style>|var\(.*?\)", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        named += [(path.name, 0, flag) for flag in FLAG.findall(text)]
    assert named == []
