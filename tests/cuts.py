"""Cuts batches of the direct executor by time, at random moments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from unittest import mock

from millpond.driver.coordinator import Coordinator

_EXECUTOR = "millpond.executors.direct.executor"


class JumpingClock:
    """A clock in nanoseconds that jumps by up to `longest_ms` whenever somebody looks at it."""

    def __init__(self, chance: Random, longest_ms: int = 150) -> None:
        self._chance = chance
        self._longest_ns = longest_ms * 1_000_000
        self._now_ns = 0

    def __call__(self) -> int:
        self._now_ns += self._chance.randrange(self._longest_ns)
        return self._now_ns


@contextmanager
def cut_by_time(chance: Random, longest_ms: int = 150) -> Iterator[None]:
    """Within this, the batches of jobs that the direct executor runs end when their time is over, which is
    sooner or later."""
    clock = SimpleNamespace(perf_counter_ns=JumpingClock(chance, longest_ms))
    cutting = partial(Coordinator, cuts_by_time=True)
    with mock.patch(f"{_EXECUTOR}.Coordinator", cutting), mock.patch(f"{_EXECUTOR}.time", clock):
        yield
