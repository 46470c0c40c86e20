"""Executors come and go with the work (O3)."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from tests.faults.job_run import JobRun
from tests.slot.processes import wait_until
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.soak]


class IdleRun(JobRun):
    module = "tests.spark.idle_job"


def executors_below(folder: Path) -> list[int]:
    """The executors that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_below = Path(os.readlink(process / "cwd")).is_relative_to(folder)
            if is_below and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def test_idle_executors_are_released_and_state_is_there_when_they_return(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent.parent, tmp_path / "modules" / "tests")
    (tmp_path / "input").mkdir()

    def give(name: str) -> None:
        (tmp_path / name).write_text("a\nb\nc\n")
        (tmp_path / name).rename(tmp_path / "input" / name)

    with standalone_cluster(tmp_path / "cluster", apart=True) as master:
        run = IdleRun(
            tmp_path,
            master=master,
            input=str(tmp_path / "input"),
            modules=str(tmp_path / "modules"),
        )
        try:
            for times in (1, 2, 3):
                give(f"file-{times}")
                for line in "abc":
                    run.await_file(tmp_path / "marks" / f"{line}-{times}")
                wait_until(
                    lambda: not executors_below(tmp_path / "cluster"), "executors stay for ever"
                )
        finally:
            run.process.kill()
            run.process.communicate(timeout=60)
        run.wait_until_nothing_runs()
