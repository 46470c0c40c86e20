"""Batches grow and shrink with the load."""

from __future__ import annotations

from millpond.runtime.batch_size import BatchSizer


def run(sizer: BatchSizer, records_per_s: float, batches: int, fixed_ms: float = 400) -> list[int]:
    """Batches of a source that always has more; the sizes they had."""
    sizes = []
    for _ in range(batches):
        sizes.append(sizer.limit)
        sizer.took(fixed_ms + sizer.limit / records_per_s * 1000, was_full=True)
    return sizes


def test_waiting_input_makes_batches_grow_to_the_target() -> None:
    sizes = run(BatchSizer(10_000_000, 5000), records_per_s=150_000, batches=10)
    assert sizes[0] == 50_000
    assert sizes[1] <= 2_000_000, "not more than fortyfold at once"
    assert 550_000 < sizes[-1] < 800_000


def test_slow_job_gets_small_batches() -> None:
    sizes = run(BatchSizer(10_000_000, 5000), records_per_s=500, batches=10)
    assert 2000 < sizes[-1] < 3000


def test_limit_is_never_passed() -> None:
    assert max(run(BatchSizer(1000, 5000), records_per_s=1e6, batches=10)) == 1000


def test_size_stays_when_nothing_was_waiting() -> None:
    sizer = BatchSizer(10_000_000, 5000)
    sizer.took(300, was_full=False)
    assert sizer.limit == 50_000
