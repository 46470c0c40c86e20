"""Builds the operators of a task, wires them to each other and to the router, and opens and closes them."""

from __future__ import annotations

from millpond.core.bundle import Bundle
from millpond.core.codec import freeze_all
from millpond.datastream.functions import Function
from millpond.datastream.state import StateDescriptor
from millpond.datastream.state_backend import StateBackend
from millpond.datastream.stream_graph import Exchange
from millpond.engine.checkpoint_listeners import CheckpointListeners
from millpond.engine.context import TaskClock, TaskRuntimeContext
from millpond.engine.exchange.router import RecordError, Router
from millpond.engine.metric_group import TaskMetrics
from millpond.engine.operator_state import OperatorState
from millpond.engine.operators.base import Emit, Operator
from millpond.engine.operators.registry import OPERATORS
from millpond.engine.operators.user_errors import close_function, user_error
from millpond.engine.time.watermark_operator import WatermarkOperator
from millpond.plan.physical import ExchangePlan, JobPlan, OperatorPlan, Route, TaskPlan
from millpond.state.handle_kinds import family_of

FIRST_AT_ONCE = 8


class OperatorChain:
    """The operators of one task in one subtask, with their own copies of the user's functions."""

    def __init__(
        self,
        job: JobPlan,
        task: TaskPlan,
        subtask: int,
        router: Router,
        attempt: int = 0,
        backend: StateBackend | None = None,
    ) -> None:
        self.job = job
        self.task = task
        self.subtask = subtask
        self.clock = TaskClock()
        if backend is not None:
            self.clock.backend_family = family_of(backend)
            self.clock.keeps_order = backend.in_memory
        self.metrics = TaskMetrics()
        self.router = router
        self._attempt = attempt
        self.records_at_once = FIRST_AT_ONCE
        """How many records a source task takes at once if its time is limited (`split_pass.py`)."""
        self._helpers: list[tuple[OperatorPlan, Function]] = []
        self.operators: dict[int, Operator] = {}
        self.assigners: dict[int, WatermarkOperator] = {}
        """The operators that generate watermarks, by id."""
        for operator_id in task.operators:
            plan = job.operators[operator_id]
            operator = OPERATORS[plan.kind](plan, self.clock, subtask)
            operator.batch_mode = job.batch_mode
            if isinstance(operator, WatermarkOperator):
                operator.router = router
                self.assigners[operator_id] = operator
            self.operators[operator_id] = operator
        for operator in self.operators.values():
            self._wire(operator)
        self.root = self.operators[task.root]
        self.root.is_keyed_root = task.keyed
        self.listeners = CheckpointListeners(self)
        self.operator_state = OperatorState(self)

    def open(self) -> None:
        """Open all functions. Called once, before any record.

        If the root keeps operator state, this does nothing until that state is there: `OperatorState.begin`
        calls it again."""
        if self.operator_state.is_awaited:
            return
        for plan, helper in self._helpers:
            try:
                helper.open(self._context(plan, keyed=False))
            except Exception as problem:
                raise user_error(problem, plan.name, self.subtask, "open()", None) from None
        # Downstream first, as in Flink: an operator may emit as soon as it is open.
        for operator in reversed(self.operators.values()):
            keyed = self.task.keyed and operator is self.root
            operator.open(self._context(operator.plan, keyed))

    @property
    def has_state(self) -> bool:
        """True if the root remembers something from one batch to the next."""
        return self.task.keyed or self.root.keeps_state or bool(self.operator_state)

    def declared_states(self) -> list[tuple[str, StateDescriptor]]:
        """Return (stored name, descriptor) of the states that the functions have asked for so far."""
        found = (getattr(follower, "declared", None) for follower in self.clock.bound)
        return [declared for declared in found if declared is not None]

    def close(self) -> None:
        """Close all functions. Not called if the process is killed."""
        for operator in self.operators.values():
            operator.close()
        for plan, helper in self._helpers:
            close_function(helper, plan.name, self.subtask)

    def _context(self, plan: OperatorPlan, keyed: bool) -> TaskRuntimeContext:
        return TaskRuntimeContext(
            plan,
            self.clock,
            self.metrics,
            self.subtask,
            keyed,
            self.job.job_parameters,
            self._attempt,
        )

    def _wire(self, operator: Operator) -> None:
        by_tag: dict[str | None, list[Route]] = {}
        for route in operator.plan.routes:
            by_tag.setdefault(route.tag, []).append(route)
        for tag, routes in by_tag.items():
            emit = self._emit(operator, routes)
            if tag is None:
                operator.emit = emit
            else:
                operator.side_outputs[tag] = emit

    def _emit(self, operator: Operator, routes: list[Route]) -> Emit:
        targets = [self._target(operator, route) for route in routes]
        if len(targets) == 1:
            return targets[0]

        def emit_to_all(bundle: Bundle) -> None:
            # Each branch gets its own copies of the values, because one may change them in place.
            frozen = bundle.with_values(freeze_all(bundle.values))
            for target in targets:
                target(frozen)

        return emit_to_all

    def _target(self, operator: Operator, route: Route) -> Emit:
        if route.operator is not None:
            return self.operators[route.operator].process
        exchange: Exchange | ExchangePlan
        if route.sink is not None:
            exchange = route.sink_exchange
            send = self.router.sink_sender(self.job.sinks[route.sink], exchange)
        else:
            assert route.exchange is not None
            exchange = self.job.exchanges[route.exchange]
            send = self.router.exchange_sender(exchange)
        for helper in (exchange.key_selector, exchange.partitioner):
            if isinstance(helper, Function):
                self._helpers.append((operator.plan, helper))

        def send_or_explain(bundle: Bundle) -> None:
            try:
                send(bundle)
            except RecordError as error:
                what = "key_by" if exchange.partitioner is None else "partition_custom"
                raise user_error(
                    error.problem, operator.name, self.subtask, what, error.record
                ) from None

        return send_or_explain
