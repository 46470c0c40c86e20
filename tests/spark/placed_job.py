"""A job with two keyed stages that says which process works for which subtask. It goes on for ever.

python -m tests.spark.placed_job SETTINGS_JSON
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from millpond.common import Configuration, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.connectors.number_seq import NumberSequenceSource

NAME = "placed"


class Present(KeyedProcessFunction):
    """Leaves a file named SUBTASK-PROCESS for each process that has ever worked for a subtask."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        subtask = runtime_context.get_index_of_this_subtask()
        self._mark = Path(self._folder, f"{subtask}-{os.getpid()}")

    def process_element(self, value: int, ctx: Any) -> Any:
        self._mark.touch()
        yield value


def main(settings: dict[str, Any]) -> None:
    configuration = Configuration.from_dict(
        {
            "millpond.master": settings["master"],
            "parallelism.default": 2,
            "millpond.batch.max-records": 40,
            "millpond.slot.keep-s": 0,
            "execution.checkpointing.dir": settings["checkpoints"],
            "spark.executor.memory": "512m",
        }
    )
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.add_python_file(settings["modules"])
    source = NumberSequenceSource(0, 1 << 60)
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    for divisor in (1, 7):
        stream = stream.key_by(lambda n, d=divisor: n // d % 20).process(Present(settings["marks"]))
    stream.filter(lambda n: False).print()
    environment.execute(NAME)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
