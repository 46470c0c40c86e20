"""The metrics that functions can register, with PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Metric(ABC):
    """Base class of all metrics."""


class Counter(Metric):
    """A number that goes up and down. The job's value is the sum over all subtasks."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Add `n`."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""

    @abstractmethod
    def get_count(self) -> int:
        """Return what this subtask has counted."""


class Meter(Metric):
    """Counts events. Unlike Flink's, it computes no rate."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Count `value` events."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the events this subtask has counted."""


class Distribution(Metric):
    """Collects values; the job keeps their count, sum, smallest and largest."""

    @abstractmethod
    def update(self, value: int) -> None:
        """Add a value."""


class MetricGroup(ABC):
    """Registers metrics. The full name is the operator's name, the groups' names and the metric's name,
    joined by dots.

    A counter, meter or distribution that is registered again under the same name is the same one.
    """

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group inside this one; `extra` adds one more level."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Register a counter and return it."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """Register a function that is asked for the current value after every batch."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Register a meter and return it. `time_span_in_seconds` has no effect."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Register a distribution and return it."""
