"""From `millpond start-cluster` to the jobs in a browser: the printed link is all that is needed (O7, O9)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.browser import Browser
from tests.dispatcher import programs
from tests.dispatcher.programs import write_program


@pytest.fixture
def said(tmp_path: Path) -> Iterator[str]:
    """What start-cluster prints; a job has run since."""

    def millpond(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "millpond", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "MILLPOND_HOME": str(tmp_path / "home")},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = millpond("start-cluster", "--local", "--port", "0", "-D", "millpond.executor=direct")
    try:
        millpond("run", str(write_program(tmp_path, programs.BOUNDED)))
        yield said
    finally:
        millpond("stop-cluster")


def test_printed_link_shows_the_jobs_and_without_it_the_page_asks_for_the_token(
    browser: Browser, said: str
) -> None:
    found = re.search(r"Dashboard: ((\S+?/)#token=\S+)", said)
    assert found is not None, said
    link, address = found.groups()
    browser.open(address)
    browser.see("requires a token", "dialog")
    browser.see("millpond dashboard", "dialog")
    assert browser.all(".job-link") == []
    browser.open(link)
    browser.see("bounded", ".job-link")
    assert browser.driver.current_url == f"{address}#/"
    browser.open(address)
    browser.see("bounded", ".job-link")  # the tab knows it now
