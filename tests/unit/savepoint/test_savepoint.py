"""Savepoints (E45, E46, C41, C42): written by a job, whole or not at all, taken over by another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millpond.common import Duration, JobStatus, Time, Types, WatermarkStrategy
from millpond.datastream import (
    BroadcastProcessFunction,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millpond.datastream.stream_graph import SinkKind
from millpond.datastream.window import TumblingEventTimeWindows
from millpond.driver.coordinator import Coordinator
from millpond.driver.epochs.batch_plan import BatchPlan
from millpond.driver.epochs.epoch_log import EpochLog
from millpond.driver.job_folder import JobFolder
from millpond.driver.planning import plan_job
from millpond.driver.savepoint_requests import SavepointRequests, request_by_file, withdraw
from millpond.driver.savepoints import Savepoints
from millpond.errors import ProgramError, SavepointError
from millpond.executors.direct.executor import DirectExecutors
from millpond.plan.identity import JobIdentity
from millpond.savepoint.reader import SavepointReader
from millpond.savepoint.writer import building_folder
from millpond.state.change_log import load
from millpond.state.partition_log import PartitionLog, log_folder
from millpond.state.shard_state import ShardState
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.cuts import cut_by_time


class Remember(KeyedProcessFunction):
    """Keeps something of every kind, and sets timers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.names = runtime_context.get_list_state(ListStateDescriptor("names", Types.STRING()))
        timed = MapStateDescriptor("seen", Types.STRING(), Types.PICKLED_BYTE_ARRAY())
        timed.enable_time_to_live(StateTtlConfig.new_builder(Time.days(400_000)).build())
        self.seen = runtime_context.get_map_state(timed)

    def process_element(self, value: Any, ctx: Any) -> Any:
        user, name, time_ms = value
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.names.add(name)
        self.seen.put(name, {"at": time_ms})
        ctx.timer_service().register_event_time_timer(time_ms + 1000)
        yield (user, count, list(self.names.get()), dict(self.seen.items()))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ("timer", ctx.get_current_key(), timestamp, self.count.value())


RECORDS = [("ann", "a", 100), ("bob", "b", 200), ("ann", "c", 300), ("cid", "d", 5000)]
MORE = [("ann", "e", 5100), ("bob", "f", 5200)]


def remember(stream: DataStream) -> DataStream:
    return stream.key_by(lambda r: r[0]).process(Remember()).uid("remember")


@dataclass(frozen=True)
class User:
    name: str


def remember_users(stream: DataStream) -> DataStream:
    """Keys, and entries of maps, that are objects."""
    return stream.key_by(lambda r: User(r[0])).process(RememberUsers()).uid("users")


class RememberUsers(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        anything = Types.PICKLED_BYTE_ARRAY()
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", anything, Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.put(User(value[1]), value[2])
        ctx.timer_service().register_event_time_timer(value[2] + 10_000)
        yield (ctx.get_current_key().name, sorted(user.name for user in self.seen))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (ctx.get_current_key().name, timestamp, self.seen.get(User("a")))


def windows(stream: DataStream) -> DataStream:
    counted = stream.map(lambda r: (r[0], 1)).key_by(lambda r: r[0])
    window = TumblingEventTimeWindows.of(Time.seconds(60))
    return counted.window(window).sum(1).uid("windows")


def job(
    build: Any, elements: list[Any], settings: dict[str, Any] | None = None
) -> tuple[StreamExecutionEnvironment, DataStream]:
    environment = direct_environment(settings or {})
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(50)
    ).with_timestamp_assigner(lambda record, _: record[2])
    stream = environment.from_source(MarkedSource(elements), strategy, "records").uid("records")
    return environment, build(stream)


def run_to_the_end(build: Any, elements: list[Any], **settings: Any) -> list[Any]:
    _, results = job(build, elements, settings)
    return list(results.execute_and_collect())


def run_and_save(
    build: Any,
    elements: list[Any],
    folder: Path,
    batches: int = 1,
    drain: bool = False,
    **settings: Any,
) -> tuple[list[Any], str]:
    """Run so many batches, take a savepoint with one more, and stop: (results, the savepoint's path)."""
    environment, results = job(build, elements, settings)
    results._sink("results", SinkKind.COLLECT, None)
    configuration, config = environment._configuration, environment.get_config()
    plan = plan_job(environment._pending_graph(), configuration, config, None)
    collected: list[Any] = []
    executors = DirectExecutors(plan, collected.extend)
    executor = executors.attempt(0)
    executors.start()
    for _ in range(batches):
        executor._run_batch()
    path = executor.savepoints().ask(str(folder), stop=True, drain=drain)
    executor.run()
    executors.close(JobStatus.FINISHED)
    return collected, path.result(timeout=1)


