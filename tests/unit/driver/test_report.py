"""What a job tells about itself (O2, O7, E9, P6, E36), and how it gets to its end."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.common import JobStatus, RestartStrategies, Types
from millpond.common.job import check_transition
from millpond.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millpond.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millpond.driver import running_job
from millpond.driver.coordinator import Coordinator
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.reporting.report import flat_metrics, shown_settings
from millpond.driver.running_job import RunningJob
from millpond.errors import ProgramError
from millpond.testing import CUT, FAIL, MarkedSource, direct_environment
from tests.unit.driver.test_recovery import Crash, StandInForSpark
from tests.unit.driver.test_recovery import job as recovery_job

DOCUMENT = Path(__file__).parents[3] / "docs" / "job-report.md"


@pytest.fixture
def submitted() -> Iterator[list[RunningJob]]:
    """Jobs that were submitted, as a job manager learns of them."""
    found: list[RunningJob] = []
    running_job.listeners.append(found.append)
    yield found
    running_job.listeners.remove(found.append)


def finished(environment: StreamExecutionEnvironment) -> dict[str, Any]:
    """The report of a job that has run to its end, whatever that was."""
    job = environment.execute_async("job")
    assert isinstance(job, RunningJob)
    job.get_job_execution_result().exception()
    report: dict[str, Any] = json.loads(json.dumps(job.report(), allow_nan=False))
    return report


def vertex(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [own for own in report["vertices"] if name in own["name"]]
    return found


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.inc()
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % 2 == 0:
            yield value


def keyed(records: list[Any], **settings: Any) -> tuple[StreamExecutionEnvironment, DataStream]:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    environment = direct_environment({"parallelism.default": 2, **named})
    stream = environment.from_collection(records).filter(lambda r: r != "none")
    return environment, stream.key_by(lambda r: r).process(Count()).uid("count")


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_records_are_counted_exactly(batch: int, capsys: pytest.CaptureFixture[str]) -> None:
    records = ["a"] * 40 + ["none"] * 10 + ["b"] * 20 + ["c"]
    environment, counted = keyed(records, millpond__batch__max_records=batch)
    counted.map(lambda r: r).print()
    report = finished(environment)
    source, task = report["vertices"]
    assert source["name"] == "Source: Collection Source -> Filter"
    assert task["name"] == "KEYED PROCESS -> Map -> Sink: Print to Std. Out"
    assert source["metrics"]["read-records"] == 71
    assert source["metrics"]["write-records"] == task["metrics"]["read-records"] == 61
    assert source["metrics"]["write-bytes"] == task["metrics"]["read-bytes"] > 0
    assert task["metrics"]["write-records"] == 30
    for own in (source, task):
        for name in ("read-records", "write-records", "read-bytes", "write-bytes"):
            assert sum(part[name] for part in own["subtasks"]) == own["metrics"][name]
        assert own["metrics"]["accumulated-busy-time"] >= 0
        ratios = [own[f"{name}-ratio"] for name in ("busy", "idle", "backpressure")]
        assert sum(ratios) == pytest.approx(1, abs=0.001)
    assert report["metrics"]["KEYED PROCESS.seen"] == 61
    assert sum(own["records"] for own in report["checkpoints"]["history"]) == 71
    assert report["checkpoints"]["counts"]["completed"] == -(-71 // batch)


def test_hot_key_is_named_and_skew_is_seen() -> None:
    """P6."""
    environment, counted = keyed([f"key-{i}" if i % 4 else "hot" for i in range(2000)])
    counted.print()
    report = finished(environment)
    task = vertex(report, "KEYED")
    assert task["keyed"] and len(task["key-groups"]) == 128
    assert task["hottest-keys"][0][0] == "hot"
    assert 400 < task["hottest-keys"][0][1] < 600
    assert task["key-group-skew"] > 20
    source = vertex(report, "Source")
    assert (source["key-groups"], source["key-group-skew"]) == ([], None)
    assert source["hottest-keys"] == []


def test_sink_of_several_streams_is_a_vertex_of_its_own() -> None:
    environment = direct_environment({"parallelism.default": 2})
    numbers = environment.from_collection([1, 2, 3])
    doubled = numbers.key_by(lambda n: n).process(Count()).uid("count")
    numbers.union(doubled).print().name("all")
    report = finished(environment)
    source, task, sink = report["vertices"]
    assert [sink["name"], sink["level"], sink["keyed"]] == ["Sink: all", 2, False]
    assert {way["id"] for way in sink["inputs"]} == {source["id"], task["id"]}
    assert sink["metrics"]["read-records"] == 3
    assert task["inputs"] == [{"id": source["id"], "ship-strategy": "HASH"}]
    assert source["metrics"]["write-records"] == 6, "to the task, and to the sink"


def test_broadcast_records_do_not_count_as_keys() -> None:
    from millpond.datastream import KeyedBroadcastProcessFunction

    rules = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    class Apply(KeyedBroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            return []

    environment = direct_environment({"parallelism.default": 2})
    stream = environment.from_collection(["a", "b", "a"]).key_by(lambda r: r)
    told = environment.from_collection([("x", 1)]).broadcast(rules)
    stream.connect(told).process(Apply()).print()
    task = finished(environment)["vertices"][-1]
    assert sum(task["key-groups"]) == pytest.approx(3, abs=0.2)
    assert [key for key, _ in task["hottest-keys"]] == ["a", "b"]
    assert task["metrics"]["read-records"] == 3 + 2, "each subtask gets the rule (C58)"


def test_state_is_measured() -> None:
    """E36."""
    environment, counted = keyed(["a", "b"], millpond__batch__max_records=1)
    counted.print()
    report = finished(environment)
    assert vertex(report, "KEYED")["state-bytes"] == report["metrics"]["lastCheckpointFullSize"] > 0
    assert vertex(report, "KEYED")["state-growth-per-second"] > 0
    assert vertex(report, "Source")["state-bytes"] == 0


# --- while it runs -------------------------------------------------------------------------------

_reports: list[dict[str, Any]] = []
_running: list[RunningJob] = []


def look(value: Any) -> Any:
    """Runs in the middle of a batch; the direct executor works in the driver's process."""
    _reports.append(_running[-1].report())
    return value


