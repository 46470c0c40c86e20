"""Restart strategies (O2, E42): none, fixed or exponential delay, failure rate; by program or by settings."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.common import Configuration, RestartStrategies
from millpond.common.execution_config import ExecutionConfig
from millpond.common.restart_strategy import RestartStrategyConfiguration
from millpond.errors import ProgramError, UserFunctionError
from millpond.testing import FAIL, MarkedSource, direct_environment


def delays(strategy: RestartStrategyConfiguration, *failures_ms: int) -> list[int | None]:
    return [
        strategy.next_delay_ms(list(failures_ms[: number + 1]))
        for number in range(len(failures_ms))
    ]


def test_failure_rate_gives_up_when_failures_come_too_fast() -> None:
    strategy = RestartStrategies.failure_rate_restart(2, 1000, 50)
    assert delays(strategy, 0, 900, 1800, 2700) == [50, 50, 50, 50]
    assert delays(strategy, 0, 400, 900) == [50, 50, None]
    assert delays(strategy, 0, 400, 1000) == [50, 50, 50]  # the first is a whole interval ago


def test_fixed_delay_gives_up_after_so_many_attempts() -> None:
    assert delays(RestartStrategies.fixed_delay_restart(2, 30), 0, 10**9, 2 * 10**9) == [
        30,
        30,
        None,
    ]


def exponential(**changes: Any) -> RestartStrategyConfiguration:
    settings: dict[str, Any] = {
        "initial_backoff": 100,
        "max_backoff": 1000,
        "backoff_multiplier": 2.0,
        "reset_backoff_threshold": 5000,
        "jitter_factor": 0.0,
    }
    return RestartStrategies.exponential_delay_restart(**(settings | changes))


def test_exponential_delay_grows_up_to_its_maximum() -> None:
    assert delays(exponential(), *range(6)) == [100, 200, 400, 800, 1000, 1000]


def test_exponential_delay_begins_anew_after_a_while_without_failure() -> None:
    # Counted from the restart, which was 200 ms after the second failure.
    assert delays(exponential(), 0, 10, 5200) == [100, 200, 400]
    assert delays(exponential(), 0, 10, 5210) == [100, 200, 100]


def test_exponential_delay_may_give_up() -> None:
    strategy = exponential(attempts_before_reset_backoff=2)
    assert delays(strategy, 0, 1, 2) == [100, 200, None]
    assert delays(strategy, 0, 1, 10_000, 10_001, 10_002) == [100, 200, 100, 200, None]


def test_exponential_delay_is_spread_around_what_it_would_be() -> None:
    strategy = exponential(jitter_factor=0.1, initial_backoff=500)
    found = {delays(strategy, 0)[0] for _ in range(200)}
    assert len(found) > 10
    assert all(delay is not None and 450 <= delay <= 550 for delay in found)
    full = {delays(strategy, 0, 1, 2)[2] for _ in range(200)}
    assert all(
        delay is not None and 900 <= delay <= 1000 for delay in full
    )  # never above the maximum


@pytest.mark.parametrize(
    "changes",
    [
        {"initial_backoff": 0},
        {"max_backoff": 50},
        {"backoff_multiplier": 0.5},
        {"jitter_factor": 1.5},
        {"reset_backoff_threshold": 0},
        {"attempts_before_reset_backoff": 0},
    ],
)
def test_impossible_exponential_delays_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=next(iter(changes)).replace("_", "[_-]")):
        exponential(**changes)


def of_settings(**settings: Any) -> RestartStrategyConfiguration:
    named = {f"restart-strategy.{key}": value for key, value in settings.items()}
    return ExecutionConfig(Configuration.from_dict(named)).get_restart_strategy()


SETTINGS: dict[str, tuple[dict[str, Any], list[int | None]]] = {
    "nothing": ({}, [None]),
    "none": ({"type": "none"}, [None]),
    "off": ({"type": "OFF"}, [None]),
    "fixed": (
        {"type": "fixed-delay", "fixed-delay.attempts": 2, "fixed-delay.delay": "10 s"},
        [10_000, 10_000, None],
    ),
    "fixed by default": ({"type": "fixeddelay"}, [1000, None]),
    "milliseconds": ({"type": "fixed-delay", "fixed-delay.delay": 500}, [500, None]),
    "500ms": ({"type": "fixed-delay", "fixed-delay.delay": "500ms"}, [500, None]),
    "2 min": ({"type": "fixed-delay", "fixed-delay.delay": "2 min"}, [120_000, None]),
    "rate": (
        {
            "type": "failure-rate",
            "failure-rate.max-failures-per-interval": "2",
            "failure-rate.failure-rate-interval": "1 h",
            "failure-rate.delay": "1s",
        },
        [1000, 1000, None],
    ),
    "exponential": (
        {
            "type": "exponential-delay",
            "exponential-delay.initial-backoff": "100 ms",
            "exponential-delay.max-backoff": "1 s",
            "exponential-delay.backoff-multiplier": "3",
            "exponential-delay.reset-backoff-threshold": "1 d",
            "exponential-delay.jitter-factor": 0,
            "exponential-delay.attempts-before-reset-backoff": 4,
        },
        [100, 300, 900, 1000, None],
    ),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_strategy_comes_from_settings(kind: str) -> None:
    settings, expected = SETTINGS[kind]
    assert delays(of_settings(**settings), *range(len(expected))) == expected


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ProgramError, match=r"restart-strategy\.type.*'always'"):
        of_settings(type="always")
    with pytest.raises(ProgramError, match=r"fixed-delay\.delay.*'soon'"):
        of_settings(**{"type": "fixed-delay", "fixed-delay.delay": "soon"})


def test_what_the_program_says_counts_more_than_settings() -> None:
    configuration = Configuration.from_dict({"restart-strategy.type": "fixed-delay"})
    config = ExecutionConfig(configuration)
    config.set_restart_strategy(RestartStrategies.no_restart())
    assert delays(config.get_restart_strategy(), 0) == [None]
    config.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert delays(config.get_restart_strategy(), 0) == [1000]


@pytest.mark.parametrize("failures", [2, 3])
def test_job_is_restarted_as_settings_say(failures: int, tmp_path: Any) -> None:
    settings = {
        "restart-strategy.type": "failure-rate",
        "restart-strategy.failure-rate.max-failures-per-interval": 2,
        "restart-strategy.failure-rate.failure-rate-interval": "1 h",
        "restart-strategy.failure-rate.delay": 0,
    }
    environment = direct_environment(settings)
    source = MarkedSource([1, *[FAIL] * failures, 2], tmp_path)
    results = environment._source(source, "numbers", None).map(lambda n: n)
    if failures == 2:
        assert list(results.execute_and_collect()) == [1, 2]
    else:
        with pytest.raises(UserFunctionError):
            list(results.execute_and_collect())
