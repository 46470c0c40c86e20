"""The average temperature of the last ten minutes, every five minutes."""

from __future__ import annotations

from millpond.common import Time, WatermarkStrategy
from millpond.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millpond.datastream.window import SlidingEventTimeWindows

MINUTE_MS = 60_000
READINGS = [("oslo", minute * MINUTE_MS, minute * 1.5) for minute in range(0, 20, 2)]


class Average(AggregateFunction):
    def create_accumulator(self):
        return (0.0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value[2], accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class WithWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        for average in elements:
            yield f"{key}: {average:.1f} until minute {context.window().end // MINUTE_MS}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda reading, _: reading[1]
    )
    readings = env.from_collection(READINGS).assign_timestamps_and_watermarks(strategy)
    (
        readings.key_by(lambda reading: reading[0])
        .window(SlidingEventTimeWindows.of(Time.minutes(10), Time.minutes(5)))
        .aggregate(Average(), WithWindow())
        .print()
    )
    env.execute("sliding windows")


if __name__ == "__main__":
    main()
