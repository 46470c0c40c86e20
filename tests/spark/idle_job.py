"""A job that mostly waits: it counts the lines of files that appear, and leaves a mark LINE-COUNT for each.

python -m tests.spark.idle_job SETTINGS_JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from millpond.common import Configuration, Duration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.state import ValueStateDescriptor

NAME = "idle"


class Count(KeyedProcessFunction):
    def __init__(self, marks: str) -> None:
        self._marks = marks

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: str, ctx: Any) -> None:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        Path(self._marks, f"{value}-{count}").touch()


def main(settings: dict[str, Any]) -> None:
    idle = "spark.dynamicAllocation"
    configuration = Configuration.from_dict(
        {
            "millpond.master": settings["master"],
            "millpond.dynamic-allocation": "on",
            "millpond.dynamic-allocation.min": 0,
            "parallelism.default": 2,
            "execution.checkpointing.dir": settings["checkpoints"],
            "spark.executor.memory": "512m",
            f"{idle}.executorIdleTimeout": "1s",
            f"{idle}.cachedExecutorIdleTimeout": "1s",
            f"{idle}.shuffleTracking.timeout": "1s",
        }
    )
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.add_python_file(settings["modules"])
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), settings["input"])
        .monitor_continuously(Duration.of_millis(100))
        .build()
    )
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    stream.key_by(lambda line: line).process(Count(settings["marks"])).print()
    environment.execute(NAME)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
