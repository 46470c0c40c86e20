"""The operators: one class per kind. A record goes in by `process`, results leave by `emit`.

Chained operators call each other directly. A failing user function becomes a UserFunctionError
that names the operator and the record, once, where it happened.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from millpond.common.time import MAX_TIMESTAMP
from millpond.common.typeinfo import to_type_info
from millpond.core.bundle import Bundle
from millpond.core.codec import freeze, thaw_all
from millpond.core.record_columns import Values, as_list
from millpond.datastream.aggregations import Aggregation, FieldAggregation
from millpond.datastream.bundle_functions import BundleMapFunction
from millpond.datastream.functions import Function
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.state import ReducingStateDescriptor, StateKind
from millpond.datastream.stream_graph import OperatorKind
from millpond.engine.context import FunctionContext, TaskClock, TaskRuntimeContext
from millpond.errors import MillpondError, TypeMismatchError, UserFunctionError
from millpond.plan.physical import OperatorPlan
from millpond.state.rolling import roll

Emit = Callable[[Bundle], None]
Handler = Callable[[Any, Any], "Iterable[Any] | None"]
_RECORD_TEXT = 300
_HIDDEN_FRAMES = (
    "millpond/engine/",
    "millpond/core/",
    "millpond/state/",
    "millpond/executors/",
    "pyspark/",
)


def user_error(
    problem: BaseException, operator: str, subtask: int, action: str, record: Any
) -> MillpondError:
    """The error to raise for a failed user function: short, with the user's part of the trace."""
    if isinstance(problem, UserFunctionError):
        return problem
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not any(part in frame.filename for part in _HIDDEN_FRAMES)
    ]
    cause = "".join(traceback.format_exception_only(problem)).strip()
    text = "".join(traceback.format_list(frames[-8:]))
    try:
        shown = repr(record) if record is not None else ""
    except Exception as unprintable:  # a broken __repr__ must not hide the real error
        shown = f"<{type(record).__name__} whose repr fails: {unprintable}>"
    if len(shown) > _RECORD_TEXT:
        shown = shown[: _RECORD_TEXT - 3] + "..."
    return UserFunctionError(operator, subtask, action, shown, cause[:2000], text[:4000])


