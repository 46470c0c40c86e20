"""What happens when a job fails: try again, how often, after how long."""

from __future__ import annotations

from abc import ABC, abstractmethod


class RestartStrategyConfiguration(ABC):
    @abstractmethod
    def get_description(self) -> str: ...

    @abstractmethod
    def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
        """Milliseconds to wait before the next try, or None to give up.

        `failure_times_ms` are the times of all failures so far, the newest last."""


class RestartStrategies:
    """Makers of restart strategies."""

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        def get_description(self) -> str:
            return "Restart deactivated."

        def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
            return None

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        def __init__(self, restart_attempts: int, delay_between_attempts_interval: int) -> None:
            self._attempts = restart_attempts
            self._delay_ms = delay_between_attempts_interval

        def get_restart_attempts(self) -> int:
            return self._attempts

        def get_delay_between_attempts_interval(self) -> int:
            return self._delay_ms

        def get_description(self) -> str:
            return (
                f"Restart with fixed delay ({self._delay_ms} ms). "
                f"#{self._attempts} restart attempts."
            )

        def next_delay_ms(self, failure_times_ms: list[int]) -> int | None:
            return self._delay_ms if len(failure_times_ms) <= self._attempts else None

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
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
            return self._max_failures

        def get_failure_interval(self) -> int:
            return self._interval_ms

        def get_delay_between_attempts_interval(self) -> int:
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

    class FallbackRestartStrategyConfiguration(NoRestartStrategyConfiguration):
        def get_description(self) -> str:
            return "Cluster level default restart strategy (none)"

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int
    ) -> RestartStrategyConfiguration:
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            restart_attempts, delay_between_attempts
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int, delay_interval: int
    ) -> RestartStrategyConfiguration:
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )
