"""Real slot processes, without Spark: life, ownership, and everything that can go wrong."""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.common import Types
from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import ValueStateDescriptor
from millpond.driver.epochs.batch_report import log_positions, report_of
from millpond.driver.planning import plan_job
from millpond.engine.exchange.batch import LanePlan, SplitPlan
from millpond.engine.exchange.controls import Start
from millpond.engine.exchange.frames import decode_frame
from millpond.engine.exchange.reports import WorkCounts
from millpond.engine.passes import rows_for_driver
from millpond.errors import SlotError, SlotMemoryError, UserFunctionError
from millpond.executors.slot import relay as relay_module
from millpond.executors.slot.lifecycle import SlotLife, SlotState
from millpond.executors.slot.protocol import (
    BEFORE_ALL_TASKS,
    MAGIC,
    Connection,
    MessageKind,
    peer_of,
    private_folder,
)
from millpond.executors.slot.relay import Relay
from millpond.executors.slot.settings import SlotSettings, remove_slot_files
from millpond.plan.physical import JobPlan
from millpond.state.partition_log import EMPTY, LogPosition
from millpond.testing import direct_environment
from tests.slot.processes import is_running, is_stopped, slots_of, wait_until

pytestmark = pytest.mark.slot
HANG_TIMEOUT_S = (
    120.0  # no machine is so slow; tests of hung slots do not wait for it (`no_wait_for_the_hung`)
)


class Count(KeyedProcessFunction):
    """Counts per key; some values make it misbehave."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.big = runtime_context.get_state(ValueStateDescriptor("big", Types.STRING()))
        self.hoard: list[bytearray] = []
        print("opened")

    def process_element(self, value: str, ctx: Any) -> Any:
        if value == "fail":
            raise ValueError("told to fail")
        if value == "crash":
            print("about to crash", flush=True)
            os.abort()
        if value.startswith("hoard"):
            self.hoard.append(bytearray(b"x") * (int(value.split("-")[1]) << 20))
        if value.startswith("keep"):
            self.big.update("x" * (int(value.split("-")[1]) << 20))
        if value.startswith("cycle"):
            cycle: list[object] = [bytearray(b"x") * (int(value.split("-")[1]) << 20)]
            cycle.append(cycle)
        if value == "until released":
            Path(self.folder, "busy").touch()
            while not Path(self.folder, "released").exists():
                time.sleep(0.01)
        if value == "forever":
            Path(self.folder, "busy").touch()
            while True:
                time.sleep(0.01)
        if value == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if value.startswith("import"):
            sys.path.insert(0, value.split()[1])
            importlib.import_module("imported_by_the_function")
        if value == "whereabouts":
            return [os.environ.get("WHEREABOUTS")]
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return [(value, count)]


class Job:
    """A job whose batches are run by hand, through whatever relay there is."""

    def __init__(self, folder: Path, function: KeyedProcessFunction | None = None) -> None:
        environment = direct_environment({"parallelism.default": 1, "pipeline.max-parallelism": 4})
        keyed = environment.from_collection([]).key_by(lambda value: value)
        keyed.process(function or Count(folder)).print()
        self.plan: JobPlan = plan_job(
            environment._pending_graph(), environment._configuration, environment.get_config(), None
        )
        self.blob = cloudpickle.dumps(self.plan)
        self.folder = folder
        (folder / "run").write_text("1 running")
        self.settings = SlotSettings(
            f"job in {folder}", "run-1", 1, str(folder), 1, 0, HANG_TIMEOUT_S, 60.0
        )
        self.log: LogPosition = EMPTY
        self.attempt = 0
        self.relays: list[Relay] = []
        self.works: list[WorkCounts] = []  # of the last batch

    def relay(self, attempt: int | None = None, **changes: Any) -> Relay:
        self.attempt = self.attempt + 1 if attempt is None else attempt
        settings = replace(self.settings, **changes)
        self.relays.append(Relay(settings, 0, self.attempt, self.blob, 0))
        return self.relays[-1]

    def run(
        self, relay: Relay, records: list[str], commit: bool = True, epoch: int = 0
    ) -> list[Any]:
        """One batch; the results. Without `commit` it is as if the task had failed at the end."""
        head = self.plan.source_tasks[0]
        (task,) = (task for task in self.plan.tasks.values() if task.level == 1)
        split = SplitPlan(head.root, 0, [records], False)
        logs = {(1, 0): self.log}
        start = {task.id: Start([0], {}, 0)}
        lane = LanePlan(epoch, 0, 0, [split], start, False, logs=logs)
        chunks = [chunk for _, chunk in relay.run_lane(lane.encode())]
        rows = rows_for_driver(chunk for _, chunk in relay.run_stage(1, epoch, chunks))
        report = report_of(rows)
        if commit:
            self.log = log_positions(report.runs)[1, 0]
        self.works = report.works
        frames = [row[2] for row in rows if codec.kind_of(row[2]) == BlobKind.FRAME]
        return sorted(value for blob in frames for value in decode_frame(blob).bundle.values)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(relay_module, "executor_pid", os.getpid)
    job = Job(tmp_path)
    yield job
    for relay in job.relays:
        relay.close()
    (tmp_path / "run").write_text(f"{job.settings.generation} ended")
    wait_until(lambda: not slots_of(tmp_path), "slots outlive their job")
    wait_until(lambda: not os.path.exists(job.settings.folder), "slots leave files behind")


@pytest.fixture
def no_wait_for_the_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relays wait only a moment for a slot that is stopped, since it will never answer, and as long as ever
    for one that is merely slow."""
    receive = Connection.receive

    def receive_unless_stopped(connection: Connection) -> tuple[MessageKind, Any]:
        pid = peer_of(connection.socket)[0]
        has_come = lambda: bool(select.select([connection.socket], [], [], 0)[0])  # noqa: E731
        wait_until(lambda: has_come() or is_stopped(pid), "the slot is silent", HANG_TIMEOUT_S)
        if not has_come():
            connection.socket.settimeout(0.01)
        return receive(connection)

    monkeypatch.setattr(Connection, "receive", receive_unless_stopped)


