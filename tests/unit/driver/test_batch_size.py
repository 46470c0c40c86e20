"""Batches grow and shrink with the load, with the target, and with the memory that is left (E9)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.driver.batch_size import (
    FIRST,
    FIRST_WITHOUT_CUTS,
    KEEPING_UP_MS,
    BatchSizer,
    sizer_of,
)
from millpond.driver.planning import plan_job
from millpond.errors import ProgramError
from millpond.plan.settings import JobSettings
from millpond.testing import direct_environment


def run(sizer: BatchSizer, records_per_s: float, batches: int, fixed_ms: float = 400) -> list[int]:
    """Batches of a source that always has more; the sizes they had."""
    sizes = []
    for _ in range(batches):
        sizes.append(sizer.limit)
        duration_ms = fixed_ms + sizer.limit / records_per_s * 1000
        sizer.took(duration_ms, sizer.limit, was_full=True)
    return sizes


def test_waiting_input_makes_batches_grow_to_the_target() -> None:
    sizes = run(BatchSizer(10_000_000, 5000, 50_000), records_per_s=150_000, batches=10)
    assert sizes[0] == 50_000
    assert sizes[1] <= 2_000_000, "not more than fortyfold at once"
    assert 650_000 < sizes[-1] < 720_000


def test_slow_job_gets_small_batches() -> None:
    sizes = run(BatchSizer(10_000_000, 5000, 50_000), records_per_s=500, batches=10)
    assert 2200 < sizes[-1] < 2400


@pytest.mark.parametrize(
    ("backlog", "takes_the_rest"), [(800_000, True), (1_200_000, False), (100_000, False)]
)
def test_little_rest_is_not_left_for_a_batch_of_its_own(backlog: int, takes_the_rest: bool) -> None:
    """Neither is the limit lowered to what is waiting: more may come."""
    sizer = BatchSizer(10_000_000, 5000, 50_000)
    run(sizer, records_per_s=150_000, batches=10)
    limit = sizer.limit
    assert 650_000 < limit < 720_000
    sizer.took(5000, limit, was_full=True, backlog=backlog)
    if takes_the_rest:
        assert backlog <= sizer.limit <= 1.03 * backlog
    else:
        assert 0.95 * limit < sizer.limit < 1.05 * limit


def test_limit_is_never_passed() -> None:
    assert max(run(BatchSizer(1000, 5000, 50_000), records_per_s=1e6, batches=10)) == 1000


def test_size_stays_when_nothing_was_waiting() -> None:
    sizer = BatchSizer(10_000_000, 5000, 50_000)
    sizer.took(300, 50_000, was_full=False)
    assert sizer.limit == 50_000


def test_small_batches_do_not_make_the_limit_small() -> None:
    """What takes longer than the target is the fixed cost: nobody would be helped by fewer records."""
    sizer = BatchSizer(10_000_000, 100, 50_000)
    for records in (3, 1, 0, 2, 7, 0, 5):
        sizer.took(400 + records, records, was_full=False)
    assert sizer.limit == 50_000


def test_batch_without_records_says_nothing_about_records() -> None:
    """Such as one for a savepoint, although records are waiting."""
    sizer = BatchSizer(10_000_000, 200, 50)
    for _ in range(5):
        sizer.took(1000, 50, was_full=True)
    before = sizer.limit
    sizer.took(60, 0, was_full=True)
    assert sizer.limit == before


def test_fixed_cost_above_the_target_leaves_room_for_records() -> None:
    sizes = run(
        BatchSizer(10_000_000, 200, 50_000), records_per_s=100_000, batches=30, fixed_ms=400
    )
    assert 8_000 < sizes[-1] < 12_000, "a quarter of the fixed cost: 100 ms"


@given(
    target_ms=st.floats(50, 60_000),
    fixed_share=st.floats(0, 0.75),
    records_in_target=st.floats(20, 1e6),
    first=st.integers(1, 2_000_000),
)
def test_batches_come_to_take_as_long_as_the_target(
    target_ms: float, fixed_share: float, records_in_target: float, first: int
) -> None:
    """For any cost of a batch and of a record, wherever it starts."""
    fixed_ms = fixed_share * target_ms
    sizer = BatchSizer(10_000_000, target_ms, first)
    sizes = run(sizer, records_in_target / target_ms * 1000, 60, fixed_ms)
    duration_ms = fixed_ms + sizes[-1] * target_ms / records_in_target
    one_ms = target_ms / records_in_target
    assert abs(duration_ms - target_ms) < 0.1 * target_ms + 2 * one_ms


@given(
    st.integers(1, 10_000),
    st.lists(
        st.tuples(st.floats(0, 1e7), st.integers(0, 10_000), st.booleans(), st.floats(0, 2)),
        max_size=60,
    ),
)
def test_limit_is_within_bounds_whatever_happens(maximum: int, batches: list[Any]) -> None:
    sizer = BatchSizer(maximum, 1000, 50_000)
    for duration_ms, records, was_full, memory_share in batches:
        before = sizer.limit
        sizer.took(duration_ms, records, was_full, memory_share)
        assert 1 <= sizer.limit <= maximum
        if memory_share > 0.8:
            assert sizer.limit <= max(1, before * 3 // 4)
        elif not was_full:
            assert sizer.limit <= before


def test_start_of_processes_says_nothing_about_records() -> None:
    sizer = BatchSizer(10_000_000, 1000, 50_000)
    sizer.took(8000, 50_000, was_full=True, is_first=True)
    assert sizer.limit == 50_000
    sizer.took(20_000, 50_000, was_full=True, is_first=True)
    assert sizer.limit == 12_500, "that is too long even so"


def test_good_size_is_found_soon() -> None:
    """Most of a batch is fixed cost, and how long it takes is partly chance."""
    chance = Random(1)
    sizer = BatchSizer(10_000_000, 1500, first=1000)
    for _ in range(10):
        duration_ms = (650 + sizer.limit / 1000) * chance.uniform(0.8, 1.2)
        sizer.took(duration_ms, sizer.limit, was_full=True)
    assert 400_000 < sizer.limit < 1_300_000


def test_source_whose_splits_are_uneven_gets_more() -> None:
    """Each split gets its share of the limit; if one has all, a batch is never as large as the limit."""
    sizer = BatchSizer(10_000_000, 5000, 50_000)
    sizer.took(1000, 5_000, was_full=True)
    assert sizer.limit > 200_000


def test_memory_pressure_makes_batches_smaller_though_they_are_fast() -> None:
    sizer = BatchSizer(10_000_000, 5000, 50_000)
    sizer.took(100, 50_000, was_full=True, memory_share=0.81)
    assert sizer.limit == 37_500
    sizer.took(100, 37_500, was_full=True, memory_share=0.8)
    assert sizer.limit > 37_500


def test_small_limit_can_grow() -> None:
    sizer = BatchSizer(1000, 1000, first=1)
    sizer.took(900, 1, was_full=True)
    assert sizer.limit == 2


def settings_of(**settings: Any) -> JobSettings:
    environment = direct_environment({k.replace("_", "-"): v for k, v in settings.items()})
    environment.from_collection([1]).print()
    graph = environment._pending_graph()
    return plan_job(graph, environment._configuration, environment.get_config(), None).settings


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("500", 500),
        (700, 700),
        ("500ms", 500),
        ("2s", 2000),
        ("1.5 min", 90_000),
        ("1H", 3_600_000),
    ],
)
def test_target_latency_is_a_time(given: Any, milliseconds: int) -> None:
    settings = settings_of(**{"millpond.target-latency": given})
    assert settings.target_latency_ms == milliseconds


@pytest.mark.parametrize("given", ["soon", "-5", "0", "5 moons", ""])
def test_target_latency_must_be_a_time(given: str) -> None:
    with pytest.raises(ProgramError, match=r"millpond\.target-latency' must be a time"):
        settings_of(**{"millpond.target-latency": given})


def test_target_latency_is_shared_by_two_batches() -> None:
    """A record waits for the batch before, and for its own."""
    settings = settings_of(**{"millpond.target-latency": "2s", "millpond.batch.target-ms": 60_000})
    sizer = sizer_of(settings)
    assert sizer.limit == FIRST
    sizes = run(sizer, records_per_s=100_000, batches=20, fixed_ms=200)
    assert 75_000 < sizes[-1] < 85_000, "800 of 1000 ms"
    assert sizer_of(settings_of(), cuts_by_time=False).limit == FIRST_WITHOUT_CUTS


class Backlog:
    """A job with a fixed cost of 50 ms per batch and a cost per record, and what is waiting for it."""

    def __init__(self, records: int, cost_ms: float) -> None:
        self.waiting, self._cost_ms = records, cost_ms
        self.sizer = sizer_of(settings_of())

    def run(self, batches: int) -> list[float]:
        """How long each batch took."""
        durations = []
        for _ in range(batches):
            records = min(self.sizer.limit, self.waiting)
            self.waiting -= records
            durations.append(50 + records * self._cost_ms)
            was_full = self.waiting > 0
            self.sizer.took(durations[-1], records, was_full, backlog=self.waiting)
        return durations


@pytest.mark.parametrize("cost_ms", [0.005, 0.1, 20])
def test_first_batch_is_small_however_fast_records_are(cost_ms: float) -> None:
    assert Backlog(3000, cost_ms).run(1)[0] < 1500


def test_job_that_keeps_up_has_short_batches() -> None:
    job = Backlog(3000, 0.05)
    job.run(5)
    assert job.sizer.target_ms == KEEPING_UP_MS


def test_batches_of_cheap_records_grow_with_what_is_waiting() -> None:
    durations = Backlog(100_000_000, 0.005).run(20)
    assert 9000 < durations[-1] < 11_000, "millpond.batch.target-ms"
    durations = Backlog(400_000, 0.005).run(20)
    assert 500 < max(durations) < 2500, "what is waiting takes two seconds"


@pytest.mark.parametrize("cost_ms", [0.5, 20])
def test_batches_of_slow_records_do_not_grow_without_end(cost_ms: float) -> None:
    """Nearly all of the time goes into records anyway; and a savepoint should not wait for long."""
    assert max(Backlog(1_000_000, cost_ms).run(40)) < 2500


def test_batches_get_short_again_when_the_job_has_caught_up() -> None:
    job = Backlog(2_000_000, 0.005)
    durations = job.run(60)
    assert job.waiting == 0
    assert max(durations) > 500
    assert job.sizer.target_ms == KEEPING_UP_MS
