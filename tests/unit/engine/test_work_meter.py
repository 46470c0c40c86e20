"""What a host counts: hottest keys of a sample, time without pauses, what leaves a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.core.codec import freeze_all
from millpond.engine.exchange.reports import Report, WorkCounts
from millpond.engine.work_meter import Surroundings, WorkMeter, hottest, key_text


def counted(keys: list[Any], **how: Any) -> tuple[tuple[str, int], ...]:
    return hottest(keys, len(keys), **how)


def test_few_keys_are_counted_exactly() -> None:
    """P6."""
    assert counted(["a", "b", "a", "c", "a", "b"]) == (("a", 3), ("b", 2))
    assert counted(["a", "b", "c"]) == (("a", 1), ("b", 1), ("c", 1))
    assert counted(["a", "b", "c", "d"]) == (), "nothing is hot among many that came once"
    assert counted([]) == ()


def test_hottest_of_many_keys_is_found_in_a_sample() -> None:
    """P6: every third record is of one key, all others are different."""
    keys = ["hot" if i % 3 == 0 else f"key-{i}" for i in range(100_000)]
    ((key, count),) = counted(keys)
    assert key == "hot"
    assert 15_000 < count < 55_000


def test_pattern_of_keys_does_not_fool_the_sample() -> None:
    """Whatever the distance at which a key comes again, it is not taken for all of them."""
    for period in range(2, 400):
        keys = [i % period for i in range(32 * 150)]
        for _, count in counted(keys):
            assert count / len(keys) < 1 / period + 0.25


def test_keys_that_came_once_in_a_sample_say_nothing() -> None:
    assert counted(list(range(100_000))) == ()


def test_one_of_many_small_batches_stands_for_all() -> None:
    meter = WorkMeter(Surroundings())

    def batch(keys: list[str]) -> tuple[tuple[str, int], ...]:
        work, report = meter.begin(7, 0), Report()
        work.records_in = len(keys)
        work.take_keys(3, None, keys, len(keys))
        work.end(report)
        (counts,) = report.works
        assert counts.keyed == ((3, len(keys)),)
        return counts.hottest

    assert batch(["a", "a"]) == (("a", 2),), "the first one is looked at"
    assert [batch(["b"] * 50) for _ in range(3)] == [(), (), ()]
    assert batch(["b"] * 25 + ["c"] * 25) == (("b", 100), ("c", 100)), "of 200 records"
    assert batch(["b"] * 50) == ()


@dataclass(frozen=True)
class Place:
    country: str
    city: str


def test_keys_of_any_kind_are_counted() -> None:
    keys: list[Any] = freeze_all([Place("no", "Oslo"), Place("no", "Bergen"), Place("no", "Oslo")])
    assert counted(keys)[0] == ("Place(country='no', city='Oslo')", 2)


def test_broadcast_records_have_no_key() -> None:
    keys = [None, None, None, "a", "a"]
    assert hottest(keys, 2, none_is_a_key=False) == (("a", 2),)
    assert counted(keys)[0] == ("None", 3)


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no")


def test_text_of_a_key_is_short_and_never_fails() -> None:
    assert key_text("käse") == "käse"
    assert key_text(("a", 1)) == "('a', 1)"
    assert len(key_text("x" * 1000)) == 80
    assert key_text(Unspeakable()) == "a Unspeakable"


def test_time_is_told_with_the_next_message_and_pauses_do_not_count() -> None:
    now_ns = 0

    def clock_ns() -> int:
        return now_ns

    meter = WorkMeter(Surroundings(clock_ns, lambda: 0.25, "here"))
    work = meter.begin(7, 1)
    now_ns = 10
    work.pause()
    now_ns = 1000
    work.resume()
    now_ns = 1005
    nothing = Report()
    work.end(nothing)
    assert nothing == Report(), "nothing came, nothing went: no message for that alone"
    later = meter.begin(7, 1)
    later.records_in = 3
    now_ns = 1100
    report = Report()
    later.end(report)
    assert report.works == [
        WorkCounts(7, 1, records_in=3, busy_ns=15 + 95, memory_share=0.25, machine="here")
    ]
