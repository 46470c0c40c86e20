"""Counts with NumPy: how often has a user seen an ad within ten seconds?"""

from __future__ import annotations

import numpy

from millpond.common import Types, WatermarkStrategy
from millpond.datastream import StreamExecutionEnvironment
from millpond.datastream.columns import (
    ColumnStateDescriptor,
    KeyedColumnFunction,
    TimestampField,
    fields,
)

VIEWS = [
    ("ann", "shoes", 1000),
    ("ann", "shoes", 4000),
    ("ann", "shoes", 6000),
    ("bob", "hats", 16000),
    ("ann", "shoes", 17000),
    ("bob", "hats", 29000),
    ("ann", "shoes", 30000),
]


class CountViews(KeyedColumnFunction):
    def open(self, runtime_context):
        self.counts = runtime_context.get_column_state(ColumnStateDescriptor("counts", Types.INT()))

    def process_columns(self, events, ctx):
        seen = ~events.fired
        counts = self.counts.running_sum(events.rows, numpy.where(seen, 1, -1))
        ctx.register_event_time_timers(seen, events.times[seen] + 10_000)
        views = zip(events.keys(seen), events.times[seen].tolist(), counts[seen].tolist())  # noqa: B905
        ctx.collect(seen, [f"{user} saw {ad} at {at}: {n}" for (user, ad), at, n in views])


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        TimestampField(2)
    )
    views = env.from_collection(VIEWS).assign_timestamps_and_watermarks(strategy)
    views.key_by(fields(0, 1)).process_columns(CountViews()).print()
    env.execute("columns")


if __name__ == "__main__":
    main()
