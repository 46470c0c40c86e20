"""Operator state: the lists of functions without keys, and how they are dealt out anew (E31, C37)."""

from __future__ import annotations

import copy
from typing import Any

from millpond.core.codec import thaw
from millpond.datastream.operator_state import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from millpond.datastream.state import ListState, ListStateDescriptor
from millpond.errors import ProgramError
from millpond.state.handles import CurrentKey
from millpond.state.kinds.kind import BackendFamily
from millpond.state.kinds.registry import spec_of
from millpond.state.shard_state import ShardState
from millpond.state.types.declared import (
    CANNOT_CONVERT,
    cannot_convert,
    converters,
    declared_schemas,
)

SPLIT = "_operator."  # begins the names of lists that are dealt out anew
UNION = "_union."  # begins the names of lists that every subtask gets as a whole


class InitializationContext(FunctionInitializationContext, OperatorStateStore):
    """Makes handles of lists in `state`, and adds them to `bound`. `known` has the union lists of all
    subtasks, as (schemas, elements) by name; handles of union lists are added to `unions`."""

    def __init__(
        self,
        state: ShardState,
        bound: list[Any],
        is_restored: bool,
        known: list[dict[str, tuple[Any, list[Any]]]],
        unions: dict[str, ListState[Any]],
    ) -> None:
        self._state = state
        self._bound = bound
        self._is_restored = is_restored
        self._known = known
        self._unions = unions

    def is_restored(self) -> bool:
        """Return True if there is state from before."""
        return self._is_restored

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of lists."""
        return self

    def get_list_state(self, descriptor: ListStateDescriptor) -> Any:
        """Return a list that is dealt out anew when the parallelism changes."""
        return self._handle(SPLIT, descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> Any:
        """Return a list that begins with the elements of all subtasks."""
        handle = self._unions[descriptor.name] = self._handle(UNION, descriptor)
        lists = [
            lists_of_subtask[descriptor.name]
            for lists_of_subtask in self._known
            if descriptor.name in lists_of_subtask
        ]
        if lists:
            handle.update(
                [element for written in lists for element in self._converted(written, descriptor)]
            )
        return handle

    def _converted(
        self, written: tuple[Any, list[Any]], descriptor: ListStateDescriptor
    ) -> list[Any]:
        schemas, elements = written
        if schemas != declared_schemas(descriptor):
            try:
                convert, _ = converters(schemas, descriptor)
                elements = list(map(convert, elements))
            except CANNOT_CONVERT as problem:
                raise cannot_convert(self._state.where, descriptor, schemas, problem) from None
        return list(map(thaw, elements))

    def _handle(self, prefix: str, descriptor: ListStateDescriptor) -> Any:
        descriptor.refuse_queryable("Operator state")
        if descriptor.ttl_config is not None:
            raise ProgramError(
                f"The list '{descriptor.name}' of a function without keys has a time to live, which only "
                "keyed state can have. Leave it out, and drop what is too old in snapshot_state."
            )
        renamed = copy.copy(descriptor)
        renamed.name = prefix + descriptor.name
        # The tables of operator state are always in memory.
        handle = spec_of(renamed.kind).handle(renamed, CurrentKey(), BackendFamily.HASH)
        self._bound.append(handle)
        handle.bind(self._state)
        return handle


class SnapshotContext(FunctionSnapshotContext):
    """Tells a function which batch it is snapshotted after."""

    def __init__(self, epoch: int, time_ms: int) -> None:
        self._epoch = epoch
        self._time_ms = time_ms

    def get_checkpoint_id(self) -> int:
        """Return the epoch."""
        return self._epoch

    def get_checkpoint_timestamp(self) -> int:
        """Return the processing time of the batch, in milliseconds."""
        return self._time_ms


def deal_out(lists: list[list[Any]], parallelism: int) -> list[list[Any]]:
    """Return the elements of all subtasks dealt out to another number of them (C37): in order, the first ones
    get one more."""
    if len(lists) == parallelism:
        return lists
    elements = [element for part in lists for element in part]
    size, remainder = divmod(len(elements), parallelism)
    dealt, begin = [], 0
    for subtask in range(parallelism):
        end = begin + size + (subtask < remainder)
        dealt.append(elements[begin:end])
        begin = end
    return dealt
