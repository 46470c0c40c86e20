"""Source tasks read until their time is over, and go on where they stopped (E9, E22)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.common import Time, Types, WatermarkStrategy
from millpond.core.storage import MemoryStorage
from millpond.datastream import DataStream
from millpond.datastream.connectors.file_system import FileSource
from millpond.datastream.formats.csv import CsvReaderFormat, CsvSchema
from millpond.datastream.stream_graph import SinkKind
from millpond.datastream.window import TumblingEventTimeWindows
from millpond.driver.coordinator import Coordinator
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.engine.work_meter import Surroundings
from millpond.testing import direct_environment

NOW_NS = [0]


def slowly(value: Any) -> Any:
    """Takes 20 ms."""
    NOW_NS[0] += 20_000_000
    return value


def batches_of(stream: DataStream) -> list[list[Any]]:
    """What each batch of a job gives whose batches may take 200 ms; those that give nothing are left out."""
    environment = stream.get_execution_environment()
    stream._sink("out", SinkKind.COLLECT, None)
    graph, config = environment._pending_graph(), environment.get_config()
    plan = plan_job(graph, environment._configuration, config, None)
    batches: list[list[Any]] = []
    output = OutputDelivery(plan, batches.append)
    coordinator = Coordinator(plan, None, output, lambda: 0, cuts_by_time=True)
    blob = cloudpickle.dumps(plan)
    host = JobHost(blob, MemoryStorage(), "0", surroundings=Surroundings(lambda: NOW_NS[0]))
    passes = Passes(host, SinkHost(blob))
    coordinator.start()
    while coordinator.end is None:
        coordinator.complete(run_batch(passes, plan, coordinator.plan()))
    coordinator.close()
    passes.close()
    return [batch for batch in batches if batch]


def test_batch_ends_when_its_time_is_over() -> None:
    numbers = direct_environment().from_collection(list(range(50)))
    batches = batches_of(numbers.map(slowly))
    assert [number for batch in batches for number in batch] == list(range(50))
    assert max(map(len, batches)) <= 16, (
        "10 fit; the first ones are taken before it is known how slow they are"
    )
    assert len(batches) >= 5


def test_fast_records_are_not_held_up() -> None:
    numbers = direct_environment().from_collection(list(range(5000)))
    assert max(map(len, batches_of(numbers.map(lambda n: n)))) > 1000


def test_records_of_columns_are_cut_as_well(tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("".join(f"{n}\n" for n in range(60)))
    schema = CsvSchema.builder().add_number_column("n", Types.LONG()).build()
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path / "numbers.csv")
    ).build()
    environment = direct_environment()
    rows = environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    batches = batches_of(rows.map(lambda row: slowly(row[0])))
    assert [number for batch in batches for number in batch] == list(range(60))
    assert len(batches) >= 5


@pytest.mark.parametrize("splits", [2, 5])
def test_time_is_shared_by_the_splits_of_a_lane(splits: int, tmp_path: Path) -> None:
    """Else the first one would be read, and the others would wait."""
    for split in range(splits):
        (tmp_path / f"{split}.csv").write_text("".join(f"{split}-{n}\n" for n in range(30)))
    schema = CsvSchema.builder().add_string_column("name").build()
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path)
    ).build()
    environment = direct_environment({"parallelism.default": 1})
    rows = environment.from_source(source, WatermarkStrategy.no_watermarks(), "names")
    batches = batches_of(rows.map(lambda row: slowly(row[0])))
    names = [name for batch in batches for name in batch]
    assert len(names) == len(set(names)) == 30 * splits
    for split in range(splits):
        own = [name for name in names if name.startswith(f"{split}-")]
        assert own == [f"{split}-{n}" for n in range(30)], "in order"


def test_end_of_input_comes_after_what_was_left() -> None:
    """Event time must not end before all records have been read."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    numbers = direct_environment().from_collection(list(range(40)))
    stream = numbers.map(slowly).assign_timestamps_and_watermarks(strategy)
    windows = stream.key_by(lambda n: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    batches = batches_of(windows.reduce(lambda a, b: a + b))
    assert [total for batch in batches for total in batch] == [45, 145, 245, 345]
    assert len(batches) > 1, "the first windows do not wait for the last"