def go_on(build: Any, elements: list[Any], path: str, **settings: Any) -> list[Any]:
    return run_to_the_end(build, elements, **{"execution.state-recovery.path": path, **settings})


CUT_RECORDS = [*RECORDS[:2], CUT, *RECORDS[2:], CUT, *MORE]


@pytest.mark.parametrize("build", [remember, remember_users, windows])
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_job_goes_on_from_a_savepoint_with_any_parallelism(
    build: Any, parallelism: int, tmp_path: Path
) -> None:
    whole = run_to_the_end(build, CUT_RECORDS)
    before, path = run_and_save(build, CUT_RECORDS, tmp_path, **{"parallelism.default": 2})
    after = go_on(build, CUT_RECORDS, path, **{"parallelism.default": parallelism})
    assert after
    assert sorted(before + after, key=repr) == sorted(whole, key=repr)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_savepoint_has_what_batches_were_too_short_to_read(
    seed: int, parallelism: int, tmp_path: Path
) -> None:
    """E45: records that were handed out to a batch and not read by it."""
    whole = run_to_the_end(remember, CUT_RECORDS)
    with cut_by_time(Random(seed), 500):
        before, path = run_and_save(remember, CUT_RECORDS, tmp_path)
        after = go_on(remember, CUT_RECORDS, path, **{"parallelism.default": parallelism})
    assert sorted(before + after, key=repr) == sorted(whole, key=repr)


def test_savepoint_after_savepoint(tmp_path: Path) -> None:
    whole = run_to_the_end(remember, CUT_RECORDS)
    first, path = run_and_save(remember, CUT_RECORDS, tmp_path, batches=0)
    second, path = run_and_save(
        remember, CUT_RECORDS, tmp_path, batches=0, **{"execution.state-recovery.path": path}
    )
    third = go_on(remember, CUT_RECORDS, path)
    assert first and second and third
    assert sorted(first + second + third, key=repr) == sorted(whole, key=repr)


def test_drained_job_has_fired_its_timers(tmp_path: Path) -> None:
    found, path = run_and_save(windows, CUT_RECORDS, tmp_path, batches=0, drain=True)
    assert sorted(found) == [("ann", 1), ("bob", 1)]
    manifest = SavepointReader(path).manifest
    assert manifest.drained
    assert manifest.operators == []  # nothing is left


def test_manifest_tells_what_is_in_it(tmp_path: Path) -> None:
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)
    manifest = SavepointReader(path).manifest
    (operator,) = manifest.operators
    assert (operator.uid, operator.name, operator.keyed, operator.max_parallelism) == (
        "remember",
        "KEYED PROCESS",
        True,
        128,
    )
    states = {state.name: (state.kind, state.keys, state.rows) for state in operator.states}
    assert states == {
        "count": ("value", 3, 3),
        "names": ("list", 3, 4),
        "seen": ("map+ttl", 3, 4),
        "(timers)": ("timers", 1, 1),
    }
    names = next(state for state in operator.states if state.name == "names")
    assert names.biggest == [("'ann'", 2)]
    assert names.schemas == {"key": "string", "position": "long", "value": "string"}
    assert manifest.sources == ["records"]


def test_state_can_be_read_as_tables(tmp_path: Path) -> None:
    """E48, by any reader of Parquet."""
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)
    rows = SavepointReader(path).table("remember", "count").to_pylist()
    found = {row["key"]: row["value"] for row in rows}
    assert found == {"ann": 2, "bob": 1, "cid": 1}
    with pytest.raises(SavepointError, match="no state 'counts'; it has"):
        SavepointReader(path).table("remember", "counts")
    with pytest.raises(SavepointError, match="no operator with uid 'x'; it has"):
        SavepointReader(path).table("x", "counts")


def test_nothing_but_the_savepoint_is_left_behind(tmp_path: Path) -> None:
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)
    assert [str(entry) for entry in tmp_path.iterdir()] == [path]


