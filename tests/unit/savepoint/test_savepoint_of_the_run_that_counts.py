"""A savepoint has the parts of the run of its batch that counts, whatever other runs have written (E45)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.common import Types
from millpond.core.storage import MemoryStorage
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.coordinator import Coordinator
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.savepoint.reader import SavepointReader
from millpond.testing import direct_environment

NAMES = ["ann", "bob", "cid"]
current_run = "none"


class RememberRun(KeyedProcessFunction):
    """Remembers in which run of the batch a name was seen; each run leaves another one out."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.STRING()))

    def process_element(self, value: str, ctx: Any) -> Any:
        if current_run != f"without {value}":
            self.seen.update(f"run {current_run}")
        yield value


class Job:
    """A job whose first batch takes a savepoint."""

    def __init__(self, savepoints: Path) -> None:
        environment = direct_environment({"parallelism.default": 2})
        names = environment.from_collection(NAMES).key_by(lambda name: name)
        names.process(RememberRun()).uid("remember")._sink("out", SinkKind.COLLECT, None)
        graph, config = environment._pending_graph(), environment.get_config()
        self.plan = plan_job(graph, environment._configuration, config, None)
        self.coordinator = Coordinator(self.plan, None, OutputDelivery(self.plan, list), lambda: 0)
        self.storage = MemoryStorage()
        self.opened: list[Passes] = []
        self.coordinator.start()
        self.savepoint = self.coordinator.savepoints.ask(str(savepoints))
        self.lanes = self.coordinator.plan()

    def passes(self, writer: str) -> Passes:
        blob = cloudpickle.dumps(self.plan)
        self.opened.append(Passes(JobHost(blob, self.storage, writer), SinkHost(blob)))
        return self.opened[-1]

    def run(self, passes: Passes, name: str) -> Any:
        global current_run
        current_run = name
        return run_batch(passes, self.plan, self.lanes)

    def saved(self) -> dict[str, str]:
        """What the savepoint says, by name."""
        self.coordinator.commit_output()
        path = self.savepoint.result(timeout=60)
        SavepointReader(path).check()
        rows = SavepointReader(path).table("remember", "seen").to_pylist()
        return {row["key"]: row["value"] for row in rows}

    def close(self) -> None:
        self.coordinator.close()
        for passes in self.opened:
            passes.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.close()


def test_batch_that_ran_before_leaves_nothing_in_the_savepoint(job: Job, tmp_path: Path) -> None:
    passes = job.passes("1")
    job.run(passes, "without ann")
    job.coordinator.complete(job.run(passes, "without bob"))
    assert job.saved() == {"ann": "run without bob", "cid": "run without bob"}
    assert len(list(tmp_path.iterdir())) == 1, "nothing but the savepoint is left"


def test_zombie_that_writes_late_changes_nothing(job: Job) -> None:
    job.coordinator.complete(job.run(job.passes("1"), "without bob"))
    job.run(job.passes("zombie"), "without ann")
    assert job.saved() == {"ann": "run without bob", "cid": "run without bob"}
