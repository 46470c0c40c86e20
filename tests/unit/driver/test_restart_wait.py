"""What happens while the restart strategy makes a job wait."""

from __future__ import annotations

import threading

import pytest

from millpond.common import RestartStrategies
from millpond.common.job import JobStatus
from millpond.errors import JobCancelledError
from millpond.executors.direct.executor import DirectExecutors
from millpond.testing import direct_environment

_AN_HOUR_MS = 3_600_000


def fail(value: int) -> int:
    raise ValueError("told to fail")


def test_next_attempt_is_prepared_during_the_wait_which_can_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = threading.Event()
    monkeypatch.setattr(DirectExecutors, "prepare", lambda self: prepared.set())
    environment = direct_environment()
    strategy = RestartStrategies.fixed_delay_restart(1, _AN_HOUR_MS)
    environment.get_config().set_restart_strategy(strategy)
    environment.from_collection([1]).map(fail).print()
    client = environment.execute_async("fails")
    assert prepared.wait(60)
    assert client.get_job_status().result() is JobStatus.RESTARTING
    client.cancel().result()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()
