"""Operators without state: map, flat map, filter, process, and the start of a source task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from millpond.core.bundle import Bundle
from millpond.core.codec import freeze
from millpond.datastream.bundle_functions import BundleMapFunction
from millpond.datastream.functions import Function
from millpond.engine.context import FunctionContext, TaskClock
from millpond.engine.operators.base import Operator, Outputs, is_tagged
from millpond.plan.physical import OperatorPlan


def _method(function: Function | Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the method of a function object, or the function itself if it is a plain callable."""
    if isinstance(function, Function):
        return getattr(function, name)  # type: ignore[no-any-return]
    return function


class SourceOperator(Operator):
    """The start of a source task: checks records against the source's declared type."""

    def process(self, bundle: Bundle) -> None:
        self.emit(
            bundle if self._check is None else bundle.with_values(self.checked(bundle.values))
        )


class MapOperator(Operator):
    """MapFunction: one result per record. A BundleMapFunction gets all records of a bundle at once."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._map = _method(plan.function, "map")
        is_for_many = isinstance(plan.function, BundleMapFunction)
        self._map_many = plan.function.map_many if is_for_many else None

    def process(self, bundle: Bundle) -> None:
        values = bundle.open_values()
        if self._map_many is not None:
            self.emit(bundle.with_values(self.checked(self._all(self._map_many, values))))
            return
        results: list[Any] = []
        try:
            mapped = map(self._map, self.by_key(bundle, values))
            first = next(mapped)
            results.append(freeze(first))
            rest = mapped
            if results[0] is first:
                results.extend(rest)
            else:
                self._extend_with_mutable(results, first, rest)
        except Exception as problem:
            raise self.failed(problem, "map", values[len(results)]) from None
        self.emit(bundle.with_values(self.checked(results)))

    def _all(self, map_many: Callable[[list[Any]], list[Any]], values: list[Any]) -> list[Any]:
        try:
            results = list(map_many(values))
        except Exception as problem:
            raise self.failed(problem, "map_many", values[0]) from None
        if len(results) != len(values):
            wrong = ValueError(f"map_many gave {len(results)} results for {len(values)} values")
            raise self.failed(wrong, "map_many", None)
        return list(map(freeze, results))

    @staticmethod
    def _extend_with_mutable(results: list[Any], first: object, rest: Iterable[Any]) -> None:
        """Add the rest of the results. A function may return the same object again with other content; each
        result is then kept as it was when it was returned."""
        for result in rest:
            results.append(freeze(result) if result is first else result)


class FlatMapOperator(Operator):
    """FlatMapFunction: any number of results per record; None means none."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._flat_map = _method(plan.function, "flat_map")

    def process(self, bundle: Bundle) -> None:
        flat_map = self._flat_map
        results: list[Any] = []
        positions: list[int] = []
        value = None
        try:
            for position, value in enumerate(self.by_key(bundle, bundle.open_values())):
                returned = flat_map(value)
                if returned is not None:
                    for result in returned:
                        # Frozen at once, because the function may change it before it yields the next.
                        results.append(freeze(result))
                        positions.append(position)
        except Exception as problem:
            raise self.failed(problem, "flat_map", value) from None
        if results:
            self.emit(bundle.take(positions, self.checked(results)))


class FilterOperator(Operator):
    """FilterFunction: emits the records for which it returns something true."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._filter = _method(plan.function, "filter")

    def process(self, bundle: Bundle) -> None:
        values = bundle.open_values()
        kept: list[Any] = []
        try:
            kept.extend(map(self._filter, self.by_key(bundle, values)))
        except Exception as problem:
            raise self.failed(problem, "filter", values[len(kept)]) from None
        if all(kept):
            self.emit(bundle.with_values(values))
        elif any(kept):
            positions = list(itertools.compress(range(len(kept)), kept))
            self.emit(bundle.take(positions, list(itertools.compress(values, kept))))


class ProcessOperator(Operator):
    """ProcessFunction. Also the base of the operators of process functions with keys and with two inputs."""

    keyed = False

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.context = FunctionContext(clock, self.name, self.keyed)

    def process(self, bundle: Bundle) -> None:
        """Process records as part of a chain. The clock shows the watermark at which each one came to be."""
        clock, context = self.clock, self.context
        process_element = self.plan.function.process_element
        output = _SplitOutput()
        before = clock.watermark
        value = None
        try:
            for position, (value, timestamp, watermark) in enumerate(
                zip(  # noqa: B905 (some are endless)
                    self.by_key(bundle, bundle.open_values()),
                    bundle.each_timestamp(),
                    bundle.each_watermark(),
                )
            ):
                clock.timestamp = timestamp
                clock.watermark = watermark
                results = process_element(value, context)
                if results is not None:
                    output.add_all(results, position)
        except Exception as problem:
            raise self.failed(problem, "process_element", value) from None
        clock.watermark = before
        self.send(output.bundles(bundle))


class _SplitOutput:
    """What a process function yields, by output; each result with the position of its cause."""

    def __init__(self) -> None:
        self._main: tuple[list[Any], list[int]] = ([], [])
        self._sides: dict[str, tuple[list[Any], list[int]]] = {}

    def add_all(self, results: Iterable[Any], position: int) -> None:
        for result in results:
            output, value = self._main, result
            if is_tagged(result):
                tag, value = result[0].tag_id, result[1]
                output = self._sides.setdefault(tag, ([], []))
            output[0].append(freeze(value))
            output[1].append(position)

    def bundles(self, cause: Bundle) -> Outputs:
        """Yield the results that the records of `cause` have caused, side outputs first."""
        for tag, (values, positions) in self._sides.items():
            yield tag, cause.take(positions, values)
        values, positions = self._main
        if values:
            yield None, cause.take(positions, values)
