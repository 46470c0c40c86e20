"""A dispatcher for the tests of the command line, and the command itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millpond.cli import logs
from millpond.cli.client import following, known_jobs
from millpond.cli.main import main
from tests.cli.fake_dispatcher import FakeDispatcher

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLPOND_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MILLPOND_SETTINGS", "{}")
    return tmp_path / "home"


@pytest.fixture
def millpond(home: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `millpond ...`; its exit code, what it printed, and its errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def dispatcher(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDispatcher]:
    """Named by MILLPOND_ADDRESS. Waiting takes no time."""
    for module in (following, known_jobs, logs):
        monkeypatch.setattr(module, "_POLL_S", 0.001)
    with FakeDispatcher() as fake:
        monkeypatch.setenv("MILLPOND_ADDRESS", fake.address)
        yield fake
