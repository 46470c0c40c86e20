"""What happens when a job fails: whether it is tried again, how often, and after how long."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

from millpond.errors import ProgramError


class RestartStrategyConfiguration(ABC):
    """A restart strategy. `RestartStrategies` makes them."""

    @abstractmethod
    def get_description(self) -> str:
        """Return the strategy in words."""

    @abstractmethod
    def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
        """Return the milliseconds to wait before the next attempt, or None to give up.

        `failure_times_ms` are the times of all failures so far, the newest last.
        """


class RestartStrategies:
    """Factory methods for restart strategies, and their classes. All times are in milliseconds."""

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Never restart."""

        def get_description(self) -> str:
            return "Restart deactivated."

        def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
            return None

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restart a fixed number of times, with the same wait before each attempt."""

        def __init__(self, restart_attempts: int, delay_between_attempts_interval: int) -> None:
            self._attempts = restart_attempts
            self._delay_ms = delay_between_attempts_interval

        def get_restart_attempts(self) -> int:
            """Return how many times the job is restarted before it is given up."""
            return self._attempts

        def get_delay_between_attempts_interval(self) -> int:
            """Return the wait before each attempt, in milliseconds."""
            return self._delay_ms

        def get_description(self) -> str:
            return (
                f"Restart with fixed delay ({self._delay_ms} ms). "
                f"#{self._attempts} restart attempts."
            )

        def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
            return self._delay_ms if len(failure_times_ms) <= self._attempts else None

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restart unless too many failures fall into one interval."""

        def __init__(
            self,
            max_failure_rate: int,
            failure_interval: int,
            delay_between_attempts_interval: int,
        ) -> None:
            self._max_failures = max_failure_rate
            self._interval_ms = failure_interval
            self._delay_ms = delay_between_attempts_interval

        def get_max_failure_rate(self) -> int:
            """Return how many failures an interval may have."""
            return self._max_failures

        def get_failure_interval(self) -> int:
            """Return the length of the interval, in milliseconds."""
            return self._interval_ms

        def get_delay_between_attempts_interval(self) -> int:
            """Return the wait before each attempt, in milliseconds."""
            return self._delay_ms

        def get_description(self) -> str:
            return (
                f"Failure rate restart with maximum of {self._max_failures} failures within "
                f"interval {self._interval_ms} ms and fixed delay {self._delay_ms} ms."
            )

        def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
            since = failure_times_ms[-1] - self._interval_ms
            recent = sum(1 for failed_at_ms in failure_times_ms if failed_at_ms > since)
            return self._delay_ms if recent <= self._max_failures else None

    class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Wait longer after each failure, up to a limit; start over once the job has run long enough
        without one."""

        def __init__(
            self,
            initial_backoff: int,
            max_backoff: int,
            backoff_multiplier: float,
            reset_backoff_threshold: int,
            jitter_factor: float,
            attempts_before_reset_backoff: int = 2_147_483_647,
        ) -> None:
            self._initial_ms = initial_backoff
            self._max_ms = max_backoff
            self._multiplier = backoff_multiplier
            self._reset_ms = reset_backoff_threshold
            self._jitter = jitter_factor
            self._attempts = attempts_before_reset_backoff
            for name, is_right, rule in (
                ("initial_backoff", initial_backoff >= 1, "1 ms or more"),
                ("max_backoff", max_backoff >= initial_backoff, "the initial backoff or more"),
                ("backoff_multiplier", backoff_multiplier >= 1, "1 or more"),
                ("reset_backoff_threshold", reset_backoff_threshold >= 1, "1 ms or more"),
                ("jitter_factor", 0 <= jitter_factor <= 1, "0 to 1"),
                ("attempts_before_reset_backoff", attempts_before_reset_backoff >= 1, "1 or more"),
            ):
                if not is_right:
                    raise ProgramError(f"Exponential delay: {name} must be {rule}.")

        def get_initial_backoff(self) -> int:
            """Return the wait before the first attempt, in milliseconds."""
            return self._initial_ms

        def get_max_backoff(self) -> int:
            """Return the longest wait, in milliseconds."""
            return self._max_ms

        def get_backoff_multiplier(self) -> float:
            """Return the factor by which the wait grows after each failure."""
            return self._multiplier

        def get_reset_backoff_threshold(self) -> int:
            """Return how long the job must run without failure, in milliseconds, for the wait to start
            over."""
            return self._reset_ms

        def get_jitter_factor(self) -> float:
            """Return the share, from 0 to 1, by which each wait varies at random."""
            return self._jitter

        def get_description(self) -> str:
            return (
                f"Restart with exponential delay: starting at {self._initial_ms} ms, increasing by "
                f"{self._multiplier}, with maximum {self._max_ms} ms. Delay resets after "
                f"{self._reset_ms} ms with jitter {self._jitter}"
            )

        def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
            attempts, delay_ms, last_ms = 0, 0.0, failure_times_ms[0]
            for failed_at_ms in failure_times_ms:
                if attempts and failed_at_ms - last_ms >= self._reset_ms + delay_ms:
                    attempts = 0
                longer_ms = delay_ms * self._multiplier if attempts else self._initial_ms
                delay_ms = min(longer_ms, self._max_ms)
                attempts, last_ms = attempts + 1, failed_at_ms
            if attempts > self._attempts:
                return None
            spread_ms = delay_ms * self._jitter
            return min(
                round(random.uniform(delay_ms - spread_ms, delay_ms + spread_ms)), self._max_ms
            )

    class FallbackRestartStrategyConfiguration(NoRestartStrategyConfiguration):
        """Do what the settings say (`restart-strategy.type`); without them, never restart."""

        def get_description(self) -> str:
            return "Cluster level default restart strategy"

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """Return a strategy that gives the job up at its first failure."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """Return the default: the strategy of the settings."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int
    ) -> RestartStrategyConfiguration:
        """Return a strategy with a number of attempts and the milliseconds to wait before each."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            restart_attempts, delay_between_attempts
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int, delay_interval: int
    ) -> RestartStrategyConfiguration:
        """Return a strategy that gives up when more than `failure_rate` failures fall into `failure_interval`
        milliseconds.

        It waits `delay_interval` milliseconds before each attempt.
        """
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: int,
        max_backoff: int,
        backoff_multiplier: float,
        reset_backoff_threshold: int,
        jitter_factor: float,
        attempts_before_reset_backoff: int = 2_147_483_647,
    ) -> RestartStrategyConfiguration:
        """Return a strategy whose waits grow after each failure. Times are in milliseconds. Beyond PyFlink,
        as in Flink's Java API.

        Raise ProgramError if a value is out of range.
        """
        return RestartStrategies.ExponentialDelayRestartStrategyConfiguration(
            initial_backoff,
            max_backoff,
            backoff_multiplier,
            reset_backoff_threshold,
            jitter_factor,
            attempts_before_reset_backoff,
        )
