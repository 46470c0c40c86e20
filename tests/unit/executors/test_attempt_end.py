"""How an attempt on Spark ends if things go wrong (O2)."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import StorageError
from millpond.executors.spark.executor import SparkExecutor


class NoExecutors:
    """Spark on a cluster that gives no executors: whatever runs there waits until it is cancelled."""

    def __init__(self) -> None:
        self.is_cancelled = threading.Event()

    def wake_slots(self) -> None:
        self.is_cancelled.wait()

    def cancel(self) -> None:
        self.is_cancelled.set()


def test_attempt_that_fails_does_not_wait_for_executors_that_never_come() -> None:
    def plan() -> Any:
        raise StorageError("the disk is full")

    executor: Any = object.__new__(SparkExecutor)
    executor._batches = NoExecutors()
    executor._cancelled, executor._timed_out = False, None
    executor.coordinator = SimpleNamespace(end=None, plan=plan)
    with pytest.raises(StorageError, match="the disk is full"):
        executor._run_batches()
