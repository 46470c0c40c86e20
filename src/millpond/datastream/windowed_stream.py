"""Streams divided into windows: `KeyedStream.window`, `DataStream.window_all`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millpond.common.typeinfo import TypeInformation, TypeLike, to_type_info
from millpond.datastream.aggregations import Aggregation, FieldAggregation
from millpond.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    Function,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    WindowFunction,
)
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.stream_graph import OperatorKind
from millpond.datastream.window import (
    Evictor,
    Trigger,
    WindowAssigner,
)
from millpond.datastream.window.assigners import MergingWindowAssigner
from millpond.errors import ProgramError

if TYPE_CHECKING:
    from millpond.datastream.data_stream import DataStream, KeyedStream
    from millpond.datastream.stream_execution_environment import StreamExecutionEnvironment

UserWindowFunction = (
    WindowFunction[Any, Any, Any, Any]
    | AllWindowFunction[Any, Any, Any]
    | ProcessWindowFunction[Any, Any, Any, Any]
    | ProcessAllWindowFunction[Any, Any, Any]
)


class _WithoutState:
    """The runtime context of a function that combines elements. It has no state: there is no telling when
    it is called."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> object:
        if name.endswith("_state"):
            raise ProgramError(
                "The reduce or aggregate function of a window has no state: keep what it needs in the "
                "accumulator, or in a ProcessWindowFunction (context.global_state())."
            )
        return getattr(self._context, name)


@dataclass
class WindowOperation(Function):
    """Everything the window operator needs to know."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor | None = None
    allowed_lateness: int = 0
    late_data_tag: OutputTag | None = None
    combine: Any = None  # the reduce or aggregate function; None: keep all elements
    function: Any = None  # the window function; None: the content is the result
    content_type: Any = None

    def open(self, runtime_context: RuntimeContext) -> None:
        for function in self._functions():
            combines = function is not self.window_function()
            context: Any = _WithoutState(runtime_context) if combines else runtime_context
            function.open(context)

    def close(self) -> None:
        for function in self._functions():
            function.close()

    def window_function(self) -> Any:
        """Return the user's window function, or None if there is none."""
        function = self.function
        return function.function if isinstance(function, _CombineAtTheEnd) else function

    def _functions(self) -> list[Function]:
        functions = [getattr(self.function, "combine", self.combine), self.window_function()]
        return [function for function in functions if isinstance(function, Function)]

    def caller(self) -> Callable[[Any, Any, Any, list[Any]], Iterable[Any] | None]:
        """Return the window function as (key, window, context, elements) -> results, resolved once."""
        function = self.function
        if isinstance(function, _CombineAtTheEnd):
            combined, inner = function.combined, replace(self, function=function.function).caller()
            return lambda key, window, context, elements: (
                inner(key, window, context, [combined(elements)]) if elements else ()
            )
        if function is None:
            return lambda key, window, context, elements: elements
        if isinstance(function, ProcessWindowFunction):
            process = function.process
            return lambda key, window, context, elements: process(key, context, elements)
        if isinstance(function, ProcessAllWindowFunction):
            process_all = function.process
            return lambda key, window, context, elements: process_all(context, elements)
        if isinstance(function, AllWindowFunction):
            apply_all = function.apply
            return lambda key, window, context, elements: apply_all(window, elements)
        apply = function.apply
        return lambda key, window, context, elements: apply(key, window, elements)