def test_backlog_and_credits_are_seen_while_a_batch_runs(submitted: list[RunningJob]) -> None:
    """E9."""
    _reports.clear()
    environment = direct_environment({"millpond.batch.max-records": 2})
    running_job.listeners.append(_running.append)
    try:
        environment.from_collection([1, 2, 3, 4, 5]).map(look).print()
        report = finished(environment)
    finally:
        running_job.listeners.remove(_running.append)
    flows = [own["flow"] for own in _reports]
    assert [flow["backlog-records"] for flow in flows] == [3, 3, 1, 1, 0]
    assert [flow["credits"] for flow in flows] == [2] * 5
    assert [flow["backpressured"] for flow in flows] == [True, True, False, False, False]
    assert [own["checkpoints"]["counts"]["in_progress"] for own in _reports] == [1] * 5
    assert [own["checkpoints"]["counts"]["completed"] for own in _reports] == [0, 0, 1, 1, 2]
    assert _reports[0]["vertices"][0]["busy-ratio"] is None
    assert _reports[0]["state"] == "RUNNING"
    assert report["flow"]["latency-ms"]["p50"] <= report["flow"]["latency-ms"]["p99"]
    assert report["checkpoints"]["counts"]["in_progress"] == 0
    assert [job.get_job_id() for job in submitted] == [_running[-1].get_job_id()]


