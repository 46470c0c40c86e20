"""A job's input while it only does what it is ordered to: nothing is read, and the position is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext


class NothingNew(Source):
    bounded = False
    endless = True

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _NothingNew()

    def read(self, arguments: Any) -> Iterator[tuple[Any, int | None]]:
        return iter(())


class _NothingNew(SplitEnumerator):
    def __init__(self) -> None:
        super().__init__()
        self._position: Any = []

    def split_count(self) -> int:
        return max(
            1, len(self._position)
        )  # both files and Kafka have a list with an entry for each

    def poll(self, max_records: int) -> list[SplitWork]:
        return []

    def position(self) -> Any:
        return self._position

    def restore(self, position: Any) -> None:
        self._position = position

    def ended(self) -> list[bool]:
        return [False] * self.split_count()

    def caught_up(self) -> bool:
        return True
