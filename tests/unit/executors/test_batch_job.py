"""When a batch runs again because executors were lost (E42)."""

from __future__ import annotations

import pytest

from millpond.executors.spark.batch_job import BatchJob


class Losing(BatchJob):
    """A batch during which executors are lost, as often as it is told."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.runs = 0
        self._is_cancelled = False

    def _run(self, epoch: int, lanes: list[bytes]) -> list[bytes]:
        self.runs += 1
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
    job._is_cancelled = True
    with pytest.raises(RuntimeError, match="loss 1"):
        job.run(7, [])
