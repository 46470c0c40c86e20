"""Jobs through Spark: one query, many sinks, timers without data, cancel, errors, checkpoints."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from millpond.common import (
    Duration,
    Encoder,
    JobStatus,
    RestartStrategies,
    Time,
    Types,
    WatermarkStrategy,
)
from millpond.datastream import (
    ExternalizedCheckpointRetention,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from millpond.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.window import (
    ContinuousProcessingTimeTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millpond.errors import (
    CheckpointInUseError,
    IncompatibleCheckpointError,
    JobExecutionError,
    UserFunctionError,
)
from millpond.executors.spark.session import get_session
from tests.conftest import MakeEnvironment, delivered_lines, newest_epoch
from tests.programs.catalogue import three_stages

pytestmark = pytest.mark.spark


def text_sink(folder: Path) -> FileSink:
    at_once = RollingPolicy.on_checkpoint_rolling_policy()
    builder = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    return builder.with_rolling_policy(at_once).build()


def test_batch_of_three_stages_two_inputs_three_sinks_is_one_spark_job(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    environment = spark_environment(millpond__batch__max_records=3)
    streams = three_stages(environment)
    for number, stream in enumerate(streams):
        stream.sink_to(text_sink(tmp_path / str(number)))
    drawing = environment.draw_execution_plan()
    plan = json.loads(environment.get_execution_plan())
    assert plan["levels"] == 3
    assert len([node for node in plan["nodes"] if node["pact"] == "Data Sink"]) == 3
    for text in ("one Spark job per batch, 4 passes", "pass 3: keyed state", "side output aged"):
        assert text in drawing
    before = _next_job(environment)
    client = environment.execute_async("three stages")
    client.get_job_execution_result().result()
    woke_slots = 1
    assert _next_job(environment) - before - 1 == len(client.get_checkpoints()) + woke_slots
    assert len(delivered_lines(tmp_path / "0")) == 22
    assert len(delivered_lines(tmp_path / "1")) == 11
    assert len(delivered_lines(tmp_path / "2")) == 1


class _Grow(KeyedProcessFunction):
    """Keeps 3 MB per key in one value and a little in another state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.text = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: str, ctx: Any) -> Any:
        text = (self.text.value() or "") + value * 1_000_000
        self.text.update(text)
        self.count.update((self.count.value() or 0) + 1)
        yield (len(text), text[0], text[-1], self.count.value())


def test_values_of_megabytes_survive_between_batches_and_workers(
    spark_environment: MakeEnvironment,
) -> None:
    """Large rows pass through sockets, shuffles and logs in one piece."""
    environment = spark_environment(millpond__batch__max_records=1)
    stream = environment.from_collection(list("abc")).key_by(lambda _: 0).process(_Grow())
    assert list(stream.execute_and_collect()) == [
        (1_000_000, "a", "a", 1),
        (2_000_000, "a", "b", 2),
        (3_000_000, "a", "c", 3),
    ]


class _Numbers(SourceFunction):
    """Emits a few numbers, then stays until it is cancelled."""

    def __init__(self, count: int, stay: bool) -> None:
        self._count = count
        self._stay = stay

    def run(self, ctx: Any) -> None:
        for number in range(self._count):
            ctx.collect(number)
        while self._stay and not ctx.is_cancelled():
            time.sleep(0.02)


class _Remind(KeyedProcessFunction):
    """Sets a processing-time timer and lets it fire when nothing else happens."""

    def process_element(self, value: int, ctx: Any) -> Any:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 300)
        yield ("seen", value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.timer_service().current_processing_time() >= timestamp
        yield ("reminded", ctx.get_current_key())


def test_processing_time_timers_fire_without_data(spark_environment: MakeEnvironment) -> None:
    """E23: an unbounded source that has gone quiet."""
    numbers = spark_environment().add_source(_Numbers(3, stay=True))
    reminded = numbers.key_by(lambda number: number).process(_Remind())
    results: Any = reminded.execute_and_collect("remind")
    with results:
        values = [next(results) for _ in range(6)]
    assert sorted(values) == sorted(
        [("seen", n) for n in range(3)] + [("reminded", n) for n in range(3)]
    )


class _Clock(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value[1])
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


class _Slow(SourceFunction):
    def run(self, ctx: Any) -> None:
        ctx.collect(("slow", 0))
        while not ctx.is_cancelled():
            time.sleep(0.02)


class _Fast(_Slow):
    def run(self, ctx: Any) -> None:
        number = 0
        while not ctx.is_cancelled():
            ctx.collect(("fast", number))
            number += 100
            time.sleep(0.05)


def test_idle_source_does_not_hold_event_time_back(spark_environment: MakeEnvironment) -> None:
    """E22: after the idle timeout the clock follows the source that still speaks."""
    environment = spark_environment()
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_idleness(Duration.of_millis(500))
        .with_timestamp_assigner(lambda record, _: record[1])
    )
    slow = environment.add_source(_Slow()).assign_timestamps_and_watermarks(strategy)
    fast = environment.add_source(_Fast()).assign_timestamps_and_watermarks(strategy)
    results: Any = slow.union(fast).key_by(lambda _: 0).process(_Clock()).execute_and_collect()
    with results:
        assert [next(results) for _ in range(3)] == [0, 100, 200]


