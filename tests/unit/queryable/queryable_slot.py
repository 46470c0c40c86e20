"""A slot's heart without the slot: a job whose batches are run by hand, and look-ups in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from millpond.common import Types
from millpond.core.storage import MemoryStorage
from millpond.datastream import AggregateFunction, KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millpond.driver.planning import plan_job
from millpond.engine.exchange.batch import LanePlan, SplitPlan
from millpond.engine.exchange.controls import Start
from millpond.engine.exchange.reports import Report
from millpond.engine.host import JobHost
from millpond.engine.state_views import StateViews
from millpond.plan.physical import JobPlan
from millpond.queryable.answers import Answers
from millpond.queryable.protocol import Status
from millpond.state.partition_log import EMPTY
from millpond.testing import direct_environment

# Called by functions after each record. A global: functions are copied.
PROBES: list[Callable[[], None]] = []


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0, 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        return [accumulator[0] + value, accumulator[1] + 1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise NotImplementedError


def descriptors() -> dict[str, StateDescriptor]:
    """A queryable state of every kind."""
    made: list[StateDescriptor] = [
        ValueStateDescriptor("value", Types.LONG()),
        ListStateDescriptor("list", Types.LONG()),
        MapStateDescriptor("map", Types.STRING(), Types.LONG()),
        ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
        AggregatingStateDescriptor("aggregating", Mean(), None),
    ]
    for descriptor in made:
        descriptor.set_queryable(f"my {descriptor.name}")
    return {descriptor.name: descriptor for descriptor in made}


class Do(KeyedProcessFunction):
    """Records are (key, what to do, with what)."""

    def __init__(self, change: Callable[[StateDescriptor], None] | None = None) -> None:
        self._change = change

    def open(self, runtime_context: RuntimeContext) -> None:
        own: dict[str, Any] = descriptors()
        for descriptor in own.values():
            if self._change is not None:
                self._change(descriptor)
        self.value = runtime_context.get_state(own["value"])
        self.list = runtime_context.get_list_state(own["list"])
        self.map = runtime_context.get_map_state(own["map"])
        self.reducing = runtime_context.get_reducing_state(own["reducing"])
        self.aggregating = runtime_context.get_aggregating_state(own["aggregating"])

    def process_element(self, record: Any, ctx: Any) -> None:
        _, what, *arguments = record
        if what == "fail":
            raise ValueError("told to fail")
        state, _, method = what.partition(".")
        getattr(getattr(self, state), method)(*arguments)
        for probe in PROBES:
            probe()


class HandSlot:
    """One partition. `commit_now` says what Spark has committed; look-ups go by that."""

    def __init__(
        self,
        function: KeyedProcessFunction | None = None,
        settings: dict[str, Any] | None = None,
        max_parallelism: int = 2,
        lock: Any = None,
    ) -> None:
        key = (max_parallelism, *sorted((settings or {}).items()))
        if function is not None or key not in _PLANS:
            _PLANS[key] = _plan(function or Do(), max_parallelism, settings or {})
        self.plan, self._blob = _PLANS.pop(key) if function is not None else _PLANS[key]
        self._lock = lock
        self.storage = MemoryStorage()
        self._starts = 0
        self._log = self._next_log = EMPTY
        self.committed = -1
        self.now_ms = 0
        self.wanted_batches = 0
        self.start()

    def start(self) -> None:
        """A new process: nothing is loaded."""
        self.views = StateViews(lock=self._lock)
        self.host = JobHost(self._blob, self.storage, str(self._starts), views=self.views)
        self._starts += 1
        self.answers = self.new_answers()

    def new_answers(self, pause: Callable[[], None] = lambda: None) -> Answers:
        return Answers(
            self.views, 0, 1, lambda: self.committed, lambda: self.now_ms, pause, self._want_batch
        )

    def _want_batch(self) -> None:
        self.wanted_batches += 1

    def run(self, epoch: int, records: list[Any], clocks: tuple[int, int] = (0, 0)) -> None:
        """One batch, up to where Spark would commit it."""
        head = self.plan.source_tasks[0]
        (task,) = (task for task in self.plan.tasks.values() if task.level == 1)
        split = SplitPlan(head.root, 0, [records], False)
        start = Start([clocks[0]], {}, clocks[0])
        lane = LanePlan(epoch, 0, self.now_ms, [split], {task.id: start}, False)
        lane.logs = {(1, 0): self._log}
        rows = list(self.host.run_lane(lane, Report()))
        self._next_log = self.host.run_level(1, 0, rows).position

    def commit(self, epoch: int) -> None:
        self._log = self._next_log
        self.committed = epoch

    def roll_back(self) -> None:
        """Whatever was written does not count."""

    def get(self, state: str, *keys: Any, **entry: Any) -> list[Any]:
        """[status, what] of each key."""
        answer = self.answers.get({"state": f"my {state}", "keys": list(keys), **entry})
        return [[Status(status), what] for status, what in answer["results"]]

    def close(self) -> None:
        self.host.close()


_PLANS: dict[Any, tuple[JobPlan, bytes]] = {}  # they take longer to make than batches to run


def _plan(
    function: KeyedProcessFunction, max_parallelism: int, settings: dict[str, Any]
) -> tuple[JobPlan, bytes]:
    common = {"parallelism.default": 1, "pipeline.max-parallelism": max_parallelism}
    environment = direct_environment({**common, **settings})
    stream = environment.from_collection([]).key_by(lambda record: record[0], Types.STRING())
    stream.process(function).print()
    plan = plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), None
    )
    return plan, cloudpickle.dumps(plan)
