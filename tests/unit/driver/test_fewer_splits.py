"""A source that has fewer splits after a restore: whatever was left of the others is read by those there are,
and event time does not wait for those that are gone (E22, E42)."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.common import WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.driver.planning import plan_job
from millpond.driver.sources import Sources
from millpond.engine.exchange.batch import Unread
from millpond.plan.physical import JobPlan
from millpond.testing import direct_environment
from tests.conftest import delivered_lines
from tests.cuts import JumpingClock
from tests.unit.driver.test_recovery import Crash, StandInForSpark, sink

COUNT = 60


class Dealt(Source):
    """Numbers that are dealt out to splits in turn, three at a time."""

    def __init__(self, splits: int) -> None:
        self._splits = splits

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _Dealer(self._splits)

    def read(self, arguments: list[int]) -> Iterator[tuple[int, int | None]]:
        return ((number, None) for number in arguments)


class _Dealer(SplitEnumerator):
    def __init__(self, splits: int) -> None:
        super().__init__()
        self._splits = splits
        self._next = 0

    def split_count(self) -> int:
        return self._splits

    def poll(self, max_records: int) -> list[SplitWork]:
        works = []
        for split in range(self._splits):
            numbers = list(range(self._next, min(self._next + 3, COUNT)))
            if numbers and split not in self.paused:
                works.append(SplitWork(split, numbers))
                self._next += len(numbers)
        return works

    def position(self) -> int:
        return self._next

    def restore(self, position: int) -> None:
        self._next = position

    def ended(self) -> list[bool]:
        return [self._next >= COUNT] * self._splits


class Remind(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value + 100)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield f"timer {timestamp}"


def job(splits: int, output: Path) -> JobPlan:
    environment = direct_environment({"parallelism.default": 2, "millpond.batch.max-records": 20})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: number
    )
    numbers = environment.from_source(Dealt(splits), strategy, "numbers")
    numbers.key_by(lambda number: number % 7).process(Remind()).uid("remind").sink_to(sink(output))
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, "job")


def sources_with(splits: int, unread: dict[int, list[int]], tmp_path: Path) -> tuple[int, Sources]:
    """Sources that were restored with these leftovers, by split; the number of the source."""
    plan = job(splits, tmp_path)
    source = plan.source_tasks[0].root
    sources = Sources(plan, threading.Event())
    sources.open()
    left = {(source, split): Unread([numbers]) for split, numbers in unread.items()}
    sources.restore({source: COUNT}, left)
    sources.start()
    return source, sources


@pytest.mark.parametrize("crashes", [False, True])
def test_whatever_is_left_is_read_once(crashes: bool, tmp_path: Path) -> None:
    """Every batch reads one record of each split, so that all of them leave something again."""
    unread = {split: [split * 10 + n for n in range(4)] for split in range(7)}
    source, sources = sources_with(2, unread, tmp_path)
    read: list[int] = []
    while batch := sources.poll(0, 0, 100, {}):
        if crashes:  # the plan of the batch is all there is
            planned, sources = sources.unread, sources_with(2, {}, tmp_path)[1]
            sources.restore({source: COUNT}, planned)
        rest = {}
        for split, (reads, skipped) in batch.items():
            read.append(reads[0][skipped])
            if skipped + 1 < len(reads[0]):
                rest[split] = Unread(reads, skipped + 1)
        sources.give_back(rest)
    assert sorted(read) == sorted(number for numbers in unread.values() for number in numbers)
    assert sources.have_caught_up()


def test_split_has_not_ended_while_another_one_has_left_it_something(tmp_path: Path) -> None:
    source, sources = sources_with(2, {3: [1]}, tmp_path)
    assert sources.ended() == {source: [True, False]}
    assert list(sources.poll(0, 0, 100, {})) == [(source, 1)]
    assert sources.ended() == {source: [True, True]}


@pytest.mark.parametrize("point", ["planned", "committed"])
@pytest.mark.parametrize("seed", range(5))
def test_job_goes_on_with_fewer_splits(seed: int, point: str, tmp_path: Path) -> None:
    """Also if the batch that runs again was planned for more of them."""
    spark = StandInForSpark(cutting_clock_ns=JumpingClock(random.Random(seed), 400))
    for splits, epoch in ((7, 2), (3, 4)):
        with pytest.raises(Crash):
            spark.run(job(splits, tmp_path / "output"), tmp_path / "jobs", (epoch, point))
    spark.run(job(2, tmp_path / "output"), tmp_path / "jobs", None)
    expected = [str(n) for n in range(COUNT)] + [f"timer {n + 100}" for n in range(COUNT)]
    assert delivered_lines(tmp_path / "output") == sorted(expected)
