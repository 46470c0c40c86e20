"""The driver's numbers: totals, rates, shares of time, fading counts; with a manual clock (E9, P6, E36)."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.datastream import StreamExecutionEnvironment  # noqa: F401 (first: plan needs it)
from millpond.driver.reporting.statistics import JobStatistics, VertexView
from millpond.engine.exchange.reports import WorkCounts
from millpond.plan.vertices import Vertex
from millpond.testing import ManualClock

SOURCE, KEYED, SINK = 1, 2, 9


class Driver:
    """Batches of a job with a source and a keyed task, two subtasks each, and a sink of its own."""

    def __init__(self, limit: int = 100) -> None:
        self.clock = ManualClock(1_000_000)
        vertices = [
            Vertex("a", SOURCE, "source", 2, 128, 0, False, sinks=[8]),
            Vertex("b", KEYED, "keyed", 2, 4, 1, True),
            Vertex("c", SINK, "sink", 1, 128, 2, False, sinks=[SINK]),
        ]
        self.statistics = JobStatistics(vertices, self.clock)
        self.statistics.set_credits(limit)

    def batch(
        self,
        *works: WorkCounts,
        took_ms: int = 1000,
        backlog: int | None = 0,
        then_ms: int = 0,
        state_bytes: int = 0,
    ) -> int:
        self.statistics.note_backlog([backlog])
        self.statistics.batch_begins()
        self.clock.advance(took_ms)
        read = self.statistics.batch_completes(list(works), {KEYED: 5}, {KEYED: state_bytes})
        self.statistics.batch_is_committed()
        self.clock.advance(then_ms)
        return read

    def vertex(self, number: int) -> VertexView:
        return self.statistics.view().vertices[number]


def busy(task: int, milliseconds: int, subtask: int = 0, **counts: Any) -> WorkCounts:
    return WorkCounts(task, subtask, busy_ns=milliseconds * 1_000_000, **counts)


def test_counts_of_subtasks_add_up() -> None:
    driver = Driver()
    works = [
        WorkCounts(SOURCE, 0, records_in=10, records_out=8, bytes_out=80),
        WorkCounts(SOURCE, 1, records_in=5, records_out=5, bytes_out=50),
        WorkCounts(KEYED, 1, records_in=13, bytes_in=130, machine="far"),
    ]
    assert driver.batch(*works) == 15
    assert driver.batch(*works) == 15
    source, keyed = driver.vertex(SOURCE), driver.vertex(KEYED)
    assert [own.counts.records_in for own in source.subtasks] == [20, 10]
    assert [own.counts.records_out for own in source.subtasks] == [16, 10]
    assert [own.counts.bytes_out for own in source.subtasks] == [160, 100]
    assert [own.counts.bytes_in for own in keyed.subtasks] == [0, 260]
    assert [own.machine for own in keyed.subtasks] == ["", "far"]
    assert keyed.watermark == 5 and source.watermark is None


def test_sink_counts_where_it_belongs() -> None:
    """One that follows a task adds its time to it; one of its own gets its records from who feeds it."""
    driver = Driver()
    driver.batch(
        WorkCounts(
            KEYED, 0, records_out=7, bytes_out=70, to_sinks=((SINK, 0, 4, 40), (8, 1, 3, 30))
        ),
        busy(8, 100),
        busy(SINK, 50),
    )
    assert driver.vertex(SINK).subtasks[0].counts.records_in == 4
    assert driver.vertex(SINK).subtasks[0].counts.bytes_in == 40
    assert driver.vertex(SINK).busy_ms == 50
    assert driver.vertex(SOURCE).busy_ms == 100
    assert driver.vertex(SOURCE).subtasks[1].counts.records_in == 0


def test_nothing_is_known_before_the_first_batch_ends() -> None:
    driver = Driver()
    assert driver.vertex(SOURCE).ratios is None
    driver.statistics.batch_begins()
    driver.clock.advance(500)
    view = driver.statistics.view()
    assert view.vertices[SOURCE].ratios is None
    assert view.is_running and not view.latencies_ms
    assert view.vertices[SOURCE].records_in_per_s == 0


def test_time_is_busy_idle_or_back_pressured() -> None:
    """E9: a second each; in the first one more is waiting than the batch could take."""
    driver = Driver()
    driver.batch(busy(KEYED, 500), busy(KEYED, 300, subtask=1), backlog=7)
    driver.batch(busy(KEYED, 200), backlog=0)
    keyed = driver.vertex(KEYED)
    assert keyed.ratios is not None
    assert keyed.ratios.busy == pytest.approx(1.0 / 4)
    assert keyed.ratios.backpressured == pytest.approx(1.2 / 4)
    assert keyed.ratios.idle == pytest.approx(1.8 / 4)
    first, second = (own.ratios for own in keyed.subtasks)
    assert first is not None and second is not None
    assert first == pytest.approx((0.35, 0.4, 0.25))
    assert second == pytest.approx((0.15, 0.5, 0.35))
    source = driver.vertex(SOURCE).ratios
    assert source == pytest.approx((0.0, 0.5, 0.5))
    assert (keyed.busy_ms, keyed.backpressured_ms, keyed.idle_ms) == (1000, 1200, 1800)


def test_shares_never_exceed_the_whole() -> None:
    """A subtask's key groups may be worked on by several slots at once."""
    driver = Driver()
    driver.batch(busy(KEYED, 1900), backlog=1)
    assert driver.vertex(KEYED).subtasks[0].ratios == (1.0, 0.0, 0.0)


