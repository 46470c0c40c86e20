"""What a slot that may be adopted knows about the code that it has imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from millpond.executors.slot.adoption import ImportedFiles


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Import a module from a folder, and return its file."""
    path = tmp_path / "a_shipped_module.py"
    path.write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("a_shipped_module")
    monkeypatch.delitem(sys.modules, "a_shipped_module", raising=False)
    monkeypatch.setitem(sys.modules, "a_shipped_module", importlib.import_module(path.stem))
    return path


def test_module_from_a_folder_that_the_next_run_does_not_have_is_noticed(shipped: Path) -> None:
    """The next run may ship another version of it, to another folder."""
    files = ImportedFiles()
    files.note()
    assert files.any_below([str(shipped.parent)])
    assert not files.any_below([str(shipped.parent / "other"), ""])
