"""Evictors, which remove elements from a window before or after its function sees them. Beyond PyFlink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from millpond.common.time import Time
from millpond.datastream.window.triggers import millis
from millpond.datastream.window.windows import Window
from millpond.errors import ProgramError


class TimestampedValue(NamedTuple):
    """An element of a window. `timestamp` is None if it has none."""

    value: Any
    timestamp: int | None


class Evictor(ABC):
    """Removes elements from a window. Both methods get the elements, oldest first, and return those that
    stay."""

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: Window, ctx: object
    ) -> list[TimestampedValue]:
        """Return the elements that the window function is to see, and that stay in the window."""
        return elements

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: Window, ctx: object
    ) -> list[TimestampedValue]:
        """Return the elements that stay in the window after the function has seen them."""
        return elements


class _OneTime(Evictor):
    """Evicts before the function or, with `do_evict_after`, after it."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = do_evict_after

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: Window, ctx: object
    ) -> list[TimestampedValue]:
        return elements if self.do_evict_after else self._kept(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: Window, ctx: object
    ) -> list[TimestampedValue]:
        return self._kept(elements) if self.do_evict_after else elements

    @abstractmethod
    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]: ...


class CountEvictor(_OneTime):
    """Keeps the newest elements, up to a number."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if not isinstance(max_count, int) or max_count < 1:
            raise ProgramError(f"CountEvictor needs a count of at least 1, not {max_count!r}.")
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Return an evictor that keeps `max_count` elements; raise ProgramError if that is below 1."""
        return CountEvictor(max_count, do_evict_after)

    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        return elements[-self.max_count :]


class TimeEvictor(_OneTime):
    """Keeps the elements within a span before the latest timestamp; all of them without timestamps (C31)."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size = window_size

    @staticmethod
    def of(window_size: Time, do_evict_after: bool = False) -> TimeEvictor:
        """Return an evictor that keeps a span of this length."""
        return TimeEvictor(millis(window_size, "The span of a TimeEvictor"), do_evict_after)

    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        times = [element.timestamp for element in elements if element.timestamp is not None]
        if not times or elements[0].timestamp is None:
            return elements
        bound = max(times) - self.window_size
        return [e for e in elements if e.timestamp is None or e.timestamp > bound]


class DeltaEvictor(_OneTime):
    """Keeps the elements whose delta to the newest one is below a threshold."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> None:
        super().__init__(do_evict_after)
        self.threshold = threshold
        self.delta_function = delta_function

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> DeltaEvictor:
        """Return an evictor; `delta_function(element, newest)` computes the delta."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        if not elements:
            return elements
        last = elements[-1].value
        return [e for e in elements if self.delta_function(e.value, last) < self.threshold]
