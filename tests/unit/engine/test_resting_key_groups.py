"""Key groups without records cost nothing, unless what they have in memory may not be what counts (E42)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from millpond.common import JobStatus, Types
from millpond.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, Sent
from millpond.executors.direct.executor import DirectExecutors
from millpond.testing import CUT, MarkedSource, direct_environment

RECORDS = ["a", "b", "c", CUT, "a", CUT]


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


def counted(records: list[Any], **settings: Any) -> DataStream:
    environment = direct_environment(settings)
    stream = environment._source(MarkedSource(records), "records", None).uid("records")
    return stream.key_by(lambda r: r).process(Count()).uid("count")


def test_only_key_groups_with_records_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run, runs = JobHost._run_shard, []

    def noted(self: JobHost, batch: Any) -> None:
        runs.append(batch.control.epoch)
        run(self, batch)

    monkeypatch.setattr(JobHost, "_run_shard", noted)
    stream = counted(["a", CUT, "a", "b", CUT, "c"], **{"millpond.order-across-keys": False})
    assert len(list(stream.execute_and_collect())) == 4
    assert runs.count(0) == 128, "they are loaded"
    assert runs.count(1) == 2


def test_savepoint_is_not_lost_if_the_first_pass_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key groups that get no record in the first batch have to be in the log as well."""
    first = counted([*RECORDS, CUT])
    environment = first.get_execution_environment()
    first._sink("out", SinkKind.COLLECT, None)
    graph, config = environment._pending_graph(), environment.get_config()
    plan = plan_job(graph, environment._configuration, config, None)
    executors = DirectExecutors(plan, lambda _: None)
    executors.start()
    executor = executors.attempt(0)
    executor._run_batch()
    path = executor.savepoints().ask(str(tmp_path), stop=True)
    executor.run()
    executors.close(JobStatus.FINISHED)

    run_stage = Passes.run_stage

    def run_twice(
        self: Passes, stage: int, partition: int, epoch: int, blobs: Iterable[bytes]
    ) -> Sent:
        run_stage(self, stage, partition, epoch, blobs)
        return run_stage(self, stage, partition, epoch, blobs)

    monkeypatch.setattr(Passes, "run_stage", run_twice)
    recovery = {"execution.state-recovery.path": path.result(timeout=1)}
    again = counted([*RECORDS, "b", CUT, "c"], **recovery)
    assert list(again.execute_and_collect()) == [("b", 2), ("c", 2)]
