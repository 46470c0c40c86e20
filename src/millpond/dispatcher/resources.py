"""How many slots there are: cores of this machine, or of a standalone Spark cluster (O3)."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from typing import Any

_KEPT_S = 2.0


class Resources:
    """`master_ui`: address of the standalone master's page, which tells of its workers, if there is one."""

    def __init__(self, master: str | None, master_ui: str | None = None) -> None:
        self._master = master or "local[*]"
        self._master_ui = master_ui
        self._asked_s = -_KEPT_S
        self._cores = 0

    def slots(self, reports: list[dict[str, Any]]) -> tuple[int, int]:
        """(all, free). On YARN and Kubernetes workers come as they are needed: those that are there count."""
        running = [r for r in reports if r["state"] in ("RUNNING", "CREATED", "RESTARTING")]
        used = sum(report["parallelism"] for report in running)
        if self._master.startswith("local"):
            total = os.cpu_count() or 1
        elif self._master_ui is not None:
            total = self._cluster_cores()
        else:
            total = sum(own["slots"] for report in running for own in report["executors"])
        return total, max(0, total - used)

    def _cluster_cores(self) -> int:
        if time.monotonic() - self._asked_s > _KEPT_S:
            self._asked_s = time.monotonic()
            try:
                with urllib.request.urlopen(f"{self._master_ui}/json/", timeout=2) as answer:
                    workers = json.load(answer)["workers"]
                self._cores = sum(own["cores"] for own in workers if own["state"] == "ALIVE")
            except (OSError, ValueError, KeyError):
                self._cores = 0  # a master that is away has no slots to give
        return self._cores
