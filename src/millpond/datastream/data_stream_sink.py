"""The ends of streams: sinks, and the results that a program collects itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millpond.datastream.slot_sharing_group import SlotSharingGroup
from millpond.datastream.stream_graph import Chaining, Node


class CloseableIterator:
    """The results of `execute_and_collect`, in the order in which the job produces them.

    It is a context manager that stops the job at the end of the block.
    """

    def __init__(self, values: Iterator[Any], close: Callable[[], None]) -> None:
        self._values = values
        self._close = close

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        return next(self._values)

    def next(self) -> Any:
        """Wait for the next result and return it; raise StopIteration at the end."""
        return next(self._values)

    def close(self) -> None:
        """Stop the job if it is still running."""
        self._close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class DataStreamSink:
    """The end of a stream. All methods configure the sink and return it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def name(self, name: str) -> DataStreamSink:
        """Name the sink, for the plan, metrics and errors."""
        self._node.name = name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Give the sink a stable id, by which its state is found again; it must be unique within the job."""
        self._node.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Set the id of the sink's state as 32 hexadecimal digits."""
        self._node.uid_hash = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Set the number of subtasks that write."""
        self._node.parallelism = parallelism
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Describe the sink in the plan."""
        self._node.description = description
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Show the sink outside any chain in the plan. How it runs does not change."""
        self._node.chaining = Chaining.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        """Show the sink in this group in the plan. Spark decides where it runs."""
        group = slot_sharing_group
        self._node.slot_sharing_group = group if isinstance(group, str) else group.get_name()
        return self
