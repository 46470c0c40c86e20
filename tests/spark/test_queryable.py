"""Look-ups in a job on Spark: what is committed, an idle job, slots that are killed, restarts (O6)."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from millpond.common import (
    Configuration,
    Duration,
    RestartStrategies,
    Types,
    WatermarkStrategy,
)
from millpond.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.state import ReducingStateDescriptor
from millpond.errors import RetryLaterError, UnknownStateError
from millpond.queryable import QueryableStateClient, states_of
from tests.slot.processes import is_running, slots_of, wait_until

pytestmark = pytest.mark.spark

WORDS = [f"word{number}" for number in range(20)]


class Count(KeyedProcessFunction):
    """Counts words; "gate" waits until it is opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())
        descriptor.set_queryable("counts")
        self.count = runtime_context.get_reducing_state(descriptor)

    def process_element(self, value: str, ctx: Any) -> Any:
        self.count.add(1)
        if value == "gate" and not (self._folder / "open").exists():
            (self._folder / "waits").touch()
            wait_until((self._folder / "open").exists, "nobody opens the gate", timeout_s=60)
        yield value, self.count.get()


def start(environment: StreamExecutionEnvironment, folder: Path) -> Any:
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 100))
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder / "in"))
        .monitor_continuously(Duration.of_millis(50))
        .build()
    )
    words = environment.from_source(source, WatermarkStrategy.no_watermarks(), "words")
    counted = words.key_by(lambda word: word, Types.STRING()).process(Count(folder))
    counted.key_by(lambda pair: pair[0][-1]).as_queryable_state("last pairs")
    return environment.execute_async("words")


def give(folder: Path, name: str, words: list[str]) -> None:
    (folder / name).write_text("".join(f"{word}\n" for word in words))
    os.rename(folder / name, folder / "in" / name)  # complete, or not there


def kill_slots(folder: Path) -> None:
    killed = slots_of(folder)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, killed)), "the slots go on")


def test_look_ups_see_what_is_committed_whatever_is_killed(
    spark_settings: dict[str, Any], tmp_path: Path
) -> None:
    """O6: never a batch that is under way, the newest one in an idle job, a clear answer while slots come
    back, and nothing older than what was committed after that."""
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                **spark_settings,
                "parallelism.default": 2,
                "execution.checkpointing.dir": str(tmp_path / "state"),
            }
        )
    )
    (tmp_path / "in").mkdir()
    folder = tmp_path / "state" / "words"
    give(tmp_path, "first", WORDS)
    job = start(environment, tmp_path)
    with QueryableStateClient.for_folder(folder) as client:

        def counts() -> set[int | None]:
            found = client.get_many("", "counts", WORDS, timeout_s=60)
            return {found.get(word) for word in WORDS}

        wait_until((folder / "committed").exists, "no batch was committed", 60)
        assert counts() == {1}, "an idle job shows its newest batch"
        assert client.get("", "last pairs", "7") in (["word7", 1], ["word17", 1])
        assert set(states_of(job._executors.record.queryable)) == {"counts", "last pairs"}
        with pytest.raises(UnknownStateError, match="there are: counts, last pairs"):
            client.get("", "nothing", "word1")

        give(tmp_path, "second", [*WORDS, "gate"])
        wait_until((tmp_path / "waits").exists, "the second batch does not run", 60)
        assert counts() == {1}, "a batch that is under way is not seen"
        kill_slots(tmp_path)
        with contextlib.suppress(RetryLaterError):  # the usual answer
            assert client.get("", "counts", "word1", timeout_s=0) == 1
        (tmp_path / "open").touch()
        assert client.get("", "counts", "word1", timeout_s=60) in (1, 2)
        wait_until(lambda: counts() == {2}, "the batch is not run again", 60)

        kill_slots(tmp_path)
        with pytest.raises(RetryLaterError, match=r"partition \d .*Try again"):
            client.get("", "counts", "word1", timeout_s=0)
        assert counts() == {2}, "slots load what was committed, although no record comes"
    job.cancel().result()
