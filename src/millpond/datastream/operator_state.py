"""State of functions without keys (E31): lists of a subtask. Beyond PyFlink, as in Flink's Java API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

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
        """Called once, after `open` and before the first record."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the end of every batch: bring the lists up to date."""
