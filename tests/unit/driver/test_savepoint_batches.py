"""Where batches are cut by time, a savepoint takes a batch of its own, which reads nothing (E45)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.common import WatermarkStrategy
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.coordinator import Coordinator
from millpond.driver.output import OutputDelivery
from millpond.driver.planner import BatchPlanner
from millpond.driver.planning import plan_job
from millpond.testing import direct_environment


@pytest.fixture
def coordinator(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Coordinator]:
    """The parameter, if there is one, has further settings."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines").write_text("".join(f"{n}\n" for n in range(1000)))
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "in")
    ).build()
    further = getattr(request, "param", {})
    environment = direct_environment({"millpond.input.stop-at-end": True, **further})
    lines = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    lines._sink("out", SinkKind.COLLECT, None)
    graph, config = environment._pending_graph(), environment.get_config()
    plan = plan_job(graph, environment._configuration, config, None)
    output = OutputDelivery(plan, lambda _: None)
    coordinator = Coordinator(plan, None, output, lambda: 0, cuts_by_time=True)
    coordinator.start()
    yield coordinator
    coordinator.close()


def reads_of(lanes: list[Any]) -> list[Any]:
    return [read for lane in lanes for split in lane.splits for read in split.reads]


def test_savepoint_does_not_end_a_job_that_stops_at_the_end_of_its_input(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    assert reads_of(coordinator.plan())
    coordinator.complete([])
    coordinator.savepoints.ask(str(tmp_path / "savepoints"))
    lanes = coordinator.plan()
    assert lanes[0].savepoint is not None
    assert not reads_of(lanes)
    coordinator.complete([])
    assert coordinator.end is None
    assert reads_of(coordinator.plan()), "it goes on"


@pytest.mark.parametrize(
    "coordinator",
    [{"millpond.batch.interval-ms": 600_000}, {"execution.checkpointing.min-pause": "10 min"}],
    indirect=True,
)
def test_savepoint_does_not_wait_for_the_pause_between_batches(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Flink, whose pauses are for checkpoints only."""

    class Waits(Exception):
        """A batch is not due yet."""

    def rest(*_: Any) -> None:
        raise Waits

    monkeypatch.setattr(BatchPlanner, "_rest", rest)
    coordinator.planner.time_ms = coordinator.planner.completed_ms = -600_000
    assert reads_of(coordinator.plan())
    coordinator.complete([])
    with pytest.raises(Waits):
        coordinator.plan()
    coordinator.savepoints.ask(str(tmp_path / "savepoints"))
    assert coordinator.plan()[0].savepoint is not None


@pytest.mark.parametrize("coordinator", [{"millpond.batch.interval-ms": 600_000}], indirect=True)
def test_records_do_not_end_the_pause_between_batches_but_savepoints_do(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, rests = BatchPlanner._rest, threading.Semaphore(0)

    def count_rests(self: BatchPlanner, pause_ms: int) -> None:
        rests.release()
        rest(self, pause_ms)

    monkeypatch.setattr(BatchPlanner, "_rest", count_rests)
    coordinator.planner.time_ms = -600_000
    coordinator.plan()
    coordinator.complete([])
    planned: list[Any] = []
    planning = threading.Thread(target=lambda: planned.extend(coordinator.plan()))
    planning.start()
    for _ in range(3):  # it also looks for requests in files now and then
        rests.acquire()
        coordinator.planner._wake.set()
        assert not planned
    coordinator.savepoints.ask(str(tmp_path / "savepoints"))
    planning.join()
    assert planned[0].savepoint is not None


@pytest.mark.parametrize("drain", [False, True])
def test_savepoint_that_is_asked_for_meanwhile_waits_for_the_next_batch(
    drain: bool, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = BatchPlanner._poll

    def ask_first(self: BatchPlanner, epoch: int, now_ms: int) -> Any:
        if epoch == 0:
            coordinator.savepoints.ask(str(tmp_path / "savepoints"), stop=True, drain=drain)
        return poll(self, epoch, now_ms)

    monkeypatch.setattr(BatchPlanner, "_poll", ask_first)
    first = coordinator.plan()
    assert reads_of(first)
    assert first[0].savepoint is None
    assert not first[0].last_batch
    coordinator.complete([])
    second = coordinator.plan()
    assert not reads_of(second)
    assert second[0].savepoint is not None
    assert second[0].last_batch == drain
