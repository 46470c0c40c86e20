"""Joins two streams by key with state and timers: orders that are not paid within 10 s."""

from __future__ import annotations

from millpond.common import Types, WatermarkStrategy
from millpond.datastream import (
    KeyedCoProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millpond.datastream.state import ValueStateDescriptor

ORDERS = [("o1", 1_000), ("o2", 2_000), ("o3", 30_000)]
PAYMENTS = [("o1", 4_000), ("o3", 31_000)]


class Unpaid(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element1(self, order, ctx):
        due = order[1] + 10_000
        self.due.update(due)
        ctx.timer_service().register_event_time_timer(due)
        return []

    def process_element2(self, payment, ctx):
        if self.due.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.due.value())
            self.due.clear()
            yield f"{payment[0]} is paid"

    def on_timer(self, timestamp, ctx):
        self.due.clear()
        yield f"{ctx.get_current_key()} is not paid at {timestamp}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    orders = env.from_collection(ORDERS).assign_timestamps_and_watermarks(strategy)
    payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(strategy)
    connected = orders.connect(payments).key_by(lambda o: o[0], lambda p: p[0])
    connected.process(Unpaid()).uid("unpaid").print()
    env.execute("unpaid orders")


if __name__ == "__main__":
    main()
