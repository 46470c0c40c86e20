"""When a batch runs again because executors were lost (E42), and what is left of an attempt in Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.executors.spark.batch_job import BatchJob


class Losing(BatchJob):
    """A batch during which executors are lost, as often as it is told."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.runs = 0
        self.is_cancelled_while_it_runs = False
        self.calls: list[Any] = []
        self._context: Any = SimpleNamespace(
            cancelJobGroup=lambda group: self.calls.append(group),
            setLocalProperty=lambda name, value: self.calls.append((name, value)),
        )
        self._group = "group"
        self._run_id = "run"
        self._partitions = 2
        self._placement: Any = SimpleNamespace(close=lambda: None)
        self._interrupting = threading.Lock()
        self._is_running = self._is_interrupted = self._is_cancelled = False

    def _run(self, epoch: int, lanes: list[bytes]) -> list[bytes]:
        self.runs += 1
        if self.is_cancelled_while_it_runs:
            self.cancel()
        if self.runs <= self.losses:
            raise RuntimeError(f"loss {self.runs}")
        return lanes

    def _has_lost_machine(self) -> bool:
        return self.runs <= self.losses


def test_batch_runs_again_on_the_executors_that_are_left() -> None:
    assert Losing(3).run(7, [b"lane"]) == [b"lane"]


def test_batch_that_no_executor_survives_fails() -> None:
    job = Losing(losses=100)
    with pytest.raises(RuntimeError, match="loss 4"):
        job.run(7, [])
    assert job.runs == 4


def test_batch_that_is_cancelled_does_not_run_again() -> None:
    job = Losing(losses=1)
    job.is_cancelled_while_it_runs = True
    with pytest.raises(RuntimeError, match="loss 1"):
        job.run(7, [])


def test_cancelling_too_late_does_not_keep_later_batches_from_running_again() -> None:
    """A time limit may be over when the batch has just ended."""
    job = Losing(losses=0)
    job.run(7, [])
    job.cancel()
    job.losses = 2
    assert job.run(8, [b"lane"]) == [b"lane"]


def test_machine_that_is_lost_between_two_batches_interrupts_neither() -> None:
    job = Losing(losses=0)
    job.run(7, [])
    job._interrupt()
    assert job.calls == []
    assert job.run(8, [b"lane"]) == [b"lane"]


def test_attempt_leaves_no_properties_that_spark_would_send_to_all_later_tasks() -> None:
    job = Losing(losses=0)
    job._set_properties(7, ["first lane", "second lane"])
    names = [name for name, _ in job.calls]
    job.calls.clear()
    job.close()
    assert job.calls == [(name, None) for name in names]
