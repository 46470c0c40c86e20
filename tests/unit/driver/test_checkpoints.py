"""Checkpoints: recorded, and told to functions that ask (E40, E44)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from millpond.common import RestartStrategies, Types
from millpond.datastream import (
    CheckpointingMode,
    CheckpointListener,
    ExternalizedCheckpointRetention,
    KeyedProcessFunction,
    RuntimeContext,
)
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.stream_graph import SinkKind
from millpond.engine.passes import Passes, Sent
from millpond.errors import UserFunctionError
from millpond.testing import CUT, FAIL, MarkedSource, direct_environment


class Count(KeyedProcessFunction, CheckpointListener):
    """Tells which checkpoints it has heard of."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.heard: list[Any] = []

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield (value, list(self.heard))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.heard.append(checkpoint_id)


def counted(records: list[Any], function: Any, marks: Path | None = None) -> Any:
    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    stream = environment._source(MarkedSource(records, marks), "records", None)
    return environment, stream.key_by(lambda r: r).process(function)


def test_functions_hear_of_complete_checkpoints_in_order() -> None:
    _, results = counted(["a", CUT, "b", CUT, CUT, "a"], Count())
    assert list(results.execute_and_collect()) == [("a", []), ("b", [0]), ("a", [0, 1, 2])]


def test_failed_listener_is_named() -> None:
    class Failing(Count):
        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            raise ValueError("not ready")

    _, results = counted(["a", CUT, "b"], Failing())
    with pytest.raises(UserFunctionError, match="notify_checkpoint_complete"):
        list(results.execute_and_collect())


def test_checkpoints_are_recorded() -> None:
    environment, results = counted(["a", "b", CUT, CUT, "a"], Count())
    results.print()
    client = environment.execute_async("job")
    client.get_job_execution_result().result()
    records = client.get_checkpoints()
    assert [record["id"] for record in records] == [0, 1, 2]
    assert records[0]["bytes_written"] == records[0]["bytes_full"] > 0
    assert records[1]["bytes_written"] == 0
    assert records[1]["bytes_full"] == records[0]["bytes_full"]
    assert 0 < records[2]["bytes_written"] < records[2]["bytes_full"]
    assert not any(record["is_savepoint"] for record in records)


def test_failed_batch_counts_once(tmp_path: Path) -> None:
    environment, results = counted(["a", CUT, "b", FAIL, "c"], Count(), tmp_path)
    results.print()
    client = environment.execute_async("job")
    client.get_job_execution_result().result()
    assert [record["id"] for record in client.get_checkpoints()] == [0, 1]


def test_settings_of_checkpoints_are_kept() -> None:
    config = direct_environment().get_checkpoint_config()
    retention = ExternalizedCheckpointRetention
    assert config.get_externalized_checkpoint_retention() is retention.RETAIN_ON_CANCELLATION
    config.set_externalized_checkpoint_retention(retention.DELETE_ON_CANCELLATION)
    assert config.get_externalized_checkpoint_retention() is retention.DELETE_ON_CANCELLATION
    assert not config.is_externalized_checkpoints_enabled()
    assert config.get_min_pause_between_checkpoints() == 0
    assert config.set_min_pause_between_checkpoints(50).get_min_pause_between_checkpoints() == 50


def test_batches_keep_their_distance() -> None:
    environment, results = counted(["a", CUT, "b", CUT, "c"], Count())
    environment.get_checkpoint_config().set_min_pause_between_checkpoints(30)
    results.print()
    client = environment.execute_async("job")
    client.get_job_execution_result().result()
    first, second, third = client.get_checkpoints()
    for before, after in ((first, second), (second, third)):
        assert after["started_ms"] - (before["started_ms"] + before["duration_ms"]) >= 30


def test_functions_hear_of_batches_that_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Aborted(Count):
        def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
            self.heard.append(("aborted", checkpoint_id))

    run_stage = Passes.run_stage

    def run_twice(
        self: Passes, stage: int, partition: int, epoch: int, blobs: Iterable[bytes]
    ) -> Sent:
        run_stage(self, stage, partition, epoch, blobs)
        return run_stage(self, stage, partition, epoch, blobs)

    monkeypatch.setattr(Passes, "run_stage", run_twice)
    _, results = counted(["a", CUT, "b"], Aborted())
    first, _ = results.execute_and_collect()
    assert ("aborted", 0) in first[1]


def test_every_mode_gives_exactly_once() -> None:
    environment = direct_environment()
    config = environment.enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE)
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert config.get_checkpoint_config().get_max_concurrent_checkpoints() == 1
    assert sum(environment.from_collection([1, 2, 3]).execute_and_collect()) == 6


def test_interval_of_checkpoints_does_not_make_output_late() -> None:
    """E40: every batch is one; there are more than were asked for."""
    environment = direct_environment({"millpond.batch.max-records": 1})
    environment.enable_checkpointing(60_000)
    results = environment.from_collection([1, 2, 3]).map(lambda n: n)
    results._sink("results", SinkKind.COLLECT, None)
    client = environment.execute_async("job")
    client.get_job_execution_result().result()
    assert len(client.get_checkpoints()) >= 3