def test_waiting_for_input_is_idle_time() -> None:
    driver = Driver()
    driver.batch(busy(KEYED, 1000), busy(KEYED, 1000, subtask=1), then_ms=3000)
    assert driver.vertex(KEYED).ratios == pytest.approx((0.25, 0.75, 0.0))
    driver.clock.advance(60_000)
    assert driver.vertex(KEYED).ratios == pytest.approx((0.0, 1.0, 0.0))
    assert driver.vertex(KEYED).idle_ms == 2 * 63_000


def test_running_batch_does_not_look_like_idleness() -> None:
    driver = Driver()
    driver.batch(busy(KEYED, 1000), busy(KEYED, 1000, subtask=1))
    driver.statistics.batch_begins()
    driver.clock.advance(30_000)
    assert driver.vertex(KEYED).ratios == pytest.approx((1.0, 0.0, 0.0))


def test_ended_job_keeps_its_numbers() -> None:
    driver = Driver()
    driver.batch(busy(KEYED, 1000), WorkCounts(SOURCE, 0, records_in=500))
    assert not driver.statistics.attempt_ends()
    driver.clock.advance(3_600_000)
    assert driver.vertex(SOURCE).records_in_per_s == 500
    assert driver.vertex(KEYED).idle_ms == 1000


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    driver = Driver()
    for _ in range(60):
        driver.batch(WorkCounts(SOURCE, 0, records_in=9000, records_out=3))
    for _ in range(10):
        driver.batch(WorkCounts(SOURCE, 0, records_in=200, records_out=100))
    source = driver.vertex(SOURCE)
    assert source.records_in_per_s == pytest.approx(200)
    assert source.records_out_per_s == pytest.approx(100)
    view = driver.statistics.view()
    assert view.records_per_s == pytest.approx(200)
    assert view.records == 200 and view.duration_ms == 1000


def test_long_batches_are_seen_as_a_whole() -> None:
    driver = Driver()
    driver.batch(WorkCounts(SOURCE, 0, records_in=4000), took_ms=40_000)
    assert driver.vertex(SOURCE).records_in_per_s == pytest.approx(100)


def test_key_groups_and_keys_fade() -> None:
    """P6: what was hot an hour ago is not hot now."""
    driver = Driver()
    driver.batch(
        WorkCounts(KEYED, 0, keyed=((1, 64),), hottest=(("old", 60), ("b", 4))),
        WorkCounts(KEYED, 1, keyed=((3, 16),), hottest=(("c", 16),)),
    )
    keyed = driver.vertex(KEYED)
    assert keyed.key_groups == [0, 64, 0, 16]
    assert keyed.hottest == [("old", 60), ("c", 16), ("b", 4)]
    driver.clock.advance(60_000)
    assert driver.vertex(KEYED).key_groups == [0, 32, 0, 8]
    driver.clock.advance(59_000)
    driver.batch(WorkCounts(KEYED, 0, keyed=((0, 100),), hottest=(("new", 100),)))
    keyed = driver.vertex(KEYED)
    assert keyed.key_groups == [100, 16, 0, 4]
    assert keyed.hottest == [("new", 100), ("old", 15), ("c", 4), ("b", 1)]
    driver.clock.advance(120_000)
    assert driver.vertex(KEYED).hottest[-1] == ("c", 1), "what has faded away is forgotten"
    assert driver.vertex(SOURCE).key_groups == []