def test_windows_follow_the_partition_that_still_speaks(spark_environment: MakeEnvironment) -> None:
    """E22, E24: two partitions of different speed, one of which falls silent."""
    environment = spark_environment()
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_idleness(Duration.of_millis(500))
        .with_timestamp_assigner(lambda record, _: record[1])
    )
    slow = environment.add_source(_Slow()).assign_timestamps_and_watermarks(strategy)
    fast = environment.add_source(_Fast()).assign_timestamps_and_watermarks(strategy)
    ones = slow.union(fast).map(lambda record: ("all", 1)).key_by(lambda pair: pair[0])
    counts = ones.window(TumblingEventTimeWindows.of(Time.seconds(1))).sum(1)
    results: Any = counts.execute_and_collect()
    with results:
        assert [next(results) for _ in range(3)] == [("all", 11), ("all", 10), ("all", 10)]


class _Silent(SourceFunction):
    def run(self, ctx: Any) -> None:
        for time_ms in (100, 700, 1200):
            ctx.collect(("user", time_ms))
        while not ctx.is_cancelled():
            time.sleep(0.02)


def test_windows_close_on_a_silent_stream_if_event_time_goes_on(
    spark_environment: MakeEnvironment,
) -> None:
    environment = spark_environment()
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(lambda record, _: record[1])
        .with_idleness(Duration.of_millis(300))
        .advance_when_idle()
    )
    records = environment.add_source(_Silent()).assign_timestamps_and_watermarks(strategy)
    windows = records.map(lambda record: (record[0], 1)).key_by(lambda record: record[0])
    counts = windows.window(TumblingEventTimeWindows.of(Time.seconds(1))).sum(1)
    results: Any = counts.execute_and_collect()
    with results:
        assert [next(results) for _ in range(2)] == [("user", 2), ("user", 1)]


@pytest.mark.parametrize("early", [False, True])
def test_processing_time_windows_fire_without_data(
    spark_environment: MakeEnvironment, early: bool
) -> None:
    """E24: at the end of windows, or again and again before."""
    numbers = spark_environment().add_source(_Numbers(4, stay=True))
    size = Time.hours(1) if early else Time.milliseconds(400)
    windows = numbers.key_by(lambda _: "all").window(TumblingProcessingTimeWindows.of(size))
    if early:
        windows = windows.trigger(ContinuousProcessingTimeTrigger.of(Time.milliseconds(200)))
    results: Any = windows.reduce(lambda a, b: a + b).execute_and_collect()
    total = 0
    with results:
        while total < 6:  # 0 + 1 + 2 + 3, however they fall into windows
            total = next(results) if early else total + next(results)
    assert total == 6


def test_source_function_that_returns_ends_the_job(spark_environment: MakeEnvironment) -> None:
    numbers = spark_environment().add_source(_Numbers(1000, stay=False), type_info=Types.LONG())
    total = numbers.key_by(lambda _: 0).reduce(lambda a, b: a + b)
    assert max(total.execute_and_collect()) == sum(range(1000))


