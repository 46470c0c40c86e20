"""Programs for the dispatcher's tests, as text: they are uploaded as files."""

from __future__ import annotations

from pathlib import Path

BOUNDED = """
import sys
from millpond.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(list(range(100))).map(lambda x: x + 1).print()
print("arguments:", sys.argv[1:])
env.execute("bounded")
"""

FAILING = """
from millpond.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 0]).map(lambda x: 1 // x).name("divide").print()
env.execute("failing")
"""

WITHOUT_JOB = "print('nothing to do')"
BROKEN = "import no_such_module"

# Counts numbers per key, endlessly, into files: FOLDER is the first argument.
COUNTING = """
import sys
import time
from millpond.common import Duration, Types
from millpond.common.watermark_strategy import WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield f"{value} {self.count.value()}"


env = StreamExecutionEnvironment.get_execution_environment()
source = (
    FileSource.for_record_stream_format(StreamFormat.text_line_format(), sys.argv[1])
    .monitor_continuously(Duration.of_millis(100))
    .build()
)
(
    env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    .uid("lines")
    .key_by(lambda line: line, key_type=Types.STRING())
    .process(Count())
    .name("count")
    .uid("count")
    .print()
)
env.execute("counting")
"""


def write_program(folder: Path, text: str, name: str = "app.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path
