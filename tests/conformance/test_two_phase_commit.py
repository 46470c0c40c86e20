"""C43, C44, E43: transactions of a user's sink, whenever the job dies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from millpond.common import RestartStrategies, Types
from millpond.datastream import SourceFunction
from millpond.datastream.connectors import Epoch, TwoPhaseCommitSink
from millpond.driver.planning import plan_job
from millpond.engine.exchange.chunks import BatchInfo
from millpond.engine.exchange.reports import Report
from millpond.engine.sink_pass import SinkHost
from millpond.errors import UserFunctionError
from millpond.plan.physical import JobPlan
from millpond.testing import direct_environment
from tests.unit.driver.test_recovery import Crash, StandInForSpark

ELEMENTS = (42, 43, 44)


class FolderSink(TwoPhaseCommitSink):
    """A system with transactions: a file each, in the folder of the state it is in."""

    def __init__(self, folder: Path, fails_at: int | None = None) -> None:
        self.folder = folder
        self.fails_at = fails_at

    def begin_transaction(self, transaction_id: str) -> Path:
        self._note("begin", transaction_id)
        path = self.folder / "open" / transaction_id
        path.touch()
        return path

    def invoke(self, transaction: Path, value: int, context: Any) -> None:
        if value == self.fails_at:
            raise ValueError("told to fail")
        with transaction.open("a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction: Path) -> None:
        self._note("pre-commit", transaction.name)
        transaction.rename(self.folder / "pending" / transaction.name)

    def commit_transaction(self, transaction_id: str) -> None:
        self._note("commit", transaction_id)
        pending = self.folder / "pending" / transaction_id
        if pending.exists():
            pending.rename(self.folder / "visible" / transaction_id)

    def abort_transaction(self, transaction_id: str) -> None:
        self._note("abort", transaction_id)
        for state in ("open", "pending"):
            (self.folder / state / transaction_id).unlink(missing_ok=True)

    def open_transactions(self, prefix: str) -> Iterable[str]:
        return [p.name for s in ("open", "pending") for p in self.folder.glob(f"{s}/{prefix}*")]

    def _note(self, call: str, transaction_id: str) -> None:
        epoch = transaction_id.split("-")[2]
        with (self.folder / "calls").open("a") as file:
            file.write(f"{call} {epoch}\n")


class OneByOne(SourceFunction):
    deterministic = True

    def run(self, ctx: Any) -> None:
        for element in ELEMENTS:
            ctx.collect(element)


class System:
    """The folder, and a job that writes to it: an element in each batch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.spark = folder, StandInForSpark()
        for state in ("open", "pending", "visible"):
            (folder / state).mkdir()

    def plan(self) -> JobPlan:
        environment = direct_environment({"millpond.batch.max-records": 1})
        stream = environment.add_source(OneByOne(), type_info=Types.INT())
        stream.sink_to(FolderSink(self.folder)).uid("out")
        return plan_job(
            environment._pending_graph(), environment._configuration, environment.get_config(), None
        )

    def live(self, crash: tuple[int, str] | None) -> list[str]:
        """One life of the job; what it called."""
        calls = self.folder / "calls"
        calls.write_text("")
        if crash is None:
            self.spark.run(self.plan(), self.folder / "jobs", None)
        else:
            with pytest.raises(Crash):
                self.spark.run(self.plan(), self.folder / "jobs", crash)
        return calls.read_text().splitlines()

    def in_state(self, state: str) -> list[int]:
        files = (self.folder / state).iterdir()
        return sorted(int(line) for file in files for line in file.read_text().splitlines())


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_each_transaction_is_pre_committed_then_committed(system: System) -> None:
    calls = system.live(None)
    assert calls == [f"{call} {n}" for n in range(3) for call in ("begin", "pre-commit", "commit")]
    assert system.in_state("visible") == [42, 43, 44]


def test_what_completed_checkpoints_have_is_visible(system: System) -> None:
    """C44: elements 42, 43, 44 with snapshots 0, 1, 2; complete(1)."""
    system.live((2, "ran"))
    assert system.in_state("visible") == [42, 43]
    assert system.in_state("pending") == [44]


