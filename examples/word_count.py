"""Counts words: flat_map, key_by, sum. In batch mode only the final counts come out."""

from __future__ import annotations

import sys

from millpond.common import Types
from millpond.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

LINES = ["to be or not to be", "that is the question"]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    if "--batch" in sys.argv:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    (
        env.from_collection(LINES, Types.STRING())
        .flat_map(str.split, Types.STRING())
        .map(lambda word: (word, 1), Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0])
        .sum(1)
        .print()
    )
    env.execute("word count")


if __name__ == "__main__":
    main()
