"""The input of a job that is started only for orders: nothing new is read, and the position is kept.

A batch that was planned earlier is still read as planned.
"""

from __future__ import annotations

from collections.abc import Iterator

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext


class OnlyOrders(Source):
    """Stands in for a source, with the same position, but reads nothing new from it."""

    bounded = False
    endless = True

    def __init__(self, source: Source) -> None:
        self._source = source

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _NothingNew(self._source.create_enumerator(parallelism, context))

    def read(self, arguments: object) -> Iterator[tuple[object, int | None]]:
        return self._source.read(arguments)

    def read_many(
        self, arguments: object
    ) -> Iterator[tuple[list[object], list[int | None] | None]]:
        return self._source.read_many(arguments)

    def rest(self, arguments: object, done: int) -> tuple[object, int]:
        return self._source.rest(arguments, done)


class _NothingNew(SplitEnumerator):
    """The enumerator of a source that is never started: its splits are those of its position."""

    def __init__(self, enumerator: SplitEnumerator) -> None:
        super().__init__()
        self._inner = enumerator

    def split_count(self) -> int:
        return self._inner.split_count()

    def poll(self, max_records: int) -> list[SplitWork]:
        return []

    def position(self) -> object:
        return self._inner.position()

    def restore(self, position: object) -> None:
        self._inner.restore(position)

    def ended(self) -> list[bool]:
        return [False] * self.split_count()

    def caught_up(self) -> bool:
        return True

    def close(self) -> None:
        self._inner.close()
