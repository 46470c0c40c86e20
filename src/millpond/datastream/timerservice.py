"""Clocks and timers, as a function sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """Timers belong to the current key; there is at most one per key, time domain and time."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Milliseconds since the epoch. The same for a whole batch, and the same again if the
        batch is replayed after a failure."""

    @abstractmethod
    def current_watermark(self) -> int:
        """How far event time has come. The smallest long before the first watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None: ...

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None: ...

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Does nothing if there is no such timer."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Does nothing if there is no such timer."""
