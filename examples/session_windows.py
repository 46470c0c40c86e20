"""Visits: clicks of a user that follow each other within half an hour."""

from __future__ import annotations

from millpond.common import Time, WatermarkStrategy
from millpond.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millpond.datastream.window import EventTimeSessionWindows

MINUTE_MS = 60_000
CLICKS = [("ann", 0), ("bob", 5), ("ann", 10), ("ann", 35), ("bob", 90), ("ann", 120)]


class Visit(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        first, last = window.start // MINUTE_MS, (window.end - 30 * MINUTE_MS) // MINUTE_MS
        yield f"{key}: {len(list(elements))} clicks from minute {first} to {last}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda click, _: click[1] * MINUTE_MS
    )
    clicks = env.from_collection(CLICKS).assign_timestamps_and_watermarks(strategy)
    (
        clicks.key_by(lambda click: click[0])
        .window(EventTimeSessionWindows.with_gap(Time.minutes(30)))
        .process(Visit())
        .print()
    )
    env.execute("session windows")


if __name__ == "__main__":
    main()