def test_failed_savepoint_leaves_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("millpond.savepoint.writer.Manifest.write", full)
    with pytest.raises(SavepointError, match="No space left on device"):
        run_and_save(remember, CUT_RECORDS, tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- damage ------------------------------------------------------------------------------------------


def files_of(path: str) -> list[Path]:
    return sorted(file for file in Path(path).rglob("*") if file.is_file())


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_damaged_savepoint_is_refused_with_the_name_of_the_file(
    damage: str, tmp_path: Path
) -> None:
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)
    for file in files_of(path):
        whole = file.read_bytes()
        if damage == "flipped":
            middle = len(whole) // 2
            file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        elif damage == "truncated":
            file.write_bytes(whole[:-1])
        else:
            file.unlink()
        with pytest.raises(SavepointError, match=file.name):
            go_on(remember, CUT_RECORDS, path)
        file.write_bytes(whole)
    assert go_on(remember, CUT_RECORDS, path)


def test_folder_that_is_no_savepoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="is not a savepoint"):
        go_on(remember, RECORDS, str(tmp_path))
    with pytest.raises(SavepointError, match="no savepoint folder"):
        go_on(remember, RECORDS, str(tmp_path / "nothing"))


# --- which programs may go on ------------------------------------------------------------------------


def test_unclaimed_state_is_refused_unless_allowed(tmp_path: Path) -> None:
    """C41."""
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)

    def other(stream: DataStream) -> DataStream:
        return stream.key_by(lambda r: r[0]).process(Remember()).uid("another")

    with pytest.raises(SavepointError, match=r"uid 'remember', \d+ entries"):
        go_on(other, CUT_RECORDS, path)
    allowed = {"execution.state-recovery.ignore-unclaimed-state": True}
    found = go_on(other, CUT_RECORDS, path, **allowed)
    assert ("ann", 1, ["e"], {"e": {"at": 5100}}) in found  # a new operator starts empty


def test_source_that_is_gone_is_refused(tmp_path: Path) -> None:
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)
    environment = direct_environment({"execution.state-recovery.path": path})
    stream = environment.from_collection(RECORDS)
    with pytest.raises(SavepointError, match="source with uid 'records'"):
        list(remember(stream).execute_and_collect())


def test_new_operator_and_new_state_start_empty(tmp_path: Path) -> None:
    """C41, E46."""

    class More(Remember):
        def open(self, runtime_context: RuntimeContext) -> None:
            super().open(runtime_context)
            self.extra = runtime_context.get_state(ValueStateDescriptor("extra", Types.INT()))

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.extra.update((self.extra.value() or 0) + 1)
            for result in super().process_element(value, ctx):
                yield (*result[:2], self.extra.value())

    def more(stream: DataStream) -> DataStream:
        remembered = stream.key_by(lambda r: r[0]).process(More()).uid("remember")
        return remembered.key_by(lambda r: r[0]).reduce(lambda a, b: b).uid("new")

    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)
    assert ("ann", 3, 1) in go_on(more, CUT_RECORDS, path)


def test_operator_of_another_kind_is_refused(tmp_path: Path) -> None:
    _, path = run_and_save(windows, CUT_RECORDS, tmp_path)

    def longer(stream: DataStream) -> DataStream:
        counted = stream.map(lambda r: (r[0], 1)).key_by(lambda r: r[0])
        return counted.window(TumblingEventTimeWindows.of(Time.seconds(90))).sum(1).uid("windows")

    with pytest.raises(SavepointError, match="uid 'windows'"):
        go_on(longer, CUT_RECORDS, path)


def test_max_parallelism_cannot_change(tmp_path: Path) -> None:
    """C42."""
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path, **{"pipeline.max-parallelism": 8})
    with pytest.raises(SavepointError, match=r"max parallelism 16, but its state in .* with 8"):
        go_on(remember, CUT_RECORDS, path, **{"pipeline.max-parallelism": 16})
    with pytest.raises(SavepointError, match="parallelism 9, which is above the max parallelism 8"):
        go_on(remember, CUT_RECORDS, path, **{"parallelism.default": 9})
    assert go_on(remember, CUT_RECORDS, path)  # a derived one adopts the savepoint's


def test_savepoint_needs_a_folder(tmp_path: Path) -> None:
    environment, results = job(remember, RECORDS)
    results.print()
    client = environment.execute_async("job")
    client.get_job_execution_result().result()
    with pytest.raises(SavepointError, match="FINISHED"):
        client.trigger_savepoint(str(tmp_path))


# --- what a review found -----------------------------------------------------------------------------


