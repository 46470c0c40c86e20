"""Part files: sizes, times, and exactly once wherever a job dies (E9, E43)."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.common import Duration, Encoder, Types
from millpond.core.storage import MemoryStorage
from millpond.datastream.connectors import Epoch
from millpond.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from millpond.datastream.connectors.file_system.parts import PartFiles, Piece, full_parts
from millpond.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millpond.driver.coordinator import Coordinator
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.errors import (
    CorruptDataError,
    JobCancelledError,
    ProgramError,
    UserFunctionError,
)
from millpond.plan.physical import JobPlan
from millpond.testing import CUT, ManualClock, MarkedSource, direct_environment
from tests.conftest import delivered_lines
from tests.servers import wait_until
from tests.unit.driver.test_recovery import Crash, StandInForSpark

POINTS = ["planned", "ran", "completed", "committed"]


def visible(folder: Path) -> dict[str, str]:
    """By the part of the name that is not the job's."""
    found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return {path.name.split("-", 2)[2]: path.read_text() for path in found}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def sink(folder: Path, policy: RollingPolicy | None = None) -> FileSink:
    builder = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    return (builder if policy is None else builder.with_rolling_policy(policy)).build()


class Driven:
    """A sink with one subtask, epoch by epoch, and a clock."""

    def __init__(self, folder: Path, part_size: int = 10) -> None:
        self.folder = folder
        self.sink = sink(folder, RollingPolicy.default_rolling_policy(part_size, 1000, 400))
        self.number = -1

    def epoch(self, *lines: str, now_ms: int = 0, subtask: int = 0) -> int | None:
        self.number += 1
        epoch = Epoch(self.number, "job", "sink")
        writer = self.sink.create_writer(subtask, epoch)
        assert writer.write_many(list(lines))
        message = writer.prepare()
        self.sink.commit(epoch, [message])
        self.sink.commit(epoch, [message])
        return self.sink.tick(epoch, now_ms)

    def tick(self, now_ms: int) -> int | None:
        return self.sink.tick(Epoch(self.number, "job", "sink"), now_ms)

    def restart(self) -> None:
        policy = self.sink._policy
        self.sink = sink(self.folder, policy)
        self.sink.recover(Epoch(self.number, "job", "sink"))


