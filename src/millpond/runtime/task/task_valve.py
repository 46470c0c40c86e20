"""A task's event-time clock: a valve over its inputs, each of which is a valve over the splits of its
watermark origins. Its state at the start of a batch is handed in; nothing is kept between batches."""

from __future__ import annotations

from millpond.plan.physical import TaskPlan
from millpond.runtime.task.frames import Frame, SplitEnd, Start
from millpond.runtime.task.valve import WatermarkValve


class TaskValve:
    def __init__(self, task: TaskPlan, start: Start) -> None:
        self._task = task
        self._inputs: list[WatermarkValve] = []
        # (origin, split) -> (input, channel) pairs that listen to it
        self._channels: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._input_of: dict[tuple[int, int], int] = {}
        for number, task_input in enumerate(task.inputs):
            channels: list[tuple[int, bool]] = []
            for origin in task_input.origins:
                for split, status in enumerate(start.origins.get(origin, ())):
                    pairs = self._channels.setdefault((origin, split), [])
                    pairs.append((number, len(channels)))
                    channels.append(status)
            self._inputs.append(WatermarkValve.resumed(start.inputs[number], channels))
            self._input_of[task_input.exchange, task_input.source_task] = number
        outer = [(valve.output, not valve.idle) for valve in self._inputs]
        clock = min((valve.output for valve in self._inputs if not valve.idle), default=None)
        if clock is None:
            clock = max(valve.output for valve in self._inputs)
        self._outer = WatermarkValve.resumed(max(clock, start.clock), outer)

    @property
    def clock(self) -> int:
        return self._outer.output

    def on_record(self, frame: Frame, clock: int) -> int:
        """The task's clock before a record of `frame` that came to be at `clock`."""
        if frame.part.origin >= 0:
            self._split_watermark(frame.part.origin, frame.part.number, clock)
        else:
            number = self._input_of[frame.target, frame.source_task]
            valve = self._inputs[number]
            if clock > valve.output:
                valve.output = clock
                self._outer.watermark(number, clock)
        return self._outer.output

    def on_end(self, end: SplitEnd) -> int:
        for number, channel in self._channels.get((end.origin, end.split), ()):
            valve = self._inputs[number]
            if end.active:
                self._changed(number, valve.status(channel, True))
                self._changed(number, valve.watermark(channel, end.watermark))
            else:
                self._changed(number, valve.watermark(channel, end.watermark))
                self._changed(number, valve.status(channel, False))
            self._outer.status(number, not valve.idle)
        return self._outer.output

    def to_start(self, origins: dict[int, list[tuple[int, bool]]]) -> Start:
        """Where the next batch begins."""
        return Start([valve.output for valve in self._inputs], origins, self._outer.output)

    def _split_watermark(self, origin: int, split: int, watermark: int) -> None:
        for number, channel in self._channels.get((origin, split), ()):
            valve = self._inputs[number]
            valve.status(channel, True)  # a record makes its split active again
            self._outer.status(number, True)
            self._changed(number, valve.watermark(channel, watermark))

    def _changed(self, number: int, output: int | None) -> None:
        if output is not None:
            self._outer.watermark(number, output)