class WindowedStream:
    """A keyed stream divided into windows: configure it, then reduce, aggregate, apply or process it.

    The methods that configure it return the stream itself.
    """

    _apply_kind: type = WindowFunction
    _process_kind: type = ProcessWindowFunction

    def __init__(
        self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]
    ) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(
                f"window takes a WindowAssigner, such as TumblingEventTimeWindows.of(...), not "
                f"{type(window_assigner).__name__}"
            )
        self._keyed_stream = keyed_stream
        environment = keyed_stream.get_execution_environment()
        trigger = window_assigner.get_default_trigger(environment)
        self._operation = WindowOperation(window_assigner, trigger)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment in which this stream was built."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the declared type of the elements."""
        return self._keyed_stream.get_type()

    # --- settings --------------------------------------------------------------------------------

    def trigger(self, trigger: Trigger[Any, Any]) -> WindowedStream:
        """Fire when this trigger says so, instead of the assigner's default."""
        if not isinstance(trigger, Trigger):
            raise TypeError(f"trigger takes a Trigger, not {type(trigger).__name__}")
        self._operation = replace(self._operation, trigger=trigger)
        return self

    def evictor(self, evictor: Evictor) -> WindowedStream:
        """Remove elements before or after the function sees them. Beyond PyFlink."""
        if not isinstance(evictor, Evictor):
            raise TypeError(f"evictor takes an Evictor, not {type(evictor).__name__}")
        self._operation = replace(self._operation, evictor=evictor)
        return self

    def allowed_lateness(self, time_ms: int) -> WindowedStream:
        """Keep windows for this many milliseconds after their end; elements that are late until then update
        the result."""
        if not isinstance(time_ms, int) or time_ms < 0:
            raise ProgramError(f"allowed_lateness takes 0 or more milliseconds, not {time_ms!r}.")
        self._operation = replace(self._operation, allowed_lateness=time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> WindowedStream:
        """Send elements that are too late to a side output instead of dropping them."""
        self._operation = replace(self._operation, late_data_tag=output_tag)
        return self

    # --- results ---------------------------------------------------------------------------------

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: UserWindowFunction | None = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Combine the elements of each window by a function or ReduceFunction as they come, keeping one value
        per window.

        A window function, if given, gets that value as its only element when the window fires.
        """
        if window_function is None and output_type is None:
            output_type = self.get_input_type()
        return self._add(
            "Window(reduce)", reduce_function, window_function, self.get_input_type(), output_type
        )

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: UserWindowFunction | None = None,
        accumulator_type: TypeLike = None,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Combine the elements of each window by an AggregateFunction as they come, keeping one accumulator
        per window.

        A window function, if given, gets the result as its only element when the window fires. Sliding and
        session windows use `merge`.
        """
        if not isinstance(aggregate_function, AggregateFunction):
            raise TypeError(
                f"aggregate takes an AggregateFunction, not {type(aggregate_function).__name__}"
            )
        return self._add(
            "Window(aggregate)", aggregate_function, window_function, accumulator_type, output_type
        )

    def apply(
        self, window_function: UserWindowFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Apply a WindowFunction (AllWindowFunction after `window_all`) to all elements of each window
        that fires."""
        self._require(window_function, self._apply_kind, "apply")
        return self._add("Window(apply)", None, window_function, self.get_input_type(), output_type)

    def process(
        self, process_window_function: UserWindowFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Apply a ProcessWindowFunction (ProcessAllWindowFunction after `window_all`) to each window that
        fires."""
        self._require(process_window_function, self._process_kind, "process")
        return self._add(
            "Window(process)", None, process_window_function, self.get_input_type(), output_type
        )

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Sum up a field in each window. The other fields are those of the first element."""
        return self.reduce(FieldAggregation(Aggregation.SUM, position_to_sum))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Find the smallest value of a field in each window. The other fields are those of the first
        element."""
        return self.reduce(FieldAggregation(Aggregation.MIN, position_to_min))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Find the largest value of a field in each window. The other fields are those of the first
        element."""
        return self.reduce(FieldAggregation(Aggregation.MAX, position_to_max))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Find the element with the smallest value of a field in each window; the first one if several
        tie."""
        return self.reduce(FieldAggregation(Aggregation.MIN_BY, position_to_min_by))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Find the element with the largest value of a field in each window; the first one if several tie."""
        return self.reduce(FieldAggregation(Aggregation.MAX_BY, position_to_max_by))

    def _add(
        self,
        name: str,
        combine: object,
        function: object,
        content_type: TypeLike,
        output_type: TypeLike,
    ) -> DataStream:
        if function is not None and not isinstance(
            function, (self._apply_kind, self._process_kind)
        ):
            raise TypeError(
                f"{name} takes a {self._apply_kind.__name__} or a {self._process_kind.__name__}, not "
                f"{type(function).__name__}"
            )
        operation = replace(
            self._operation,
            combine=combine,
            function=function,
            content_type=to_type_info(content_type),
        )
        _check(operation)
        if operation.evictor is not None and combine is not None:
            operation = replace(
                operation, combine=None, function=_CombineAtTheEnd(combine, function)
            )
        return self._keyed_stream._add(OperatorKind.WINDOW, name, operation, output_type)

    @staticmethod
    def _require(function: object, kind: type, method: str) -> None:
        if not isinstance(function, kind):
            raise TypeError(
                f"{method} on windows takes a {kind.__name__}, not {type(function).__name__}"
            )


class AllWindowedStream(WindowedStream):
    """A stream without keys divided into windows, which are computed in a single subtask."""

    _apply_kind = AllWindowFunction
    _process_kind = ProcessAllWindowFunction

    def _add(
        self,
        name: str,
        combine: object,
        function: object,
        content_type: TypeLike,
        output_type: TypeLike,
    ) -> DataStream:
        windowed = super()._add(name, combine, function, content_type, output_type)
        return windowed.force_non_parallel()


class _CombineAtTheEnd:
    """Combines elements when the window fires: with an evictor all of them are kept until then."""

    def __init__(self, combine: Any, function: Any) -> None:
        self.combine = combine
        self.function = function

    def combined(self, elements: list[Any]) -> object:
        combine = self.combine
        if isinstance(combine, AggregateFunction):
            accumulator = combine.create_accumulator()
            for element in elements:
                accumulator = combine.add(element, accumulator)
            return combine.get_result(accumulator)
        reduce = combine.reduce if isinstance(combine, ReduceFunction) else combine
        return functools.reduce(reduce, elements)


def _check(operation: WindowOperation) -> None:
    assigner, trigger = operation.assigner, operation.trigger
    if isinstance(assigner, MergingWindowAssigner) and not trigger.can_merge():
        raise ProgramError(
            f"{type(trigger).__name__} cannot be used with {assigner}, whose windows merge: use a trigger "
            "whose can_merge() returns True."
        )
