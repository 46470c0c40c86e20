"""Splits a stream: good records go on, bad ones go to a side output with the reason."""

from __future__ import annotations

import json

from millpond.common import Types
from millpond.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

BAD = OutputTag("bad", Types.STRING())
INPUT = ['{"user": "ann", "age": 31}', "no json", '{"user": "bob"}']


class Parse(ProcessFunction):
    def process_element(self, line, ctx):
        try:
            record = json.loads(line)
            yield record["user"], record["age"]
        except (json.JSONDecodeError, KeyError) as problem:
            yield BAD, f"{type(problem).__name__}: {line}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    parsed = env.from_collection(INPUT).process(Parse())
    parsed.print("good")
    parsed.get_side_output(BAD).print("bad")
    env.execute("side outputs")


if __name__ == "__main__":
    main()
