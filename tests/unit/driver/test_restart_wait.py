"""What the restart strategy makes of a job that has failed."""

from __future__ import annotations

import threading

import pytest

from millpond.common import RestartStrategies
from millpond.common.job import JobStatus
from millpond.driver.executor import Executor
from millpond.errors import JobCancelledError, ProgramError, UserFunctionError
from millpond.executors.direct.executor import DirectExecutors
from millpond.testing import direct_environment

_AN_HOUR_MS = 3_600_000


def fail(value: int) -> int:
    raise ValueError("told to fail")


def test_failure_is_reported_although_the_job_is_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    environment.from_collection([1]).map(fail).print()
    with pytest.raises(UserFunctionError):
        environment.execute("fails")
    complaint = "Job 'fails' has failed and is started again in 0.0 s:"
    assert caplog.text.count(complaint) == 2
    assert caplog.text.count("told to fail") >= 2


def test_program_that_no_worker_can_load_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = []

    def attempt(executors: DirectExecutors, number: int) -> Executor:
        attempts.append(number)
        raise ProgramError("Workers cannot import 'mine'")

    monkeypatch.setattr(DirectExecutors, "attempt", attempt)
    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    environment.from_collection([1]).print()
    with pytest.raises(ProgramError, match="Workers cannot import 'mine'"):
        environment.execute("wrong")
    assert attempts == [0]


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
