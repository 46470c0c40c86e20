"""Jobs on Spark under a real dispatcher: savepoints, stop, kill -9 of everything (O2, E42, E45)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dispatcher import programs
from tests.dispatcher.programs import write_program
from tests.dispatcher.running import RunningDispatcher, dispatcher, eventually

pytestmark = [pytest.mark.spark, pytest.mark.faults]
SPARK = ("--master", "local[2]", "-D", "parallelism.default=2")


class Lines:
    """A folder that a job reads lines from, and what it should print for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: dict[str, int] = {}
        self._files = 0
        folder.mkdir()

    def add(self, *lines: str) -> list[str]:
        """Returns what a job prints for them."""
        aside = self.folder.parent / f"lines-{self._files}"
        aside.write_text("".join(f"{line}\n" for line in lines))
        aside.rename(self.folder / f"{self._files}.txt")
        self._files += 1
        printed = []
        for line in lines:
            self.counts[line] = self.counts.get(line, 0) + 1
            printed.append(f"{line} {self.counts[line]}")
        return printed


def await_printed(own: RunningDispatcher, jid: str, expected: list[str]) -> list[str]:
    """The job's log, line by line, when it has all that is expected."""

    def there() -> list[str] | None:
        log = own.http.get(f"/jobs/{jid}/log", params={"tail": 100_000}).text.splitlines()
        lines = [line.partition("> ")[2] or line for line in log]
        return lines if set(expected) <= set(lines) else None

    return eventually(there, f"{expected} in the log")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDispatcher]:
    with dispatcher(tmp_path_factory.mktemp("storage"), *SPARK) as running:
        yield running


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


def start(own: RunningDispatcher, folder: Path, lines: Lines, **settings: str) -> str:
    program = write_program(folder, programs.COUNTING)
    jid = own.run(program, str(lines.folder), **settings)
    own.await_state(jid, "RUNNING")
    return jid


def test_a_job_runs_takes_a_savepoint_and_another_one_goes_on_from_it(
    own: RunningDispatcher, tmp_path: Path, lines: Lines
) -> None:
    """O1, E45"""
    expected = lines.add("a", "b", "a")
    jid = start(own, tmp_path, lines)
    await_printed(own, jid, expected)
    job = own.await_report(jid, lambda report: report["checkpoints"]["counts"]["completed"] > 0)
    assert [vertex["keyed"] for vertex in job["vertices"]] == [False, True]
    counting = own.get(f"/jobs/{jid}")["vertices"][1]
    assert "count" in counting["name"]
    request = own.http.post(
        f"/jobs/{jid}/savepoints", json={"target-directory": str(tmp_path / "saved")}
    )
    assert request.status_code == 202
    location = own.await_trigger(jid, request.json()["request-id"])["location"]
    assert (Path(location) / "manifest.json").exists()
    answer = own.http.post(f"/jobs/{jid}/stop", json={"targetDirectory": str(tmp_path / "saved")})
    stopped = own.await_trigger(jid, answer.json()["request-id"])["location"]
    own.await_state(jid, "FINISHED")
    assert own.http.post(f"/jobs/{jid}/savepoints", json={}).status_code == 409
    expected = lines.add("a", "c")
    follower = own.run(
        write_program(tmp_path, programs.COUNTING),
        str(lines.folder),
        **{"execution.state-recovery.path": stopped},
    )
    assert "a 1" not in await_printed(own, follower, expected)
    assert own.http.patch(f"/jobs/{follower}?mode=cancel").status_code == 202
    own.await_state(follower, "CANCELED")


def test_a_job_manager_that_is_killed_comes_back_and_nothing_is_lost_or_twice(
    own: RunningDispatcher, tmp_path: Path, lines: Lines
) -> None:
    """O2, E42. What is printed shows a moment before Spark has committed the batch; it has when the next one
    runs."""
    expected = lines.add("a", "b")
    jid = start(own, tmp_path, lines)
    await_printed(own, jid, expected)
    await_printed(own, jid, lines.add("may be printed twice"))
    pid = own.get(f"/jobs/{jid}/report")["pid"]
    os.kill(pid, signal.SIGKILL)
    expected = lines.add("a", "b", "b")
    own.await_report(jid, lambda report: report["pid"] != pid and report["state"] == "RUNNING")
    printed = await_printed(own, jid, expected)
    assert [printed.count(text) for text in ("a 1", "a 2", "b 1", "b 2", "b 3")] == [1] * 5
    entries = own.get(f"/jobs/{jid}/exceptions")["exceptionHistory"]["entries"]
    assert "SIGKILL" in entries[0]["stacktrace"]
    own.http.patch(f"/jobs/{jid}")
    own.await_state(jid, "CANCELED")


def test_jobs_do_not_notice_that_their_dispatcher_dies(tmp_path: Path, lines: Lines) -> None:
    """O5"""
    with dispatcher(tmp_path / "storage", *SPARK) as first:
        expected = lines.add("a")
        jid = start(first, tmp_path, lines)
        await_printed(first, jid, expected)
        pid = first.get(f"/jobs/{jid}/report")["pid"]
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    with dispatcher(tmp_path / "storage", *SPARK) as second:
        await_printed(second, jid, lines.add("a"))
        report: dict[str, Any] = second.get(f"/jobs/{jid}/report")
        assert report["pid"] == pid and report["state"] == "RUNNING"
        second.process.send_signal(signal.SIGTERM)  # ends the job's process, too, but not the job
        second.process.wait(60)
    with dispatcher(tmp_path / "storage", *SPARK) as third:
        expected = lines.add("a")
        await_printed(third, jid, expected)
        assert third.get(f"/jobs/{jid}/report")["pid"] != pid
        third.http.patch(f"/jobs/{jid}")
        third.await_state(jid, "CANCELED")
