"""The dashboard in a real browser, a real dispatcher behind it, and a job on Spark (O7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.browser import Browser
from tests.dispatcher import programs
from tests.dispatcher.programs import write_program
from tests.dispatcher.running import dispatcher
from tests.dispatcher.test_jobs import SPARK, Lines, await_printed

pytestmark = pytest.mark.spark


def test_a_job_is_submitted_watched_saved_and_cancelled_in_the_browser(
    browser: Browser, tmp_path: Path, screenshots: Path
) -> None:
    lines = Lines(tmp_path / "lines")
    program = write_program(tmp_path, programs.COUNTING, "counting.py")
    with dispatcher(tmp_path / "storage", *SPARK) as own:
        browser.open(own.link)
        browser.see("No jobs yet.")
        browser.open(f"{own.address}/#/submit")
        browser.find("input[type=file]")  # shown when the list of programs has come
        jid = own.run(program, str(lines.folder))
        expected = lines.add("a", "b", "c")
        own.await_state(jid, "RUNNING")
        await_printed(own, jid, expected)
        browser.open(own.address)
        browser.see("counting", "tbody")
        browser.screenshot(screenshots / "overview.png")
        browser.open(f"{own.address}/#/jobs/{jid}")
        box = browser.find("[data-vertex]")
        before = box.text
        await_printed(own, jid, lines.add("a", "b", "c", "d"))
        browser.until(lambda: box.text != before, "the numbers do not change")
        browser.screenshot(screenshots / "graph.png")
        for tab in ("checkpoints", "state", "skew", "flow", "metrics", "configuration"):
            browser.open(f"{own.address}/#/jobs/{jid}/{tab}")
            browser.find(".job-title")
            browser.screenshot(screenshots / f"{tab}.png")
        browser.click('[data-action="savepoint"]')
        browser.click('dialog [data-action="confirm"]')
        browser.see("Savepoint: ", "#toasts")
        assert list((tmp_path / "storage" / "savepoints").glob("*/manifest.json"))
        browser.click('[data-action="cancel"]')
        browser.click('dialog [data-action="confirm"]')
        browser.see("CANCELED", ".job-title")
        own.await_state(jid, "CANCELED")
        browser.prefer("dark")
        browser.open(own.address)
        browser.see("CANCELED", "tbody")
        browser.screenshot(screenshots / "ended-dark.png")
