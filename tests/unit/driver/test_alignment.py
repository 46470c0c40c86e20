"""Sources that run ahead wait; event time that goes on though nothing comes (E22)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import Duration, WatermarkStrategy
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.stream_graph import OperatorKind
from millpond.engine.context import TaskClock
from millpond.engine.exchange.controls import SplitEnd, Start
from millpond.engine.time.task_valve import advance
from millpond.engine.time.watermark_operator import WatermarkOperator
from millpond.errors import ProgramError
from millpond.plan.physical import OperatorPlan, TaskInput, TaskPlan
from millpond.testing import MarkedSource, direct_environment


def strategy(group: str | None, drift_ms: int = 100) -> WatermarkStrategy:
    result = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: int(record[1])
    )
    return result.with_watermark_alignment(group, Duration.of_millis(drift_ms)) if group else result


def order_of(group: str | None) -> list[Any]:
    """A slow source with small steps in time and a fast one with large steps, read 5 records at a time."""
    environment = direct_environment({"parallelism.default": 1, "millpond.batch.max-records": 5})
    slow = [("slow", number * 10) for number in range(100)]
    fast = [("fast", number * 100) for number in range(100)]
    first, second = (
        environment.from_source(MarkedSource(records), strategy(group), "records")
        for records in (slow, fast)
    )
    return list(first.union(second).execute_and_collect())


def lead(records: list[Any]) -> int:
    """How far the fast source was ahead at most while the slow one still had something to give."""
    most, slow, fast = 0, 0, 0
    for name, time_ms in records:
        slow, fast = (time_ms, fast) if name == "slow" else (slow, time_ms)
        if slow < 990:
            most = max(most, fast - slow)
    return most


def test_source_that_is_ahead_waits() -> None:
    batch_ms = 5 * 100
    assert lead(order_of("together")) <= 100 + batch_ms
    assert lead(order_of(None)) > 3000
    assert sorted(order_of("together")) == sorted(order_of(None)), "nothing is lost by waiting"


def test_partitions_of_one_source_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"slow {number * 10}\n" for number in range(100)))
    (tmp_path / "b.txt").write_text("".join(f"fast {number * 100}\n" for number in range(100)))
    environment = direct_environment({"parallelism.default": 1, "millpond.batch.max-records": 10})
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    aligned = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda line, _: int(line.split()[1])
    )
    aligned = aligned.with_watermark_alignment("files", Duration.of_millis(100))
    stream = environment.from_source(source.build(), aligned, "lines")
    found = [line.split() for line in stream.execute_and_collect()]
    assert len(found) == 200
    assert lead([(name, int(time_ms)) for name, time_ms in found]) <= 100 + 10 * 100


def test_group_without_name_is_refused() -> None:
    with pytest.raises(ProgramError, match="needs the name of a group"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment("", Duration.of_millis(1))


def test_watermark_of_each_operator_is_a_metric() -> None:
    environment = direct_environment({"parallelism.default": 1})
    stream = environment.from_source(MarkedSource([("a", 5), ("a", 70)]), strategy(None), "records")
    stream.key_by(lambda record: record[0]).sum(1).name("sums").print()
    metrics = environment.execute().get_all_accumulator_results()
    assert metrics["sums.currentInputWatermark"] == 2**63 - 1, "the input has ended"


def test_event_time_goes_on_by_the_wall_clock_only_when_all_splits_are_idle() -> None:
    task = TaskPlan(1, 1, 1, [1], True, 1, 128, inputs=[TaskInput(0, [7])])
    idle = Start([50], {7: [(50, False), (80, False)]}, 50)
    ends = [SplitEnd(7, 0, 60, False), SplitEnd(7, 1, 95, False)]
    assert advance(task, idle, ends).clock == 95
    half_idle = Start([50], {7: [(50, True), (80, False)]}, 50)
    assert advance(task, half_idle, ends[1:]).clock == 50, "the other one still speaks"
    assert advance(task, idle, [SplitEnd(7, 0, 50, False)]).clock == 50, "nothing goes on by itself"


def test_silent_split_goes_on_after_its_timeout() -> None:
    plan = OperatorPlan(
        7,
        OperatorKind.ASSIGN_WATERMARKS,
        "times",
        "times",
        strategy(None).with_idleness(Duration.of_millis(300)).advance_when_idle(),
        None,
        {},
        1,
        128,
    )
    operator = WatermarkOperator(plan, TaskClock(), 0)
    saved: Any = (operator.strategy.create_generator(), 1000, 5000)  # last heard of at 5000
    watermarks = []
    for now_ms in (5200, 5300, 5450, 7450):
        operator.resume(saved, now_ms)
        operator.go_on_when_idle(now_ms)
        saved = operator.suspend(now_ms)
        watermarks.append(operator.watermark)
    assert watermarks == [1000, 1000, 1150, 3150]
    assert operator.idle_at_ms(7450) == 7750, "when to look again"
    with pytest.raises(ProgramError, match="Call with_idleness"):
        strategy(None).advance_when_idle()
