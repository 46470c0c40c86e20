"""A job folder that lacks a file, or has a damaged one, is refused; one as a crash leaves it is not (E42)."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.driver.job_folder import JobFolder
from millpond.errors import CorruptDataError, IncompatibleCheckpointError
from millpond.plan.physical import JobPlan
from tests.conftest import delivered_lines
from tests.unit.driver.test_recovery import Crash, StandInForSpark, job


class Crashed:
    """A job that has crashed in batch 2 of several."""

    def __init__(self, tmp_path: Path, point: str) -> None:
        self._base = tmp_path
        self._spark = StandInForSpark()
        with pytest.raises(Crash):
            self._spark.run(self._job(), tmp_path / "jobs", (2, point))
        self.folder = tmp_path / "jobs" / "job"

    def go_on(self) -> list[str]:
        self._spark.run(self._job(), self._base / "jobs", None)
        return delivered_lines(self._base / "output")

    def undisturbed(self) -> list[str]:
        plan = job("collection", self._base / "expected")
        StandInForSpark().run(plan, self._base / "other-jobs", None)
        return delivered_lines(self._base / "expected")

    def _job(self) -> JobPlan:
        return job("collection", self._base / "output")


@pytest.mark.parametrize("point", ["completed", "committed"])
def test_lost_plan_of_a_complete_batch_is_refused(tmp_path: Path, point: str) -> None:
    """Its sources would be read from their beginning again, on old state."""
    crashed = Crashed(tmp_path, point)
    (crashed.folder / "plans" / "2.plan").unlink()
    with pytest.raises(IncompatibleCheckpointError, match=r"lacks plans/2\.plan.* savepoint"):
        crashed.go_on()


@pytest.mark.parametrize("point", ["planned", "completed"])
def test_lost_lane_of_a_batch_that_runs_again_is_refused(tmp_path: Path, point: str) -> None:
    crashed = Crashed(tmp_path, point)
    (crashed.folder / "plans" / "2-0.lane").unlink()
    with pytest.raises(IncompatibleCheckpointError, match=r"lacks plans/2-0\.lane"):
        crashed.go_on()


def test_lost_identity_of_a_job_under_way_is_refused(tmp_path: Path) -> None:
    """Any program would be taken for the one that wrote the folder."""
    crashed = Crashed(tmp_path, "planned")
    (crashed.folder / "job.blob").unlink()
    with pytest.raises(IncompatibleCheckpointError, match=r"lacks job\.blob"):
        crashed.go_on()


def test_lost_union_lists_are_refused(tmp_path: Path) -> None:
    folder = JobFolder.open(str(tmp_path), "job")
    path = folder.write_unions(3, 1, {0: b"list"})
    assert folder.read_unions(path) == {0: b"list"}
    Path(path).unlink()
    with pytest.raises(IncompatibleCheckpointError, match="lacks unions/1-3"):
        folder.read_unions(path)
    folder.close(delete=True)


@pytest.mark.parametrize(
    ("point", "lost"),
    [
        ("planned", ["plans/2.plan"]),  # within the writing of the plan, after its lanes
        ("planned", ["plans/2.plan", "plans/2-0.lane"]),  # before it
        ("completed", ["epochs/2.epoch"]),  # the batch ran, and was not complete
        ("committed", ["plans/0.plan", "plans/0-0.lane", "epochs/0.epoch"]),  # it is forgotten
    ],
)
def test_folder_as_a_crash_leaves_it_is_taken(tmp_path: Path, point: str, lost: list[str]) -> None:
    crashed = Crashed(tmp_path, point)
    for name in lost:
        (crashed.folder / name).unlink()
    assert crashed.go_on() == crashed.undisturbed()


@pytest.mark.parametrize("kept_share", [0.0, 0.5])
@pytest.mark.parametrize("name", ["job.blob", "plans/2.plan", "plans/2-0.lane", "epochs/2.epoch"])
def test_truncated_file_is_refused_by_its_name(
    tmp_path: Path, name: str, kept_share: float
) -> None:
    """They are written aside and renamed, so a crash cannot truncate them."""
    crashed = Crashed(tmp_path, "completed")
    path = crashed.folder / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept_share)])
    with pytest.raises(CorruptDataError, match=name):
        crashed.go_on()


@pytest.mark.parametrize("content", ["", "1", "1 runn"])
def test_damaged_run_file_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    """A run with a number that was there before could be mistaken for it."""
    folder = JobFolder.open(str(tmp_path), "job")
    assert folder.start_run() == 1
    folder.run_file.write_text(content)
    with pytest.raises(CorruptDataError, match=f"{folder.run_file}: '{content}'.* remove the file"):
        folder.start_run()
    folder.close(delete=True)
