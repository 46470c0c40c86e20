"""Clocks and timers, as a function sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """The clocks, and the timers of the current key.

    There is at most one timer per key, time domain and time. Without a key, registering or deleting one
    raises ProgramError.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds since the epoch.

        It is the same for a whole batch, and the same again if the batch is replayed after a failure.
        """

    @abstractmethod
    def current_watermark(self) -> int:
        """Return how far event time has advanced; before the first watermark, the smallest long."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Register a timer that fires once processing time has reached `timestamp`."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Register a timer that fires once the watermark has reached `timestamp`."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a timer; do nothing if there is none at this time."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer; do nothing if there is none at this time."""
