"""A job's input while it only does what it is ordered to: nothing new is read, and the position is kept.

A batch that was planned before is still read as planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext


class OnlyOrders(Source):
    bounded = False
    endless = True

    def __init__(self, source: Source) -> None:
        self._source = source

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _NothingNew(self._source.create_enumerator(parallelism, context))

    def read(self, arguments: Any) -> Iterator[tuple[Any, int | None]]:
        return self._source.read(arguments)

    def read_many(self, arguments: Any) -> Iterator[tuple[Any, Any]]:
        return self._source.read_many(arguments)


class _NothingNew(SplitEnumerator):
    """Of a source that is not started: it has the splits that its position has."""

    def __init__(self, enumerator: SplitEnumerator) -> None:
        super().__init__()
        self._inner = enumerator

    def split_count(self) -> int:
        return self._inner.split_count()

    def poll(self, max_records: int) -> list[SplitWork]:
        return []

    def position(self) -> Any:
        return self._inner.position()

    def restore(self, position: Any) -> None:
        self._inner.restore(position)

    def ended(self) -> list[bool]:
        return [False] * self.split_count()

    def caught_up(self) -> bool:
        return True

    def close(self) -> None:
        self._inner.close()
