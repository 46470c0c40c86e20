"""Runs the capping job in a process of its own and watches what is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.core.fault_points import VARIABLE
from tests.conftest import delivered_lines, newest_epoch
from tests.slot.processes import slots_of

TIMEOUT_S = 240
COUNTS = 2 * 8 * 30
OUTPUTS = ("events", "totals", "columns")


class JobRun:
    """The job in a process group of its own, so that nothing of it can hide."""

    module = "tests.faults.capping_job"

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        for name in ("marks", "faults"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.settings = {
            "checkpoints": str(folder / "checkpoints"),
            "output": str(folder / "output"),
            "marks": str(folder / "marks"),
            **settings,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, json.dumps(self.settings)],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, VARIABLE: str(folder / "faults")},
        )

    def finish(self) -> int:
        self.output, _ = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode

    def await_file(self, path: Path) -> None:
        self._await(path.exists, f"no {path}")

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, f"the job makes no progress: {complaint}"
            time.sleep(0.005)

    def await_epoch(self, epoch: int) -> None:
        job_folder = self.folder / "checkpoints" / "capping"
        self._await(lambda: newest_epoch(job_folder) >= epoch, f"no epoch {epoch}")

    def kill_after_epoch(self, epoch: int) -> None:
        """Wait for an epoch to be written down, then kill the driver, wherever it is."""
        self.await_epoch(epoch)
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)

    def wait_until_nothing_runs(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not self._group_runs() and not slots_of(self.folder):
                return
            time.sleep(0.05)
        left = slots_of(self.folder)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if self._group_runs():
            os.killpg(self.process.pid, signal.SIGKILL)
        pytest.fail(f"processes of a job that has ended still run after 60 s; slots: {left}")

    def _group_runs(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


def run_to_the_end(
    folder: Path, restarts: int = 8, kind: type[JobRun] = JobRun, **settings: Any
) -> int:
    """Start the job again as often as its driver is killed; returns how often that was. Slots wait for it."""
    for killed in range(restarts + 1):
        run = kind(folder, **settings)
        code = run.finish()
        if code == 0:
            run.wait_until_nothing_runs()
            return killed
        assert code == -signal.SIGKILL, run.output
    pytest.fail(f"the job was killed {restarts} times and did not finish")


def delivered(folder: Path) -> dict[str, list[str]]:
    return {name: delivered_lines(folder / "output" / name) for name in OUTPUTS}


def in_order_of_keys(folder: Path) -> dict[str, list[str]]:
    """What was delivered per user, in the order of epochs and of lines in each file."""
    by_user: dict[str, list[str]] = {}
    paths = (folder / "output" / "events").iterdir()
    for path in sorted(paths, key=lambda p: [int(n) for n in p.name.split("-")[2:]]):
        for line in path.read_text().splitlines():
            by_user.setdefault(line.split("'")[3], []).append(line)
    return by_user