@pytest.fixture
def exits_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a slot that has closed its connection takes to end."""
    monkeypatch.setattr(relay_module, "_EXIT_TIMEOUT_S", 120.0)


def pid_of(job: Job) -> int:
    (pid,) = slots_of(job.folder)
    return pid


def test_slot_tells_what_it_has_done_and_how_full_it_is(job: Job) -> None:
    """E9, P6: batches get smaller before a slot has no memory left."""
    relay = job.relay(memory_mb=400)
    job.run(relay, ["a", "a", "b"])
    assert sum(work.records_in for work in job.works) == 3 + 3, "the head, and the task"
    assert sum(work.busy_ns for work in job.works) > 0
    assert {work.machine for work in job.works} == {socket.gethostname()}
    before = max(work.memory_share for work in job.works)
    job.run(relay, ["hoard-150"])
    job.run(relay, ["c"])
    after = max(work.memory_share for work in job.works)
    assert 0 < before < 1
    assert after > before + 0.3


def test_functions_are_opened_once_and_state_stays_between_batches(
    job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    relay = job.relay()
    assert job.run(relay, ["a", "b", "a"]) == [("a", 1), ("a", 2), ("b", 1)]
    relay.close()
    first = pid_of(job)
    relay = job.relay()
    assert job.run(relay, ["a"]) == [("a", 3)]
    assert pid_of(job) == first
    relay.close()
    assert capfd.readouterr().err.count("opened") == 1, "what functions print reaches the executor"


def test_batch_of_a_failed_attempt_is_undone(job: Job) -> None:
    relay = job.relay()
    job.run(relay, ["a"])
    job.run(relay, ["a", "b"], commit=False)
    assert job.run(relay, ["a", "b"]) == [("a", 2), ("b", 1)]


def test_large_state_comes_back_from_the_log(job: Job) -> None:
    relay = job.relay()
    job.run(relay, ["keep-10"], commit=False)
    assert job.run(relay, ["keep-10"]) == [("keep-10", 1)]
    relay.close()
    os.kill(pid_of(job), signal.SIGKILL)
    wait_until(lambda: not slots_of(job.folder), "the slot does not end")
    assert job.run(job.relay(), ["keep-10"]) == [("keep-10", 2)]


@pytest.mark.usefixtures("exits_are_awaited")
def test_killed_slot_is_replaced_and_reads_its_state_from_the_log(job: Job) -> None:
    relay = job.relay()
    job.run(relay, ["a", "b"])
    before = pid_of(job)
    os.kill(before, signal.SIGKILL)
    with pytest.raises(SlotError, match=r"Slot 0 \(process \d+\) is gone.*killed by signal 9"):
        job.run(relay, ["a"])
    assert job.run(job.relay(), ["a"]) == [("a", 2)]
    assert pid_of(job) != before


@pytest.mark.usefixtures("exits_are_awaited")
def test_crash_output_reaches_the_error(job: Job) -> None:
    with pytest.raises(SlotError, match="killed by signal 6") as error:
        job.run(job.relay(), ["crash"])
    assert "about to crash" in str(error.value)
    assert "process_element" in str(error.value), "where it crashed"
    remove_slot_files(job.settings)


def test_failing_function_names_operator_and_record_and_the_slot_lives_on(job: Job) -> None:
    relay = job.relay()
    job.run(relay, ["a"])
    with pytest.raises(UserFunctionError, match="told to fail") as error:
        job.run(relay, ["a", "fail"])
    assert error.value.record == "'fail'"
    assert job.run(relay, ["a"]) == [("a", 2)]


@pytest.mark.usefixtures("no_wait_for_the_hung")
def test_hung_slot_is_killed_and_replaced(job: Job) -> None:
    relay = job.relay()
    job.run(relay, ["a"])
    hung = pid_of(job)
    with pytest.raises(SlotError, match="gave no sign of life for 120 s and was killed"):
        job.run(relay, ["stop"])
    assert job.run(job.relay(), ["a"]) == [("a", 2)]
    assert pid_of(job) != hung


def test_zombie_on_another_machine_changes_nothing(job: Job) -> None:
    """E42: a machine that was taken for dead goes on with its batch after others have taken over."""
    zombie = job.relay()
    job.run(zombie, ["a", "b"])
    before = job.log
    other = job.relay(job_id=f"on another machine, {job.folder}")
    assert job.run(other, ["a"], epoch=1) == [("a", 2)]
    counts, job.log = job.log, before
    assert job.run(zombie, ["a", "b", "zombie"], commit=False, epoch=1) == [
        ("a", 2),
        ("b", 2),
        ("zombie", 1),
    ]
    job.log = counts
    assert len(slots_of(job.folder)) == 2
    assert job.run(other, ["a", "b"], epoch=2) == [("a", 3), ("b", 2)]
    assert job.run(zombie, ["a", "b", "zombie"], epoch=3) == [("a", 4), ("b", 3), ("zombie", 1)]


@pytest.mark.usefixtures("no_wait_for_the_hung")
def test_slot_that_hangs_between_batches_is_replaced(job: Job) -> None:
    relay = job.relay()
    job.run(relay, ["a"])
    relay.close()
    hung = pid_of(job)
    os.kill(hung, signal.SIGSTOP)
    wait_until(lambda: is_stopped(hung), "the slot goes on")
    assert job.run(job.relay(), ["a"]) == [("a", 2)]
    assert pid_of(job) != hung


def test_function_that_never_ends_does_not_keep_the_slot_of_an_ended_job(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = "import millpond.executors.slot.process as p; p._GRACE_S = 1.0; del p; "
    monkeypatch.setattr(relay_module, "_PROGRAM", shorter + relay_module._PROGRAM)
    relay = job.relay()

    def run_forever() -> None:
        with pytest.raises(SlotError):
            job.run(relay, ["forever"])

    busy = threading.Thread(target=run_forever)
    busy.start()
    wait_until(lambda: (job.folder / "busy").exists(), "the function was not called")
    (job.folder / "run").write_text("1 ended")
    wait_until(lambda: not slots_of(job.folder), "the slot goes on")
    busy.join()


def test_too_much_memory_is_a_clear_error(job: Job) -> None:
    relay = job.relay(memory_mb=300)
    job.run(relay, ["a"])
    with pytest.raises(SlotMemoryError, match=r"uses \d+ MB, but its limit is 300 MB. Raise"):
        job.run(relay, ["hoard-400"])


def test_garbage_does_not_count_as_memory_that_is_used(job: Job) -> None:
    """Cycles are looked for between batches only now and then; before a slot gives up, they must be."""
    relay = job.relay(memory_mb=400)
    for number in range(5):
        assert job.run(relay, ["cycle-150"]) == [("cycle-150", number + 1)]


def test_slot_that_is_busy_with_a_task_that_is_over_is_waited_for(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E42: what is sent to it, however large, must wait until it reads; it gives signs of life meanwhile."""
    receive, signs = Connection.receive, []

    def note_signs(connection: Connection) -> tuple[MessageKind, Any]:
        message = receive(connection)
        if message[0] is MessageKind.ALIVE and threading.current_thread().name == "newer":
            signs.append(message)
        return message

    monkeypatch.setattr(Connection, "receive", note_signs)
    older_relay, problems, results = job.relay(), [], []

    def run_older() -> None:
        with pytest.raises(SlotError):
            job.run(older_relay, ["until released"])

    def run_newer() -> None:
        try:
            relay = job.relay(hang_timeout_s=2.5)  # signs come every second
            results.extend(job.run(relay, ["x" * (4 << 20)]))
        except SlotError as problem:
            problems.append(problem)

    older = threading.Thread(target=run_older)
    older.start()
    wait_until(lambda: (job.folder / "busy").exists(), "the function was not called")
    busy = pid_of(job)
    newer = threading.Thread(target=run_newer, name="newer")
    newer.start()
    wait_until(lambda: len(signs) >= 4 or not newer.is_alive(), "the slot is silent")
    (job.folder / "released").touch()
    older.join()
    newer.join()
    assert not problems
    assert [count for _, count in results] == [1]
    assert pid_of(job) == busy


