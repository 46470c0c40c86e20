"""What a state in memory knows of each of its change logs, so as not to read it with every batch."""

from __future__ import annotations

from typing import NamedTuple


class LogHead(NamedTuple):
    """Says that rows `first_row` to `next_row` - 1 of a log are valid.

    From `fresh_row` on there are small changes that are not joined yet. `changes` counts those since the
    snapshot. `overwritten` is the share of the changes before the snapshot that had overwritten something
    when it was written.
    """

    first_row: int = 0
    fresh_row: int = 0
    next_row: int = 0
    snapshot_bytes: int = 0
    change_bytes: int = 0
    changes: int = 0
    overwritten: float = 1.0

    @property
    def bytes(self) -> int:
        """The size of the whole log."""
        return self.snapshot_bytes + self.change_bytes


class LogTail:
    """The head of a log, and the small changes at its end that will be joined. They are None if they have
    not been read yet."""

    __slots__ = ("fresh", "fresh_bytes", "head")

    def __init__(self, head: LogHead, fresh: list[bytes] | None = None) -> None:
        self.head = head
        self.set_fresh(fresh)

    def set_fresh(self, changes: list[bytes] | None) -> None:
        """Replace the small changes."""
        self.fresh = changes
        self.fresh_bytes = sum(map(len, changes or ()))

    def add_fresh(self, change: bytes) -> None:
        """Add a small change to those that are known."""
        assert self.fresh is not None
        self.fresh.append(change)
        self.fresh_bytes += len(change)
