"""kill -9 of drivers and workers, between and inside batches: output as if nothing had happened
(E42, E43)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import delivered_lines

pytestmark = [pytest.mark.spark, pytest.mark.faults]
TIMEOUT_S = 180


class JobRun:
    """The job in a process group of its own, so that nothing of it can hide."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        (folder / "marks").mkdir(parents=True, exist_ok=True)
        self.settings = {
            "checkpoints": str(folder / "checkpoints"),
            "output": str(folder / "output"),
            "marks": str(folder / "marks"),
            **settings,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.capping_job", json.dumps(self.settings)],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self) -> int:
        output, _ = self.process.communicate(timeout=TIMEOUT_S)
        self.output = output
        return self.process.returncode

    def kill_after_epoch(self, epoch: int) -> None:
        """Wait for an epoch to be written down, then kill the driver, wherever it is."""
        marker = self.folder / "checkpoints" / "capping" / "epochs" / f"{epoch}.epoch"
        deadline = time.monotonic() + TIMEOUT_S
        while not marker.exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "the job makes no progress"
            time.sleep(0.005)
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)

    def wait_until_nothing_runs(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        os.killpg(self.process.pid, signal.SIGKILL)
        pytest.fail("processes of a killed job are still running after 60 s")


def delivered(folder: Path) -> dict[str, list[str]]:
    return {name: delivered_lines(folder / "output" / name) for name in ("events", "totals")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = JobRun(folder)
    assert run.finish() == 0, run.output
    result = delivered(folder)
    assert len(result["events"]) == 2 * 8 * 30
    return result


def test_killed_worker_while_reading(tmp_path: Path, undisturbed: dict[str, list[str]]) -> None:
    run = JobRun(tmp_path, kill_worker=True)
    assert run.finish() == 0, run.output
    assert (tmp_path / "marks").iterdir()
    assert any(path.name.startswith("mark-") for path in (tmp_path / "marks").iterdir())
    assert delivered(tmp_path) == undisturbed


def test_killed_worker_inside_a_keyed_function(
    tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    run = JobRun(tmp_path, kill_at=400 * 100)
    assert run.finish() == 0, run.output
    assert (tmp_path / "marks" / "killed-in-task").exists()
    assert delivered(tmp_path) == undisturbed


def test_driver_killed_while_planning_a_batch(
    tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    run = JobRun(tmp_path, kill_driver=True)
    assert run.finish() == -signal.SIGKILL
    run.wait_until_nothing_runs()
    again = JobRun(tmp_path, kill_driver=True)
    assert again.finish() == 0, again.output
    assert delivered(tmp_path) == undisturbed


@pytest.mark.parametrize("epoch", [1, 5])
def test_driver_killed_at_any_moment(
    epoch: int, tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    """The kill falls between the epoch's write and the end of Spark's commit, or in the next batch."""
    run = JobRun(tmp_path)
    run.kill_after_epoch(epoch)
    run.wait_until_nothing_runs()
    again = JobRun(tmp_path)
    assert again.finish() == 0, again.output
    assert delivered(tmp_path) == undisturbed
    assert not (tmp_path / "checkpoints" / "capping").exists()
