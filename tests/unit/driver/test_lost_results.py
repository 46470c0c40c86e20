"""Spark may lose what a pass has sent and run the pass again, for those who have not read it yet (E42).

Then some have read one run and some another. Such a batch must not count; it runs again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from millpond.common import Types
from millpond.core.storage import MemoryStorage
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.coordinator import Coordinator
from millpond.driver.epochs.batch_report import is_consistent
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.engine.exchange.batch import LanePlan
from millpond.engine.exchange.reports import PassRun
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, Sent, rows_for_driver, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.errors import BatchInconsistentError
from millpond.testing import direct_environment


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value % 5, self.count.value()


class Job:
    """Two keyed stages, two partitions; batches are run by hand."""

    def __init__(self) -> None:
        environment = direct_environment(
            {"parallelism.default": 2, "millpond.batch.max-records": 20}
        )
        numbers = environment.from_collection(list(range(60)))
        once = numbers.key_by(lambda n: n % 5).process(Count()).uid("once")
        twice = once.key_by(lambda pair: pair[0]).process(Count2()).uid("twice")
        twice._sink("out", SinkKind.COLLECT, None)
        graph, config = environment._pending_graph(), environment.get_config()
        self.plan = plan_job(graph, environment._configuration, config, None)
        self.collected: list[Any] = []
        output = OutputDelivery(self.plan, self.collected.extend)
        self.coordinator = Coordinator(self.plan, None, output, lambda: 0)
        blob = cloudpickle.dumps(self.plan)
        self.passes = Passes(JobHost(blob, MemoryStorage(), "0"), SinkHost(blob))
        self.coordinator.start()

    def run_with_losses(self, lanes: list[LanePlan], chance: random.Random) -> Any:
        """A batch in which some partitions read a second run of the stage before."""
        runs = [self._stage(0, lane.lane, [], lane) for lane in lanes]
        for stage in (1, 2):
            again = [list(run) for run in runs]
            lost = chance.randrange(2)
            again[lost] = self._run_again(stage - 1, lost, lanes[lost])
            readers = [runs, again]
            chance.shuffle(readers)
            self._received: dict[tuple[int, int], list[bytes]] = getattr(self, "_received", {})
            runs = []
            for partition in range(2):
                chunks = [
                    b for run in readers[partition] for target, b in run if target == partition
                ]
                self._received[stage, partition] = chunks
                runs.append(self._stage(stage, partition, chunks, None))
        return rows_for_driver(blob for run in runs for _, blob in run)

    def _run_again(self, stage: int, partition: int, lane: LanePlan) -> Sent:
        chunks = [] if stage == 0 else self._received[stage, partition]
        return self._stage(stage, partition, chunks, lane)

    def _stage(self, stage: int, partition: int, chunks: list[bytes], lane: Any) -> Sent:
        if stage == 0:
            return self.passes.run_lane(LanePlan.decode(lane.encode(), "a lane"))
        return self.passes.run_stage(stage, partition, self.coordinator.epoch, chunks)


class Count2(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield (*value, self.count.value())


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.coordinator.close()
    job.passes.close()


@pytest.mark.parametrize("seed", range(20))
def test_batch_with_two_runs_of_a_pass_runs_again(seed: int, job: Job) -> None:
    chance = random.Random(seed)
    while job.coordinator.end is None:
        lanes = job.coordinator.plan()
        before = dict(job.coordinator.metrics)
        with pytest.raises(BatchInconsistentError, match="Spark lost results"):
            job.coordinator.complete(job.run_with_losses(lanes, chance))
        assert job.coordinator.metrics == before, "nothing has changed"
        job.coordinator.complete(run_batch(job.passes, job.plan, lanes))
    expected = [(key, count, count) for count in range(1, 13) for key in range(5)]
    assert sorted(job.collected) == sorted(expected)


def test_a_stage_refuses_what_is_left_of_an_earlier_batch(job: Job) -> None:
    """Before it has done anything: state in memory and sinks stay as they are."""
    lanes = job.coordinator.plan()
    old = job.passes.run_lane(LanePlan.decode(lanes[0].encode(), "a lane"))
    job.coordinator.complete(run_batch(job.passes, job.plan, lanes))
    lanes = job.coordinator.plan()
    new = job.passes.run_lane(LanePlan.decode(lanes[1].encode(), "a lane"))
    chunks = [blob for target, blob in [*new, *old] if target == 0]
    with pytest.raises(BatchInconsistentError, match="kept results of batch 0"):
        job.passes.run_stage(1, 0, 1, chunks)


def test_results_of_an_earlier_batch_do_not_count(job: Job) -> None:
    rows = run_batch(job.passes, job.plan, job.coordinator.plan())
    job.coordinator.complete(rows)
    lanes = job.coordinator.plan()
    with pytest.raises(BatchInconsistentError, match="earlier batch"):
        job.coordinator.complete(rows)
    job.coordinator.complete(run_batch(job.passes, job.plan, lanes))


def run(level: int, partition: int, token: bytes, *inputs: bytes, epoch: int = 7) -> PassRun:
    return PassRun(epoch, level, partition, token, inputs, ())


def test_all_readers_must_have_read_the_run_that_is_reported() -> None:
    lanes = [run(0, 0, b"a"), run(0, 1, b"b")]
    first = run(1, 0, b"c", b"a", b"b")
    assert is_consistent([*lanes, first, run(1, 1, b"d", b"a", b"b")], 7)
    assert not is_consistent([*lanes, first, run(1, 1, b"d", b"x", b"b")], 7)
    assert not is_consistent([*lanes, run(0, 0, b"x"), first], 7)


def test_all_passes_must_be_of_the_batch() -> None:
    level = run(1, 0, b"c", b"a", b"b")
    assert not is_consistent([run(0, 0, b"a"), run(0, 1, b"b", epoch=6), level], 7)
    assert not is_consistent([run(0, 0, b"a"), run(0, 1, b"b"), level], 8)
