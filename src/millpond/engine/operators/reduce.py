"""The rolling reduce of a keyed stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.common.time import MAX_TIMESTAMP
from millpond.core.bundle import Bundle
from millpond.core.codec import thaw_all
from millpond.datastream.aggregations import Aggregation, FieldAggregation
from millpond.datastream.state import ReducingStateDescriptor, StateKind
from millpond.engine.context import TaskRuntimeContext
from millpond.engine.operators.base import Handler, RecordOperator
from millpond.state.rolling import roll


class ReduceOperator(RecordOperator):
    """Emits the reduced value after every record; in batch mode once per key, when the input ends."""

    action = "reduce"

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._state = context.get_reducing_state(
            ReducingStateDescriptor("_reduce", self.plan.function, self.plan.output_type)
        )

    def by_record(self) -> RecordOperator | None:
        return self if self.batch_mode or not self._can_roll() else None

    def handlers(self) -> list[Handler]:
        return [self._add_until_the_end if self.batch_mode else self._add]

    def _can_roll(self) -> bool:
        function = self.plan.function
        return (
            isinstance(function, FieldAggregation)
            and function.aggregation in (Aggregation.SUM, Aggregation.MIN, Aggregation.MAX)
            and isinstance(function.position, int)
        )

    def process(self, bundle: Bundle) -> None:
        """Reduce all records of a shard at once. There are no timers between them."""
        function, keys = self.plan.function, thaw_all(bundle.keys or [])
        assert self.clock.state is not None
        table = self.clock.state.table("_reduce", StateKind.REDUCING)
        values = bundle.open_values()
        # If a type is declared, the state has to check value by value.
        results = None
        if self._check is None:
            results = roll(function.aggregation, function.position, keys, values, table)
        if results is None:
            results = self._one_by_one(keys, values)
        self.emit(bundle.with_values(results))

    def _one_by_one(self, keys: list[Any], values: list[Any]) -> list[Any]:
        results: list[Any] = []
        current = self.clock.current
        try:
            for current.key, value in zip(keys, values, strict=True):
                self._state.add(value)
                results.append(self._state.at_rest())
        except Exception as problem:
            raise self.failed(problem, "reduce", values[len(results)]) from None
        return results

    def _add(self, value: object, _: object) -> Iterable[Any]:
        self._state.add(value)
        return (self._state.at_rest(),)

    def _add_until_the_end(self, value: object, _: object) -> None:
        self._state.add(value)
        assert self.clock.state is not None
        self.clock.state.event_timers.register(MAX_TIMESTAMP, self.clock.current.key)

    def timer_handler(self) -> Handler:
        return lambda time_ms, context: (self._state.at_rest(),)

    def checked(self, results: list[Any]) -> list[Any]:
        return results  # the state has checked them