def test_reports_can_be_had_from_any_thread() -> None:
    environment, counted = keyed(
        [f"k{i % 50}" for i in range(600)], millpond__batch__max_records=60
    )
    counted.print()
    job = environment.execute_async("job")
    assert isinstance(job, RunningJob)
    done, totals, problems = threading.Event(), [], []

    def ask() -> None:
        try:
            while not done.is_set():
                report = job.report()
                json.dumps(report)
                totals.append(report["vertices"][0]["metrics"]["read-records"])
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    job.get_job_execution_result().result()
    done.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert all(total % 60 == 0 for total in totals), "a batch counts at once, or not at all"
    assert job.report()["vertices"][0]["metrics"]["read-records"] == 600


# --- life ----------------------------------------------------------------------------------------


def test_states_have_their_times() -> None:
    environment, counted = keyed(["a"])
    counted.print()
    report = finished(environment)
    times = report["timestamps"]
    assert report["state"] == "FINISHED"
    assert list(times) == [status.name for status in JobStatus]
    assert 0 < times["INITIALIZING"] <= times["CREATED"] <= times["RUNNING"] <= times["FINISHED"]
    assert times["FAILED"] == times["FAILING"] == times["RESTARTING"] == 0
    assert (report["start-time"], report["end-time"]) == (times["INITIALIZING"], times["FINISHED"])
    assert report["heartbeat"] >= report["end-time"]
    assert report["vertices"][0]["status"] == "FINISHED"


def fail_on_three(value: int) -> int:
    if value == 3:
        raise ValueError("three")
    return value


def test_failed_job_was_failing_first() -> None:
    environment = direct_environment({"millpond.batch.max-records": 1})
    environment.from_collection([1, 2, 3]).map(fail_on_three).name("check").print()
    report = finished(environment)
    times = report["timestamps"]
    assert report["state"] == "FAILED"
    assert times["RUNNING"] <= times["FAILING"] <= times["FAILED"]
    assert times["RESTARTING"] == 0 and report["restarts"] == 0
    (problem,) = report["exceptions"]
    assert problem["exceptionName"] == "UserFunctionError"
    assert problem["taskName"] == "check"
    assert "ValueError: three" in problem["stacktrace"]
    assert problem["timestamp"] <= times["FAILING"]
    assert report["checkpoints"]["counts"] == {
        "restored": 0,
        "total": 3,
        "in_progress": 0,
        "completed": 2,
        "failed": 1,
    }


def test_job_that_was_restarted_remembers_why(tmp_path: Path) -> None:
    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    records = ["a", CUT, "b", FAIL, "c", CUT, FAIL, "d"]
    stream = environment._source(MarkedSource(records, tmp_path), "letters", None)
    stream.key_by(lambda r: r).process(Count()).print()
    report = finished(environment)
    assert (report["state"], report["restarts"], report["attempt"]) == ("FINISHED", 2, 2)
    assert report["timestamps"]["RESTARTING"] > 0 and report["timestamps"]["FAILING"] == 0
    assert [own["taskName"] for own in report["exceptions"]] == ["letters", "letters"]
    assert "FAIL mark at position 3" in report["exceptions"][0]["stacktrace"]
    assert vertex(report, "Source")["metrics"]["read-records"] == 4, "what failed does not count"
    assert vertex(report, "KEYED")["metrics"]["read-records"] == 4
    assert [own["records"] for own in report["checkpoints"]["history"]] == [1, 2, 1]
    assert report["checkpoints"]["counts"]["failed"] == 2
    assert "3 restart attempts" in report["restart-strategy"]
    assert report["metrics"]["numRestarts"] == 2


def test_only_the_newest_failures_are_kept(tmp_path: Path) -> None:
    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(99, 0))
    stream = environment._source(MarkedSource([FAIL] * 25 + [1], tmp_path), "numbers", None)
    stream.print()
    report = finished(environment)
    assert report["restarts"] == 25 and len(report["exceptions"]) == 20
    assert "position 24" in report["exceptions"][-1]["stacktrace"]