def test_memory_no_one_could_give_is_a_clear_error_and_the_slot_lives_on(job: Job) -> None:
    relay = job.relay(memory_mb=300)
    with pytest.raises(SlotMemoryError, match="ran out of memory: it may use 300 MB"):
        job.run(relay, ["hoard-4000"])
    assert job.run(relay, ["a"]) == [("a", 1)]


def test_newer_attempt_takes_over_and_the_older_is_refused(job: Job) -> None:
    zombie = job.relay(attempt=5)
    job.run(zombie, ["a"])
    newer = job.relay(attempt=6)
    with pytest.raises(SlotError, match="is gone"):
        job.run(zombie, ["a"])
    assert job.run(newer, ["a"]) == [("a", 2)]
    with pytest.raises(SlotError, match="refused this task: task attempt 6 has taken over from 5"):
        job.relay(attempt=5)


def test_slot_can_be_woken_before_the_first_task_and_not_disturbed_after_it(job: Job) -> None:
    job.relay(attempt=BEFORE_ALL_TASKS).close()
    woken = pid_of(job)
    working = job.relay(attempt=0)
    assert job.run(working, ["a"]) == [("a", 1)]
    assert pid_of(job) == woken
    with pytest.raises(SlotError, match="task attempt 0 has taken over"):
        job.relay(attempt=BEFORE_ALL_TASKS)
    assert job.run(working, ["a"]) == [("a", 2)]


