"""A source and a sink written in Python: numbers in, squares to a file per subtask."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from millpond.datastream import (
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)


class Numbers(SourceFunction):
    deterministic = True  # run() gives the same records again, so a restart can skip what is done

    def run(self, ctx):
        for number in range(5):
            ctx.collect_with_timestamp(number, number * 1000)


class ToFile(SinkFunction):
    """Idempotent: a replayed epoch writes the same file again."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def invoke(self, value, context):
        path = Path(self.folder) / f"{self.subtask}-{context.epoch()}-{value}.txt"
        path.write_text(f"{value} at {context.timestamp()}\n")


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.add_source(Numbers()).map(lambda number: number * number)
    numbers.add_sink(ToFile(folder)).name("files").set_parallelism(1)
    env.execute("squares")
    lines = sorted(path.read_text() for path in Path(folder).iterdir())
    print("".join(lines), end="")


if __name__ == "__main__":
    main()
