"""Contracts of metrics, with PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Metric(ABC):
    """Base of all metrics."""


class Counter(Metric):
    @abstractmethod
    def inc(self, n: int = 1) -> None: ...

    @abstractmethod
    def dec(self, n: int = 1) -> None: ...

    @abstractmethod
    def get_count(self) -> int: ...


class Meter(Metric):
    @abstractmethod
    def mark_event(self, value: int = 1) -> None: ...

    @abstractmethod
    def get_count(self) -> int: ...


class Distribution(Metric):
    @abstractmethod
    def update(self, value: int) -> None: ...


class MetricGroup(ABC):
    """Makes metrics. Their full name is the operator's name, the groups and the metric's name."""

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup: ...

    @abstractmethod
    def counter(self, name: str) -> Counter: ...

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int]) -> None: ...

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter: ...

    @abstractmethod
    def distribution(self, name: str) -> Distribution: ...
