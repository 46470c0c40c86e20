"""What the dashboard's pages do by themselves (O7): a real browser, a stand-in for the dispatcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.browser import Browser
from tests.browser.reports import JID, VERTICES, answers
from tests.browser.stub import StubDispatcher

TRIGGER = "f" * 32


def job_page(stub: StubDispatcher, tab: str = "graph") -> str:
    return f"{stub.url}#/jobs/{JID}/{tab}"


def test_overview_lists_jobs_with_live_numbers(browser: Browser, stub: StubDispatcher) -> None:
    """O7: slots, jobs, throughput that moves, and the last checkpoint."""
    browser.open(stub.url)
    row = browser.text("tbody tr")
    assert "views" in row and "RUNNING" in row and "3/3" in row and "in 120 ms" in row
    assert "3 of 4" in browser.text(".tiles")
    browser.until(lambda: browser.text("tbody tr") != row, "the numbers do not change")


def test_graph_shows_chains_and_their_numbers_change_in_place(
    browser: Browser, stub: StubDispatcher, screenshots: Path
) -> None:
    """O7: a box for each chain, updated without being built anew."""
    browser.open(job_page(stub))
    box = browser.find(f'[data-vertex="{VERTICES["source"]}"]')
    assert "Source: views\nMap" in box.text and "2023-11-14 22:13:20" in box.text
    assert len(browser.all("path.edge")) == 2
    before = box.text
    browser.until(lambda: box.text != before, "the numbers do not change")
    box.click()  # the same element still: it was never replaced
    browser.see("Operators of this chain (2)")
    browser.screenshot(screenshots / "graph.png")


@pytest.mark.parametrize(
    ("tab", "shown"),
    [
        ("checkpoints", "Size and duration"),
        ("savepoints", "No savepoint yet."),
        ("exceptions", "No exceptions."),
        ("state", "5.0 kB"),
        ("skew", "skewed: the largest group has 3.6"),
        ("flow", "Where time goes"),
        ("metrics", "seen"),
        ("configuration", "The job has only default settings."),
    ],
)
def test_each_tab_of_a_job_has_its_page(
    tab: str, shown: str, browser: Browser, stub: StubDispatcher
) -> None:
    """O7, E36, P6, E9."""
    browser.open(job_page(stub, tab))
    browser.see(shown, ".tab")
    assert browser.text('.tabs [aria-current="page"]').lower() == tab


def test_names_are_text_and_never_html(browser: Browser, stub: StubDispatcher) -> None:
    """O7: job names and keys are whatever users wrote."""
    name = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    stub.answers = answers(name)
    browser.open(stub.url)
    browser.see(name, ".job-link")
    browser.open(job_page(stub, "skew"))
    browser.see(name, "h1")
    browser.see("<i>ann</i>", "td")
    assert browser.all("main img, main script, td i.ann") == []
    assert "owned" not in browser.driver.title.removeprefix(name)


def test_no_jobs_tells_how_to_start_one(browser: Browser, stub: StubDispatcher) -> None:
    stub.answers["GET /jobs/overview"] = {"jobs": []}
    browser.open(stub.url)
    browser.see("No jobs yet.")
    browser.see("millpond run app.py")


def test_token_is_asked_for_once_and_sent_with_all_requests(
    browser: Browser, stub: StubDispatcher
) -> None:
    """A wrong one is said to be wrong; the right one lasts for the tab."""
    stub.token = "let me in"
    browser.open(stub.url)
    browser.type("dialog input", "guess\n")
    browser.see("did not accept this token", "dialog")
    browser.type("dialog input", "let me in\n")
    browser.see("views", ".job-link")
    assert browser.all("dialog") == []
    browser.driver.refresh()
    browser.see("views", ".job-link")
    assert browser.run("return sessionStorage.getItem('millpond.token')") == "let me in"


def test_token_of_a_link_is_kept_and_taken_out_of_the_address(
    browser: Browser, stub: StubDispatcher
) -> None:
    """O9: also if the page is open already, and asks for it. Back does not bring it back."""
    stub.token = "let/me&in"
    browser.open(stub.url)
    browser.see("millpond dashboard", "dialog")
    browser.driver.get(f"{stub.url}#token=let%2Fme%26in")
    browser.see("views", ".job-link")
    assert browser.all("dialog") == []
    assert browser.driver.current_url == f"{stub.url}#/"
    assert browser.run("return sessionStorage.getItem('millpond.token')") == stub.token
    browser.click(".job-link")
    browser.see("Source: views")
    browser.driver.back()
    browser.see("views", ".job-link")
    assert browser.driver.current_url == f"{stub.url}#/"
    assert all("token" not in request.path + request.query for request in stub.seen)


def test_banner_while_the_dispatcher_is_away(browser: Browser, stub: StubDispatcher) -> None:
    """What was known stays readable; all is well again by itself."""
    browser.open(job_page(stub))
    browser.see("Source: views")
    stub.stop()
    browser.see("The dispatcher does not answer.", "#banner")
    assert "Source: views" in browser.text(".graph")
    stub.start()
    browser.gone("#banner")


def test_standby_without_leader_says_so(browser: Browser, stub: StubDispatcher) -> None:
    """O5: no leader is elected at this moment."""
    stub.answers["GET /overview"] = (503, {"errors": ["No leader is elected yet"]})
    browser.open(stub.url)
    browser.see("No leader is elected yet. Trying again", "#banner")


def test_unknown_job_is_not_a_failure_of_the_dispatcher(
    browser: Browser, stub: StubDispatcher
) -> None:
    stub.answers[f"GET /jobs/{'0' * 32}"] = (404, {"errors": ["Job 000 not found"]})
    browser.open(f"{stub.url}#/jobs/{'0' * 32}")
    browser.see("Job 000 not found")
    assert not browser.find("main").find_elements("css selector", ".tabs")


def test_dark_follows_the_system_until_the_user_chooses(
    browser: Browser, stub: StubDispatcher, screenshots: Path
) -> None:
    browser.prefer("dark")
    browser.open(stub.url)
    browser.see("views", ".job-link")
    dark = browser.background()
    browser.screenshot(screenshots / "dark.png")
    browser.click("#theme-toggle")
    light = browser.background()
    assert sum(dark) < 150 and sum(light) > 600
    browser.driver.refresh()
    browser.see("views", ".job-link")
    assert browser.background() == light


def test_cancel_asks_first(browser: Browser, stub: StubDispatcher) -> None:
    """Only the second yes ends the job."""
    stub.answers[f"PATCH /jobs/{JID}"] = (202, {})
    browser.open(job_page(stub))
    browser.click('[data-action="cancel"]')
    browser.see("Cancel this job?", "dialog")
    browser.find("dialog .button:not(.danger)").click()
    browser.gone("dialog")
    assert stub.received("PATCH", f"/jobs/{JID}") == []
    browser.click('[data-action="cancel"]')
    browser.click('dialog [data-action="confirm"]')
    assert stub.await_request("PATCH", f"/jobs/{JID}").query == "mode=cancel"
    browser.see("The job is being cancelled.", "#toasts")


def test_savepoint_is_followed_until_it_is_complete(browser: Browser, stub: StubDispatcher) -> None:
    """O2: taken, in progress, then its path."""
    stub.answers[f"POST /jobs/{JID}/savepoints"] = (202, {"request-id": TRIGGER})
    progress = f"GET /jobs/{JID}/savepoints/{TRIGGER}"
    stub.answers[progress] = {"status": {"id": "IN_PROGRESS"}, "operation": None}
    browser.open(job_page(stub, "savepoints"))
    browser.type('[name="directory"]', "/data/kept")
    browser.click('[data-action="take-savepoint"]')
    body = stub.await_request("POST", f"/jobs/{JID}/savepoints").json
    assert body == {"target-directory": "/data/kept", "cancel-job": False}
    browser.see("IN_PROGRESS", ".operations")
    done = {"status": {"id": "COMPLETED"}, "operation": {"location": "/data/kept/savepoint-1"}}
    stub.answers[progress] = done
    browser.see("COMPLETED", ".operations")
    browser.see("/data/kept/savepoint-1", ".operations")


def test_failed_stop_tells_why(browser: Browser, stub: StubDispatcher) -> None:
    stub.answers[f"POST /jobs/{JID}/stop"] = (202, {"request-id": TRIGGER})
    cause = {"class": "SavepointError", "stack-trace": "SavepointError: the folder is full"}
    stub.answers[f"GET /jobs/{JID}/savepoints/{TRIGGER}"] = {
        "status": {"id": "COMPLETED"},
        "operation": {"failure-cause": cause},
    }
    browser.open(job_page(stub))
    browser.click('[data-action="stop-with-savepoint"]')
    browser.click('dialog [name="drain"]')
    browser.click('dialog [data-action="confirm"]')
    body = stub.await_request("POST", f"/jobs/{JID}/stop").json
    assert body == {"targetDirectory": None, "drain": True}
    browser.see("the folder is full", "#toasts")


def test_application_is_uploaded_and_run(
    browser: Browser, stub: StubDispatcher, tmp_path: Path
) -> None:
    """O1: a file, then arguments as in a shell, then the page of its job."""
    program = tmp_path / "app.py"
    program.write_text("print('hello')\n")
    stub.answers["POST /jars/upload"] = {"filename": "app.py", "status": "success"}
    browser.open(f"{stub.url}#/submit")
    browser.see("No applications yet.")
    stub.answers["GET /jars"] = {"files": [{"id": "1_app.py", "name": "app.py", "uploaded": 1}]}
    stub.answers["POST /jars/1_app.py/run"] = {"jobid": JID}
    browser.all('input[type="file"]')[0].send_keys(str(program))
    sent = stub.await_request("POST", "/jars/upload").body
    assert b'name="jarfile"; filename="app.py"' in sent and b"print('hello')" in sent
    browser.click(".applications .button.primary")
    browser.type('[name="arguments"]', "--name 'two words' -n 3")
    browser.type('[name="parallelism"]', "2")
    browser.click('[data-action="run"]')
    assert stub.await_request("POST", "/jars/1_app.py/run").json == {
        "programArgsList": ["--name", "two words", "-n", "3"],
        "allowNonRestoredState": False,
        "parallelism": 2,
    }
    browser.see("views", "h1")


def test_numbers_are_written_for_people(browser: Browser, stub: StubDispatcher) -> None:
    browser.open(stub.url)
    texts = "[m.count(1234567), m.count(980), m.bytes(3.4e6), m.duration(125000)]"
    assert browser.module("format.js", texts) == ["1.2 M", "980", "3.4 MB", "2 m 5 s"]
    assert browser.module("format.js", "m.watermark(9223372036854775807)") == "end of input"


def test_narrow_window_does_not_scroll_sideways(browser: Browser, stub: StubDispatcher) -> None:
    browser.resize(390, 844)
    for page in (stub.url, job_page(stub), job_page(stub, "checkpoints")):
        browser.open(page)
        browser.find(".card")
        assert browser.run("return document.documentElement.scrollWidth") <= 390
