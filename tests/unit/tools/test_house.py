"""tools/house.py counts as its docstring says."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house import load_house

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def house() -> Any:
    return load_house()


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_annotations_that_amount_to_any_and_that_mention_it(house: Any, tmp_path: Path) -> None:
    root = write(
        tmp_path / "p",
        {
            "one/a.py": "from typing import Any\n"
            "Value = Any\n"
            "def f(x: Any, y: 'int | Any', *z: int) -> dict[str, Any]: ...\n"
            "w: int = 1\n",
            "two/b.py": "from p.one.a import Value\ndef g(x: Value, y: list[Value]) -> None: ...\n",
        },
    )
    counts = house.measure(root)
    one, two = counts["one"], counts["two"]
    assert (one.annotations, len(one.any), len(one.with_any)) == (5, 2, 3)
    assert (two.annotations, len(two.any), len(two.with_any)) == (3, 0, 2)
    total = house.total(counts)
    assert (total.modules, total.annotations, len(total.any)) == (2, 8, 2)
    assert total.any_share == 0.25


def test_docstrings_of_public_names_count_and_documented_bases_do(
    house: Any, tmp_path: Path
) -> None:
    root = write(
        tmp_path / "p",
        {
            "base/__init__.py": "from p.base.contract import Base\n",
            "base/contract.py": "class Base:\n"
            '    """A base."""\n'
            "    def told(self):\n"
            '        """Say what it is."""\n'
            "    def untold(self): ...\n"
            "    def _private(self): ...\n",
            "made/a.py": "from p.base import Base\n"
            "class Made(Base):\n"
            "    def told(self): ...\n"
            "    def untold(self): ...\n"
            "    @property\n"
            "    def size(self): return 1\n"
            "    @size.setter\n"
            "    def size(self, value): ...\n"
            "class _Hidden:\n"
            "    def f(self): ...\n"
            "def outer():\n"
            '    """Say."""\n'
            "    def inner(): ...\n",
        },
    )
    counts = house.measure(root)
    assert [place.split()[-1] for place in counts["base"].undocumented] == ["Base.untold"]
    assert counts["base"].documented == 2
    names = [place.split()[-1] for place in counts["made"].undocumented]
    assert names == ["Made", "Made.untold", "Made.size"]
    assert counts["made"].documented == 1


def test_long_functions_and_crowded_folders(house: Any, tmp_path: Path) -> None:
    files = {f"many/m{number}.py": "" for number in range(26)}
    files["few/a.py"] = "def f():\n" + "    pass\n" * 50 + "def g():\n" + "    pass\n" * 49
    counts = house.measure(write(tmp_path / "p", files))
    assert counts["few"].long == ["few/a.py:1 f: 51 lines"]
    assert counts["many"].crowded == ["many: 26 modules"]
    assert counts["few"].crowded == []


def test_complexity_is_that_of_ruff(house: Any) -> None:
    """On Millpond's own source, with a limit so low that every branch counts."""
    limit = 2
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901"),
            *("--config", f"lint.mccabe.max-complexity={limit}", "--output-format", "json"),
            str(ROOT / "src" / "millpond"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    expected = {
        (
            found["filename"],
            found["location"]["row"],
            int(found["message"].split("(")[1].split()[0]),
        )
        for found in json.loads(done.stdout)
    }
    assert len(expected) > 100
    modules = house.read_modules(ROOT / "src" / "millpond")
    measured = {
        (str(module.path), node.lineno, house.complexity(node))
        for module in modules
        for _, node, _ in house.definitions(module)
        if not isinstance(node, ast.ClassDef) and house.complexity(node) > limit
    }
    assert measured == expected


def test_table_has_a_line_per_package_and_a_total(house: Any) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "house.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["package", "modules", "long"]
    packages = [line.split()[0] for line in lines[1:]]
    assert packages[-1] == "total" and {"common", "datastream", "state"} <= set(packages)
