"""Import rules that keep the layers apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "millpond"
CLOCKS_AND_SOCKETS = {"time", "socket", "asyncio", "selectors", "subprocess", "threading"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((SOURCE / folder).rglob("*.py"))]
    assert found
    return found


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", files("runtime/task", "state"), ids=relative)
def test_heart_knows_neither_spark_nor_clocks_nor_sockets(path: Path) -> None:
    for name in imports(path):
        top = name.split(".")[0]
        assert top != "pyspark", f"{relative(path)} imports {name}"
        assert top not in CLOCKS_AND_SOCKETS, f"{relative(path)} imports {name}"
        assert "runtime.spark" not in name, f"{relative(path)} imports {name}"


@pytest.mark.parametrize("path", files("common", "datastream", "plan", "testing"), ids=relative)
def test_contracts_and_plans_do_not_know_spark(path: Path) -> None:
    for name in imports(path):
        assert not name.startswith("pyspark"), f"{relative(path)} imports {name}"
        assert "runtime.spark" not in name, f"{relative(path)} imports {name}"


@pytest.mark.parametrize("path", files("common"), ids=relative)
def test_common_does_not_depend_on_other_apis(path: Path) -> None:
    for name in imports(path):
        assert not name.startswith(("millpond.datastream", "millpond.runtime", "millpond.plan"))


def test_only_one_package_uses_spark() -> None:
    users = {
        relative(path).split("/")[0] + "/" + relative(path).split("/")[1]
        for path in SOURCE.rglob("*.py")
        if any(name.split(".")[0] == "pyspark" for name in imports(path))
    }
    assert users == {"runtime/spark"}


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


def test_source_files_stay_readable() -> None:
    too_long = {
        relative(path): lines
        for path in SOURCE.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 520
    }
    assert not too_long, f"one concept per file; split these: {too_long}"
