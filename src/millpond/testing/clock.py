"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """A clock for tests. Call it to get the time in milliseconds."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward."""
        self.now_ms += milliseconds
