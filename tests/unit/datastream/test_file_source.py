"""Text files as a source: empty folders, files that grow, vanish or shrink."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.common import Duration, WatermarkStrategy
from millpond.core.storage import MemoryStorage
from millpond.datastream import KeyedProcessFunction
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.coordinator import Coordinator
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.errors import ProgramError, UserFunctionError
from millpond.testing import direct_environment


def monitored(folder: Path) -> Any:
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
        .monitor_continuously(Duration.of_millis(10))
        .build()
    )
    enumerator = source.create_enumerator(1, None)  # type: ignore[arg-type]
    enumerator.start()
    return source, enumerator


def read_all(source: Any, enumerator: Any) -> list[str]:
    works = enumerator.poll(1000)
    return [value for work in works for value, _ in source.read(work.arguments)]


def make_old(path: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))


def test_empty_folder_is_an_empty_input(tmp_path: Path) -> None:
    stream = direct_environment().read_text_file(str(tmp_path))
    assert list(stream.execute_and_collect()) == []


def test_missing_path_is_refused(tmp_path: Path) -> None:
    stream = direct_environment().read_text_file(str(tmp_path / "nothing"))
    with pytest.raises(ProgramError, match="does not exist"):
        list(stream.execute_and_collect())


def test_growing_file_gives_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    source, enumerator = monitored(tmp_path)
    assert read_all(source, enumerator) == ["one"]
    path.write_text("one\ntwo\n")
    assert read_all(source, enumerator) == ["two"]
    assert enumerator.ended() == [False]


def test_file_that_no_longer_changes_is_complete_with_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\nlast, without a line end")
    make_old(path)
    source, enumerator = monitored(tmp_path)
    assert read_all(source, enumerator) == ["one", "last, without a line end"]
    assert enumerator.ended() == [True]


def test_file_removed_after_it_was_read_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    source, enumerator = monitored(tmp_path)
    assert read_all(source, enumerator) == ["one"]
    path.unlink()
    assert read_all(source, enumerator) == []
    assert enumerator.ended() == [True]


def test_empty_monitored_folder_does_not_end(tmp_path: Path) -> None:
    source, enumerator = monitored(tmp_path)
    assert enumerator.split_count() == 1
    assert enumerator.ended() == [False]
    (tmp_path / "new").write_text("first\n")
    assert read_all(source, enumerator) == ["first"]


def test_file_that_shrank_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    source, enumerator = monitored(tmp_path)
    (work,) = enumerator.poll(1000)
    path.write_text("one\n")
    with pytest.raises(OSError, match="shrank from 8 to 4 bytes while it was being read"):
        list(source.read(work.arguments))


def test_unreadable_character_names_the_source(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\n")
    stream = direct_environment().read_text_file(str(tmp_path))
    with pytest.raises(UserFunctionError, match="UnicodeDecodeError") as error:
        list(stream.execute_and_collect())
    assert "Text File Source" in str(error.value)


def test_line_that_is_still_being_written_is_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "growing.txt"
    path.write_bytes(b"aa\n" * 4 + b"a-long-name")
    source, enumerator = monitored(tmp_path)
    seen = []
    for _ in range(3):
        seen += [v for work in enumerator.poll(3) for v, _ in source.read(work.arguments)]
    with path.open("ab") as file:
        file.write(b"-and-its-end\n")
    for _ in range(3):
        seen += [v for work in enumerator.poll(3) for v, _ in source.read(work.arguments)]
    assert seen == ["aa"] * 4 + ["a-long-name-and-its-end"]


def test_monitored_file_renamed_before_it_was_read_does_not_stop_the_job(tmp_path: Path) -> None:
    (tmp_path / "new.tmp").touch()
    source, enumerator = monitored(tmp_path)
    assert read_all(source, enumerator) == []
    (tmp_path / "new.tmp").rename(tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text("line\n")
    assert read_all(source, enumerator) == ["line"]


def test_blank_lines_stay_lines_in_other_charsets(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes("ä\n\nb\nc\n".encode("cp1252"))
    text = StreamFormat.text_line_format("cp1252")
    source = FileSource.for_record_stream_format(text, str(tmp_path)).build()
    enumerator: Any = source.create_enumerator(1, None)  # type: ignore[arg-type]
    enumerator.start()
    assert read_all(source, enumerator) == ["ä", "", "b", "c"]
    with pytest.raises(ProgramError, match="cannot be read line by line"):
        StreamFormat.text_line_format("utf-16")


def test_finished_files_do_not_slow_down_the_last_one(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.txt").write_text("x\n" * (1 if number < 49 else 1000))
    text = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(text, str(tmp_path)).build()
    enumerator: Any = source.create_enumerator(1, None)  # type: ignore[arg-type]
    enumerator.start()
    read_all(source, enumerator)
    assert len(read_all(source, enumerator)) > 500


def test_quiet_file_that_grows_is_read_on(tmp_path: Path) -> None:
    """Also after a restart: it may be a log that somebody appends to now and then."""
    path = tmp_path / "a"
    path.write_text("1\n")
    make_old(path)
    source, enumerator = monitored(tmp_path)
    assert read_all(source, enumerator) == ["1"]
    assert enumerator.ended() == [True]
    with path.open("a") as file:
        file.write("2\n")
    assert read_all(source, enumerator) == ["2"]
    with path.open("a") as file:
        file.write("3\n")
    make_old(path)
    again = source.create_enumerator(1, None)
    again.restore(enumerator.position())
    again.start()
    assert read_all(source, again) == ["3"]


def test_event_time_goes_on_by_the_clock_when_all_files_are_quiet(tmp_path: Path) -> None:
    """So that what waits for event time is not left waiting."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    path.write_text("1000\n")
    make_old(path)
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in"))
        .monitor_continuously(Duration.of_millis(10))
        .build()
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda line, _: int(line)
    )
    strategy = strategy.with_idleness(Duration.of_millis(1000)).advance_when_idle()
    environment = direct_environment()
    stream = environment.from_source(source, strategy, "lines").key_by(lambda line: line)
    stream.process(_Later())._sink("out", SinkKind.COLLECT, None)
    graph, config = environment._pending_graph(), environment.get_config()
    plan = plan_job(graph, environment._configuration, config, None)
    clock, found = ManualClock(), []
    coordinator = Coordinator(plan, None, OutputDelivery(plan, found.extend), clock)
    blob = cloudpickle.dumps(plan)
    passes = Passes(JobHost(blob, MemoryStorage(), "0"), SinkHost(blob))
    coordinator.start()
    for _ in range(20):
        coordinator.commit_output()
        coordinator.complete(run_batch(passes, plan, coordinator.plan()))
        if found:
            break
        assert coordinator.planner.wakeup_ms is not None, "nobody would ever look again"
        clock.now_ms = max(clock.now_ms + 1000, coordinator.planner.wakeup_ms)
    coordinator.close()
    assert found == [6000]


class ManualClock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class _Later(KeyedProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(int(value) + 5000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp
