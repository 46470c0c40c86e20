"""The lists of a source function, which runs as one subtask on the driver."""

from __future__ import annotations

from typing import Any

from millpond.datastream.operator_state import CheckpointedFunction
from millpond.datastream.operator_state import SourceLists as SourceListsContract
from millpond.state.operator_lists import InitializationContext, SnapshotContext
from millpond.state.shard_state import ShardState


class SourceLists(SourceListsContract):
    """The operator state of one source function. `saved` is what `content` once returned; None if there is
    nothing from before."""

    def __init__(self, function: CheckpointedFunction, source: str, saved: Any) -> None:
        self._function = function
        self._state = ShardState(0)
        self._state.where = f"state of source '{source}'"
        self._is_restored = saved is not None
        if saved is not None:
            self._state.apply(saved)
            self._state.commit()

    def initialize(self) -> None:
        """Let the function ask for its lists."""
        context = InitializationContext(self._state, [], self._is_restored, [], {})
        self._function.initialize_state(context)

    def snapshot(self, epoch: int, time_ms: int) -> None:
        """Let the function bring its lists up to date, after batch `epoch`."""
        self._function.snapshot_state(SnapshotContext(epoch, time_ms))
        self._state.commit()

    def content(self) -> Any:
        """Return the lists in a form that can be saved."""
        return self._state.snapshot()