class Operator:
    """Base: life cycle, outputs, type checks.

    Chained operators take bundles (`process`). The root of a task with state or two inputs is driven
    record by record: it offers `handlers`, one per input, that take (value, context) and return
    results, and a `timer_handler`."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        self.plan = plan
        self.name = plan.name
        self.clock = clock
        self.subtask = subtask
        self.emit: Emit = _discard
        self.side_outputs: dict[str, Emit] = {}
        self._check = to_type_info(plan.output_type).check()
        self._tag_checks = {
            tag: to_type_info(declared).check() for tag, declared in plan.tag_types.items()
        }

    def open(self, context: TaskRuntimeContext) -> None:
        function = self.plan.function
        if isinstance(function, Function):
            try:
                function.open(context)
            except Exception as problem:
                raise user_error(problem, self.name, self.subtask, "open()", None) from None

    def close(self) -> None:
        if isinstance(self.plan.function, Function):
            try:
                self.plan.function.close()
            except Exception as problem:
                raise user_error(problem, self.name, self.subtask, "close()", None) from None

    def process(self, bundle: Bundle) -> None:
        raise NotImplementedError(type(self).__name__)

    def handlers(self) -> list[Handler] | None:
        """One per input, if records must be handled one by one; else None."""
        return None

    def begin_stretch(self, until_ms: int) -> None:
        """See KeyedBroadcastProcessFunction."""

    context: Any = None
    action = "process_element"
    stamps_results = False  # True: handlers return (value, timestamp) instead of values

    def timer_handler(self) -> Handler:
        """Takes (time, context) when a timer of the current key fires, and returns results."""
        return lambda time_ms, context: None

    def checked(self, results: Values) -> Values:
        """Results after the type check of the main output."""
        return self._conform(results, self._check, "emitting a result")

    def check_side(self, tag: str, values: Values) -> Values:
        action = f"emitting to side output '{tag}'"
        return self._conform(values, self._tag_checks.get(tag), action)

    def _conform(self, values: Values, check: Callable[[Any], Any] | None, action: str) -> Values:
        if check is None:
            return values
        opened = thaw_all(as_list(values))
        conforming: list[Any] = []
        try:
            conforming.extend(map(check, opened))
        except TypeMismatchError as mismatch:
            raise self.failed(mismatch, action, opened[len(conforming)]) from None
        return conforming

    def failed(self, problem: BaseException, action: str, record: Any) -> MillpondError:
        return user_error(problem, self.name, self.subtask, action, record)


def _discard(bundle: Bundle) -> None:
    """The output of an operator nobody reads."""


def _method(function: Any, name: str) -> Callable[..., Any]:
    """The method of a function object, or the function itself if it is a plain callable."""
    if isinstance(function, Function):
        return getattr(function, name)  # type: ignore[no-any-return]
    return function  # type: ignore[no-any-return]


class MapOperator(Operator):
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
            first = self._map(values[0])
            results.append(freeze(first))
            rest = map(self._map, itertools.islice(values, 1, None))
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
    def _extend_with_mutable(results: list[Any], first: Any, rest: Iterable[Any]) -> None:
        """A function that returns the same list again, with other content, means each as it was."""
        for result in rest:
            results.append(freeze(result) if result is first else result)


class FlatMapOperator(Operator):
    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._flat_map = _method(plan.function, "flat_map")

    def process(self, bundle: Bundle) -> None:
        flat_map = self._flat_map
        results: list[Any] = []
        positions: list[int] = []
        value = None
        try:
            for position, value in enumerate(bundle.open_values()):
                own = flat_map(value)
                if own is not None:
                    for result in own:
                        # Frozen at once: the function may change it before it yields the next.
                        results.append(freeze(result))
                        positions.append(position)
        except Exception as problem:
            raise self.failed(problem, "flat_map", value) from None
        if results:
            self.emit(bundle.take(positions, self.checked(results)))


class FilterOperator(Operator):
    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._filter = _method(plan.function, "filter")

    def process(self, bundle: Bundle) -> None:
        values = bundle.open_values()
        kept: list[Any] = []
        try:
            kept.extend(map(self._filter, values))
        except Exception as problem:
            raise self.failed(problem, "filter", values[len(kept)]) from None
        if all(kept):
            self.emit(bundle.with_values(values))
        elif any(kept):
            positions = list(itertools.compress(range(len(kept)), kept))
            self.emit(bundle.take(positions, list(itertools.compress(values, kept))))


class ProcessOperator(Operator):
    """ProcessFunction and KeyedProcessFunction."""

    keyed = False

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.context = FunctionContext(clock, self.name, self.keyed)

    def process(self, bundle: Bundle) -> None:
        """As part of a chain: the clock shows what it showed when the record came to be."""
        clock, context = self.clock, self.context
        process_element = self.plan.function.process_element
        output = _SplitOutput(self)
        before = clock.watermark
        value = None
        try:
            for position, (value, timestamp, watermark) in enumerate(
                zip(bundle.open_values(), bundle.each_timestamp(), bundle.each_watermark())  # noqa: B905 (some are endless)
            ):
                clock.timestamp = timestamp
                clock.watermark = watermark
                results = process_element(value, context)
                if results is not None:
                    output.add_all(results, position)
        except Exception as problem:
            raise self.failed(problem, "process_element", value) from None
        clock.watermark = before
        output.send(bundle)

    def handlers(self) -> list[Handler] | None:
        return [self.plan.function.process_element] if self.keyed else None


class _SplitOutput:
    """What a process function yields, by output; each result with the position of its cause."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
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

    def send(self, bundle: Bundle) -> None:
        operator = self._operator
        for tag, (values, positions) in self._sides.items():
            emit = operator.side_outputs.get(tag)
            if emit is not None:  # else: nobody reads this side output
                emit(bundle.take(positions, operator.check_side(tag, values)))
        values, positions = self._main
        if values:
            operator.emit(bundle.take(positions, operator.checked(values)))


def is_tagged(result: Any) -> bool:
    """True for (OutputTag, value): a result for a side output."""
    return type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag)


