"""Two dispatchers, a real ZooKeeper, Spark with two workers: each is killed while events flow (O5)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from millpond.datastream.stream_execution_environment import SETTINGS_VARIABLE
from millpond.dispatcher.storage import Storage
from tests.conftest import delivered_lines
from tests.dispatcher.programs import write_program
from tests.dispatcher.running import RunningDispatcher, dispatcher, eventually
from tests.spark.standalone import standalone_cluster
from tests.zookeeper_server import zookeeper_server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.soak,
]

SESSION_TIMEOUT_MS = 3000
PROGRAM = """
import sys
from millpond.common import Duration, Encoder, Types
from millpond.common.watermark_strategy import WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millpond.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat
from millpond.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield f"{value} {self.count.value()}"


env = StreamExecutionEnvironment.get_execution_environment()
source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), sys.argv[1])
if "endless" in sys.argv:
    source = source.monitor_continuously(Duration.of_millis(100))
sink = FileSink.for_row_format(sys.argv[2], Encoder.simple_string_encoder())
sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
(
    env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines")
    .uid("lines")
    .key_by(lambda line: line, key_type=Types.STRING())
    .process(Count())
    .uid("count")
    .sink_to(sink)
    .uid("out")
)
env.execute("counting")
"""


class Events:
    """Files with lines, written all the time by a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0
        folder.mkdir()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._flow)
        self._thread.start()

    def _flow(self) -> None:
        chance, number = random.Random(5), 0
        while not self._stop.wait(0.15):
            lines = [f"user-{chance.randrange(40)}" for _ in range(30)]
            aside = self.folder.parent / f"events-{number}"
            aside.write_text("".join(f"{line}\n" for line in lines))
            self.written += len(lines)  # before anybody can read them
            aside.rename(self.folder / f"{number}.txt")
            number += 1

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


class Output:
    """What the job has delivered."""

    def __init__(self, folder: Path, events: Events) -> None:
        self.folder = folder
        self._events = events

    def lines(self) -> list[str]:
        return delivered_lines(self.folder)

    def await_news(self) -> float:
        """Wait until an event that is written from now on has come through; returns how long that took."""
        began_s, before = time.monotonic(), self._events.written
        self.await_more_than(before)
        return time.monotonic() - began_s

    def await_more_than(self, count: int) -> None:
        eventually(lambda: True if len(self.lines()) > count else None, "more output")


def fault_free(program: Path, events: Path, output: Path) -> list[str]:
    """What the same program makes of the same events, in one process that nothing happens to."""
    settings = {"millpond.executor": "direct"}
    subprocess.run(
        [sys.executable, str(program), str(events), str(output)],
        check=True,
        env={**os.environ, SETTINGS_VARIABLE: json.dumps(settings)},
    )
    return delivered_lines(output)


@contextmanager
def no_drivers_left(storage: Path) -> Iterator[None]:
    """Job managers outlive dispatchers; they must not outlive a test that fails."""
    try:
        yield
    finally:
        for files in Storage(storage).jobs():
            report = files.report()
            if report is not None and files.is_locked():
                os.kill(report["pid"], signal.SIGKILL)


def workers() -> list[int]:
    """Process ids of Spark's workers; they are children of this process."""
    children = [
        Path("/proc") / pid
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]
    return [
        int(child.name)
        for child in children
        if b"deploy.worker.Worker" in (child / "cmdline").read_bytes()
    ]


def test_output_is_that_of_a_run_without_faults_whatever_is_killed(tmp_path: Path) -> None:
    """O5: kill -9 of the leader, of the job's driver, of a worker, of leader and driver at once, while events
    flow."""
    storage = tmp_path / "storage"
    program = write_program(tmp_path, PROGRAM)

    def killed(what: str, pid: int, recovered: Callable[[], Any]) -> Any:
        began_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        result = recovered()
        print(f"{what}: {time.monotonic() - began_s:.1f} s")
        return result

    with ExitStack() as stack:
        zookeeper = stack.enter_context(zookeeper_server(tmp_path / "zookeeper"))
        master = stack.enter_context(standalone_cluster(tmp_path / "cluster"))
        worker = workers()[0]
        arguments = ["--zookeeper", zookeeper, "--master", master]
        for setting in (
            f"high-availability.zookeeper.client.session-timeout={SESSION_TIMEOUT_MS}",
            "parallelism.default=2",
            "spark.executor.memory=512m",
        ):
            arguments += ["-D", setting]
        stack.enter_context(no_drivers_left(storage))
        first = stack.enter_context(dispatcher(storage, *arguments))
        await_leading(first)
        second = stack.enter_context(dispatcher(storage, *arguments))
        events = Events(tmp_path / "events")
        stack.callback(events.end)
        output = Output(tmp_path / "output", events)

        # A standby sends clients on to the leader.
        application = first.upload(program)
        asked = {"programArgsList": [str(events.folder), str(output.folder), "endless"]}
        eventually(lambda: second.get("/overview")["leader"] or None, "the standby to know")
        answer = second.http.post(f"/jars/{application}/run", json=asked)
        assert answer.status_code == 200 and answer.history, answer.text
        jid = answer.json()["jobid"]
        first.await_state(jid, "RUNNING")
        output.await_news()
        driver = second.get(f"/jobs/{jid}/report")["pid"]

        killed("leader", first.process.pid, lambda: await_leading(second))
        print(f"events after that: {output.await_news():.1f} s")
        assert second.get(f"/jobs/{jid}/report")["pid"] == driver, "the job did not notice"

        killed("driver", driver, output.await_news)
        report = second.await_report(jid, lambda report: report["state"] == "RUNNING")
        assert report["pid"] != driver

        killed("worker", worker, output.await_news)
        output.await_news()

        third = stack.enter_context(dispatcher(storage, *arguments))
        eventually(lambda: third.get("/overview")["leader"] or None, "the standby to know")
        driver = second.get(f"/jobs/{jid}/report")["pid"]
        os.kill(driver, signal.SIGKILL)
        killed("leader, with the driver", second.process.pid, lambda: await_leading(third))
        print(f"events after that: {output.await_news():.1f} s")
        report = third.await_report(jid, lambda report: report["state"] == "RUNNING")
        assert report["pid"] != driver

        events.end()
        expected = fault_free(program, events.folder, tmp_path / "fault-free")
        assert len(expected) == events.written
        output.await_more_than(len(expected) - 1)
        assert third.http.patch(f"/jobs/{jid}?mode=cancel").status_code == 202
        third.await_state(jid, "CANCELED")
        assert output.lines() == expected


def await_leading(own: RunningDispatcher) -> None:
    eventually(lambda: own.get("/overview")["is-leader"] or None, "the dispatcher to lead")
