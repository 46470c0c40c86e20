"""The lists of a function without a key: given to it when it starts, filled at the end of batches."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from millpond.datastream.operator_state import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
    operator_state_of,
)
from millpond.datastream.state import ListState, ListStateDescriptor
from millpond.errors import ProgramError
from millpond.runtime.task.codec import BlobKind, decode, dumps, freeze, loads, thaw
from millpond.runtime.task.operators import user_error
from millpond.state.evolution import at_rest_converter
from millpond.state.handles import CurrentKey, ListStateHandle
from millpond.state.key_group_state import (
    CANNOT_CONVERT,
    KeyGroupState,
    cannot_convert,
    declared_schemas,
)

if TYPE_CHECKING:
    from millpond.runtime.task.chain import OperatorChain

SPLIT = "_operator."  # before the names of lists that are dealt out anew
UNION = "_union."  # before those that everyone gets


class OperatorState:
    """Of the root of a chain, if it is a CheckpointedFunction; else it does nothing."""

    def __init__(self, chain: OperatorChain) -> None:
        function = None if chain.task.keyed else operator_state_of(chain.root.plan.function)
        self._function: CheckpointedFunction | None = function
        self._chain = chain
        self._is_initialized = False
        self._unions: dict[str, ListState[Any]] = {}
        self._reported = b""
        self._epoch = -1

    def __bool__(self) -> bool:
        return self._function is not None

    @property
    def is_awaited(self) -> bool:
        """True if the function must not be opened yet: it is to know its state before, as in Flink."""
        return self._function is not None and not self._is_initialized

    def is_outdated(self, epoch: int, state_is_as_it_was: bool) -> bool:
        """True if what the function remembers in attributes is not what its lists say: it has seen this
        batch, which is run again, or others have run batches since."""
        if self._function is None or not self._is_initialized:
            return False
        return epoch <= self._epoch or not state_is_as_it_was

    def begin(self, epoch: int, unions: dict[int, bytes] | str | None = None) -> None:
        """The task is bound to its state. `unions`: see frames.Start."""
        if self._function is None:
            return
        self._epoch = epoch
        if not self._is_initialized:
            state = self._chain.clock.state
            assert state is not None
            known = _read_unions(unions) if unions else []
            is_restored = not state.is_empty() or bool(known)
            clock = self._chain.clock
            context = InitializationContext(state, clock.bound, is_restored, known, self._unions)
            self._call(self._function.initialize_state, "initialize_state", context)
            self._is_initialized = True
            self._chain.open()
            clock.bind(state)

    def end(self, epoch: int, time_ms: int) -> None:
        """All records of the batch are through."""
        if self._function is not None:
            context = SnapshotContext(epoch, time_ms)
            self._call(self._function.snapshot_state, "snapshot_state", context)

    def changed_unions(self) -> bytes | None:
        """What others get of this subtask when they start anew, if it is new: the union lists at rest, with
        their types."""
        if not self._unions:
            return None
        state = self._chain.clock.state
        assert state is not None
        lists = {
            name: (state.types[UNION + name], list(map(freeze, handle.get())))
            for name, handle in self._unions.items()
        }
        encoded = dumps(lists)
        if encoded == self._reported:
            return None
        self._reported = encoded
        return encoded

    def _call(self, method: Any, name: str, context: Any) -> None:
        try:
            method(context)
        except Exception as problem:
            root = self._chain.root
            raise user_error(problem, root.name, self._chain.subtask, name, None) from None


class InitializationContext(FunctionInitializationContext, OperatorStateStore):
    """Handles of lists in `state`; they are added to `bound`. `known`: union lists of all subtasks."""

    def __init__(
        self,
        state: KeyGroupState,
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
        return self._is_restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self

    def get_list_state(self, descriptor: ListStateDescriptor) -> Any:
        return self._handle(SPLIT, descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> Any:
        handle = self._unions[descriptor.name] = self._handle(UNION, descriptor)
        lists = [own[descriptor.name] for own in self._known if descriptor.name in own]
        if lists:
            handle.update(
                [element for own in lists for element in self._converted(own, descriptor)]
            )
        return handle

    def _converted(
        self, written: tuple[Any, list[Any]], descriptor: ListStateDescriptor
    ) -> list[Any]:
        schemas, elements = written
        if schemas != declared_schemas(descriptor):
            try:
                elements = list(
                    map(at_rest_converter(schemas["value"], descriptor.type_info), elements)
                )
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
        own = copy.copy(descriptor)
        own.name = prefix + descriptor.name
        handle = ListStateHandle(own, CurrentKey())
        self._bound.append(handle)
        handle.bind(self._state)
        return handle


def _read_unions(unions: dict[int, bytes] | str) -> list[dict[str, tuple[Any, list[Any]]]]:
    if isinstance(unions, str):
        with open(unions, "rb") as file:
            unions = decode(BlobKind.UNIONS, file.read(), unions)
    assert isinstance(unions, dict)
    return [loads(unions[subtask]) for subtask in sorted(unions)]


class SnapshotContext(FunctionSnapshotContext):
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
