"""Runs two streams: records of a broadcast stream change broadcast state, which the others read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from millpond.datastream.connected_streams import BroadcastOperation
from millpond.datastream.functions import (
    BaseBroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    Results,
)
from millpond.datastream.state import MapStateDescriptor, StateDescriptor
from millpond.datastream.time_domain import TimeDomain
from millpond.datastream.timerservice import TimerService
from millpond.engine.context import NO_KEY, TaskClock, TaskRuntimeContext, TaskTimerService
from millpond.engine.operators.base import Handler, RecordOperator
from millpond.errors import ProgramError
from millpond.plan.physical import OperatorPlan
from millpond.state.broadcast_state import BroadcastStateHandle, ReadOnlyBroadcastStateHandle


class BroadcastProcessOperator(RecordOperator):
    """BroadcastProcessFunction. Input 1 is the broadcast stream, and input 0 is the other one."""

    keeps_state = True
    later_input_first = True
    context: _ReadOnlyContext
    keyed = False
    action = "process_element or process_broadcast_element"

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._operation: BroadcastOperation = plan.function
        self.context = _ReadOnlyContext(self)
        self._broadcast_context = _Context(self)

    def open(self, context: TaskRuntimeContext) -> None:
        self.runtime_context = context
        self.states: dict[str, BroadcastStateHandle] = {}
        self.read_only_states: dict[str, BroadcastStateHandle] = {}
        for descriptor in self._operation.descriptors:
            self.states[descriptor.name] = BroadcastStateHandle(descriptor)
            self.read_only_states[descriptor.name] = ReadOnlyBroadcastStateHandle(descriptor)
        self.clock.bound += [*self.states.values(), *self.read_only_states.values()]
        super().open(context)

    def user_function(self) -> object:
        return self._operation.function

    def handlers(self) -> list[Handler]:
        return [self._operation.function.process_element, self._broadcast_element]  # type: ignore[list-item]

    def _broadcast_element(self, value: object, _: object) -> Results[Any]:
        self.clock.current.key = NO_KEY
        return self._operation.function.process_broadcast_element(value, self._broadcast_context)  # type: ignore[arg-type]


class KeyedBroadcastProcessOperator(BroadcastProcessOperator):
    """KeyedBroadcastProcessFunction: records of input 0 have a key, and so can use keyed state and timers."""

    keyed = True

    def timer_handler(self) -> Handler:
        return self._operation.function.on_timer  # type: ignore[union-attr, return-value]


class _BaseContext(BaseBroadcastProcessFunction.BaseContext):
    def __init__(self, operator: BroadcastProcessOperator) -> None:
        self._operator = operator
        self._clock = operator.clock

    def timestamp(self) -> int | None:
        return self._clock.timestamp

    def current_processing_time(self) -> int:
        return self._clock.processing_time_ms

    def current_watermark(self) -> int:
        return self._clock.watermark

    def _find(
        self, states: dict[str, BroadcastStateHandle], descriptor: MapStateDescriptor
    ) -> BroadcastStateHandle:
        state = states.get(descriptor.name)
        if state is None:
            raise ProgramError(
                f"Operator '{self._operator.name}' asks for broadcast state '{descriptor.name}', which was "
                f"not given to broadcast(...); it has {sorted(states)}."
            )
        return state


class _ReadOnlyContext(_BaseContext, KeyedBroadcastProcessFunction.OnTimerContext):
    def __init__(self, operator: BroadcastProcessOperator) -> None:
        super().__init__(operator)
        self._timer_service = TaskTimerService(operator.clock, operator.name, operator.keyed)
        self.domain = TimeDomain.EVENT_TIME

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastStateHandle:
        return self._find(self._operator.read_only_states, state_descriptor)

    def timer_service(self) -> TimerService:
        return self._timer_service

    def get_current_key(self) -> object:
        return self._clock.current.key

    def time_domain(self) -> TimeDomain:
        return self.domain


class _Context(_BaseContext, KeyedBroadcastProcessFunction.Context):
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastStateHandle:
        return self._find(self._operator.states, state_descriptor)

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], Any]
    ) -> None:
        handle = self._operator.runtime_context.keyed_state(state_descriptor)
        current = self._clock.current
        before = current.key
        try:
            for key in handle.keys_with_state():
                current.key = key
                if inspect.isgenerator(function(key, handle)):
                    raise ProgramError(
                        "The function of apply_to_keyed_state must not yield: collect what is to be emitted "
                        "in a list, and yield it in process_broadcast_element."
                    )
        finally:
            current.key = before

    def timer_service(self) -> TimerService:
        """Return the timers of the current key. Beyond Flink: within apply_to_keyed_state there is a key, so
        timers can be used there."""
        if self._clock.current.key is NO_KEY:
            raise ProgramError(
                "A broadcast record has no key, so it cannot set timers. Set them in process_element, or in "
                "the function that you give to apply_to_keyed_state."
            )
        return self._operator.context.timer_service()