def test_small_epochs_are_joined_to_parts_of_the_size(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    for number in range(7):
        driven.epoch(f"line{number % 10}"[-3:])  # 4 bytes
    assert visible(tmp_path) == {"0-0": "ne0\nne1\n", "2-0": "ne2\nne3\n", "4-0": "ne4\nne5\n"}
    driven.sink.finish(Epoch(6, "job", "sink"))
    assert visible(tmp_path)["6-0"] == "ne6\n"
    assert hidden(tmp_path) == []


def test_subtasks_have_parts_of_their_own(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    for number in range(4):
        driven.epoch("aaaa", subtask=number % 2)
    driven.sink.finish(Epoch(3, "job", "sink"))
    assert visible(tmp_path) == {"0-0": "aaaa\naaaa\n", "1-1": "aaaa\naaaa\n"}


def test_part_is_closed_when_it_is_old_or_rests(tmp_path: Path) -> None:
    driven = Driven(tmp_path, part_size=1000)
    assert driven.epoch("a", now_ms=5000) == 400
    assert driven.epoch("b", now_ms=5300) == 400
    assert driven.epoch("c", now_ms=5600) == 400, "in 400 it rests, in 400 it is a second old"
    assert driven.tick(5990) == 10
    assert visible(tmp_path) == {}
    assert driven.tick(6000) is None
    assert visible(tmp_path) == {"0-0": "a\nb\nc\n"}
    driven.epoch("d", now_ms=6100)
    assert driven.tick(6500) is None
    assert visible(tmp_path)["3-0"] == "d\n"


def test_large_epoch_is_cut_into_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.datastream.connectors.file_system import sink as file_sink

    monkeypatch.setattr(file_sink, "_AT_ONCE", 3)
    driven = Driven(tmp_path, part_size=10)
    driven.epoch(*"abcdefghijklm")
    assert visible(tmp_path) == {"0-0": "a\nb\nc\nd\ne\nf\n", "0-0-1": "g\nh\ni\nj\nk\nl\n"}
    driven.sink.finish(Epoch(0, "job", "sink"))
    assert visible(tmp_path)["0-0-2"] == "m\n"


def test_with_every_epoch_on_request(tmp_path: Path) -> None:
    policy = RollingPolicy.on_checkpoint_rolling_policy()
    names = OutputFileConfig.builder().with_part_prefix("p").with_part_suffix(".txt").build()
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    own = builder.with_rolling_policy(policy).with_output_file_config(names).build()
    for number in range(2):
        epoch = Epoch(number, "job", "sink")
        writer = own.create_writer(0, epoch)
        writer.write_many(["x"])
        own.commit(epoch, [writer.prepare()])
    assert sorted(visible(tmp_path)) == ["0-0.txt", "1-0.txt"]


def test_restart_goes_on_with_the_pieces_that_wait(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    driven.epoch("aaa")
    driven.sink.create_writer(0, Epoch(1, "job", "sink")).prepare()  # an attempt that dies
    driven.restart()
    assert len(hidden(tmp_path)) == 2, "the list and the piece"
    driven.epoch("bbb")
    driven.epoch("ccc")
    assert visible(tmp_path) == {"0-0": "aaa\nbbb\n"}


@pytest.mark.parametrize("step", ["join", "list", "rename", "remove"])
def test_crash_while_parts_are_made_changes_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a reader takes files away as soon as they are there."""
    driven = Driven(tmp_path)
    driven.epoch("aaa")
    driven.epoch("bbb")
    name = {"join": "_save", "list": "_carry_out", "rename": "_carry_out", "remove": ""}[step]
    if step == "remove":
        monkeypatch.setattr("pathlib.Path.unlink", _die)
    elif step == "rename":
        monkeypatch.setattr("os.replace", _second_fails())
    else:
        monkeypatch.setattr(PartFiles, name, _die)
    epoch = Epoch(2, "job", "sink")
    writer = driven.sink.create_writer(0, epoch)
    writer.write_many(["ccc"])
    message = writer.prepare()
    with pytest.raises(Crash):
        driven.sink.commit(epoch, [message])
    monkeypatch.undo()
    taken = {path.name: path.read_text() for path in tmp_path.glob("part-*")}
    for name in taken:
        (tmp_path / name).unlink()
    driven.sink = sink(tmp_path, driven.sink._policy)
    driven.sink.commit(epoch, [message])  # first of all, as a driver that starts does
    driven.sink.recover(epoch)
    driven.sink.finish(epoch)
    left = visible(tmp_path)
    assert "".join([*taken.values(), *left.values()]) == "aaa\nbbb\nccc\n"
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("part_size", [1, 1000])
def test_full_disk_while_parts_are_made_loses_nothing(
    tmp_path: Path, part_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same process tries again."""
    driven = Driven(tmp_path, part_size)
    epoch = Epoch(0, "job", "sink")
    writer = driven.sink.create_writer(0, epoch)
    writer.write_many(["aaa"])
    message = writer.prepare()
    for function in ("os.fsync", "os.replace"):
        monkeypatch.setattr(function, _no_space)
        with pytest.raises(OSError, match="No space left"):
            driven.sink.commit(epoch, [message])
        driven.sink.close()
        monkeypatch.undo()
    driven.sink.commit(epoch, [message])
    driven.sink.finish(epoch)
    assert visible(tmp_path) == {"0-0": "aaa\n"}
    driven.sink.recover(epoch)
    assert hidden(tmp_path) == []


def _no_space(*_: Any) -> None:
    raise OSError("No space left on device")


def _die(*_: Any, **__: Any) -> None:
    raise Crash


def _second_fails() -> Any:
    import os

    done: list[str] = []
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        done.append(str(source))
        if len(done) > 1:
            raise Crash
        real(source, target)

    return replace


def test_parts_are_full_but_not_too_large() -> None:
    pieces = [Piece(str(n), n, 0, 0, size) for n, size in enumerate([3, 3, 3, 12, 1, 10, 4, 4])]
    parts = full_parts(pieces, 10)
    assert [[own.size for own in part] for part in parts] == [[3, 3, 3], [12], [1], [10]]


def test_damaged_list_is_told(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    driven.epoch("aaa")
    (path,) = tmp_path.glob(".*.parts")
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(CorruptDataError, match=r"\.parts is damaged"):
        driven.restart()


def test_policy_without_sense_is_refused() -> None:
    with pytest.raises(ProgramError, match="above 0"):
        RollingPolicy.default_rolling_policy(part_size=0)


# --- in a job ----------------------------------------------------------------------------------------


def job(folder: Path, part_size: int) -> JobPlan:
    environment = direct_environment()
    records = [item for n in range(6) for item in (f"{n}-a", f"{n}-b", CUT)]
    stream = environment._source(MarkedSource(records), "records", None)
    stream.sink_to(sink(folder, RollingPolicy.default_rolling_policy(part_size))).uid("out")
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, None)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("epoch", [0, 2, 4])
@pytest.mark.parametrize("part_size", [1, 20, 10_000])
def test_every_line_comes_once_wherever_the_job_dies(
    tmp_path: Path, epoch: int, point: str, part_size: int
) -> None:
    spark, out = StandInForSpark(), tmp_path / "out"
    with pytest.raises(Crash):
        spark.run(job(out, part_size), tmp_path / "jobs", (epoch, point))
    spark.run(job(out, part_size), tmp_path / "jobs", None)
    assert delivered_lines(out) == sorted(f"{n}-{ab}" for n in range(6) for ab in "ab")
    assert hidden(out) == []
    # The stand-in closes the sink when it "dies", so that parts are cut there.
    assert len(list(out.iterdir())) <= {1: 6, 20: 4, 10_000: 2}[part_size]


def test_bad_record_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    kind = Types.ROW_NAMED(["n"], [Types.INT()])
    schema = JsonRowSerializationSchema.builder().with_type_info(kind).build()
    environment = direct_environment()
    builder = FileSink.for_row_format(str(tmp_path), Encoder.for_lines(schema))
    environment.from_collection([(1,), (2, 3), (4,)]).sink_to(builder.build())
    with pytest.raises(UserFunctionError, match=r"\(2, 3\)"):
        environment.execute()
    assert list(tmp_path.iterdir()) == []


def test_json_lines_go_to_files_and_come_back(tmp_path: Path) -> None:
    kind = Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])
    writes = JsonRowSerializationSchema.builder().with_type_info(kind).build()
    reads = JsonRowDeserializationSchema.builder().type_info(kind).build()
    environment = direct_environment()
    builder = FileSink.for_row_format(str(tmp_path), Encoder.for_lines(writes))
    environment.from_collection([(1, "ä"), (2, "b\n")]).sink_to(builder.build())
    environment.execute()
    source = FileSource.for_record_stream_format(StreamFormat.for_lines(reads), str(tmp_path))
    environment = direct_environment()
    stream = environment._source(source.build(), "files", None)
    assert sorted(map(tuple, stream.execute_and_collect())) == [(1, "ä"), (2, "b\n")]
    next(tmp_path.glob("part*")).write_text('{"n": 1}\nbroken\n')
    with pytest.raises(UserFunctionError, match="the line b'broken' cannot be read"):
        list(direct_environment()._source(source.build(), "files", None).execute_and_collect())


def test_part_is_closed_while_the_job_waits_for_input(tmp_path: Path) -> None:
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in"))
        .monitor_continuously(Duration.of_millis(10))
        .build()
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("line\n")
    out = tmp_path / "out"
    environment = direct_environment()
    stream = environment._source(source, "files", None)
    stream.sink_to(sink(out, RollingPolicy.default_rolling_policy(1000, 60_000, 60_000)))
    graph, config = environment._pending_graph(), environment.get_config()
    plan = plan_job(graph, environment._configuration, config, None)
    clock = ManualClock(1_000_000)
    coordinator = Coordinator(plan, None, OutputDelivery(plan), clock)
    blob = cloudpickle.dumps(plan)
    passes = Passes(JobHost(blob, MemoryStorage(), "0"), SinkHost(blob))
    coordinator.start()
    coordinator.complete(run_batch(passes, plan, coordinator.plan()))
    waiting = threading.Thread(target=_until_cancelled, args=(coordinator,))
    waiting.start()
    wait_until(lambda: coordinator.planner.output_due_ms is not None, "nothing is committed")
    assert visible(out) == {}
    clock.advance(60_000)
    wait_until(lambda: visible(out) == {"0-0": "line\n"}, "the part is not closed")
    coordinator.cancel()
    waiting.join(30)
    coordinator.close()
    assert hidden(out) == []


def _until_cancelled(coordinator: Coordinator) -> None:
    with contextlib.suppress(JobCancelledError):
        while True:
            coordinator.plan()
            coordinator.complete([])


def test_savepoint_holds_nothing_back(tmp_path: Path) -> None:
    """Another job may go on from it, which does not know of pieces that wait."""
    plan = job(tmp_path / "out", 10_000)
    coordinator = Coordinator(plan, None, OutputDelivery(plan), ManualClock(0))
    blob = cloudpickle.dumps(plan)
    passes = Passes(JobHost(blob, MemoryStorage(), "0"), SinkHost(blob))
    coordinator.start()
    for _ in range(2):
        coordinator.complete(run_batch(passes, plan, coordinator.plan()))
    coordinator.commit_output()
    assert visible(tmp_path / "out") == {}
    coordinator._has_savepoint = True  # as `complete` does after a batch with one
    coordinator.commit_output()
    assert visible(tmp_path / "out") == {"0-0": "0-a\n0-b\n1-a\n1-b\n"}
    coordinator.close()
