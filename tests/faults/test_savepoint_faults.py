"""Kill -9 while a savepoint is taken, and while a job starts from one (E45): old or new, never half."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millpond.core.fault_points import POINTS, SAVEPOINT_POINTS
from millpond.savepoint.reader import SavepointReader
from tests.conftest import delivered_lines
from tests.faults.job_run import OUTPUTS, JobRun, delivered, run_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.soak]
LABELS = 3 * 128  # three keyed stages


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = JobRun(folder)
    assert run.finish() == 0, run.output
    run.wait_until_nothing_runs()
    return folder


def ask_for_savepoints(folder: Path, count: int) -> None:
    """Requests that are there before the job starts: one is taken with each batch."""
    requests = folder / "checkpoints" / "capping" / "requests"
    requests.mkdir(parents=True)
    for number in range(count):
        request = {"directory": str(folder / "savepoints"), "stop": False, "drain": False}
        (requests / f"{number + 1:x}{number:031x}.json").write_text(json.dumps(request))


def plan_fault(folder: Path, point: str, visit: int) -> None:
    (folder / "faults").mkdir(exist_ok=True)
    (folder / "faults" / f"{point}.at").write_text(str(visit))


def lines_until(folder: Path, name: str, epoch: int) -> list[str]:
    """What was delivered by the batches up to `epoch`; files are part-JOB-EPOCH-SUBTASK..."""
    lines: list[str] = []
    for path in (folder / "output" / name).iterdir():
        if int(path.name.split("-")[2]) <= epoch:
            lines.extend(path.read_text().splitlines())
    return lines


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that took four savepoints and was killed at every step of it."""
    folder = tmp_path_factory.mktemp("disturbed")
    ask_for_savepoints(folder, 4)
    plan_fault(folder, "slot before part", LABELS + 17)
    for number, point in enumerate(SAVEPOINT_POINTS[1:]):
        plan_fault(folder, point, 2 + number)
    killed = run_to_the_end(folder, configuration={"millpond.checkpoint.retain-on-finish": True})
    assert killed == 3
    return folder


def test_job_and_savepoints_survive_kills(disturbed: Path, undisturbed: Path) -> None:
    assert delivered(disturbed) == delivered(undisturbed)
    names = sorted(path.name for path in (disturbed / "savepoints").iterdir())
    assert len(names) == 4
    assert not any(name.startswith(".") for name in names)  # nothing half is left
    for name in names:
        SavepointReader(disturbed / "savepoints" / name).check()


def test_start_from_a_savepoint_survives_kills(
    disturbed: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """At every point of the first batch, one after the other; the driver dies four times."""
    path = sorted((disturbed / "savepoints").iterdir())[1]
    epoch = SavepointReader(path).manifest.epoch
    visits = {p: 1 if p.startswith("driver") else 2 + n for n, p in enumerate(POINTS)}
    for point, visit in visits.items():
        plan_fault(tmp_path, point, visit)
    settings = {"execution.state-recovery.path": str(path), "parallelism.default": 3}
    assert run_to_the_end(tmp_path, configuration=settings) == 4
    for point, visit in visits.items():
        assert (tmp_path / "faults" / f"{point}.visits").stat().st_size >= visit
    for name in OUTPUTS:
        before = lines_until(disturbed, name, epoch)
        after = delivered_lines(tmp_path / "output" / name)
        assert after
        assert sorted(before + after) == delivered(undisturbed)[name]
