"""Sums of three numbers each, and of the last four, after every second one."""

from __future__ import annotations

from millpond.datastream import StreamExecutionEnvironment


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection([("all", number) for number in range(1, 9)])
    keyed = numbers.key_by(lambda pair: pair[0])
    keyed.count_window(3).sum(1).print("three")
    keyed.count_window(4, 2).sum(1).print("sliding")
    env.execute("count windows")


if __name__ == "__main__":
    main()
