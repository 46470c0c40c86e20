"""A job with two keyed stages whose first stage gives another result with every run.

In one batch, both tasks of the second stage wait until a test lets them go on. By then the first stage has
written its shuffle files. python -m tests.faults.two_stages_job SETTINGS_JSON
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from millpond.common import Configuration, Encoder, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.connectors.file_system import FileSink
from millpond.datastream.state import ValueStateDescriptor
from millpond.testing import CUT, MarkedSource

BATCHES, RECORDS = 4, 30
WAITS_IN = 2  # the batch in which the second stage waits
GO_ON = "go-on"


class Count(KeyedProcessFunction):
    """Adds the number of the record among those of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: tuple[int, ...], ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (*value, count)


class Waiting(Count):
    """Says in a file which process waits."""

    def __init__(self, marks_folder: str) -> None:
        self._marks_folder = marks_folder

    def process_element(self, value: tuple[int, ...], ctx: Any) -> Any:
        folder = Path(self._marks_folder)
        if value[0] // RECORDS == WAITS_IN and not (folder / GO_ON).exists():
            aside = folder / f".waiting-{self.subtask}"
            aside.write_text(str(os.getpid()))
            aside.rename(folder / f"waiting-{self.subtask}")
            while not (folder / GO_ON).exists():
                time.sleep(0.01)
        yield from super().process_element(value, ctx)


def main(settings: dict[str, Any]) -> None:
    configuration = Configuration.from_dict(
        {
            "millpond.master": settings["master"],
            "parallelism.default": 2,
            "execution.checkpointing.dir": settings["checkpoints"],
            **settings["configuration"],
        }
    )
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.add_python_file(settings["modules"])
    records: list[Any] = []
    for number in range(BATCHES * RECORDS):
        records += [(number,), CUT] if number % RECORDS == RECORDS - 1 else [(number,)]
    source = MarkedSource(records, settings["marks"])
    numbers = environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    first = numbers.key_by(lambda value: value[0] % 7).process(Count()).uid("first")
    # With every run, a record goes to another key: two runs do not fit together.
    dealt = first.map(lambda value: (*value, random.randrange(20))).uid("deal")
    second = dealt.key_by(lambda value: value[2]).process(Waiting(settings["marks"])).uid("second")
    lines = second.map(lambda value: " ".join(map(str, value))).uid("text")
    sink = FileSink.for_row_format(settings["output"], Encoder.simple_string_encoder()).build()
    lines.sink_to(sink)
    environment.execute("stages")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
