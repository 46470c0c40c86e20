"""Joins orders with their payments: within an hour of each other, and by the day they fall into."""

from __future__ import annotations

from millpond.common import Time, WatermarkStrategy
from millpond.datastream import StreamExecutionEnvironment
from millpond.datastream.joins import ProcessJoinFunction
from millpond.datastream.window import TumblingEventTimeWindows

HOUR_MS = 3_600_000
ORDERS = [("o1", 1), ("o2", 2), ("o3", 3)]
PAYMENTS = [("o1", 1.5), ("o2", 20), ("o3", 30)]


class Paid(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield f"{left[0]} was paid after {(right[1] - left[1]) * 60:.0f} minutes"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: int(record[1] * HOUR_MS)
    )
    orders, payments = (
        env.from_collection(records).assign_timestamps_and_watermarks(strategy)
        for records in (ORDERS, PAYMENTS)
    )
    in_time = orders.key_by(lambda order: order[0]).interval_join(
        payments.key_by(lambda payment: payment[0])
    )
    in_time.between(Time.seconds(0), Time.hours(1)).process(Paid()).print("within an hour")
    (
        orders.join(payments)
        .where(lambda order: order[0])
        .equal_to(lambda payment: payment[0])
        .window(TumblingEventTimeWindows.of(Time.days(1)))
        .apply(lambda order, payment: f"{order[0]} was paid on the same day")
        .print("same day")
    )
    env.execute("joins")


if __name__ == "__main__":
    main()
