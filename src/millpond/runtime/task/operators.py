"""The operators: one class per kind. A record goes in by `process`, results leave by `emit`.

Chained operators call each other directly. A failing user function becomes a UserFunctionError
that names the operator and the record, once, where it happened.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.common.typeinfo import to_type_info
from millpond.common.watermark_strategy import (
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millpond.datastream.functions import Function
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.state import ReducingStateDescriptor
from millpond.datastream.time_domain import TimeDomain
from millpond.errors import MillpondError, TypeMismatchError, UserFunctionError
from millpond.plan.graph import OperatorKind
from millpond.plan.physical import OperatorPlan
from millpond.runtime.task.context import FunctionContext, TaskClock, TaskRuntimeContext
from millpond.runtime.task.frames import Part
from millpond.runtime.task.router import Router

Emit = Callable[[Any, "int | None"], None]
_RECORD_TEXT = 300
_HIDDEN_FRAMES = ("millpond/runtime/", "millpond/state/", "pyspark/")


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
    """Base: life cycle, outputs, type checks."""

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

    def process(self, value: Any, timestamp: int | None) -> None:
        raise NotImplementedError(type(self).__name__)

    def process_input(self, index: int, value: Any, timestamp: int | None) -> None:
        self.process(value, timestamp)

    def on_timer(self, time_ms: int, domain: TimeDomain) -> None:
        """A timer of the current key fires."""

    def send(self, result: Any, timestamp: int | None) -> None:
        """Emit one result to the main output, after the type check."""
        if self._check is not None:
            try:
                result = self._check(result)
            except TypeMismatchError as mismatch:
                raise self.failed(mismatch, "emitting a result", result) from None
        self.emit(result, timestamp)

    def send_all(self, results: Iterable[Any] | None, timestamp: int | None) -> None:
        """Emit what a process function yields; (OutputTag, value) goes to a side output."""
        if results is None:
            return
        for result in results:
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                self._send_to_side(result[0], result[1], timestamp)
            else:
                self.send(result, timestamp)

    def _send_to_side(self, tag: OutputTag, value: Any, timestamp: int | None) -> None:
        emit = self.side_outputs.get(tag.tag_id)
        if emit is None:
            return  # nobody reads this side output
        check = self._tag_checks.get(tag.tag_id)
        if check is not None:
            try:
                value = check(value)
            except TypeMismatchError as mismatch:
                action = f"emitting to side output '{tag.tag_id}'"
                raise self.failed(mismatch, action, value) from None
        emit(value, timestamp)

    def failed(self, problem: BaseException, action: str, record: Any) -> MillpondError:
        return user_error(problem, self.name, self.subtask, action, record)


def _discard(value: Any, timestamp: int | None) -> None:
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

    def process(self, value: Any, timestamp: int | None) -> None:
        try:
            result = self._map(value)
        except Exception as problem:
            raise self.failed(problem, "map", value) from None
        self.send(result, timestamp)


class FlatMapOperator(Operator):
    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._flat_map = _method(plan.function, "flat_map")

    def process(self, value: Any, timestamp: int | None) -> None:
        try:
            results = self._flat_map(value)
            if results is not None:
                for result in results:
                    self.send(result, timestamp)
        except Exception as problem:
            raise self.failed(problem, "flat_map", value) from None


class FilterOperator(Operator):
    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._filter = _method(plan.function, "filter")

    def process(self, value: Any, timestamp: int | None) -> None:
        try:
            keep = self._filter(value)
        except Exception as problem:
            raise self.failed(problem, "filter", value) from None
        if keep:
            self.emit(value, timestamp)


class ProcessOperator(Operator):
    """ProcessFunction and KeyedProcessFunction."""

    keyed = False

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._context = FunctionContext(clock, self.name, self.keyed)

    def process(self, value: Any, timestamp: int | None) -> None:
        self.clock.timestamp = timestamp
        try:
            results = self.plan.function.process_element(value, self._context)
            if results is not None:
                self.send_all(results, timestamp)
        except Exception as problem:
            raise self.failed(problem, "process_element", value) from None


class KeyedProcessOperator(ProcessOperator):
    keyed = True

    def on_timer(self, time_ms: int, domain: TimeDomain) -> None:
        event_time = domain is TimeDomain.EVENT_TIME
        timestamp = time_ms if event_time else None
        self.clock.timestamp = time_ms
        self._context.domain = domain
        try:
            self.send_all(self.plan.function.on_timer(time_ms, self._context), timestamp)
        except Exception as problem:
            action = f"on_timer at {time_ms} ({domain.name}) for key {self.clock.current.key!r}"
            raise self.failed(problem, action, None) from None


class CoMapOperator(Operator):
    def process_input(self, index: int, value: Any, timestamp: int | None) -> None:
        name = "map1" if index == 0 else "map2"
        try:
            result = getattr(self.plan.function, name)(value)
        except Exception as problem:
            raise self.failed(problem, name, value) from None
        if result is not None:
            self.send(result, timestamp)


class CoFlatMapOperator(Operator):
    def process_input(self, index: int, value: Any, timestamp: int | None) -> None:
        name = "flat_map1" if index == 0 else "flat_map2"
        try:
            results = getattr(self.plan.function, name)(value)
            if results is not None:
                for result in results:
                    self.send(result, timestamp)
        except Exception as problem:
            raise self.failed(problem, name, value) from None


class CoProcessOperator(ProcessOperator):
    def process_input(self, index: int, value: Any, timestamp: int | None) -> None:
        name = "process_element1" if index == 0 else "process_element2"
        self.clock.timestamp = timestamp
        try:
            self.send_all(getattr(self.plan.function, name)(value, self._context), timestamp)
        except Exception as problem:
            raise self.failed(problem, name, value) from None


class KeyedCoProcessOperator(KeyedProcessOperator, CoProcessOperator):
    """Both inputs see the same keyed state and timers."""


class ReduceOperator(Operator):
    """Rolling reduce; in batch mode one result per key, at the end of the input."""

    batch_mode = False

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._state = context.get_reducing_state(
            ReducingStateDescriptor("_reduce", self.plan.function, self.plan.output_type)
        )

    def process(self, value: Any, timestamp: int | None) -> None:
        try:
            self._state.add(value)
        except Exception as problem:
            raise self.failed(problem, "reduce", value) from None
        if self.batch_mode:
            assert self.clock.state is not None
            self.clock.state.event_timers.register(MAX_TIMESTAMP, self.clock.current.key)
        else:
            self.emit(self._state.get(), timestamp)

    def on_timer(self, time_ms: int, domain: TimeDomain) -> None:
        self.emit(self._state.get(), time_ms)


class WatermarkOperator(Operator):
    """Assigns timestamps and computes the watermark after every record (C11).

    It is a watermark origin: what follows lives by its watermark, not by the one from before. The
    generator belongs to one split at a time; `resume` and `suspend` exchange its state."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.strategy: WatermarkStrategy = plan.function
        self._assigner = self.strategy.timestamp_assigner
        self.batch_mode = False
        self.router: Router | None = None
        self.resume(None, 0)

    def resume(self, saved: tuple[Any, int, int] | None, now_ms: int) -> None:
        """Continue with (generator, watermark, last active at ms), or from the beginning."""
        if saved is None:
            saved = (self.strategy.create_generator(), MIN_TIMESTAMP, now_ms)
        self._generator: WatermarkGenerator
        self._generator, watermark, self._active_at_ms = saved
        self._output = WatermarkOutput(watermark)
        self._records = 0

    def suspend(self, now_ms: int) -> tuple[Any, int, int]:
        active_at_ms = now_ms if self._records else self._active_at_ms
        return self._generator, self._output.watermark, active_at_ms

    def is_active(self, now_ms: int) -> bool:
        timeout_ms = self.strategy.idle_timeout_ms
        return timeout_ms is None or bool(self._records) or now_ms - self._active_at_ms < timeout_ms

    def idle_at_ms(self, now_ms: int) -> int | None:
        """When this split becomes idle if nothing comes; None if never or already."""
        timeout_ms = self.strategy.idle_timeout_ms
        if timeout_ms is None or not self.is_active(now_ms):
            return None
        return (now_ms if self._records else self._active_at_ms) + timeout_ms

    @property
    def watermark(self) -> int:
        return self._output.watermark

    def process(self, value: Any, timestamp: int | None) -> None:
        self._records += 1
        if self._assigner is not None:
            try:
                given = MIN_TIMESTAMP if timestamp is None else timestamp
                timestamp = self._assigner.extract_timestamp(value, given)
            except Exception as problem:
                raise self.failed(problem, "extract_timestamp", value) from None
        clock, router, output = self.clock, self.router, self._output
        before = clock.watermark
        clock.watermark = MIN_TIMESTAMP if self.batch_mode else output.watermark
        if router is None:
            self.emit(value, timestamp)
        else:
            part, place = router.part, router.place
            router.part = Part(self.plan.id, part.number)
            router.place = (clock.watermark, place[1], place[2])
            self.emit(value, timestamp)
            router.part, router.place = part, place
        clock.watermark = before
        try:
            event_time = MIN_TIMESTAMP if timestamp is None else timestamp
            self._generator.on_event(value, event_time, output)
            self._generator.on_periodic_emit(output)
        except Exception as problem:
            raise self.failed(problem, "the watermark generator", value) from None


class SourceOperator(Operator):
    """The start of a head: checks records against the source's declared type."""

    def process(self, value: Any, timestamp: int | None) -> None:
        self.send(value, timestamp)


OPERATORS: dict[OperatorKind, type[Operator]] = {
    OperatorKind.SOURCE: SourceOperator,
    OperatorKind.MAP: MapOperator,
    OperatorKind.FLAT_MAP: FlatMapOperator,
    OperatorKind.FILTER: FilterOperator,
    OperatorKind.PROCESS: ProcessOperator,
    OperatorKind.KEYED_PROCESS: KeyedProcessOperator,
    OperatorKind.REDUCE: ReduceOperator,
    OperatorKind.CO_MAP: CoMapOperator,
    OperatorKind.CO_FLAT_MAP: CoFlatMapOperator,
    OperatorKind.CO_PROCESS: CoProcessOperator,
    OperatorKind.KEYED_CO_PROCESS: KeyedCoProcessOperator,
    OperatorKind.ASSIGN_WATERMARKS: WatermarkOperator,
}
