"""State of functions without keys (E31): lists that belong to a subtask. Beyond PyFlink, as in Flink's
Java API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from millpond.common.typeinfo import Types
from millpond.datastream.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
)
from millpond.errors import UnsupportedFeatureError


class OperatorStateStore(ABC):
    """Gives access to the lists of a subtask."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list of this subtask.

        When the parallelism changes, the elements of all subtasks are redistributed evenly and in order.
        """

    @abstractmethod
    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list of this subtask that gets the elements of all subtasks when it is restored.

        It is restored from a savepoint, or after a failure.
        """

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Raise UnsupportedFeatureError: use `stream.broadcast(descriptor)` and `connect`."""
        raise UnsupportedFeatureError(
            "Millpond does not have OperatorStateStore.get_broadcast_state: use "
            "stream.broadcast(descriptor) and connect."
        )


class FunctionInitializationContext(ABC):
    """What a function can learn and use before its first record."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return True if there is state from an earlier run."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of the subtask's lists."""


class FunctionSnapshotContext(ABC):
    """The checkpoint for which a function saves its state."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the number of the checkpoint."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Return the processing time of the checkpoint, in milliseconds."""


class CheckpointedFunction(ABC):
    """A function without a key that keeps state.

    What it remembers in attributes it writes to its lists in `snapshot_state`, and reads back in
    `initialize_state`.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the lists and restore from them. Called once, before `open` and the first record."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the lists up to date. Called at the end of every batch."""


class ListCheckpointed(ABC):
    """A function without a key that keeps one list: a shorter form of CheckpointedFunction."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """Return everything this subtask has to remember. Called at the end of every batch."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """Restore from a list. Called once, before `open`, if there is state from an earlier run.

        When the parallelism has changed, the elements of all subtasks are redistributed.
        """


class _AsLists(CheckpointedFunction):
    def __init__(self, function: ListCheckpointed) -> None:
        self._function = function

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("list", Types.PICKLED_BYTE_ARRAY())
        self._list = context.get_operator_state_store().get_list_state(descriptor)
        if context.is_restored():
            self._function.restore_state(list(self._list.get()))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        checkpoint_id, time_ms = context.get_checkpoint_id(), context.get_checkpoint_timestamp()
        self._list.update(list(self._function.snapshot_state(checkpoint_id, time_ms) or ()))


def keeps_operator_state(function: object) -> bool:
    """Return True if a function, or the function inside an operation such as `BroadcastOperation`, keeps
    operator state."""
    return operator_state_of(function) is not None


def operator_state_of(function: object) -> CheckpointedFunction | None:
    """Return the function that keeps operator state, as a CheckpointedFunction; None if none does."""
    for candidate in (function, getattr(function, "function", None)):
        if isinstance(candidate, CheckpointedFunction):
            return candidate
        if isinstance(candidate, ListCheckpointed):
            return _AsLists(candidate)
    return None


class SourceLists(Protocol):
    """The lists of a source function, which has a single subtask, on the driver."""

    def initialize(self) -> None:
        """Call the function's `initialize_state`."""

    def snapshot(self, epoch: int, time_ms: int) -> None:
        """Call the function's `snapshot_state`."""

    def content(self) -> object:
        """Return what the lists hold, in a form that can be stored and opened again."""


OpenSourceLists = Callable[[CheckpointedFunction, str, Any], SourceLists]
"""Takes the function, the source's name, and what `content` returned earlier (None: nothing yet)."""