def test_savepoint_with_a_part_missing_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that workers elsewhere do not share, say."""
    taken = Savepoints.batch_done

    def lose_a_part(self: Any, order: Any, *rest: Any) -> None:
        next(order.staging.rglob("*.part")).unlink()
        taken(self, order, *rest)

    monkeypatch.setattr(Savepoints, "batch_done", lose_a_part)
    with pytest.raises(SavepointError, match=r"The part .* is missing"):
        run_and_save(remember, CUT_RECORDS, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_the_next_batch_does_is_not_in_a_savepoint(tmp_path: Path) -> None:
    """It is written while the job goes on."""
    environment, results = job(remember, CUT_RECORDS)
    results._sink("results", SinkKind.COLLECT, None)
    plan = plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), None
    )
    executors = DirectExecutors(plan, lambda _: None)
    executor = executors.attempt(0)
    executors.start()
    desk, later = executor.savepoints(), []
    write, desk._write = desk._write, later.append  # type: ignore[method-assign, assignment]
    path = desk.ask(str(tmp_path))
    executor._run_batch()
    executor._run_batch()
    write(later[0])
    executors.close(JobStatus.FINISHED)
    clocks = SavepointReader(path.result(timeout=1)).job_state.channels
    assert clocks["records.watermarks"] == [(149, True)]


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_savepoint_with_the_last_batch_is_one_to_start_from(batches: int, tmp_path: Path) -> None:
    before, path = run_and_save(remember, CUT_RECORDS, tmp_path, batches=batches)
    after = go_on(remember, CUT_RECORDS, path)
    assert sorted(before + after, key=repr) == sorted(
        run_to_the_end(remember, CUT_RECORDS), key=repr
    )


def test_state_may_be_called_timers(tmp_path: Path) -> None:
    class Timers(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            descriptor = ListStateDescriptor("timers", Types.LONG())
            self.timers = runtime_context.get_list_state(descriptor)

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.timers.add(value[2])
            ctx.timer_service().register_event_time_timer(value[2] + 9000)
            yield list(self.timers.get())

    def build(stream: DataStream) -> DataStream:
        return stream.key_by(lambda _: 0).process(Timers()).uid("timers")

    before, path = run_and_save(build, CUT_RECORDS, tmp_path)
    assert before + go_on(build, CUT_RECORDS, path) == run_to_the_end(build, CUT_RECORDS)


def test_request_after_the_end_is_answered(tmp_path: Path) -> None:
    orders = SavepointRequests(None, "0" * 32, None)
    orders.give_up("over")
    with pytest.raises(SavepointError, match="has ended"):
        orders.ask(str(tmp_path)).result(timeout=1)


def test_withdrawn_request_is_forgotten(tmp_path: Path) -> None:
    orders = SavepointRequests(tmp_path, "0" * 32, str(tmp_path / "savepoints"))
    order_id = request_by_file(tmp_path, None, stop=True, drain=False)
    assert orders.is_waiting()
    withdraw(tmp_path, order_id)
    assert orders.take() is None


def test_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    orders = SavepointRequests(None, "0" * 32, None)
    with pytest.raises(ProgramError, match="'s3://bucket/x', but only folders"):
        orders.ask("s3://bucket/x")
    orders.ask(f"file://{tmp_path}/with%20space")
    assert (tmp_path / "with space").is_dir()


def test_manifest_cannot_name_files_outside(tmp_path: Path) -> None:
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path)
    manifest = SavepointReader(path).manifest
    manifest.job_file.path = "../job.blob"
    manifest.write(Path(path))
    with pytest.raises(SavepointError, match="names a file outside"):
        SavepointReader(path).check()


def test_job_under_way_does_not_take_a_savepoint(tmp_path: Path) -> None:
    folder = JobFolder.open(str(tmp_path), "job")
    first = JobIdentity("1", None, 1, {}, {}, [], [], True)
    assert folder.check_identity(first) == first
    assert folder.check_identity(replace(first, savepoint="/a")).savepoint == "/a"
    log = EpochLog(folder)
    log.write_plan(0, BatchPlan({}, {}, 0))
    log.close()
    assert folder.check_identity(first).savepoint == "/a", "that is where it began"
    with pytest.raises(SavepointError, match="has begun already"):
        folder.check_identity(replace(first, savepoint="/b"))
    folder.close(delete=True)


def test_job_whose_last_savepoint_fails_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is then kept: the state would be nowhere else."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("millpond.savepoint.writer.Manifest.write", full)
    environment, results = job(remember, CUT_RECORDS)
    results.print()
    asked: list[Any] = []
    planned = Coordinator.plan

    def ask_first(self: Coordinator) -> Any:
        if not asked:
            asked.append(self.savepoints.ask(str(tmp_path), stop=True))
        return planned(self)

    monkeypatch.setattr(Coordinator, "plan", ask_first)
    client = environment.execute_async("job")
    with pytest.raises(SavepointError, match="No space left on device"):
        client.get_job_execution_result().result()
    assert client.get_job_status().result() is JobStatus.FAILED


class _Remind(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key()


def test_processing_time_timers_are_due_without_a_record(tmp_path: Path) -> None:
    def build(stream: DataStream) -> DataStream:
        return stream.key_by(lambda r: r[0]).process(_Remind()).uid("remind")

    records = [RECORDS[0], CUT]
    before, path = run_and_save(build, records, tmp_path, batches=0)
    assert before == []
    assert go_on(build, records, path) == ["ann"]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_broadcast_state_without_a_key_goes_to_every_subtask(
    parallelism: int, tmp_path: Path
) -> None:
    """C38."""
    rules = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    class Read(BroadcastProcessFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self._own = runtime_context.get_index_of_this_subtask()

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield (self._own, ctx.get_broadcast_state(rules).get("limit"))

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            ctx.get_broadcast_state(rules).put(*value)

    def build(stream: DataStream) -> DataStream:
        environment = stream.get_execution_environment()
        sent = environment.from_collection([("limit", 3)]).uid("rules")
        return stream.rebalance().connect(sent.broadcast(rules)).process(Read()).uid("read")

    records = [RECORDS[0], CUT, *RECORDS * 4]
    _, path = run_and_save(build, records, tmp_path, batches=0, **{"parallelism.default": 2})
    found = go_on(build, records, path, **{"parallelism.default": parallelism})
    assert set(found) == {(subtask, 3) for subtask in range(parallelism)}


def test_savepoint_leaves_memory_as_the_log_says(tmp_path: Path) -> None:
    """What has expired goes before the log is written, so that the log knows."""
    before = [("ann", "a", 0), CUT, ("ann", "b", 0), CUT, ("ann", "a", 0)]

    class Short(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            seen = MapStateDescriptor("seen", Types.STRING(), Types.INT())
            ttl = StateTtlConfig.new_builder(Time.milliseconds(1)).disable_cleanup_in_background()
            seen.enable_time_to_live(ttl.build())
            self.seen = runtime_context.get_map_state(seen)

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.seen.put(value[1], 1)
            yield value[1]

    environment, results = job(
        lambda stream: stream.key_by(lambda r: r[0]).process(Short()).uid("short"), before
    )
    results._sink("results", SinkKind.COLLECT, None)
    plan = plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), None
    )
    clock = iter(range(0, 10_000, 100))
    executors = DirectExecutors(plan, lambda _: None, lambda: next(clock))
    executor = executors.attempt(0)
    executors.start()
    executors.coordinator.commit_output()
    executor._run_batch()
    executors.coordinator.commit_output()
    executor.savepoints().ask(str(tmp_path))
    executor._run_batch()
    in_memory = [
        own.state
        for states in executor._passes._host._states._states.values()
        for own in states.values()
    ]
    logged = []
    for (level, partition), position in executors.coordinator._logs.items():
        log = PartitionLog(executors.storage, log_folder(level, partition), "reader")
        log.go_to(position)
        for kept in in_memory:
            state = ShardState(kept.number, None, kept.grouping)
            load(log.of, state)
            logged.append((kept, state))
    assert any(not state.is_empty() for _, state in logged)
    for kept, state in logged:
        # Types of states that are still empty are not in a log that nothing was written to.
        assert {**kept.snapshot(), "types": {}} == {**state.snapshot(), "types": {}}
    executors.close(JobStatus.FINISHED)


def test_savepoint_of_a_batch_that_runs_again_is_taken_once(tmp_path: Path) -> None:
    """The driver died; what it had been asked for is in the plan of the batch, and still in its file."""
    job_folder, directory = tmp_path / "job", tmp_path / "savepoints"
    job_folder.mkdir()
    request_by_file(job_folder, str(directory), stop=False, drain=False)
    taken = SavepointRequests(job_folder, "0123456789", None).take()
    assert taken is not None
    again = SavepointRequests(job_folder, "0123456789", None)
    again.go_on(taken)
    assert again.take() is None

    taken.make_staging()
    building_folder(taken.target).mkdir()
    taken.target.mkdir()
    third = SavepointRequests(job_folder, "0123456789", None)
    assert third.take() is None
    assert [path.name for path in directory.iterdir()] == [taken.name]
