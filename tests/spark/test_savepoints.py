"""Savepoints of jobs on Spark (E45): while they run, with stop, from the command line; other parallelism."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.main import main
from millpond.common import Duration, Encoder, JobStatus, Time, Types, WatermarkStrategy
from millpond.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.window import TumblingEventTimeWindows
from millpond.errors import SavepointError
from millpond.savepoint import Savepoint
from tests.conftest import MakeEnvironment, delivered_lines

pytestmark = pytest.mark.spark


def await_lines(folder: Path, *lines: str) -> None:
    deadline = time.monotonic() + 60
    while not set(lines) <= set(delivered_lines(folder)):
        assert time.monotonic() < deadline, f"{lines} did not come"
        time.sleep(0.02)


class Words:
    """Counts words of files that come into a folder, and how many come in each hour."""

    def __init__(self, make: MakeEnvironment, folder: Path) -> None:
        self._make = make
        self.folder = folder
        (folder / "in").mkdir()

    def add(self, name: str, *words: str) -> None:
        aside = self.folder / name
        aside.write_text("".join(f"{word}\n" for word in words))
        aside.rename(self.folder / "in" / name)

    def start(self, number: int, **settings: Any) -> Any:
        """A job that writes to out-NUMBER, with a job folder of its own."""
        environment = self._make(
            execution__checkpointing__dir=str(self.folder / f"jobs-{number}"), **settings
        )
        source = (
            FileSource.for_record_stream_format(
                StreamFormat.text_line_format(), str(self.folder / "in")
            )
            .monitor_continuously(Duration.of_millis(50))
            .build()
        )
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
            lambda word, _: len(word)
        )
        words = environment.from_source(source, strategy, "words").uid("words")
        counts = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0])
        per_word = counts.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("count")
        hours = counts.window(TumblingEventTimeWindows.of(Time.hours(1))).sum(1).uid("hours")
        lines = per_word.map(lambda pair: f"{pair[0]} {pair[1]}", Types.STRING()).union(
            hours.map(lambda pair: f"{pair[0]} {pair[1]} in its hour", Types.STRING())
        )
        encoder = Encoder.simple_string_encoder()
        at_once = RollingPolicy.on_checkpoint_rolling_policy()
        sink = FileSink.for_row_format(str(self.out(number)), encoder).with_rolling_policy(at_once)
        lines.sink_to(sink.build())
        return environment.execute_async("words")

    def out(self, number: int) -> Path:
        return self.folder / f"out-{number}"


def test_jobs_go_on_from_savepoints(spark_environment: MakeEnvironment, tmp_path: Path) -> None:
    words = Words(spark_environment, tmp_path)
    savepoints = tmp_path / "savepoints"
    words.add("1", "a", "b", "a")
    first = words.start(1)
    await_lines(words.out(1), "a 2", "b 1")
    early = first.trigger_savepoint(str(savepoints)).result()
    words.add("2", "a")
    await_lines(words.out(1), "a 3")
    late = first.stop_with_savepoint(False, str(savepoints)).result()
    first.get_job_execution_result().result()
    assert first.get_job_status().result() is JobStatus.FINISHED
    assert sorted(map(str, savepoints.iterdir())) == sorted([early, late])
    assert Savepoint.load(early).job_id == str(first.get_job_id())

    words.add("3", "b")
    second = words.start(
        2,
        execution__state_recovery__path=early,
        parallelism__default=3,
        state__backend__type="rocksdb",
    )
    await_lines(words.out(2), "a 3", "b 2")  # what came after the savepoint comes again
    drained = second.stop_with_savepoint(True, str(savepoints)).result()
    assert {"a 3 in its hour", "b 2 in its hour"} <= set(delivered_lines(words.out(2)))
    assert "a 2" not in delivered_lines(words.out(2))

    third = words.start(3, execution__state_recovery__path=late, parallelism__default=1)
    await_lines(words.out(3), "b 2")
    assert "a 3" not in delivered_lines(words.out(3))
    third.cancel().result()
    words.add("4", "b")
    fourth = words.start(4, execution__state_recovery__path=drained, state__backend__type="memory")
    await_lines(words.out(4), "b 3")
    fourth.cancel().result()


def ask(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(arguments)
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_savepoints_from_the_command_line(
    spark_environment: MakeEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Words(spark_environment, tmp_path)
    words.add("1", "a", "b", "a")
    job = words.start(1, millpond__checkpoint__retain_on_finish=True)
    await_lines(words.out(1), "a 2")
    jobs, savepoints = str(tmp_path / "jobs-1"), str(tmp_path / "savepoints")
    status, out, _ = ask(["savepoint", "words", savepoints, "--checkpoint-dir", jobs], capsys)
    first = out.strip()
    assert status == 0 and Path(first).parent == Path(savepoints)

    status, out, _ = ask(["checkpoint", "words", "--checkpoint-dir", jobs], capsys)
    assert status == 0 and "  savepoint" in out
    status, out, _ = ask(["checkpoint", f"{jobs}/words", "--json"], capsys)
    assert any(record["is_savepoint"] for record in json.loads(out))

    status, out, _ = ask(["savepoint", "show", first], capsys)
    assert status == 0
    for expected in (
        "job          words",
        "uid count",
        "uid hours",
        "2 keys",
        "sources      words",
    ):
        assert expected in out
    status, out, _ = ask(["savepoint", "show", first, "--json"], capsys)
    assert json.loads(out)["job_name"] == "words"

    status, out, _ = ask(["stop", f"{jobs}/words", "--savepoint", savepoints, "--json"], capsys)
    second = json.loads(out)["savepoint"]
    job.get_job_execution_result().result()
    status, out, _ = ask(["savepoint", "list", savepoints], capsys)
    assert [line.split()[0] for line in out.splitlines()] == [Path(first).name, Path(second).name]

    status, out, _ = ask(["savepoint", "dispose", first], capsys)
    assert status == 0 and not Path(first).exists()
    assert list(Path(savepoints).iterdir()) == [Path(second)]

    status, _, err = ask(["savepoint", "nothing", savepoints], capsys)  # a name: a dispatcher's job
    assert status == 3 and "dispatcher" in err
    for arguments, message in (
        (["savepoint", f"{jobs}/words", savepoints], "is not running"),
        (["savepoint", f"{jobs}/nothing", savepoints], "not the folder of a job"),
        (["savepoint", "show", savepoints], "is not a savepoint"),
        (["savepoint", "dispose", str(tmp_path)], "is not a savepoint"),
    ):
        status, _, err = ask(arguments, capsys)
        assert status == 1 and message in err


def test_savepoint_is_refused_before_anything_runs(
    spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    words = Words(spark_environment, tmp_path)
    with pytest.raises(SavepointError, match="no savepoint folder"):
        words.start(1, execution__state_recovery__path=str(tmp_path / "nothing"))
    assert not (tmp_path / "jobs-1").exists()


def test_state_is_a_spark_table(spark_environment: MakeEnvironment, tmp_path: Path) -> None:
    """E48."""
    words = Words(spark_environment, tmp_path)
    words.add("1", "a", "b", "a")
    job = words.start(1)
    await_lines(words.out(1), "a 2")
    path = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    frame = Savepoint.load(path).spark("count", "_reduce")
    assert sorted(row["key"] for row in frame.select("key").collect()) == ["a", "b"]
    counts = frame.sparkSession.createDataFrame([("a", 1), ("b", 2)], "key string, value int")
    descriptor = ValueStateDescriptor("count", Types.INT())
    made = Savepoint.new().with_state("x", descriptor, counts).write(tmp_path / "made")
    plain = Savepoint.load(made).spark("x", "count", frame.sparkSession)
    assert {row["key"]: row["value"] for row in plain.collect()} == {"a": 1, "b": 2}
