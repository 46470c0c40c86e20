"""A host takes over the states of an older one of the same job, whose driver has died, and uses them only if
they are what the journal says (E42)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest

from millpond.common import JobStatus, Types
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes
from millpond.engine.sink_pass import SinkHost
from millpond.executors.direct.executor import DirectExecutor, DirectExecutors
from millpond.plan.physical import JobPlan
from millpond.state import change_log as changelog
from millpond.testing import CUT, MarkedSource, direct_environment


@dataclass(frozen=True)
class Key:
    name: str


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


def planned(make_key: Any = str, **settings: Any) -> JobPlan:
    environment = direct_environment(settings)
    records = ["a", "b", CUT, "a", "c", CUT, "b", "a", CUT, "c"]
    stream = environment._source(MarkedSource(records), "records", None).uid("records")
    counted = stream.key_by(make_key).process(Count()).uid("count")
    counted._sink("out", SinkKind.COLLECT, None)
    return plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), None
    )


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an entry for every state that was loaded from its logs."""
    found: list[int] = []
    load = changelog.load

    def noted(stores: Any, state: Any, check: Any) -> None:
        found.append(state.number)
        load(stores, state, check)

    monkeypatch.setattr(changelog, "load", noted)
    return found


def successor(executor: DirectExecutor, executors: DirectExecutors, plan: JobPlan) -> None:
    """Let another host, of another process as it were, go on with the job."""
    blob = cloudpickle.dumps(plan)
    host = JobHost(blob, executors.storage, "next", 1, older=executor._passes.retire())
    executor._passes = Passes(host, SinkHost(blob))


def run(plan: JobPlan, next_plan: JobPlan, loses_a_batch: bool = False) -> list[Any]:
    results: list[Any] = []
    executors = DirectExecutors(plan, results.extend)
    executors.start()
    executor = executors.attempt(0)
    executor._run_batch()
    if loses_a_batch:
        # It runs, but the driver dies before it counts: the next run does it again.
        lanes = executors.coordinator.plan()
        for lane in lanes:
            sent = executor._passes.run_lane(lane)
        executor._passes.run_stage(1, 0, lanes[0].epoch, [chunk for _, chunk in sent])
        executors.lanes = lanes
    successor(executor, executors, next_plan)
    executor.run()
    executors.close(JobStatus.FINISHED)
    return results


EXPECTED = [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2), ("a", 3), ("c", 2)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("across_keys", [True, False])
@pytest.mark.parametrize("loses_a_batch", [True, False])
def test_states_are_taken_over_and_not_loaded_again(
    backend: str, across_keys: bool, loses_a_batch: bool, loads: list[int]
) -> None:
    settings = {"state.backend.type": backend, "millpond.order-across-keys": across_keys}
    assert sorted(run(planned(**settings), planned(**settings), loses_a_batch)) == sorted(EXPECTED)
    assert not loads


def test_states_whose_keys_are_objects_are_loaded_again(loads: list[int]) -> None:
    """Their class may come with the plan, and be another one for each plan."""
    assert run(planned(Key), planned(Key)) == EXPECTED
    assert loads


def test_states_of_another_backend_are_loaded_again(loads: list[int]) -> None:
    other = planned(**{"state.backend.type": "rocksdb"})
    assert run(planned(), other) == EXPECTED
    assert loads