def test_cancelled_job_ends_and_can_go_on_later(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    settings = {"execution__checkpointing__dir": str(tmp_path / "jobs")}

    def start() -> Any:
        environment = spark_environment(**settings)
        numbers = environment.add_source(_Counting(tmp_path / "numbers"))
        sums = numbers.key_by(lambda _: "sum").reduce(lambda a, b: a + b).uid("sum")
        sums.sink_to(text_sink(tmp_path / "out"))
        return environment.execute_async("sum")

    (tmp_path / "numbers").write_text("5\n")
    client = start()
    _wait_for(lambda: (tmp_path / "out").exists() and "5" in delivered_lines(tmp_path / "out"))
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    (tmp_path / "numbers").write_text("7\n")
    client = start()
    _wait_for(lambda: "12" in delivered_lines(tmp_path / "out"))
    client.cancel().result()


def test_folder_of_a_cancelled_job_goes_if_the_program_says_so(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    """E40."""
    environment = spark_environment(execution__checkpointing__dir=str(tmp_path / "jobs"))
    environment.get_checkpoint_config().set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    )
    (tmp_path / "numbers").write_text("5\n")
    numbers = environment.add_source(_Counting(tmp_path / "numbers"))
    numbers.sink_to(text_sink(tmp_path / "out"))
    client = environment.execute_async("sum")
    _wait_for(lambda: (tmp_path / "out").exists() and "5" in delivered_lines(tmp_path / "out"))
    assert (tmp_path / "jobs" / "sum").exists()
    client.cancel().result()
    assert not (tmp_path / "jobs" / "sum").exists()


class _Counting(SourceFunction):
    """Emits the number in a file, once, then stays."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def run(self, ctx: Any) -> None:
        ctx.collect(int(self._path.read_text()))
        while not ctx.is_cancelled():
            time.sleep(0.02)


def _wait_for(condition: Any, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def _next_job(environment: StreamExecutionEnvironment) -> int:
    """The number that Spark gives to a job that it runs now."""
    context = get_session(environment._configuration).sparkContext
    context.setJobGroup("count", "count")
    context.parallelize([1], 1).count()
    return max(context.statusTracker().getJobIdsForGroup("count"))


def test_batch_cancelled_from_outside_is_a_failure_and_keeps_its_folder(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    environment = spark_environment(
        execution__checkpointing__dir=str(tmp_path), millpond__batch__interval_ms=100
    )
    environment.add_source(_Endless()).print()
    client = environment.execute_async("stopped")
    _wait_for(lambda: newest_epoch(tmp_path / "stopped") >= 0)
    context = get_session(environment._configuration).sparkContext
    while not client.get_job_execution_result().done():
        context.cancelAllJobs()
    problem = client.get_job_execution_result().exception()
    assert isinstance(problem, JobExecutionError)
    assert "The job failed in Spark" in str(problem)
    assert client.get_job_status().result() is JobStatus.FAILED
    assert newest_epoch(tmp_path / "stopped") >= 0


class _Endless(SourceFunction):
    def run(self, ctx: Any) -> None:
        while not ctx.is_cancelled():
            ctx.collect("x")
            time.sleep(0.02)


def test_second_job_on_the_same_checkpoint_is_refused(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    def start() -> Any:
        environment = spark_environment(execution__checkpointing__dir=str(tmp_path))
        environment.add_source(_Numbers(1, stay=True)).print()
        return environment.execute_async("twin")

    first = start()
    _wait_for(lambda: newest_epoch(tmp_path / "twin") >= 0)
    second = start()
    problem = second.get_job_execution_result().exception()
    assert isinstance(problem, CheckpointInUseError)
    assert "give this one another name" in str(problem)
    first.cancel().result()


def test_changed_max_parallelism_is_refused(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    def run(max_parallelism: int) -> Any:
        environment = spark_environment(
            execution__checkpointing__dir=str(tmp_path), millpond__checkpoint__retain_on_finish=True
        )
        environment.set_max_parallelism(max_parallelism)
        environment.from_collection([1]).key_by(lambda n: n).sum().uid("sum").print()
        return environment.execute("sum")

    run(16)
    with pytest.raises(IncompatibleCheckpointError, match="max parallelism"):
        run(32)


def test_failing_function_names_operator_and_record_without_jvm_noise(
    spark_environment: MakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    def divide(number: int) -> float:
        return 10 / (number - 5)

    numbers = spark_environment().from_collection(list(range(10)))
    stream = numbers.key_by(lambda number: number % 2).map(divide).name("divide by n - 5")
    with pytest.raises(UserFunctionError) as error:
        list(stream.execute_and_collect())
    text = str(error.value)
    assert text.startswith("ZeroDivisionError: division by zero\n")
    for part in ("operator 'divide by n - 5'", "record: 5", "in divide", "10 / (number - 5)"):
        assert part in text
    assert "java" not in text
    assert len(text.splitlines()) < 12
    captured = capfd.readouterr()
    assert "Exception" not in captured.err
    assert "\tat org.apache.spark" not in captured.err


class _Metered(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.sizes = group.add_group("sizes").distribution("size")
        self.rate = group.meter("rate")
        group.gauge("answer", lambda: 42)
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        assert runtime_context.get_number_of_parallel_subtasks() == 2
        assert runtime_context.get_job_parameter("colour", "none") == "blue"
        assert runtime_context.get_index_of_this_subtask() in (0, 1)

    def map(self, value: int) -> int:
        self.seen.inc()
        self.rate.mark_event()
        self.sizes.update(value)
        return value


def test_workers_use_the_installed_pyspark_not_the_zip(
    spark_environment: MakeEnvironment,
) -> None:
    """What is imported from a zip is compiled anew in every process."""
    paths = spark_environment().from_collection([1]).map(lambda _: __import__("pyspark").__file__)
    (path,) = paths.execute_and_collect()
    assert os.path.isfile(path)


def test_metrics_and_runtime_context(spark_environment: MakeEnvironment) -> None:
    """E10: what a function registers is summed up over subtasks and batches."""
    environment = spark_environment(millpond__batch__max_records=4)
    environment.get_config().set_global_job_parameters({"colour": "blue"})
    numbers = environment.from_collection(list(range(10)))
    numbers.key_by(lambda n: n).map(_Metered()).name("metered").add_sink(_Quiet()).name("quiet")
    metrics = environment.execute().get_all_accumulator_results()
    assert metrics["metered.seen"] == 10
    assert metrics["metered.rate"] == 10
    assert metrics["metered.answer"] == 42
    assert metrics["metered.sizes.size"] == (10, 45, 0, 9)
    assert metrics["quiet.written"] == 10


class _Quiet(SinkFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.written = runtime_context.get_metrics_group().counter("written")

    def invoke(self, value: Any, context: Any) -> None:
        assert context.epoch() >= 0
        assert context.current_processing_time() > 0
        self.written.inc()


def test_text_files_are_read_line_by_line(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("three\nfour, without a line end")
    environment = spark_environment(millpond__batch__max_records=1)
    read = environment.read_text_file(str(tmp_path)).map(str.upper)
    assert sorted(read.execute_and_collect()) == ["FOUR, WITHOUT A LINE END", "ONE", "THREE", "TWO"]


def test_monitored_folder_is_an_unbounded_source(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
        .monitor_continuously(Duration.of_millis(50))
        .build()
    )
    environment = spark_environment()
    read = environment.from_source(source, WatermarkStrategy.no_watermarks(), "folder")
    results: Any = read.execute_and_collect()
    with results:
        assert next(results) == "one"
        (tmp_path / "b.txt").write_text("two\nunfinished")
        assert next(results) == "two"


def test_print_shows_records_as_flink_does(
    spark_environment: MakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    def environment() -> StreamExecutionEnvironment:
        return spark_environment()

    one = environment()
    row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    one.from_collection([(1, "x")], row_type).print().set_parallelism(1)
    one.execute()
    two = environment()
    two.from_collection(["text", ("a", 1)]).print("id")
    two.execute()
    assert capsys.readouterr().out.splitlines() == ["+I[1,x]", "id:1> text", "id:1> ('a', 1)"]


def test_jobs_of_one_process_run_side_by_side(spark_environment: MakeEnvironment) -> None:
    results: dict[int, list[Any]] = {}

    def run(number: int) -> None:
        stream = spark_environment().from_collection([1, 2, 3]).key_by(lambda _: 0)
        results[number] = list(stream.reduce(lambda a, b: a + b).execute_and_collect(f"j{number}"))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [1, 3, 6], 1: [1, 3, 6]}


class _StuckOnce(MapFunction):
    """Never comes back from the first call."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def map(self, value: int) -> int:
        if value == 3 and not self._mark.exists():
            self._mark.touch()
            time.sleep(600)
        return value


def test_batch_that_takes_too_long_is_given_up_and_run_again(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    """E40: execution.checkpointing.timeout and tolerable-failed-checkpoints; there is no restart strategy."""
    environment = spark_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.no_restart())
    config = environment.get_checkpoint_config()
    config.set_checkpoint_timeout(10_000).set_tolerable_checkpoint_failure_number(1)
    assert config.get_checkpoint_timeout() == 10_000
    assert config.get_tolerable_checkpoint_failure_number() == 1
    numbers = environment.from_collection(list(range(6)))
    results = numbers.map(_StuckOnce(tmp_path / "mark")).execute_and_collect()
    assert sorted(results) == list(range(6))
    assert (tmp_path / "mark").exists()


def test_batch_that_takes_too_long_is_named(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    environment = spark_environment(execution__checkpointing__timeout=3000)
    numbers = environment.from_collection(list(range(6)))
    with pytest.raises(JobExecutionError, match="Batch 0 was not complete after 3000 ms"):
        list(numbers.map(_StuckOnce(tmp_path / "mark")).execute_and_collect())
