"""How event time is read from records, and how far it has advanced.

The watermark of a source partition is computed *after every record*, so a record always meets the watermark
that the records before it produced, wherever batches are cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from millpond.common.time import MIN_TIMESTAMP, Duration
from millpond.common.type_variables import T
from millpond.errors import ProgramError, UnsupportedFeatureError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class TimestampAssigner(ABC, Generic[T]):
    """Reads the event time of a record."""

    @abstractmethod
    def extract_timestamp(self, value: T, record_timestamp: int) -> int:
        """Return the record's event time in milliseconds since the epoch.

        `record_timestamp` is the timestamp from the source, or the smallest long if the source gave none.
        """


class WatermarkOutput:
    """Takes the watermarks of a generator. The largest one counts."""

    def __init__(self, watermark: int = MIN_TIMESTAMP) -> None:
        self.watermark = watermark

    def emit_watermark(self, timestamp: int) -> None:
        """Advance the watermark to `timestamp`; a smaller one has no effect."""
        if timestamp > self.watermark:
            self.watermark = timestamp


class WatermarkGenerator(ABC, Generic[T]):
    """Computes the watermark of one source partition.

    Its attributes are its state: they must be picklable, and are restored after a failure.
    """

    @abstractmethod
    def on_event(self, event: T, event_timestamp: int, output: WatermarkOutput) -> None:
        """Learn from a record. Called for every record; a punctuated generator emits here."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the current watermark, in a periodic generator. Millpond calls it after every record."""


class BoundedOutOfOrdernessGenerator(WatermarkGenerator):
    """Emits the largest timestamp so far, minus the bound, minus 1 ms (C11)."""

    def __init__(self, max_out_of_orderness_ms: int) -> None:
        self.max_out_of_orderness_ms = max_out_of_orderness_ms
        self.watermark = MIN_TIMESTAMP

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        watermark = event_timestamp - self.max_out_of_orderness_ms - 1
        if watermark > self.watermark:
            self.watermark = watermark

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.watermark)

    def watermarks(
        self, timestamps: list[int] | NDArray[numpy.int64], output: WatermarkOutput
    ) -> NDArray[numpy.int64] | None:
        """Do the work of `on_event` and `on_periodic_emit` for a whole column; return the watermark before
        each record.

        Return None, having done nothing, if a number does not fit into 64 bits.
        """
        import numpy  # here, because the command line imports this module and must start fast

        delay = self.max_out_of_orderness_ms + 1
        try:
            times = numpy.array(timestamps, numpy.int64)
        except OverflowError:
            return None
        if int(times.min()) < MIN_TIMESTAMP + delay:
            return None
        running = numpy.empty(len(times) + 1, numpy.int64)
        running[0] = max(self.watermark, output.watermark)
        numpy.subtract(times, delay, out=running[1:])
        numpy.maximum.accumulate(running, out=running)
        before = running[:-1]
        before[0] = output.watermark
        self.watermark = int(running[-1])
        output.emit_watermark(self.watermark)
        return before


class NoWatermarksGenerator(WatermarkGenerator):
    """Never advances event time; only the end of a bounded input does."""

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        """Ignore the record."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit nothing."""


class _FunctionAssigner(TimestampAssigner):
    def __init__(self, function: Callable[[Any, int], int]) -> None:
        self.function = function

    def extract_timestamp(self, value: object, record_timestamp: int) -> int:
        return self.function(value, record_timestamp)


