"""Operators of keyed streams and operators with two inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.engine.context import FunctionContext, TaskClock
from millpond.engine.operators.base import Drive, Handler, Operator, RecordOperator
from millpond.engine.operators.transforms import ProcessOperator
from millpond.plan.physical import OperatorPlan


class KeyedProcessOperator(ProcessOperator, RecordOperator):
    """KeyedProcessFunction: a root that a Task drives record by record, with keyed state and timers."""

    context: FunctionContext
    keyed = True

    def handlers(self) -> list[Handler]:
        return [self.plan.function.process_element]

    def timer_handler(self) -> Handler:
        return self.plan.function.on_timer  # type: ignore[no-any-return]


class KeyedColumnsOperator(Operator):
    """KeyedColumnFunction. Always the root of a task, which is a ColumnTask."""

    drive = Drive.COLUMNS


class CoMapOperator(RecordOperator):
    """CoMapFunction: one function per input, each with one result per record, or none if it returns None."""

    action = "map1 or map2"

    def handlers(self) -> list[Handler]:
        return [self._one(self.plan.function.map1), self._one(self.plan.function.map2)]

    @staticmethod
    def _one(function: Callable[[Any], Any]) -> Handler:
        def handle(value: object, _: object) -> Iterable[Any] | None:
            result = function(value)
            return None if result is None else (result,)

        return handle


class CoFlatMapOperator(RecordOperator):
    """CoFlatMapFunction: one function per input, each with any number of results per record."""

    action = "flat_map1 or flat_map2"

    def handlers(self) -> list[Handler]:
        function = self.plan.function
        return [
            lambda value, _: function.flat_map1(value),
            lambda value, _: function.flat_map2(value),
        ]


class CoProcessOperator(ProcessOperator, RecordOperator):
    """CoProcessFunction: one method per input, with a context."""

    context: FunctionContext
    action = "process_element1 or process_element2"

    def handlers(self) -> list[Handler]:
        return [self.plan.function.process_element1, self.plan.function.process_element2]


class KeyedCoProcessOperator(KeyedProcessOperator, CoProcessOperator):
    """KeyedCoProcessFunction: both inputs see the same keyed state and timers."""

    handlers = CoProcessOperator.handlers

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.stamps_results = getattr(plan.function, "stamps_results", False)
