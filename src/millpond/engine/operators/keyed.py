"""Operators of keyed streams and of two inputs: driven record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.engine.context import TaskClock
from millpond.engine.operators.base import Drive, Handler, Operator, RecordOperator
from millpond.engine.operators.transforms import ProcessOperator
from millpond.plan.physical import OperatorPlan


class KeyedProcessOperator(ProcessOperator, RecordOperator):
    keyed = True

    def handlers(self) -> list[Handler]:
        return [self.plan.function.process_element]

    def timer_handler(self) -> Handler:
        return self.plan.function.on_timer  # type: ignore[no-any-return]


class KeyedColumnsOperator(Operator):
    """Always the root of a task, and driven by a ColumnTask."""

    drive = Drive.COLUMNS


class CoMapOperator(RecordOperator):
    action = "map1 or map2"

    def handlers(self) -> list[Handler]:
        return [self._one(self.plan.function.map1), self._one(self.plan.function.map2)]

    @staticmethod
    def _one(function: Callable[[Any], Any]) -> Handler:
        def handle(value: Any, _: Any) -> Iterable[Any] | None:
            result = function(value)
            return None if result is None else (result,)

        return handle


class CoFlatMapOperator(RecordOperator):
    action = "flat_map1 or flat_map2"

    def handlers(self) -> list[Handler]:
        function = self.plan.function
        return [
            lambda value, _: function.flat_map1(value),
            lambda value, _: function.flat_map2(value),
        ]


class CoProcessOperator(ProcessOperator, RecordOperator):
    action = "process_element1 or process_element2"

    def handlers(self) -> list[Handler]:
        return [self.plan.function.process_element1, self.plan.function.process_element2]


class KeyedCoProcessOperator(KeyedProcessOperator, CoProcessOperator):
    """Both inputs see the same keyed state and timers."""

    handlers = CoProcessOperator.handlers

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.stamps_results = getattr(plan.function, "stamps_results", False)