class WatermarkStrategy:
    """A generator of watermarks and, optionally, a timestamp assigner and an idle timeout.

    Every `with_...` method returns a new strategy and keeps what was set before, in any order (C55).
    """

    def __init__(self, generator_factory: Callable[[], WatermarkGenerator]) -> None:
        self._generator_factory = generator_factory
        self._timestamp_assigner: TimestampAssigner | None = None
        self._idle_timeout_ms: int | None = None
        self._alignment: tuple[str, int] | None = None
        self._goes_on_when_idle = False

    def _copy(self) -> WatermarkStrategy:
        copy = WatermarkStrategy(self._generator_factory)
        copy._timestamp_assigner = self._timestamp_assigner
        copy._idle_timeout_ms = self._idle_timeout_ms
        copy._alignment = self._alignment
        copy._goes_on_when_idle = self._goes_on_when_idle
        return copy

    def create_generator(self) -> WatermarkGenerator:
        """Return a new generator; there is one for each source partition."""
        return self._generator_factory()

    @property
    def timestamp_assigner(self) -> TimestampAssigner | None:
        """The timestamp assigner, or None if records keep the timestamps that the source gave."""
        return self._timestamp_assigner

    @property
    def alignment(self) -> tuple[str, int] | None:
        """The group and the largest allowed lead in milliseconds, or None if the source is not aligned
        with others."""
        return self._alignment

    @property
    def goes_on_when_idle(self) -> bool:
        """True if event time advances with the wall clock while all partitions are idle."""
        return self._goes_on_when_idle

    @property
    def idle_timeout_ms(self) -> int | None:
        """The milliseconds of silence after which a partition is idle, or None if it never is."""
        return self._idle_timeout_ms

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Return a strategy that reads event time from records.

        Take a TimestampAssigner or, beyond PyFlink, a function (value, record_timestamp) -> milliseconds.
        """
        if not isinstance(timestamp_assigner, TimestampAssigner):
            if not callable(timestamp_assigner):
                raise ProgramError(
                    "with_timestamp_assigner takes a TimestampAssigner or a function "
                    f"(value, record_timestamp) -> int, not {timestamp_assigner!r}."
                )
            timestamp_assigner = _FunctionAssigner(timestamp_assigner)
        copy = self._copy()
        copy._timestamp_assigner = timestamp_assigner
        return copy

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Return a strategy whose partitions no longer hold event time back after being silent for the
        timeout."""
        if idle_timeout.to_millis() <= 0:
            raise ProgramError("with_idleness needs a timeout greater than zero.")
        copy = self._copy()
        copy._idle_timeout_ms = idle_timeout.to_millis()
        return copy

    def advance_when_idle(self) -> WatermarkStrategy:
        """Return a strategy whose event time advances with the wall clock once all partitions are idle.
        Beyond PyFlink.

        So windows close although no record comes. Raise ProgramError unless `with_idleness` was called
        before.
        """
        if self._idle_timeout_ms is None:
            raise ProgramError("Call with_idleness(timeout) before advance_when_idle().")
        copy = self._copy()
        copy._goes_on_when_idle = True
        return copy

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Return a strategy that pauses partitions too far ahead of the slowest one in the group.

        A partition that is more than the drift ahead is not read until the others have caught up. They are
        compared after every batch; `update_interval` has no effect.
        """
        drift_ms = max_allowed_watermark_drift.to_millis()
        if not watermark_group or drift_ms < 0:
            raise ProgramError(
                "with_watermark_alignment needs the name of a group and a drift that is not negative, "
                f"not {watermark_group!r} and {drift_ms} ms."
            )
        copy = self._copy()
        copy._alignment = (watermark_group, drift_ms)
        return copy

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for partitions whose timestamps never decrease."""
        return WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Return a strategy for records that may be late by at most the bound."""
        bound_ms = max_out_of_orderness.to_millis()
        if bound_ms < 0:
            raise ProgramError("for_bounded_out_of_orderness needs a bound that is not negative.")
        return WatermarkStrategy(lambda: BoundedOutOfOrdernessGenerator(bound_ms))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy without watermarks: event time does not advance before the end of the input."""
        return WatermarkStrategy(NoWatermarksGenerator)

    @staticmethod
    def for_generator(generator_factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Return a strategy with a generator written in Python, periodic or punctuated. Beyond PyFlink."""
        return WatermarkStrategy(generator_factory)


class AssignerWithPeriodicWatermarksWrapper:
    """Wraps a Java object in PyFlink. Creating one raises UnsupportedFeatureError: there is no JVM class
    to wrap."""

    def __init__(self, *_: object) -> None:
        raise UnsupportedFeatureError(
            "AssignerWithPeriodicWatermarksWrapper wraps a Java object. Write a "
            "WatermarkGenerator in Python and use WatermarkStrategy.for_generator."
        )