def test_only_so_many_keys_are_kept() -> None:
    driver = Driver()
    for number in range(300):
        rare = tuple((f"{number}-{i}", 1) for i in range(20))
        driver.batch(WorkCounts(KEYED, 0, keyed=((0, 30),), hottest=(("hot", 5), *rare)), took_ms=0)
    assert driver.vertex(KEYED).hottest[0] == ("hot", 1500)
    assert len(driver.statistics._of[KEYED].keys._counts) <= 1021


def test_growth_of_state_is_seen() -> None:
    """E36."""
    driver = Driver()
    driver.batch(state_bytes=1000)
    assert driver.vertex(KEYED).state_growth_per_s == 0
    for size in (3000, 6000, 9000):
        driver.batch(state_bytes=size, took_ms=2000)
    assert driver.vertex(KEYED).state_bytes == 9000
    assert driver.vertex(KEYED).state_growth_per_s == pytest.approx(8000 / 6)


def test_backlog_beyond_the_credits_is_back_pressure() -> None:
    """E9."""
    driver = Driver(limit=100)
    driver.statistics.note_backlog([80, None, 30])
    view = driver.statistics.view()
    assert view.backlog == 110 and not view.is_waiting, "each source has its own credits"
    driver.statistics.note_backlog([101])
    assert driver.statistics.view().is_waiting
    driver.statistics.note_backlog([None])
    assert driver.statistics.view().backlog is None


@pytest.mark.parametrize(("records", "is_full"), [(99, True), (50, False)])
def test_full_batch_of_a_source_that_cannot_tell_means_more(records: int, is_full: bool) -> None:
    driver = Driver(limit=100)
    driver.batch(WorkCounts(SOURCE, 0, records_in=records), backlog=None)
    assert driver.statistics.view().is_waiting == is_full
    ratios = driver.vertex(SOURCE).ratios
    assert ratios is not None and ratios.backpressured == is_full


def test_batch_tells_what_the_next_one_needs_to_know() -> None:
    driver = Driver()
    driver.statistics.note_backlog([50])
    driver.statistics.batch_begins()
    driver.clock.advance(700)
    works = [WorkCounts(SOURCE, i, records_in=10 + i, memory_share=0.3 + i) for i in (0, 1)]
    driver.statistics.batch_completes(works, {}, {})
    driver.clock.advance(100)
    done = driver.statistics.batch_is_committed()
    assert done == (800, 21, True, 1.3, True, 50), "all subtasks, the fullest slot"
    assert driver.statistics.batch_is_committed() is None
    assert driver.statistics.view().latencies_ms == [800]
    for is_first in (False, True):
        driver.statistics.batch_begins()
        driver.statistics.batch_completes([], {}, {})
        done = driver.statistics.batch_is_committed()
        assert done is not None and done.is_first == is_first
        driver.statistics.attempt_ends()


def test_batch_that_fails_is_lost() -> None:
    driver = Driver()
    driver.batch(WorkCounts(SOURCE, 0, records_in=5))
    driver.statistics.batch_begins()
    assert driver.statistics.attempt_ends()
    assert not driver.statistics.view().is_running
    driver.batch(WorkCounts(SOURCE, 0, records_in=5))
    assert driver.vertex(SOURCE).subtasks[0].counts.records_in == 10


def test_totals_go_back_with_the_batches() -> None:
    driver = Driver()
    driver.batch(busy(SOURCE, 5, records_in=5), busy(KEYED, 3, subtask=1, records_out=2))
    totals = driver.statistics.totals()
    driver.batch(busy(SOURCE, 5, records_in=5))
    driver.statistics.restore(totals)
    assert driver.statistics.totals() == totals
    assert driver.vertex(SOURCE).subtasks[0].counts.records_in == 5
    other = Driver()
    other.statistics.restore(totals)
    assert other.vertex(KEYED).subtasks[1].counts.records_out == 2
    other.statistics.restore({})
    assert other.vertex(KEYED).subtasks[1].counts.records_out == 0
