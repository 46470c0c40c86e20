"""The lists of a function without a key: given to it when it starts, filled at the end of batches."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from millpond.datastream.operator_state import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from millpond.datastream.state import ListState, ListStateDescriptor
from millpond.runtime.task.operators import user_error
from millpond.state.handles import CurrentKey, ListStateHandle

if TYPE_CHECKING:
    from millpond.runtime.task.chain import OperatorChain

SPLIT = "_operator."  # before the names of lists that are dealt out anew
UNION = "_union."  # before those that everyone gets


class OperatorState:
    """Of the root of a chain, if it is a CheckpointedFunction; else it does nothing."""

    def __init__(self, chain: OperatorChain) -> None:
        function = chain.root.plan.function
        keeps = isinstance(function, CheckpointedFunction) and not chain.task.keyed
        self._function: CheckpointedFunction | None = function if keeps else None
        self._chain = chain
        self._is_initialized = False
        self._unions: dict[str, ListState[Any]] = {}
        self._epoch = -1

    def __bool__(self) -> bool:
        return self._function is not None

    def is_ahead(self, epoch: int) -> bool:
        """True if the function has seen this batch: it is run again, and needs another function."""
        return self._function is not None and epoch <= self._epoch

    def begin(self, epoch: int, unions: Iterable[dict[str, list[Any]]] = ()) -> None:
        """The task is bound to its state. `unions`: the union lists of all subtasks."""
        if self._function is None:
            return
        self._epoch = epoch
        if not self._is_initialized:
            state = self._chain.clock.state
            assert state is not None
            known: dict[str, list[Any]] = {}
            for own in unions:
                for name, elements in own.items():
                    known.setdefault(name, []).extend(elements)
            is_restored = not state.is_empty() or bool(known)
            context = _InitializationContext(self._chain, is_restored, known, self._unions)
            self._call(self._function.initialize_state, "initialize_state", context)
            self._is_initialized = True

    def end(self, epoch: int, time_ms: int) -> None:
        """All records of the batch are through."""
        if self._function is not None:
            context = _SnapshotContext(epoch, time_ms)
            self._call(self._function.snapshot_state, "snapshot_state", context)

    def union_lists(self) -> dict[str, list[Any]]:
        """What others get of this subtask when they start anew."""
        return {name: list(handle.get()) for name, handle in self._unions.items()}

    def _call(self, method: Any, name: str, context: Any) -> None:
        try:
            method(context)
        except Exception as problem:
            root = self._chain.root
            raise user_error(problem, root.name, self._chain.subtask, name, None) from None


class _InitializationContext(FunctionInitializationContext, OperatorStateStore):
    def __init__(
        self,
        chain: OperatorChain,
        is_restored: bool,
        known: dict[str, list[Any]],
        unions: dict[str, ListState[Any]],
    ) -> None:
        self._clock = chain.clock
        self._is_restored = is_restored
        self._known = known
        self._unions = unions

    def is_restored(self) -> bool:
        return self._is_restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self

    def get_list_state(self, descriptor: ListStateDescriptor) -> Any:
        return self._handle(SPLIT, descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> Any:
        handle = self._unions[descriptor.name] = self._handle(UNION, descriptor)
        if descriptor.name in self._known:
            handle.update(self._known[descriptor.name])
        return handle

    def _handle(self, prefix: str, descriptor: ListStateDescriptor) -> Any:
        own = copy.copy(descriptor)
        own.name = prefix + descriptor.name
        handle = ListStateHandle(own, CurrentKey())
        self._clock.bound.append(handle)
        assert self._clock.state is not None
        handle.bind(self._clock.state)
        return handle


class _SnapshotContext(FunctionSnapshotContext):
    def __init__(self, epoch: int, time_ms: int) -> None:
        self._epoch = epoch
        self._time_ms = time_ms

    def get_checkpoint_id(self) -> int:
        return self._epoch

    def get_checkpoint_timestamp(self) -> int:
        return self._time_ms


def deal_out(lists: list[list[Any]], parallelism: int) -> list[list[Any]]:
    """The elements of all subtasks, for another number of them (C37): in order, one more for the first."""
    if len(lists) == parallelism:
        return lists
    elements = [element for own in lists for element in own]
    size, remainder = divmod(len(elements), parallelism)
    dealt, begin = [], 0
    for subtask in range(parallelism):
        end = begin + size + (subtask < remainder)
        dealt.append(elements[begin:end])
        begin = end
    return dealt
