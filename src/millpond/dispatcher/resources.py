"""How many slots there are: cores of this machine, or of a standalone Spark cluster (O3)."""

from __future__ import annotations

import os
import time
from typing import Any

from millpond.executors.spark.master_page import MasterPage

_KEPT_S = 2.0


class Resources:
    """`page`: the standalone master's, which tells of its workers, if there is one."""

    def __init__(self, master: str | None, page: MasterPage | None = None) -> None:
        self._master = master or "local[*]"
        self._page = page
        self._asked_s = -_KEPT_S
        self._cores = 0

    def slots(self, reports: list[dict[str, Any]]) -> tuple[int, int]:
        """(all, free). On YARN and Kubernetes workers come as they are needed: those that are there count."""
        running = [r for r in reports if r["state"] in ("RUNNING", "CREATED", "RESTARTING")]
        used = sum(report["parallelism"] for report in running)
        if self._master.startswith("local"):
            total = os.cpu_count() or 1
        elif self._page is not None:
            total = self._cluster_cores(self._page)
        else:
            total = sum(own["slots"] for report in running for own in report["executors"])
        return total, max(0, total - used)

    def _cluster_cores(self, page: MasterPage) -> int:
        if time.monotonic() - self._asked_s > _KEPT_S:
            self._asked_s = time.monotonic()
            state = page.state()
            self._cores = 0 if state is None else state.cores  # one that is away has none to give
        return self._cores
