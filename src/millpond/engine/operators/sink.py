"""Sinks that keep state or are told about checkpoints. They are operators without output.

Other sinks run in the last pass (`sink_pass.py`), where there is no state.
"""

from __future__ import annotations

from millpond.core.bundle import Bundle
from millpond.datastream.functions import SinkContext
from millpond.engine.context import TaskClock
from millpond.engine.operators.base import Operator
from millpond.plan.physical import OperatorPlan


class SinkFunctionOperator(Operator):
    """SinkFunction as an operator of a task: calls `invoke` for every record, and emits nothing."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.context = _Context(clock)

    def process(self, bundle: Bundle) -> None:
        clock, context, invoke = self.clock, self.context, self.plan.function.invoke
        before, value = clock.watermark, None
        try:
            for value, timestamp, watermark in zip(  # noqa: B905 (some are endless)
                bundle.open_values(), bundle.each_timestamp(), bundle.each_watermark()
            ):
                clock.timestamp = timestamp
                clock.watermark = watermark
                invoke(value, context)
        except Exception as problem:
            raise self.failed(problem, "writing to the sink", value) from None
        clock.watermark = before


class _Context(SinkContext):
    def __init__(self, clock: TaskClock) -> None:
        self._clock = clock

    def timestamp(self) -> int | None:
        return self._clock.timestamp

    def current_watermark(self) -> int:
        return self._clock.watermark

    def current_processing_time(self) -> int:
        return self._clock.processing_time_ms

    def epoch(self) -> int:
        return self._clock.epoch
