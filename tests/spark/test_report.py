"""The report of a job on Spark: numbers from the slots, exact in spite of failures (E9, P6, O7)."""

from __future__ import annotations

import json
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Configuration, RestartStrategies, Types
from millpond.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millpond.datastream.state import ValueStateDescriptor
from millpond.driver.running_job import RunningJob
from millpond.testing import CUT, MarkedSource

pytestmark = pytest.mark.spark


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % 100 == 0:
            yield value


class FailUntil(MapFunction):
    """Refuses a record until a file is there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def map(self, value: Any) -> Any:
        if value == "bad" and not self._path.exists():
            raise ValueError("not yet")
        return value


def test_job_on_spark_tells_what_it_does(spark_settings: dict[str, Any], tmp_path: Path) -> None:
    batch = [f"key-{i}" if i % 5 else "hot" for i in range(2000)]
    settings = {
        "parallelism.default": 2,
        "execution.checkpointing.dir": str(tmp_path / "jobs"),
        "millpond.job-id": "0123456789abcdef" * 2,
        **spark_settings,
    }
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(settings)
    )
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(9, 100))
    source = MarkedSource([*batch, CUT, *batch, "bad", CUT, *batch])
    stream = environment._source(source, "records", None).map(FailUntil(tmp_path / "good"))
    keyed = stream.name("check").key_by(lambda r: r)
    keyed.process(Count()).name("count").uid("count").print()
    job = environment.execute_async("counts")
    assert isinstance(job, RunningJob)
    backlogs: list[int | None] = []
    while wait([job._result], timeout=0.1).not_done:
        report = job.report()
        json.dumps(report, allow_nan=False)
        backlogs.append(report["flow"]["backlog-records"])
        if report["exceptions"]:
            (tmp_path / "good").touch()
    job.get_job_execution_result().result()
    assert any(backlogs), "more than one batch was waiting"

    report = job.report()
    head, task = report["vertices"]
    assert head["name"] == "Source: records -> check"
    assert task["name"] == "count -> Sink: Print to Std. Out"
    for own in (head, task):
        assert own["metrics"]["read-records"] == 6001, "failed attempts do not count"
        assert own["metrics"]["accumulated-busy-time"] > 0
        assert 0 < own["busy-ratio"] < 1
    assert head["metrics"]["write-records"] == 6001
    assert task["metrics"]["write-records"] == 12
    assert all(own["read-records"] > 0 for own in task["subtasks"])

    assert task["hottest-keys"][0][0] == "hot"
    hot = max(task["key-groups"])
    assert hot / sum(task["key-groups"]) == pytest.approx(0.2, abs=0.02)
    assert task["key-group-skew"] == pytest.approx(0.2 * 128, abs=3)
    assert task["state-bytes"] > 0

    times = report["timestamps"]
    assert report["jid"] == "0123456789abcdef" * 2
    assert report["state"] == "FINISHED"
    assert times["INITIALIZING"] <= times["CREATED"] <= times["RUNNING"] <= times["FINISHED"]
    assert times["CREATED"] <= times["RESTARTING"] <= times["RUNNING"]
    assert report["restarts"] == report["attempt"] == len(report["exceptions"]) >= 1
    problem = report["exceptions"][0]
    assert (problem["exceptionName"], problem["taskName"]) == ("UserFunctionError", "check")
    assert "ValueError: not yet" in problem["stacktrace"]
    counts = report["checkpoints"]["counts"]
    assert counts["completed"] >= 3
    assert counts["restored"] == counts["failed"] == report["restarts"]
    assert sum(own["records"] for own in report["checkpoints"]["history"]) == 6001
    (executor,) = report["executors"]
    assert executor["id"] == "driver"
    assert executor["cores"] == executor["slots"] == 2
    assert executor["memory-bytes"] > 0
    assert report["folder"] == str(tmp_path / "jobs" / "counts")
