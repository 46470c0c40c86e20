"""millpond.input.stop-at-end: event time stands at the newest record, and the job may go on later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import Types, WatermarkStrategy
from millpond.common.time import Duration
from millpond.common.watermark_strategy import TimestampAssigner
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.plan.physical import JobPlan
from millpond.testing import direct_environment
from tests.unit.driver.test_recovery import Crash, StandInForSpark


class Release(KeyedProcessFunction):
    """Tells how many it has seen, and when ten milliseconds have passed since one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        yield value[1]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield f"released {timestamp}, of {self.count.value()}"


class Time(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Later(TimestampAssigner):
    """The time that a source has by itself, and nobody goes by."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 1 << 40


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder, self.spark = folder, StandInForSpark()
        self.input = folder / "input"
        self.input.mkdir()

    def plan(self, **settings: Any) -> JobPlan:
        environment = direct_environment({"millpond.input.stop-at-end": True, **settings})
        source = (
            FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(self.input))
            .monitor_continuously(Duration.of_millis(10))
            .build()
        )
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
        other_time = WatermarkStrategy.no_watermarks().with_timestamp_assigner(Later())
        stream = environment.from_source(source, other_time, "lines")
        stream = stream.uid("lines").map(lambda line: line.split(" "))
        stream = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Time()))
        results = stream.key_by(lambda value: value[0]).process(Release()).uid("release")
        results.map(str)._sink("results", SinkKind.PRINT, None)
        return plan_job(
            environment._pending_graph(), environment._configuration, environment.get_config(), None
        )

    def write(self, name: str, *lines: str, end: str = "\n") -> None:
        with (self.input / name).open("a") as file:
            file.write("\n".join(lines) + end)

    def run(self, crash: tuple[int, str] | None = None, **settings: Any) -> None:
        self.spark.run(self.plan(**settings), self.folder / "jobs", crash, keep=True)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return sorted(capsys.readouterr().out.splitlines())


def test_event_time_stops_at_the_newest_record_of_all_files(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    """The watermark of neither file alone would come so far, nor that with its bound of 5 ms."""
    job.write("a", "u 1", "u 2")
    job.write("b", "u 12")
    job.run()
    assert lines(capsys) == ["1", "12", "2", "released 11, of 3", "released 12, of 3"]


def test_the_job_goes_on_with_what_has_come_since(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write("a", "u 1", "u 2", end="")
    job.run()
    assert lines(capsys) == ["1", "2"]
    job.run()
    assert lines(capsys) == [], "nothing has come"
    job.write("a", "", "u 3")
    job.write("b", "u 12")
    job.run()
    assert lines(capsys) == ["12", "3", "released 11, of 4", "released 12, of 4"]


def test_a_late_record_of_a_later_run_is_read(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.write("a", "u 100")
    job.run()
    job.write("b", "u 1")
    capsys.readouterr()
    job.run()
    assert lines(capsys) == ["1"]
    job.write("b", "u 101")
    job.run()
    assert lines(capsys) == ["101", "released 11, of 3"], (
        "timers of the past fire when time goes on"
    )


def test_without_input_the_job_just_ends(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.run()
    assert lines(capsys) == []


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
def test_crash_changes_nothing(
    job: Job, capsys: pytest.CaptureFixture[str], epoch: int, point: str
) -> None:
    job.write("a", "u 1", "u 2")
    job.write("b", "u 12")
    with pytest.raises(Crash):
        job.run((epoch, point))
    job.run()
    assert set(lines(capsys)) == {"1", "12", "2", "released 11, of 3", "released 12, of 3"}


def test_a_job_that_is_not_to_stop_goes_on_after_a_crash_at_the_end(job: Job) -> None:
    job.write("a", "u 1")
    with pytest.raises(Crash):
        job.run((1, "planned"))
    job.write("b", "u 2")
    with pytest.raises(Crash):  # there is a batch after the one that was to be the last
        job.run((2, "planned"), **{"millpond.input.stop-at-end": False})


def test_event_time_can_stay_where_it_is(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.write("a", "u 1", "u 12")
    job.run(**{"millpond.input.advance-at-end": False})
    assert lines(capsys) == ["1", "12"], "the watermark is at 12 - 5 - 1"
