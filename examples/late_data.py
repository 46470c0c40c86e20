"""Late records: some update a result, some are too late even for that and go to a side output."""

from __future__ import annotations

from millpond.common import Time, Types, WatermarkStrategy
from millpond.datastream import OutputTag, StreamExecutionEnvironment
from millpond.datastream.window import TumblingEventTimeWindows

TOO_LATE = OutputTag("too late", Types.PICKLED_BYTE_ARRAY())
SALES = [
    ("shop", 1_000, 5),
    ("shop", 12_000, 7),
    ("shop", 2_000, 1),
    ("shop", 30_000, 2),
    ("shop", 3_000, 9),
]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda sale, _: sale[1]
    )
    sales = env.from_collection(SALES).assign_timestamps_and_watermarks(strategy)
    totals = (
        sales.key_by(lambda sale: sale[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .allowed_lateness(5_000)
        .side_output_late_data(TOO_LATE)
        .sum(2)
    )
    totals.print("total")
    totals.get_side_output(TOO_LATE).print("too late")
    env.execute("late data")


if __name__ == "__main__":
    main()
