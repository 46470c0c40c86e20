"""Exposes the metrics of all jobs to Prometheus, under the names that Flink's reporter gives them (O7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from prometheus_client.core import CollectorRegistry, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from millpond.common.job import JobStatus
from millpond.dispatcher.messages import Json, Report, has_ended
from millpond.dispatcher.rest import views

CONTENT_TYPE = CONTENT_TYPE_LATEST
_JOB = ("job_id", "job_name")
_TASK = (*_JOB, "task_id", "task_name", "subtask_index")


def exposition(reports: list[Report], now_ms: int) -> bytes:
    """Return the metrics of all jobs that have not ended, in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Reports(reports, now_ms))
    return generate_latest(registry)


class _Reports(Collector):
    def __init__(self, reports: list[Report], now_ms: int) -> None:
        self._reports = reports
        self._now_ms = now_ms
        self._families: dict[str, GaugeMetricFamily] = {}

    def collect(self) -> Iterator[Metric]:
        running = sum(JobStatus.of(report) is JobStatus.RUNNING for report in self._reports)
        self._add("flink_jobmanager_numRunningJobs", "running jobs", (), (), running)
        for report in self._reports:
            if not has_ended(report):
                self._job(report)
        yield from self._families.values()

    def _job(self, report: Report) -> None:
        labels = (report["jid"], report["name"])
        for name, value in views.job_metrics(report, self._now_ms).items():
            if "." not in name:  # otherwise it belongs to a function, see below
                self._add(f"flink_jobmanager_job_{name}", name, _JOB, labels, value)
        for name, value in report["metrics"].items():
            operator, _, metric = name.rpartition(".")
            if operator and isinstance(value, int | float):
                self._add(
                    f"flink_taskmanager_job_task_operator_{_clean(metric)}",
                    "metric of a user function",
                    (*_JOB, "operator_name"),
                    (*labels, operator),
                    value,
                )
        latency = report["flow"].get("latency-ms") or {}
        for quantile, value in latency.items():
            self._add(
                "flink_taskmanager_job_latency_source_id_operator_id_latency",
                "milliseconds from the planning of a batch to its commit",
                (*_JOB, "quantile"),
                (*labels, f"0.{quantile.removeprefix('p')}"),
                value,
            )
        for vertex in report["vertices"]:
            self._vertex(vertex, labels)

    def _vertex(self, vertex: Json, labels: tuple[str, ...]) -> None:
        for name, value in views.vertex_metrics(vertex).items():
            subtask, _, metric = name.rpartition(".")
            self._add(
                f"flink_taskmanager_job_task_{metric}",
                metric,
                _TASK,
                (*labels, vertex["id"], vertex["name"], subtask),
                value,
            )
        for key, records in vertex["hottest-keys"][:3]:
            self._add(
                "millpond_task_hottest_key_records",
                "records of the keys with the most records; older records count less",
                (*_JOB, "task_id", "key"),
                (*labels, vertex["id"], key),
                records,
            )

    def _add(
        self,
        name: str,
        meaning: str,
        names: Iterable[str],
        labels: Iterable[str],
        value: float,
    ) -> None:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = GaugeMetricFamily(name, meaning, labels=list(names))
        family.add_metric([str(label) for label in labels], float(value))


def _clean(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)
