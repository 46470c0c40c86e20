"""One browser for all tests of this folder: starting it costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.browser import Browser, chromium
from tests.browser.reports import answers
from tests.browser.stub import StubDispatcher


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as started:
        yield started


@pytest.fixture
def browser(_chromium: Browser) -> Iterator[Browser]:
    """The window, as if it had just been opened. No page may complain in the console."""
    _chromium.reset()
    yield _chromium
    assert _chromium.errors() == []


@pytest.fixture
def stub() -> Iterator[StubDispatcher]:
    """A stand-in for the dispatcher with one job that runs (tests/browser/reports.py)."""
    started = StubDispatcher(answers())
    started.start()
    yield started
    started.stop()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where a test leaves pictures to look at."""
    return tmp_path / "screenshots"
