"""Random kill -9 at every step of a commit, in slot and driver (E42, E43).

The result is that of a run nobody disturbed: nothing lost, nothing twice, in order per key. Seeds are 0 to
MILLPOND_FAULT_SEEDS - 1 (1 if not set), every other one with RocksDB; bin/soak runs more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from millpond.core.fault_points import POINTS, STORAGE_POINTS
from tests.faults.job_run import COUNTS, JobRun, delivered, in_order_of_keys, run_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.faults]
SEEDS = range(int(os.environ.get("MILLPOND_FAULT_SEEDS", "1")))
DRIVER_POINTS = [point for point in POINTS if point.startswith("driver")]
JOURNAL_POINTS = [point for point in STORAGE_POINTS if point.startswith("journal")]
SLOT_POINTS = [point for point in POINTS if not point.startswith("driver")] + ["log before sync"]
STEPS = {"slots": SLOT_POINTS, "driver": DRIVER_POINTS, "journal": JOURNAL_POINTS}
VISITS = 3 * 2  # in a batch: three keyed stages, two partitions


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = JobRun(folder)
    assert run.finish() == 0, run.output
    run.wait_until_nothing_runs()
    assert len(delivered(folder)["events"]) == len(delivered(folder)["columns"]) == COUNTS
    return folder


def plan_faults(folder: Path, seed: int) -> list[str]:
    """Two or three kills of slots, and one or two of the driver."""
    chance = random.Random(seed)
    (folder / "faults").mkdir(parents=True)
    planned = []
    for point in chance.sample(SLOT_POINTS, chance.randint(2, 3)):
        planned.append((point, chance.randint(1, 7 * VISITS)))
    for point in chance.sample(DRIVER_POINTS + JOURNAL_POINTS, chance.randint(1, 2)):
        planned.append((point, chance.randint(1, 7)))
    for point, visit in planned:
        (folder / "faults" / f"{point}.at").write_text(str(visit))
    return [f"{point} at visit {visit}" for point, visit in planned]


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_result_is_that_of_an_undisturbed_run(seed: int, tmp_path: Path, undisturbed: Path) -> None:
    backend = "hashmap" if seed % 2 else "rocksdb"
    planned = plan_faults(tmp_path, seed)
    drivers_killed = run_to_the_end(tmp_path, configuration={"state.backend.type": backend})
    assert drivers_killed >= 1, planned
    assert delivered(tmp_path) == delivered(undisturbed), planned
    assert in_order_of_keys(tmp_path) == in_order_of_keys(undisturbed), planned


@pytest.mark.parametrize(
    "where",
    [
        "slots",
        pytest.param("driver", marks=pytest.mark.soak),
        pytest.param("journal", marks=pytest.mark.soak),
    ],
)
def test_kill_at_each_step_of_the_commit(where: str, tmp_path: Path, undisturbed: Path) -> None:
    """One kill at every point there is, in different batches of one job."""
    (tmp_path / "faults").mkdir()
    points = STEPS[where]
    for number, point in enumerate(points):
        visit = (1 + number) * VISITS + 3 if where == "slots" else 2 + number
        (tmp_path / "faults" / f"{point}.at").write_text(str(visit))
    drivers_killed = run_to_the_end(tmp_path)
    assert drivers_killed == (0 if where == "slots" else len(points))
    for point in points:
        visits = len((tmp_path / "faults" / f"{point}.visits").read_bytes())
        wanted = int((tmp_path / "faults" / f"{point}.at").read_text())
        assert visits >= wanted, f"the kill at '{point}' took place"
    assert delivered(tmp_path) == delivered(undisturbed)
    assert in_order_of_keys(tmp_path) == in_order_of_keys(undisturbed)
