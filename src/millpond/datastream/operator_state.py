"""State of functions without keys (E31): lists of a subtask. Beyond PyFlink, as in Flink's Java API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from millpond.common.typeinfo import Types
from millpond.datastream.state import ListState, ListStateDescriptor, MapStateDescriptor
from millpond.errors import UnsupportedFeatureError


class OperatorStateStore(ABC):
    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this subtask. When the parallelism changes, the elements of all subtasks are dealt out
        anew, evenly and in order."""

    @abstractmethod
    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this subtask; one that starts from a savepoint, or anew after a failure, gets the
        elements of all."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        raise UnsupportedFeatureError(
            "OperatorStateStore.get_broadcast_state: use stream.broadcast(descriptor) and connect."
        )


class FunctionInitializationContext(ABC):
    @abstractmethod
    def is_restored(self) -> bool:
        """True if there is state from before."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore: ...


class FunctionSnapshotContext(ABC):
    @abstractmethod
    def get_checkpoint_id(self) -> int: ...

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int: ...


class CheckpointedFunction(ABC):
    """A function without a key that keeps state. What it remembers in attributes it puts into its lists when
    it is asked to (`snapshot_state`), and takes out of them when it starts (`initialize_state`)."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once, before `open` and the first record."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the end of every batch: bring the lists up to date."""


class ListCheckpointed(ABC):
    """A function without a key that keeps one list, the short way: it gives it away, and gets it back."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """Called at the end of every batch: all that this subtask has to remember."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """Called once, before `open`, if there is state from before. When the parallelism changes, the
        elements of all subtasks are dealt out anew."""


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


def keeps_operator_state(function: Any) -> bool:
    """Of a function, or of an operation on one (`BroadcastOperation`)."""
    return operator_state_of(function) is not None


def operator_state_of(function: Any) -> CheckpointedFunction | None:
    for own in (function, getattr(function, "function", None)):
        if isinstance(own, CheckpointedFunction):
            return own
        if isinstance(own, ListCheckpointed):
            return _AsLists(own)
    return None


class SourceLists(Protocol):
    """The lists of a source function, which has one subtask, on the driver."""

    def initialize(self) -> None:
        """Call the function's `initialize_state`."""

    def snapshot(self, epoch: int, time_ms: int) -> None:
        """Call the function's `snapshot_state`."""

    def content(self) -> Any:
        """What the lists hold, in a form that can be stored and opened again."""


OpenSourceLists = Callable[[CheckpointedFunction, str, Any], SourceLists]
"""Takes the function, the source's name, and what `content` gave once (None: nothing yet)."""
