"""The public API against PyFlink's (names only, in pyflink.json; made by tools/compatibility.py)."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millpond.errors import UnsupportedFeatureError
from millpond.missing import MISSING_METHODS, MISSING_MODULES

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def compatibility() -> ModuleType:
    path = ROOT / "tools" / "compatibility.py"
    spec = importlib.util.spec_from_file_location("compatibility", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_lists_exactly_what_is_missing(compatibility: Any) -> None:
    """docs/compatibility.md is made by `tools/compatibility.py --api` and never out of date."""
    assert compatibility.PAGE.read_text() == compatibility.page(None)


def test_parameters_have_pyflinks_names(compatibility: Any) -> None:
    assert compatibility.wrong_parameters() == []


def test_every_missing_name_raises_an_error_that_names_it(compatibility: Any) -> None:
    for module_name, names in compatibility.missing_names().items():
        module = importlib.import_module(f"millpond.{module_name}")
        for name in names:
            class_name, _, method = name.partition(".")
            if method:
                assert method in MISSING_METHODS[class_name], f"{name} says nothing"
                owner = getattr(module, class_name)
                with pytest.raises(UnsupportedFeatureError, match=f"{class_name}.{method}"):
                    getattr(object.__new__(owner), method)
            else:
                with pytest.raises(UnsupportedFeatureError, match=class_name):
                    getattr(module, class_name)


@pytest.mark.parametrize("module", MISSING_MODULES)
def test_missing_module_says_so(module: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"does not have {module}: "):
        importlib.import_module(module)


@pytest.mark.parametrize("module", ["millpond.common", "millpond.datastream"])
def test_all_lists_every_public_name(module: str) -> None:
    loaded = importlib.import_module(module)
    public = {
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith("millpond.")
        and name != "module_getattr"
    }
    assert public == set(loaded.__all__)


@pytest.fixture(scope="module")
def wheel(compatibility: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        path: Path = compatibility.download_wheel(tmp_path_factory.mktemp("wheel"))
    except subprocess.CalledProcessError:
        if os.environ.get("CI"):
            raise
        pytest.skip("the apache-flink wheel cannot be downloaded here (no network?)")
    return path


@pytest.mark.spark
def test_pyflinks_examples_run_as_documented(
    compatibility: Any, wheel: Path, tmp_path: Path
) -> None:
    """Those that run, run and print what they should; the names are still those of the wheel."""
    assert json.loads(compatibility.NAMES_FILE.read_text()) == compatibility.wheel_names(wheel)
    documented = compatibility.PAGE.read_text()
    expected_lines = {
        "word_count.py": "('To',",
        "basic_operations.py": "('China', 167)",
        "process_json_data.py": "'city': 'Hangzhou'",
    }
    for name, line in expected_lines.items():
        assert f"- `{name}`: runs\n" in documented
        done = compatibility.run_example(wheel, name, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        assert line in done.stdout
