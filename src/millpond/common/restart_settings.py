"""The restart strategy given by settings: Flink's keys below `restart-strategy.`"""

from __future__ import annotations

from collections.abc import Callable

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millpond.errors import ProgramError


def restart_strategy_of(configuration: Configuration) -> RestartStrategyConfiguration:
    """Return the restart strategy of the settings; raise ProgramError if `restart-strategy.type` is
    unknown."""
    kind = str(options.RESTART_STRATEGY.read(configuration)).lower()
    make = _STRATEGIES.get(kind.replace("-", ""))
    if make is None:
        raise ProgramError(
            f"The setting '{options.RESTART_STRATEGY.key}' must be none, fixed-delay, exponential-delay or "
            f"failure-rate, not '{kind}'."
        )
    return make(configuration)


def _none(configuration: Configuration) -> RestartStrategyConfiguration:
    return RestartStrategies.no_restart()


def _fixed_delay(configuration: Configuration) -> RestartStrategyConfiguration:
    return RestartStrategies.fixed_delay_restart(
        options.FIXED_ATTEMPTS.read(configuration), options.FIXED_DELAY.read_ms(configuration)
    )


def _failure_rate(configuration: Configuration) -> RestartStrategyConfiguration:
    return RestartStrategies.failure_rate_restart(
        options.RATE_FAILURES.read(configuration),
        options.RATE_INTERVAL.read_ms(configuration),
        options.RATE_DELAY.read_ms(configuration),
    )


def _exponential_delay(configuration: Configuration) -> RestartStrategyConfiguration:
    return RestartStrategies.exponential_delay_restart(
        options.BACKOFF_INITIAL.read_ms(configuration),
        options.BACKOFF_MAX.read_ms(configuration),
        options.BACKOFF_MULTIPLIER.read(configuration),
        options.BACKOFF_RESET.read_ms(configuration),
        options.BACKOFF_JITTER.read(configuration),
        options.BACKOFF_ATTEMPTS.read(configuration),
    )


_STRATEGIES: dict[str, Callable[[Configuration], RestartStrategyConfiguration]] = {
    "none": _none,
    "off": _none,
    "disable": _none,
    "fixeddelay": _fixed_delay,
    "failurerate": _failure_rate,
    "exponentialdelay": _exponential_delay,
}
