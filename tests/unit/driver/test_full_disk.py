"""The disk of the job folder is full: a clear error; with more space, the job goes on (E42).

(The same with Spark is in tests/faults/test_kill.py.)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.core import journal
from millpond.errors import StorageError
from tests.conftest import delivered_lines
from tests.small_disk import SmallDisk, small_disk
from tests.unit.driver.test_recovery import Crash, StandInForSpark, job

FULL = r"jobs/job/.* could not be written: No space left on device\. .* it goes on where it was"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    monkeypatch.setattr(journal, "LOG_BYTES", 20_000)
    with small_disk(tmp_path / "jobs", "1m") as disk:
        yield disk


def go_on(tmp_path: Path, crash: tuple[int, str] | None = None) -> None:
    StandInForSpark().run(job("collection", tmp_path / "output"), tmp_path / "jobs", crash)


def expected(tmp_path: Path) -> list[str]:
    StandInForSpark().run(job("collection", tmp_path / "expected"), tmp_path / "other-jobs", None)
    return delivered_lines(tmp_path / "expected")


def test_job_whose_disk_is_full_goes_on_when_there_is_space(
    tmp_path: Path, disk: SmallDisk
) -> None:
    """There is a little more space with every try, so each comes a little further than the one before: it
    lacks space for the identity of the job, the run, the journal, or segments."""
    lacking = set()
    for space_kb in (0, 4, *range(4, 400, 4)):
        disk.fill(space_kb)
        try:
            go_on(tmp_path)
            break
        except StorageError as problem:
            path = str(problem).partition(" could not")[0]
            lacking.add(Path(path).relative_to(disk.folder / "job").parts[0])
    else:
        pytest.fail("the job does not finish")
    assert lacking == {"job.blob", "run", "journal", "log"}
    assert delivered_lines(tmp_path / "output") == expected(tmp_path)


@pytest.mark.parametrize("point", ["planned", "ran", "completed"])
def test_disk_that_gets_full_under_way_loses_nothing(
    point: str, tmp_path: Path, disk: SmallDisk
) -> None:
    with pytest.raises(Crash):
        go_on(tmp_path, (1, point))
    for space_kb in (0, 4, 8):
        disk.fill(space_kb)
        with pytest.raises(StorageError, match=FULL):
            go_on(tmp_path)
    disk.empty()
    go_on(tmp_path)
    assert delivered_lines(tmp_path / "output") == expected(tmp_path)