def test_failure_after_a_snapshot_commits_what_was_pending(system: System) -> None:
    """C44: failure after snapshot 1 and restore."""
    system.live((1, "completed"))
    assert system.in_state("visible") == [42], (
        "nobody has been told yet that checkpoint 1 is complete"
    )
    assert system.live((2, "planned")) == ["commit 1"]
    assert system.in_state("visible") == [42, 43]


def test_committing_again_changes_nothing(system: System) -> None:
    """C44: complete(2), then (1)."""
    system.live(None)
    sink = FolderSink(system.folder)
    for name in sorted((system.folder / "visible").iterdir()):
        sink.commit(Epoch(1, "job", "out"), [name.name])
    assert system.in_state("visible") == [42, 43, 44]


def test_restore_commits_what_is_pending_aborts_what_is_open_and_begins(system: System) -> None:
    """C43."""
    system.live((1, "completed"))
    name = next((system.folder / "pending").iterdir()).name
    left = system.folder / "open" / name.replace("-1-", "-2-")
    left.write_text("44\n")  # as a worker that was killed in batch 2 would leave it
    assert system.live((2, "ran")) == ["commit 1", "abort 2", "begin 2", "pre-commit 2"]
    assert system.in_state("visible") == [42, 43]


@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
def test_every_element_comes_once_wherever_the_job_dies(
    system: System, epoch: int, point: str
) -> None:
    """E43."""
    system.live((epoch, point))
    visible = epoch + 1 if point == "committed" else epoch
    assert system.in_state("visible") == list(ELEMENTS[:visible])
    system.live(None)
    assert system.in_state("visible") == [42, 43, 44]
    assert system.in_state("pending") == system.in_state("open") == []


def test_what_a_task_that_spark_ran_twice_prepared_is_aborted(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SinkHost.run

    def run_twice(self: Any, rows: Any, subtask: Any, batch: BatchInfo, report: Report) -> Any:
        if batch.epoch == 1:
            run(self, rows, subtask, batch, Report())  # killed after it has prepared
        return run(self, rows, subtask, batch, report)

    monkeypatch.setattr(SinkHost, "run", run_twice)
    system.live(None)
    assert system.in_state("visible") == [42, 43, 44]
    assert system.in_state("pending") == []


def test_a_commit_that_fails_once_is_done_again_and_the_batch_is_not(tmp_path: Path) -> None:
    class FailsOnce(FolderSink):
        def commit_transaction(self, transaction_id: str) -> None:
            super().commit_transaction(transaction_id)
            if not (self.folder / "failed").exists():
                (self.folder / "failed").touch()
                raise ConnectionError("once")

    system = System(tmp_path)
    environment = direct_environment({"millpond.batch.max-records": 1})
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    stream = environment.add_source(OneByOne(), type_info=Types.INT())
    stream.sink_to(FailsOnce(tmp_path)).uid("out")
    environment.execute()
    assert system.in_state("visible") == [42, 43, 44]
    assert (tmp_path / "calls").read_text().count("begin") == 3


def test_what_other_sinks_prepared_is_aborted_if_one_fails(tmp_path: Path) -> None:
    good, bad = System(tmp_path), tmp_path / "bad"
    for state in ("open", "pending", "visible"):
        (bad / state).mkdir(parents=True)
    environment = direct_environment({})
    stream = environment.from_collection([1, 2])
    stream.sink_to(FolderSink(tmp_path))
    stream.sink_to(FolderSink(bad, fails_at=2))
    with pytest.raises(UserFunctionError, match="told to fail"):
        environment.execute()
    assert (tmp_path / "calls").read_text().split("\n")[:3] == [
        "begin 0",
        "pre-commit 0",
        "abort 0",
    ]
    assert (bad / "calls").read_text().split("\n")[:2] == ["begin 0", "abort 0"]
    assert good.in_state("pending") == good.in_state("open") == []
