"""Metrics inside a task. The changes of a batch are sent to the driver when the batch ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.metrics.metricbase import Counter, Distribution, Meter, MetricGroup

MetricChanges = dict[str, tuple[str, Any]]
"""full name -> (kind, change): ("sum", n), ("gauge", value) or ("distribution", (count, sum, min, max))"""


class _Count(Counter, Meter):
    def __init__(self) -> None:
        self.total = 0
        self.unsent = 0

    def inc(self, n: int = 1) -> None:
        self.total += n
        self.unsent += n

    def dec(self, n: int = 1) -> None:
        self.inc(-n)

    def mark_event(self, value: int = 1) -> None:
        self.inc(value)

    def get_count(self) -> int:
        return self.total


class _Distribution(Distribution):
    def __init__(self) -> None:
        self.values: list[int] = []

    def update(self, value: int) -> None:
        self.values.append(value)


class TaskMetrics:
    """All metrics of one chain, by full name."""

    def __init__(self) -> None:
        self.counts: dict[str, _Count] = {}
        self.gauges: dict[str, Callable[[], int]] = {}
        self.distributions: dict[str, _Distribution] = {}

    def mark(self) -> tuple[Any, ...]:
        """Return where all metrics stand, for `back_to`."""
        counts = [(count, count.total, count.unsent) for count in self.counts.values()]
        return counts, [(d, len(d.values)) for d in self.distributions.values()]

    def back_to(self, mark: tuple[Any, ...]) -> None:
        """Forget what was counted since `mark` was called. Gauges are not affected."""
        counts, distributions = mark
        for count, total, unsent in counts:
            count.total, count.unsent = total, unsent
        for distribution, length in distributions:
            del distribution.values[length:]

    def take(self) -> MetricChanges:
        """Return what has changed since the last call, and the current value of every gauge."""
        taken: MetricChanges = {}
        for name, count in self.counts.items():
            if count.unsent:
                taken[name] = ("sum", count.unsent)
                count.unsent = 0
        for name, gauge in self.gauges.items():
            taken[name] = ("gauge", gauge())
        for name, distribution in self.distributions.items():
            values = distribution.values
            if values:
                taken[name] = (
                    "distribution",
                    (len(values), sum(values), min(values), max(values)),
                )
                distribution.values = []
        return taken


class TaskMetricGroup(MetricGroup):
    """A group of a task's metrics. `prefix` begins their full names."""

    def __init__(self, metrics: TaskMetrics, prefix: str) -> None:
        self._metrics = metrics
        self._prefix = prefix

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        suffix = f".{name}" if extra is None else f".{name}.{extra}"
        return TaskMetricGroup(self._metrics, self._prefix + suffix)

    def counter(self, name: str) -> Counter:
        return self._metrics.counts.setdefault(f"{self._prefix}.{name}", _Count())

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        self._metrics.gauges[f"{self._prefix}.{name}"] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return self._metrics.counts.setdefault(f"{self._prefix}.{name}", _Count())

    def distribution(self, name: str) -> Distribution:
        return self._metrics.distributions.setdefault(f"{self._prefix}.{name}", _Distribution())


def combine(totals: dict[str, Any], taken: MetricChanges) -> None:
    """Add the changes that one task has sent to the totals of the job."""
    for name, (kind, value) in taken.items():
        if kind == "sum":
            totals[name] = totals.get(name, 0) + value
        elif kind == "gauge":
            totals[name] = value
        else:
            count, total, least, most = totals.get(name, (0, 0, value[2], value[3]))
            totals[name] = (
                count + value[0],
                total + value[1],
                min(least, value[2]),
                max(most, value[3]),
            )
