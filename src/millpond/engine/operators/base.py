"""What operators have in common, and what each kind of operator can do beyond that.

A record goes in, and results leave by `emit`; chained operators call each other directly. How an operator
wants its records decides which task drives it (`tasks.py`):

    Operator                 a bundle at a time, inside a chain or as its root
    RecordOperator           as a root: record by record, with timers in between
    BatchedWindowOperator    as a root: all records of a batch, then the windows that are due
    KeyedColumnsOperator     as a root: records and timers of a stretch of event time, as columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Protocol, TypeGuard

from millpond.common.typeinfo import to_type_info
from millpond.core.bundle import Bundle
from millpond.core.codec import thaw_all
from millpond.core.record_columns import Values, as_list
from millpond.datastream.functions import EventTimeHorizonListener, Function
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.time_domain import TimeDomain
from millpond.engine.context import NO_KEY, TaskClock, TaskRuntimeContext
from millpond.engine.operators.user_errors import close_function, user_error
from millpond.errors import MillpondError, TypeMismatchError
from millpond.plan.physical import OperatorPlan


class TimerContext(Protocol):
    """The `ctx` argument of a process function. The task sets `domain` before it fires timers."""

    domain: TimeDomain


Emit = Callable[[Bundle], None]
Handler = Callable[[Any, Any], "Iterable[Any] | None"]
"""Takes (value, context), or (time in ms, context) if it handles timers; returns results."""
Outputs = Iterable[tuple[str | None, Bundle]]
"""(tag of a side output, or None for the main output; what leaves by it)"""


class Drive(Enum):
    """How the root of a task wants its records."""

    RECORDS = "records"
    """Record by record, or a bundle at a time (`Operator.by_record`)."""
    BATCHED_WINDOWS = "batched windows"
    COLUMNS = "columns"


class Operator:
    """The base class of operators: life cycle, outputs, type checks. The attributes of the class say what the
    operator can do."""

    drive = Drive.RECORDS
    keeps_state = False
    """True if, as a root without keys, it remembers something from one batch to the next."""
    later_input_first = False
    """True if, at the same instant, records of input 1 come before those of input 0."""
    batch_mode = False
    """True if the job runs in batch mode. Set by the chain."""
    is_keyed_root = False
    """True if the operator gets its records by key, and so may have keyed state. Set by the chain."""

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
        """Open the user's function. Called once, before any record."""
        function = self.plan.function
        if isinstance(function, Function):
            try:
                function.open(context)
            except Exception as problem:
                raise user_error(problem, self.name, self.subtask, "open()", None) from None

    def close(self) -> None:
        """Close the user's function. Not called if the process is killed."""
        close_function(self.plan.function, self.name, self.subtask)

    def by_record(self) -> RecordOperator | None:
        """Return this operator if it wants its records one by one; None if it takes whole bundles."""
        return None

    def by_key(self, bundle: Bundle, values: list[Any]) -> Iterable[Any]:
        """Return the values of a bundle. If they came by key, the key of each is the current one while it is
        looked at."""
        if not self.is_keyed_root or bundle.keys is None:
            return values
        return self._with_keys(thaw_all(bundle.keys), values)

    def _with_keys(self, keys: list[Any], values: list[Any]) -> Iterable[Any]:
        current = self.clock.current
        for current.key, value in zip(keys, values, strict=True):
            yield value

    def process(self, bundle: Bundle) -> None:
        """Take a bundle and emit what comes of it. Operators that are always roots are never called."""
        raise NotImplementedError(type(self).__name__)

    def send(self, outputs: Outputs) -> None:
        """Check results against their declared types and send them down the chain."""
        for tag, bundle in outputs:
            if tag is None:
                self.emit(bundle.with_values(self.checked(bundle.values)))
            elif tag in self.side_outputs:  # else: nobody reads this side output
                values = self.check_side(tag, bundle.values)
                self.side_outputs[tag](bundle.with_values(values))

    def checked(self, results: Values) -> Values:
        """Return results after the type check of the main output; raises if one does not fit."""
        return self._conform(results, self._check, "emitting a result")

    def check_side(self, tag: str, values: Values) -> Values:
        """Return values after the type check of a side output; raises if one does not fit."""
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

    def failed(self, problem: BaseException, action: str, record: object) -> MillpondError:
        """Return the error to raise when the user's function fails on a record."""
        return user_error(problem, self.name, self.subtask, action, record)


class RecordOperator(Operator):
    """An operator that a `Task` drives record by record, with the clock at each record's place."""

    context: TimerContext | None = None
    """The `ctx` argument of its handlers."""
    action = "process_element"
    """What the operator does with a record, as error messages put it."""
    stamps_results = False
    """True if handlers return (value, timestamp) instead of values."""

    def by_record(self) -> RecordOperator | None:
        return self

    def handlers(self) -> list[Handler]:
        """Return one handler per input."""
        raise NotImplementedError(type(self).__name__)

    def timer_handler(self) -> Handler:
        """Return the handler that is called when a timer of the current key fires."""
        return lambda time_ms, context: None

    def horizon_listener(self) -> Callable[[int], None] | None:
        """Return a function to call with how far event time will go, or None if the user's function does not
        want to know (EventTimeHorizonListener)."""
        function = self.user_function()
        if not isinstance(function, EventTimeHorizonListener):
            return None

        def tell(until_ms: int) -> None:
            self.clock.current.key = NO_KEY
            try:
                function.event_time_horizon(until_ms, self.context)
            except Exception as problem:
                raise self.failed(problem, "event_time_horizon", None) from None

        return tell

    def user_function(self) -> object:
        """Return the function that the program has given to this operator."""
        return self.plan.function


def _discard(bundle: Bundle) -> None:
    """Stands for `emit` where nobody reads the output."""


def is_tagged(result: object) -> TypeGuard[tuple[OutputTag, Any]]:
    """Return True for (OutputTag, value), which is a result for a side output."""
    return type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag)
