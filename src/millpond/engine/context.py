"""What the functions inside a task can see: the current record and key, the clocks, the state."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.datastream.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
)
from millpond.datastream.state import StateDescriptor
from millpond.datastream.stream_graph import OperatorKind
from millpond.datastream.time_domain import TimeDomain
from millpond.datastream.timerservice import TimerService
from millpond.engine.metric_group import TaskMetricGroup, TaskMetrics
from millpond.errors import ProgramError
from millpond.metrics.metricbase import MetricGroup
from millpond.plan.physical import OperatorPlan
from millpond.state.grouping import is_reserved
from millpond.state.handle_kinds import make_handle
from millpond.state.handles import CurrentKey
from millpond.state.kinds.kind import BackendFamily, BoundHandle
from millpond.state.kinds.registry import spec_of
from millpond.state.shard_state import ShardState
from millpond.state.timers import Timers


class _NoKey:
    """Stands for the current key while there is none. It cannot be hashed, so any look-up of state fails."""

    def __hash__(self) -> int:
        raise ProgramError(
            "There is no current key here, so keyed state and timers cannot be used. A broadcast record has "
            "no key: use ctx.apply_to_keyed_state(descriptor, function)."
        )

    def __repr__(self) -> str:
        return "no key"


NO_KEY = _NoKey()


class TaskClock:
    """The clocks of a task, and its current key and shard. They are set by whoever drives the task; a
    wall clock is never read here.

    Whatever depends on the shard (state handles, timer services) is in `bound`, and `bind` turns all of
    it to the next shard."""

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.processing_time_ms = 0
        self.epoch = 0
        self.timestamp: int | None = None  # of the current record, or the time of the current timer
        self.in_processing_timer = False
        self.current = CurrentKey()
        self.state: ShardState | None = None
        self.keeps_order = True  # the backend returns entries in the order in which they were put
        self.backend_family = BackendFamily.HASH
        self.bound: list[BoundHandle] = []
        # Called for each queryable state that a function asks for; None if nobody can look them up.
        self.declare: Callable[[OperatorPlan, StateDescriptor], None] | None = None

    @property
    def event_time(self) -> int | None:
        """The event time of the current record or event-time timer; None if it has none."""
        return None if self.in_processing_timer else self.timestamp

    def bind(self, state: ShardState) -> None:
        """Turn to the state of another shard, together with everything in `bound`."""
        self.state = state
        self.timestamp = None
        for follower in self.bound:
            follower.bind(state)


class TaskTimerService(TimerService):
    """The clocks, and the timers of the current key. Setting a timer raises if the stream is not keyed."""

    def __init__(self, clock: TaskClock, operator: str, keyed: bool) -> None:
        self._clock = clock
        self._current = clock.current
        self._operator = operator
        self._event_timers: Timers | TaskTimerService = self
        self._processing_timers: Timers | TaskTimerService = self
        if keyed:
            clock.bound.append(self)

    def bind(self, state: ShardState) -> None:
        """Turn to the timers of another shard."""
        self._event_timers = state.event_timers
        self._processing_timers = state.processing_timers

    def current_processing_time(self) -> int:
        return self._clock.processing_time_ms

    def current_watermark(self) -> int:
        return self._clock.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._processing_timers.register(index(timestamp), self._current.key)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._event_timers.register(index(timestamp), self._current.key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._processing_timers.delete(index(timestamp), self._current.key)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._event_timers.delete(index(timestamp), self._current.key)

    def register(self, *_: object) -> None:
        """Raise ProgramError. Called in place of `Timers.register` and `Timers.delete` if there is no key."""
        raise ProgramError(
            f"Operator '{self._operator}' sets a timer, but timers need a keyed stream: use "
            "key_by(...).process(KeyedProcessFunction)."
        )

    delete = register


class FunctionContext(
    KeyedProcessFunction.OnTimerContext,
    KeyedCoProcessFunction.OnTimerContext,
    ProcessFunction.Context,
    CoProcessFunction.Context,
):
    """The `ctx` argument of all process functions. There is one object per operator, not one per record."""

    def __init__(self, clock: TaskClock, operator: str, keyed: bool) -> None:
        self._clock = clock
        self._timer_service = TaskTimerService(clock, operator, keyed)
        self.domain = TimeDomain.EVENT_TIME

    def timer_service(self) -> TimerService:
        return self._timer_service

    def timestamp(self) -> int | None:
        return self._clock.timestamp

    def get_current_key(self) -> object:
        return self._clock.current.key

    def time_domain(self) -> TimeDomain:
        return self.domain


class TaskRuntimeContext(RuntimeContext):
    """What a function gets in its `open`: where it runs, its metrics and, if `keyed`, its keyed state."""

    def __init__(
        self,
        operator: OperatorPlan,
        clock: TaskClock,
        metrics: TaskMetrics,
        subtask: int,
        keyed: bool,
        job_parameters: dict[str, str],
        attempt: int = 0,
    ) -> None:
        self._operator = operator
        self._clock = clock
        self._metrics = TaskMetricGroup(metrics, operator.name)
        self._subtask = subtask
        self._keyed = keyed
        self._job_parameters = job_parameters
        self._attempt = attempt
        self._states: dict[str, tuple[StateDescriptor, Any]] = {}

    def get_task_name(self) -> str:
        return self._operator.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._operator.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._operator.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._subtask

    def get_attempt_number(self) -> int:
        return self._attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._operator.name} ({self._subtask + 1}/{self._operator.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics

    def keyed_state(self, state_descriptor: StateDescriptor) -> Any:
        """Return the handle of a state of any kind; the same one if it is asked for again.

        Raises ProgramError if the stream has no key, if this operator cannot have a state of this kind, or if
        it has declared the state with another kind before."""
        descriptor = state_descriptor
        if not self._keyed:
            raise ProgramError(
                f"Operator '{self._operator.name}' asks for state '{descriptor.name}', but keyed "
                "state needs a keyed stream: call key_by(...) before it."
            )
        if is_reserved(descriptor.name):
            raise ProgramError(
                f"Operator '{self._operator.name}' asks for state '{descriptor.name}', but names that begin "
                "like this are Millpond's own. Choose another one."
            )
        by_columns = self._operator.kind is OperatorKind.KEYED_COLUMNS
        if by_columns != spec_of(descriptor.kind).for_column_functions:
            raise ProgramError(
                f"Operator '{self._operator.name}' asks for {descriptor.kind.value} state "
                f"'{descriptor.name}', but a KeyedColumnFunction has column states only, and other "
                "functions cannot have column states."
            )
        known = self._states.get(descriptor.name)
        if known is not None:
            if known[0].kind is not descriptor.kind:
                raise ProgramError(
                    f"Operator '{self._operator.name}' declares state '{descriptor.name}' twice, "
                    f"as {known[0].kind.value} and as {descriptor.kind.value}."
                )
            return known[1]
        handle = make_handle(
            descriptor, self._clock.current, self._clock, self._clock.backend_family
        )
        self._states[descriptor.name] = (descriptor, handle)
        if descriptor.is_queryable() and self._clock.declare is not None:
            self._clock.declare(self._operator, descriptor)
        self._clock.bound.append(handle)
        if self._clock.state is not None:
            handle.bind(self._clock.state)
        return handle

    get_state = get_list_state = get_map_state = keyed_state
    get_reducing_state = get_aggregating_state = get_column_state = keyed_state
