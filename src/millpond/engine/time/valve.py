"""The watermark valve, which makes one event-time clock of many inputs (E22, C5-C10)."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.common.time import MIN_TIMESTAMP


class _Channel:
    __slots__ = ("active", "aligned", "watermark")

    def __init__(self, watermark: int = MIN_TIMESTAMP, active: bool = True) -> None:
        self.watermark = watermark
        self.active = active
        # An input that was idle and comes back behind the clock does not count until it has caught up.
        # Otherwise it would hold the clock back, although other inputs have moved it on.
        self.aligned = active


class WatermarkValve:
    """Combines inputs into `output`, the minimum over those that are active and aligned. It never goes back.
    Inputs are active at first. `idle` is True if no input is active."""

    __slots__ = ("_channels", "idle", "output")

    def __init__(self, inputs: int) -> None:
        self._channels = [_Channel() for _ in range(inputs)]
        self.output = MIN_TIMESTAMP
        self.idle = False

    @staticmethod
    def resumed(output: int, channels: Iterable[tuple[int, bool]]) -> WatermarkValve:
        """Return a valve with the output, and the (watermark, active) per input, of an earlier one."""
        valve = WatermarkValve(0)
        valve.output = output
        for watermark, active in channels:
            channel = _Channel(watermark, active)
            channel.aligned = active and watermark >= output
            valve._channels.append(channel)
        valve.idle = bool(valve._channels) and not any(c.active for c in valve._channels)
        return valve

    def channels(self) -> list[tuple[int, bool]]:
        """Return (watermark, active) of each input."""
        return [(channel.watermark, channel.active) for channel in self._channels]

    def watermark(self, index: int, watermark: int) -> int | None:
        """Note that input `index` has come to `watermark`. Return the output if it is new, else None."""
        channel = self._channels[index]
        if not channel.active or watermark <= channel.watermark:
            return None
        channel.watermark = watermark
        if not channel.aligned and watermark >= self.output:
            channel.aligned = True
        return self._advance_to_minimum() if channel.aligned else None

    def status(self, index: int, active: bool) -> int | None:
        """Note that input `index` becomes active or idle. Return the output if it is new, else None."""
        channel = self._channels[index]
        if active == channel.active:
            return None
        channel.active = active
        if active:
            channel.aligned = channel.watermark >= self.output
            self.idle = False
            return None
        channel.aligned = False
        if any(other.active for other in self._channels):
            return self._advance_to_minimum()
        self.idle = True
        # The last active input has become idle. Nothing is awaited any more, so everything that was seen
        # counts, unless this input was not the one that held the clock back.
        if channel.watermark == self.output:
            return self._raise(max(c.watermark for c in self._channels))
        return None

    def _advance_to_minimum(self) -> int | None:
        aligned = [c.watermark for c in self._channels if c.aligned]
        return self._raise(min(aligned)) if aligned else None

    def _raise(self, watermark: int) -> int | None:
        if watermark <= self.output:
            return None
        self.output = watermark
        return watermark