class KeyedProcessOperator(ProcessOperator):
    keyed = True

    def timer_handler(self) -> Handler:
        return self.plan.function.on_timer  # type: ignore[no-any-return]


class KeyedColumnsOperator(Operator):
    """Always the root of a task, and driven by a ColumnTask."""


class CoMapOperator(Operator):
    action = "map1 or map2"

    def handlers(self) -> list[Handler]:
        return [self._one(self.plan.function.map1), self._one(self.plan.function.map2)]

    @staticmethod
    def _one(function: Callable[[Any], Any]) -> Handler:
        def handle(value: Any, _: Any) -> Iterable[Any] | None:
            result = function(value)
            return None if result is None else (result,)

        return handle


class CoFlatMapOperator(Operator):
    action = "flat_map1 or flat_map2"

    def handlers(self) -> list[Handler]:
        function = self.plan.function
        return [
            lambda value, _: function.flat_map1(value),
            lambda value, _: function.flat_map2(value),
        ]


class CoProcessOperator(ProcessOperator):
    action = "process_element1 or process_element2"

    def handlers(self) -> list[Handler]:
        return [self.plan.function.process_element1, self.plan.function.process_element2]


class KeyedCoProcessOperator(KeyedProcessOperator, CoProcessOperator):
    """Both inputs see the same keyed state and timers."""

    handlers = CoProcessOperator.handlers

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.stamps_results = getattr(plan.function, "stamps_results", False)


class ReduceOperator(Operator):
    """Rolling reduce; in batch mode one result per key, at the end of the input."""

    batch_mode = False
    action = "reduce"

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._state = context.get_reducing_state(
            ReducingStateDescriptor("_reduce", self.plan.function, self.plan.output_type)
        )

    def handlers(self) -> list[Handler] | None:
        if self.batch_mode:
            return [self._add_until_the_end]
        return None if self._can_roll() else [self._add]

    def _can_roll(self) -> bool:
        function = self.plan.function
        return (
            isinstance(function, FieldAggregation)
            and function.aggregation in (Aggregation.SUM, Aggregation.MIN, Aggregation.MAX)
            and isinstance(function.position, int)
        )

    def process(self, bundle: Bundle) -> None:
        """A key group's records at once; there are no timers between them."""
        function, keys = self.plan.function, thaw_all(bundle.keys or [])
        assert self.clock.state is not None
        table = self.clock.state.table("_reduce", StateKind.REDUCING)
        values = bundle.open_values()
        # A declared type is checked value by value, by the state.
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

    def _add(self, value: Any, _: Any) -> Iterable[Any]:
        self._state.add(value)
        return (self._state.at_rest(),)

    def _add_until_the_end(self, value: Any, _: Any) -> None:
        self._state.add(value)
        assert self.clock.state is not None
        self.clock.state.event_timers.register(MAX_TIMESTAMP, self.clock.current.key)

    def timer_handler(self) -> Handler:
        return lambda time_ms, context: (self._state.at_rest(),)

    def checked(self, results: list[Any]) -> list[Any]:
        return results  # state has checked them


class SourceOperator(Operator):
    """The start of a head: checks records against the source's declared type."""

    def process(self, bundle: Bundle) -> None:
        self.emit(
            bundle if self._check is None else bundle.with_values(self.checked(bundle.values))
        )


OPERATORS: dict[OperatorKind, type[Operator]] = {
    OperatorKind.SOURCE: SourceOperator,
    OperatorKind.MAP: MapOperator,
    OperatorKind.FLAT_MAP: FlatMapOperator,
    OperatorKind.FILTER: FilterOperator,
    OperatorKind.PROCESS: ProcessOperator,
    OperatorKind.KEYED_PROCESS: KeyedProcessOperator,
    OperatorKind.KEYED_COLUMNS: KeyedColumnsOperator,
    OperatorKind.REDUCE: ReduceOperator,
    OperatorKind.CO_MAP: CoMapOperator,
    OperatorKind.CO_FLAT_MAP: CoFlatMapOperator,
    OperatorKind.CO_PROCESS: CoProcessOperator,
    OperatorKind.KEYED_CO_PROCESS: KeyedCoProcessOperator,
}
