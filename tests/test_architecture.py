"""Import rules that keep the layers apart. The order is explained in docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "millpond"
# A package may import only what stands before it; names on one line know nothing of each other.
LAYERS = (
    ("errors",),
    ("missing",),
    ("__init__",),
    ("common",),
    ("core", "metrics"),
    ("datastream",),
    ("plan",),
    ("state",),
    ("savepoint",),
    ("engine",),
    ("queryable",),
    ("driver",),
    ("executors",),
    ("testing", "dashboard"),
    ("dispatcher",),
    ("cli",),
    ("apps", "__main__"),
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
CODE_LINES = 450
FILES_IN_A_FOLDER = 28  # the API has PyFlink's modules, side by side as there
HEART = ("core", "state", "engine")
CLOCKS_AND_SOCKETS = {"time", "socket", "asyncio", "selectors", "subprocess", "threading"}
MODULES = sorted(SOURCE.rglob("*.py"))
# Names of higher layers in strings are imports in disguise, but for these.
SEAMS = {
    "datastream/execution.py": "finds the execution service when a program calls execute",
    "missing.py": "knows which names of PyFlink's modules Millpond does not have",
}


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULE_NAMES = {module_name(path) for path in MODULES if path.parent != SOURCE}


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Dotted names of everything a file imports, wherever the import stands: at the top, in a function, or
    for type checkers only."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def imported_layers(path: Path) -> Iterator[tuple[str, str]]:
    """(the imported name, its layer) of every import from Millpond itself."""
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "millpond":
            second = parts[1] if len(parts) > 1 else "__init__"
            yield name, second if second in HEIGHT else "__init__"


def files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((SOURCE / folder).rglob("*.py"))]
    assert found
    return found


def test_every_package_has_its_place_in_the_order() -> None:
    assert {layer_of(path) for path in MODULES} == set(HEIGHT)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_imports_only_from_layers_below_its_own(path: Path) -> None:
    own = layer_of(path)
    for name, layer in imported_layers(path):
        if layer != own:
            assert HEIGHT[layer] < HEIGHT[own], f"{relative(path)} ({own}) imports {name} ({layer})"


@pytest.mark.parametrize(
    "path", [path for path in MODULES if relative(path) not in SEAMS], ids=relative
)
def test_module_names_only_layers_below_its_own_in_strings(path: Path) -> None:
    """Imports by name escape the test above."""
    own = layer_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and node.value in MODULE_NAMES:
            layer = node.value.split(".")[1]
            assert HEIGHT[layer] <= HEIGHT[own], f"{relative(path)} names {node.value}"


def imported_at_once(path: Path) -> set[str]:
    """Modules of Millpond that must be imported before this one: not those that a function imports when
    it is called, nor those for type checkers only."""
    needed: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            needed.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                needed.add(name if name in MODULE_NAMES else node.module)
    return needed & MODULE_NAMES


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also within a package. The sorter raises CycleError, which names the modules."""
    graph = {module_name(path): imported_at_once(path) for path in MODULES}
    assert sum(map(len, graph.values())) > len(graph)
    tuple(TopologicalSorter(graph).static_order())


def test_order_in_the_docs_is_the_one_enforced_here() -> None:
    shown = [[name for name in names if not name.startswith("_")] for names in LAYERS]
    order = " < ".join(", ".join(names) for names in shown if names)
    text = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    assert order in text, f"docs/architecture.md should say: {order}"


@pytest.mark.parametrize("path", files(*HEART), ids=relative)
def test_heart_knows_neither_spark_nor_clocks_nor_sockets(path: Path) -> None:
    for name in imports(path):
        top = name.split(".")[0]
        assert top != "pyspark", f"{relative(path)} imports {name}"
        assert top not in CLOCKS_AND_SOCKETS, f"{relative(path)} imports {name}"


def test_only_one_package_uses_spark() -> None:
    users = {
        "/".join(path.relative_to(SOURCE).parts[:2])
        for path in MODULES
        if any(name.split(".")[0] == "pyspark" for name in imports(path))
    }
    assert users == {"executors/spark"}


def test_every_module_can_be_imported_alone() -> None:
    """In an interpreter that has imported nothing else of Millpond: no module depends on who came before."""
    names = [module_name(path) for path in MODULES if path.name != "__main__.py"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "import_alone.py"), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(names)} modules imported alone"


@pytest.mark.parametrize(
    "path", [own for own in files(".") if not relative(own).startswith("apps/")], ids=relative
)
def test_nothing_outside_of_apps_knows_an_app(path: Path) -> None:
    """Apps are programs as users write them, and plug-ins of the command line (O8)."""
    for name in imports(path):
        assert not name.startswith("millpond.apps"), f"{relative(path)} imports {name}"
    apps = [own.name for own in (SOURCE / "apps").iterdir() if (own / "__init__.py").exists()]
    assert "frequency_capping" in apps
    text = path.read_text().lower()
    for word in (*apps, *(own.replace("_", " ") for own in apps), "capping", "millpond.apps"):
        assert word not in text, f"{relative(path)} names {word}"


def code_lines(path: Path) -> int:
    """Lines of a file without blank lines, comments and docstrings."""
    text = path.read_text()
    described: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            described.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in described
        for number, line in lines
    )


def test_source_files_stay_readable() -> None:
    too_long = {
        relative(path): lines for path in MODULES if (lines := code_lines(path)) > CODE_LINES
    }
    assert not too_long, f"one concept per file; split these: {too_long}"


def test_folders_stay_readable() -> None:
    """A folder that nobody can survey has no room for the next file."""
    crowded = {
        relative(folder): count
        for folder in {path.parent for path in MODULES}
        if (count := len(list(folder.glob("*.py")))) > FILES_IN_A_FOLDER
    }
    assert not crowded, f"make packages of what belongs together: {crowded}"


def test_every_package_has_an_init_file() -> None:
    """Without one it cannot be imported from a zip, which is how workers get Millpond."""
    folders = {path.parent for path in MODULES}
    lacking = {
        relative(parent)
        for folder in folders
        for parent in (folder, *folder.parents)
        if parent.is_relative_to(SOURCE) and not (parent / "__init__.py").exists()
    }
    assert not lacking


def test_unit_tests_are_where_the_code_is() -> None:
    """tests/unit has the packages of the source, and no tests beside them."""
    unit = ROOT / "tests" / "unit"
    assert not list(unit.glob("test_*.py"))
    tests = {path.parent.relative_to(unit).as_posix() for path in unit.rglob("test_*.py")}
    assert {name for name in tests if not (SOURCE / name).is_dir()} == {"tools"}
