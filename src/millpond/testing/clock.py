"""A clock that stands still until it is told otherwise."""

from __future__ import annotations


class ManualClock:
    """Call it for the time in milliseconds."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
