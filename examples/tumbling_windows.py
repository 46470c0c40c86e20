"""Counts words per minute of event time."""

from __future__ import annotations

from millpond.common import Duration, Time, WatermarkStrategy
from millpond.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millpond.datastream.window import TumblingEventTimeWindows

WORDS = [("to", 1_000), ("be", 5_000), ("to", 58_000), ("be", 61_000), ("to", 59_000)]


class WithWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        for word, count in elements:
            yield f"{word} {count} times in the minute from {context.window().start}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(5)
    ).with_timestamp_assigner(lambda pair, _: pair[1])
    words = env.from_collection(WORDS).assign_timestamps_and_watermarks(strategy)
    (
        words.map(lambda pair: (pair[0], 1))
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]), WithWindow())
        .print()
    )
    env.execute("tumbling windows")


if __name__ == "__main__":
    main()