def test_slot_of_an_older_run_gives_way_and_relays_of_it_are_refused(job: Job) -> None:
    job.run(job.relay(), ["a"])
    before = pid_of(job)
    (job.folder / "run").write_text("2 running")
    old, job.settings = job.settings, replace(job.settings, run_id="run-2", generation=2)
    assert job.run(job.relay(), ["a"]) == [("a", 2)]
    wait_until(lambda: not is_running(before), "the old slot goes on")
    job.settings = old
    with pytest.raises(SlotError, match="run 2 of the job has taken over"):
        job.relay()


@pytest.mark.parametrize("sent", [b"", b"M", MAGIC + b"\x01\x07", b"rubbish" * 10])
def test_socket_cut_within_a_message_does_no_harm(job: Job, sent: bytes) -> None:
    relay = job.relay()
    job.run(relay, ["a"])
    relay._connection.socket.sendall(sent)
    relay.close()
    assert job.run(job.relay(), ["a"]) == [("a", 2)]


def test_silent_stranger_at_the_door_does_not_stop_the_work(job: Job) -> None:
    relay = job.relay()
    job.run(relay, ["a"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(job.settings.path(0, "sock"))
        Connection(stranger).send(MessageKind.ALIVE)
        assert job.run(relay, ["a"]) == [("a", 2)]


def test_idle_slot_ends(job: Job) -> None:
    relay = job.relay(idle_timeout_s=1.0)
    job.run(relay, ["a"])
    relay.close()
    wait_until(lambda: not slots_of(job.folder), "an idle slot goes on")
    assert job.run(job.relay(), ["a"]) == [("a", 2)]


class Executors:
    """Processes that slots take for their executors. One is alive at a time."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            signal.pause()
            os._exit(0)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def replace(self) -> None:
        self.end()
        self._start()


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Executors]:
    executors = Executors()
    monkeypatch.setattr(relay_module, "executor_pid", lambda: executors.pid)
    yield executors
    executors.end()


def start_next_run(job: Job) -> None:
    """As a driver does that was started again. Slots never see half of the file."""
    generation = job.settings.generation + 1
    (job.folder / "next").write_text(f"{generation} running")
    (job.folder / "next").replace(job.folder / "run")
    job.settings = replace(job.settings, run_id=f"run-{generation}", generation=generation)
    job.attempt = 0


def test_slot_ends_with_its_executor(job: Job, executors: Executors) -> None:
    job.run(job.relay(), ["a"])
    pid = pid_of(job)
    executors.replace()
    wait_until(lambda: not is_running(pid), "a slot outlives its executor")


def test_slot_whose_executor_has_died_works_for_the_next_run(
    job: Job,
    executors: Executors,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also if a batch had not counted yet. Functions are opened anew, and see the surroundings of the run."""
    job.settings = replace(job.settings, keep_s=600.0)
    old, relay = job.settings, job.relay(attempt=7)
    job.run(relay, ["a"])
    job.run(relay, ["a", "b"], commit=False)
    pid = pid_of(job)
    for run in ("second", "third"):
        executors.replace()
        start_next_run(job)
        monkeypatch.setenv("WHEREABOUTS", run)
        capfd.readouterr()
        relay = job.relay(attempt=3)
        assert job.run(relay, ["whereabouts"], commit=False) == [run]
        assert capfd.readouterr().err.count("opened") == 1
        assert pid_of(job) == pid
    assert job.run(relay, ["a", "b"]) == [("a", 2), ("b", 1)]
    job.settings = old
    with pytest.raises(SlotError, match="run 3 of the job has taken over"):
        job.relay(attempt=99)


def test_slot_works_for_the_executor_that_replaces_its_own(
    job: Job, executors: Executors, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the same run, so that functions stay open, and older task attempts are refused."""
    job.settings = replace(job.settings, keep_s=600.0)
    job.run(job.relay(attempt=7), ["a"])
    pid = pid_of(job)
    for attempt in (8, 9):
        executors.replace()
        wait_until(lambda: is_cut_off(job.relays[-1]), "the slot has not noticed")
        assert job.run(job.relay(attempt=attempt), ["a"]) == [("a", attempt - 6)]
    assert pid_of(job) == pid
    assert capfd.readouterr().err.count("opened") == 1
    with pytest.raises(SlotError, match="task attempt 9 has taken over from 8"):
        job.relay(attempt=8)


@pytest.mark.parametrize("first", ["the slot", "the new run"])
def test_slot_that_sees_a_newer_run_waits_for_it(
    job: Job, executors: Executors, first: str
) -> None:
    """While its own executor is still alive: a JVM outlives its driver by a moment."""
    job.settings = replace(job.settings, keep_s=600.0)
    zombie = job.relay()
    job.run(zombie, ["a"])
    pid = pid_of(job)
    start_next_run(job)
    if first == "the slot":
        wait_until(lambda: is_cut_off(zombie), "the slot still works for the old run")
    assert job.run(job.relay(), ["a"]) == [("a", 2)]
    assert pid_of(job) == pid
    with pytest.raises(SlotError, match="is gone"):
        job.run(zombie, ["a"])


def is_cut_off(relay: Relay) -> bool:
    """Whether the slot has ended the connection; signs of life are passed over."""
    sock = relay._connection.socket
    while select.select([sock], [], [], 0)[0]:
        if not sock.recv(1 << 16):
            return True
    return False


@pytest.mark.parametrize("how", ["the job has ended", "nobody came", "the folder is gone"])
def test_orphan_that_nobody_needs_ends(job: Job, executors: Executors, how: str) -> None:
    keep_s = 0.5 if how == "nobody came" else 600.0
    job.settings = replace(job.settings, keep_s=keep_s)
    job.run(job.relay(), ["a"])
    executors.replace()
    if how == "the job has ended":
        (job.folder / "run").write_text("1 ended")
    elif how == "the folder is gone":
        (job.folder / "run").unlink()
    wait_until(lambda: not slots_of(job.folder), "the orphan goes on")


@pytest.mark.parametrize("why", ["it has failed", "other settings", "other code", "no plan"])
def test_orphan_that_cannot_be_adopted_is_replaced(
    job: Job, executors: Executors, why: str
) -> None:
    job.settings = replace(job.settings, keep_s=600.0)
    module = job.folder / "imported_by_the_function.py"
    module.write_text("NUMBER = 1")
    if why == "no plan":
        relay = Relay.__new__(Relay)
        relay._settings, relay._partition, relay._pid = job.settings, 0, 0
        relay._enter(1).close()
    else:
        relay = job.relay()
        job.run(relay, ["a", f"import {job.folder}"])
    if why == "it has failed":
        with pytest.raises(UserFunctionError):
            job.run(relay, ["fail"])
    before = pid_of(job)
    executors.replace()
    start_next_run(job)
    if why == "other settings":
        job.settings = replace(job.settings, memory_mb=1000)
    if why == "other code":
        module.write_text("NUMBER = 2, and more")
    expected = 1 if why == "no plan" else 2
    assert job.run(job.relay(), ["a"]) == [("a", expected)]
    wait_until(lambda: not is_running(before), "the old slot goes on")


@pytest.mark.parametrize("then", ["a new run", "the job has ended"])
def test_orphan_that_still_works_for_the_old_run_gives_way(
    job: Job, executors: Executors, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """At once: nobody waits for what it is doing."""
    patient = "import millpond.executors.slot.process as p; p._GRACE_S = 1000.0; del p; "
    monkeypatch.setattr(relay_module, "_PROGRAM", patient + relay_module._PROGRAM)
    job.settings = replace(job.settings, keep_s=600.0)
    relay = job.relay()
    job.run(relay, ["a"])

    def run_forever() -> None:
        with pytest.raises(SlotError):
            job.run(relay, ["forever"], commit=False)

    busy = threading.Thread(target=run_forever)
    busy.start()
    wait_until(lambda: (job.folder / "busy").exists(), "the function was not called")
    executors.replace()
    if then == "a new run":
        start_next_run(job)
        assert job.run(job.relay(), ["a"]) == [("a", 2)]
    else:
        (job.folder / "run").write_text("1 ended")
        wait_until(lambda: not slots_of(job.folder), "the slot goes on")
    busy.join()


def test_socket_and_files_are_private(job: Job) -> None:
    job.run(job.relay(), ["a"])
    for path in (job.settings.folder, os.path.dirname(job.settings.folder)):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    for suffix in ("sock", "log"):
        assert stat.S_IMODE(os.stat(job.settings.path(0, suffix)).st_mode) == 0o600


def test_folder_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    os.chmod(tmp_path / "open", 0o755)
    with pytest.raises(SlotError, match="belongs to another user or is open to others"):
        private_folder(str(tmp_path / "open"))


def test_slot_that_cannot_start_says_why(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_PROGRAM", "raise SystemExit('no such luck')")
    with pytest.raises(SlotError, match=r"could not be started\. Its last output:\nno such luck"):
        job.relay()
    remove_slot_files(job.settings)


@pytest.mark.parametrize("state", list(SlotState))
def test_life_goes_only_where_the_picture_shows(state: SlotState) -> None:
    life = SlotLife()
    allowed = {SlotState.READY, SlotState.CLOSING}
    check: Callable[[], None] = lambda: life.go(state)  # noqa: E731
    if state in allowed:
        check()
        assert life.state is state
    else:
        with pytest.raises(RuntimeError, match="a slot cannot go from starting"):
            check()
