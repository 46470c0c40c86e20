"""Counts slots: the cores of this machine, or of a Spark cluster (O3)."""

from __future__ import annotations

import os
import time

from millpond.common.job import JobStatus
from millpond.dispatcher.messages import Report
from millpond.executors.spark.master_page import MasterPage

_KEPT_S = 2.0
_OCCUPYING = (JobStatus.RUNNING, JobStatus.CREATED, JobStatus.RESTARTING)


class Resources:
    """Knows how many slots jobs can use. `master` is the Spark master of jobs, and `page` the web page of a
    standalone master, which lists its workers."""

    def __init__(self, master: str | None, page: MasterPage | None = None) -> None:
        self._master = master or "local[*]"
        self._page = page
        self._asked_s = -_KEPT_S
        self._cores = 0

    def slots(self, reports: list[Report]) -> tuple[int, int]:
        """Return how many slots there are and how many of them are free, given the reports of all jobs.

        On YARN and Kubernetes workers are started on demand, so only those that exist are counted."""
        running = [report for report in reports if JobStatus.of(report) in _OCCUPYING]
        used = sum(report["parallelism"] for report in running)
        if self._master.startswith("local"):
            total = os.cpu_count() or 1
        elif self._page is not None:
            total = self._cluster_cores(self._page)
        else:
            total = sum(executor["slots"] for report in running for executor in report["executors"])
        return total, max(0, total - used)

    def _cluster_cores(self, page: MasterPage) -> int:
        if time.monotonic() - self._asked_s > _KEPT_S:
            self._asked_s = time.monotonic()
            state = page.state()
            self._cores = 0 if state is None else state.cores  # a master that is down offers none
        return self._cores
