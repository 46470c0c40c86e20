"""kill -9 of Spark's driver process, the JVM that a job's program has started: the program lives on, and the
job goes on in a new JVM (E42, E43)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.job_run import COUNTS, JobRun, delivered, in_order_of_keys
from tests.faults.jvms import FragileJava, kill_jvm

pytestmark = [pytest.mark.spark, pytest.mark.faults]
RESTARTS = 3  # of the job that is told to restart


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = JobRun(folder)
    assert run.finish() == 0, run.output
    assert len(delivered(folder)["events"]) == COUNTS
    return folder


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FragileJava:
    java = FragileJava(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(java.home))
    return java


def job(folder: Path, **settings: bool) -> JobRun:
    """Whose Spark has its files in the folder of the test: a JVM that is killed leaves some."""
    (folder / "spark").mkdir()
    return JobRun(folder, configuration={"spark.local.dir": str(folder / "spark")}, **settings)


def test_job_goes_on_in_a_new_jvm_with_the_result_of_an_undisturbed_run(
    tmp_path: Path, undisturbed: Path, java: FragileJava
) -> None:
    """Also if the first try to start one fails."""
    run = job(tmp_path, restart=True)
    run.await_epoch(1)
    first = kill_jvm(run.process.pid)
    run.await_epoch(4)
    java.fail(1)
    second = kill_jvm(run.process.pid)
    assert run.finish() == 0, run.output
    run.wait_until_nothing_runs()
    assert delivered(tmp_path) == delivered(undisturbed)
    assert in_order_of_keys(tmp_path) == in_order_of_keys(undisturbed)
    assert java.starts() == 1 + RESTARTS, run.output
    for jvm in (first, second):
        assert run.output.count(f"(the JVM, process {jvm}) was killed by SIGKILL") == 1, run.output
    assert "Spark could not be started again" in run.output
    assert "Traceback" not in run.output, run.output
    assert list((tmp_path / "spark").glob("spark-*")) == [], "copies of state of dead JVMs"


def test_job_without_restarts_ends_and_says_that_the_jvm_died(tmp_path: Path) -> None:
    run = job(tmp_path)
    run.await_epoch(1)
    jvm = kill_jvm(run.process.pid)
    assert run.finish() == 1, run.output
    run.wait_until_nothing_runs()
    assert run.output.splitlines()[-1].startswith(
        "millpond.errors.SparkDriverError: "
        f"Spark's driver process (the JVM, process {jvm}) was killed by SIGKILL."
    )


def test_failure_to_start_a_new_jvm_counts_as_an_attempt(tmp_path: Path, java: FragileJava) -> None:
    run = job(tmp_path, restart=True)
    run.await_epoch(0)
    java.fail(100)
    kill_jvm(run.process.pid)
    assert run.finish() == 1, run.output
    run.wait_until_nothing_runs()
    assert java.starts() == 1 + RESTARTS
    assert "JAVA_GATEWAY_EXITED" in run.output
