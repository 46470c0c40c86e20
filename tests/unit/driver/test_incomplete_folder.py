"""A job folder that lacks a file, or has a damaged one, is refused; one as a crash leaves it is not (E42)."""

from __future__ import annotations

import shutil
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


def test_lost_journal_of_a_job_under_way_is_refused(tmp_path: Path) -> None:
    """Its sources would be read from their beginning again, beside state that was there already."""
    crashed = Crashed(tmp_path, "completed")
    shutil.rmtree(crashed.folder / "journal")
    with pytest.raises(IncompatibleCheckpointError, match=r"lacks journal.* savepoint"):
        crashed.go_on()


def test_lost_segment_of_the_log_is_refused(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, "committed")
    for segment in (crashed.folder / "log").rglob("*-*"):
        segment.unlink()
    with pytest.raises(CorruptDataError, match=r"/log/1/\d/.* is missing"):
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


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
@pytest.mark.parametrize("cut", [0, 1, 23, 24, 1_000_000])
def test_journal_that_ends_within_a_record_is_taken(tmp_path: Path, point: str, cut: int) -> None:
    """A crash can leave it so: the record was never acknowledged, and nothing was done upon it."""
    crashed = Crashed(tmp_path, point)
    (log,) = (crashed.folder / "journal").iterdir()
    content = log.read_bytes().rstrip(b"\0")
    first = content[: content.index(b"MJ", 2)]
    log.write_bytes(content + first[: min(cut, len(first) - 1)] + b"\0" * 5000)
    assert crashed.go_on() == crashed.undisturbed()


def test_journal_that_is_damaged_before_its_end_is_refused(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, "completed")
    (log,) = (crashed.folder / "journal").iterdir()
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"journal/1-0: damaged at byte 0"):
        crashed.go_on()


@pytest.mark.parametrize("byte", [0, 5, 30])
def test_damaged_segment_of_the_log_is_refused_by_its_name(tmp_path: Path, byte: int) -> None:
    crashed = Crashed(tmp_path, "completed")
    for segment in (crashed.folder / "log").rglob("*-*"):
        content = bytearray(segment.read_bytes())
        content[byte] ^= 1
        segment.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"log/1/\d/1-0, byte 0: "):
        crashed.go_on()


@pytest.mark.parametrize("kept_share", [0.0, 0.5])
def test_truncated_file_is_refused_by_its_name(tmp_path: Path, kept_share: float) -> None:
    """It is written aside and renamed, so a crash cannot truncate it."""
    crashed = Crashed(tmp_path, "completed")
    path = crashed.folder / "job.blob"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept_share)])
    with pytest.raises(CorruptDataError, match=r"job\.blob"):
        crashed.go_on()


@pytest.mark.parametrize("content", ["", "1", "1 runn"])
def test_damaged_run_file_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    """A run with a number that was there before could be mistaken for it."""
    folder = JobFolder.open(str(tmp_path), "job")
    assert folder.start_run() == 1
    run = folder.path / "run"
    run.write_text(content)
    with pytest.raises(CorruptDataError, match=f"{run}: '{content}'.* remove the file"):
        folder.start_run()
    folder.close(delete=True)