def test_allowed_ways_of_a_job() -> None:
    for old, new in [
        (JobStatus.INITIALIZING, JobStatus.CREATED),
        (JobStatus.RUNNING, JobStatus.FAILING),
        (JobStatus.FAILING, JobStatus.FAILED),
    ]:
        check_transition(old, new)
    for old, new in [
        (JobStatus.RUNNING, JobStatus.FAILED),
        (JobStatus.FAILING, JobStatus.RUNNING),
        (JobStatus.FINISHED, JobStatus.RUNNING),
    ]:
        with pytest.raises(RuntimeError):
            check_transition(old, new)


def test_totals_survive_the_driver(tmp_path: Path) -> None:
    """A replayed batch counts once."""
    spark, plan = StandInForSpark(), recovery_job("collection", tmp_path / "output")
    with pytest.raises(Crash):
        spark.run(plan, tmp_path / "jobs", (1, "ran"))
    folder = JobFolder.open(str(tmp_path / "jobs"), "job")
    coordinator = Coordinator(plan, folder, OutputDelivery(plan))
    coordinator.start()
    (source_task,) = plan.source_tasks

    def read() -> int:
        own = coordinator.record.statistics.view().vertices[source_task.id]
        return sum(part.counts.records_in for part in own.subtasks)

    history = coordinator.record.checkpoints
    assert (read(), history.completed, history.restored) == (3, 1, 1)
    coordinator.close()
    folder.close(delete=True)


def test_savepoints_are_listed(tmp_path: Path) -> None:
    environment, counted = keyed(["a", "b", "c"] * 200, millpond__batch__max_records=1)
    counted.print()
    running_job.listeners.append(ask := lambda job: asked.append(Asked(job, tmp_path)))
    asked: list[Asked] = []
    try:
        report = finished(environment)
    finally:
        running_job.listeners.remove(ask)
    path = asked[0].path()
    (savepoint,) = report["savepoints"]
    assert savepoint["path"] == path
    assert savepoint["time"] >= report["start-time"]
    assert savepoint["duration-ms"] >= 0


class Asked:
    """Asks for a savepoint as soon as the job can take one."""

    def __init__(self, job: RunningJob, folder: Path) -> None:
        self._path: list[str] = []
        self._thread = threading.Thread(
            target=lambda: self._path.append(job.stop_with_savepoint(False, str(folder)).result())
        )
        self._thread.start()

    def path(self) -> str:
        self._thread.join()
        return self._path[0]


# --- format --------------------------------------------------------------------------------------

_COUNTS = "read-records write-records read-bytes write-bytes"
_RATIOS = "busy-ratio idle-ratio backpressure-ratio"
FIELDS = {
    "": "format jid name state job-type start-time end-time timestamps restarts attempt pid host "
    "heartbeat folder parallelism max-parallelism restart-strategy settings vertices checkpoints "
    "savepoints exceptions metrics flow executors queryable",
    "vertices": "id name parallelism maxParallelism status start-time end-time level keyed operators "
    f"inputs metrics records-in-per-second records-out-per-second {_RATIOS} watermark subtasks "
    "state-bytes state-growth-per-second key-groups key-group-skew hottest-keys",
    "operators": "id uid name",
    "inputs": "id ship-strategy",
    "vertices metrics": f"{_COUNTS} accumulated-busy-time accumulated-idle-time "
    "accumulated-backpressured-time",
    "subtasks": "subtask status attempt host start-time end-time "
    f"{_COUNTS} accumulated-busy-time {_RATIOS}",
    "checkpoints": "counts history",
    "counts": "restored total in_progress completed failed",
    "history": "id started_ms duration_ms bytes_written bytes_full is_savepoint records",
    "exceptions": "timestamp exceptionName stacktrace taskName",
    "flow": "backlog-records credits target-latency-ms batch-duration-ms batch-records "
    "records-per-second backpressured latency-ms",
    "latency-ms": "p50 p90 p99",
    "executors": "id host port cores memory-bytes slots",
}


