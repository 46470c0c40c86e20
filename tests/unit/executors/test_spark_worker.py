"""What Spark's Python workers do besides their work (decision 12)."""

from __future__ import annotations

import gc
import weakref

import pytest

from millpond.executors.spark import worker


class Thing:
    pass


def test_collections_pass_over_modules_but_find_the_garbage_of_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark collects after each task."""
    monkeypatch.setattr(worker, "_tasks_begun", 0)
    try:
        for _ in range(10):
            worker._set_modules_aside()
            thing = Thing()
            thing.itself = thing  # type: ignore[attr-defined]
            gone = weakref.ref(thing)
            del thing
            gc.collect()
            assert gone() is None
        assert gc.get_freeze_count() > 10_000
        assert worker._tasks_begun < 10, "what later tasks leave is not kept for ever"
    finally:
        gc.unfreeze()
