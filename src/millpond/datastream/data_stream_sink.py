"""The ends of streams: sinks, and the results a program collects itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millpond.datastream.slot_sharing_group import SlotSharingGroup
from millpond.datastream.stream_graph import Chaining, Node


class CloseableIterator:
    """The results of `execute_and_collect`, in the order the job produces them."""

    def __init__(self, values: Iterator[Any], close: Callable[[], None]) -> None:
        self._values = values
        self._close = close

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        return next(self._values)

    def next(self) -> Any:
        return next(self._values)

    def close(self) -> None:
        """Stop the job if it still runs."""
        self._close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class DataStreamSink:
    """The end of a stream."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def name(self, name: str) -> DataStreamSink:
        self._node.name = name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        self._node.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        self._node.uid_hash = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        self._node.parallelism = parallelism
        return self

    def set_description(self, description: str) -> DataStreamSink:
        self._node.description = description
        return self

    def disable_chaining(self) -> DataStreamSink:
        self._node.chaining = Chaining.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        group = slot_sharing_group
        self._node.slot_sharing_group = group if isinstance(group, str) else group.get_name()
        return self