def test_report_has_the_fields_of_its_document(tmp_path: Path) -> None:
    """docs/job-report.md: dispatcher, dashboard and others read it by these names."""
    environment = direct_environment({"millpond.target-latency": "2s"})
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    stream = environment._source(MarkedSource(["a", FAIL], tmp_path), "letters", None)
    stream.key_by(lambda r: r).process(Count()).uid("count").print()
    report = finished(environment)
    task = report["vertices"][1]
    found = {
        "": report,
        "vertices": task,
        "operators": task["operators"][0],
        "inputs": task["inputs"][0],
        "vertices metrics": task["metrics"],
        "subtasks": task["subtasks"][0],
        "checkpoints": report["checkpoints"],
        "counts": report["checkpoints"]["counts"],
        "history": report["checkpoints"]["history"][0],
        "exceptions": report["exceptions"][0],
        "flow": report["flow"],
        "latency-ms": report["flow"]["latency-ms"],
        "executors": report["executors"][0],
    }
    assert {place: " ".join(own) for place, own in found.items()} == FIELDS
    assert report["flow"]["target-latency-ms"] == 2000
    assert report["format"] == 1 and f"format {report['format']}" in DOCUMENT.read_text()


def test_document_has_all_fields_of_the_report() -> None:
    named = set(re.findall(r'"([\w-]+)"', DOCUMENT.read_text()))
    for place, fields in FIELDS.items():
        assert not set(fields.split()) - named, f"{place}: not in {DOCUMENT.name}"


def test_ids_of_vertices_stay_the_same() -> None:
    """They come from uids; generated ones are such ids already."""

    def ids() -> list[str]:
        environment, counted = keyed(["a"])
        counted.print()
        return [own["id"] for own in finished(environment)["vertices"]]

    first = ids()
    assert first == ids()
    assert all(re.fullmatch("[0-9a-f]{32}", own) for own in first)
    assert len(set(first)) == 2


def test_secrets_are_not_told() -> None:
    shown = shown_settings({"a.b": "1", "spark.ssl.keyPassword": "x", "my.Secret.key": "y"})
    assert shown == {"a.b": "1", "my.Secret.key": "******", "spark.ssl.keyPassword": "******"}


def test_metrics_are_numbers() -> None:
    metrics = {"a": 1, "b": (2, 10, 3, 7), "c": "text", "d": float("nan"), "e": True, "f": 0.5}
    flat = {"a": 1, "b.count": 2, "b.sum": 10, "b.min": 3, "b.max": 7, "e": 1, "f": 0.5}
    assert flat_metrics(metrics) == flat


# --- who runs ------------------------------------------------------------------------------------


def test_new_job_gets_the_id_that_was_asked_for() -> None:
    wanted = "0123456789abcdef" * 2
    environment = direct_environment({"millpond.job-id": wanted})
    environment.from_collection([1]).print()
    report = finished(environment)
    assert report["jid"] == wanted


@pytest.mark.parametrize("given", ["", "12", "x" * 32, "0" * 33, "ABCDEF0123456789" * 2])
def test_id_of_a_job_must_be_one(given: str) -> None:
    environment = direct_environment({"millpond.job-id": given})
    environment.from_collection([1]).print()
    with pytest.raises(ProgramError, match=r"millpond\.job-id must be 32 hexadecimal digits"):
        environment.execute_async()


def test_listeners_hear_of_a_job_before_it_starts() -> None:
    states: list[str] = []

    def listen(job: RunningJob) -> None:
        states.append(job.report()["state"])
        assert not job._thread.is_alive()

    running_job.listeners.append(listen)
    try:
        environment = direct_environment()
        environment.from_collection([1]).print()
        finished(environment)
    finally:
        running_job.listeners.remove(listen)
    assert states == ["CREATED"]
