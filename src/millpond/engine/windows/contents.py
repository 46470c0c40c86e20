"""What a window operator remembers: the content of windows, and which windows were merged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from millpond.common.typeinfo import TypeLike
from millpond.datastream.functions import KeyedStateStore, ReduceFunction
from millpond.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
)
from millpond.datastream.window import CountWindow, GlobalWindow, TimeWindow, Window
from millpond.datastream.window.assigners import MergingWindowAssigner
from millpond.engine.context import TaskClock
from millpond.errors import ProgramError
from millpond.state.handle_kinds import make_handle
from millpond.state.handles import CurrentKey
from millpond.state.kinds.registry import spec_of
from millpond.state.shard_state import ShardState
from millpond.state.tables import MISSING, DataTable, ValueTable

# A window as it is written in state and timers. Millpond's windows become plain tuples, which pack well; a
# user's own window is used as it is.
Namespace = Any
_CONTENT = "_window"
_MERGED = "_merged_windows"


def namespace_of(window: Window) -> Namespace:
    """Return the namespace of a window."""
    kind = type(window)
    if kind is TimeWindow:
        return (window.start, window.end)  # type: ignore[attr-defined]
    if kind is CountWindow:
        return (window.id,)  # type: ignore[attr-defined]
    return () if kind is GlobalWindow else window


def window_of(namespace: Namespace) -> Window:
    """Return the window of a namespace."""
    if type(namespace) is not tuple:
        return namespace  # type: ignore[no-any-return]
    if len(namespace) == 2:
        return TimeWindow(*namespace)
    return CountWindow(*namespace) if namespace else GlobalWindow.get()


class WindowScope:
    """The states of one key and window. `turn_to` says of which."""

    def __init__(self, clock: TaskClock) -> None:
        self._clock = clock
        self.current = CurrentKey()
        self._handles: dict[tuple[str, str], Any] = {}
        self._asked: set[str] = set()  # prefixes of the handles
        self.prefixes: set[str] = set()  # those, and the prefixes of all states of the shard
        clock.bound.append(self)

    def bind(self, state: ShardState) -> None:
        """Turn to the state of another shard."""
        self.prefixes = self._asked | {name.partition(".")[0] for name in state.tables}

    def turn_to(self, key: object, namespace: Namespace) -> None:
        """Make the states of this key and window the current ones."""
        self.current.key = (key, namespace)

    def state(self, prefix: str, descriptor: StateDescriptor) -> Any:
        """Return a handle of the state `prefix.name`, which is made when it is first asked for."""
        handle = self._handles.get((prefix, descriptor.name))
        if handle is None:
            descriptor.refuse_queryable("State of a window or trigger")
            renamed = copy.copy(descriptor)
            renamed.name = f"{prefix}.{descriptor.name}"
            handle = make_handle(renamed, self.current, self._clock, self._clock.backend_family)
            self._handles[prefix, descriptor.name] = handle
            self._asked.add(prefix)
            self.prefixes.add(prefix)
            self._clock.bound.append(handle)
            if self._clock.state is not None:
                handle.bind(self._clock.state)
        return handle

    def clear(self, prefix: str) -> None:
        """Clear all states with this prefix for the current key and window, including those that nobody has
        asked for since a restart."""
        state = self._clock.state
        assert state is not None
        for name in [name for name in state.tables if name.startswith(f"{prefix}.")]:
            table = state.tables[name]
            assert isinstance(table, DataTable)
            table.clear(self.current.key)


class WindowStateStore(KeyedStateStore):
    """`ProcessWindowFunction.Context.window_state()`: state that is cleared with its window."""

    PREFIX = "_window_state"

    def __init__(self, scope: WindowScope, windows_merge: bool) -> None:
        self._scope = scope
        self._windows_merge = windows_merge

    def _state(self, state_descriptor: StateDescriptor) -> Any:
        if self._windows_merge:
            raise ProgramError(
                f"State '{state_descriptor.name}' of a window cannot be used here: session windows are "
                "merged, but their state would not be. Use context.global_state(), or an accumulator."
            )
        return self._scope.state(self.PREFIX, state_descriptor)

    get_state = get_list_state = get_map_state = _state
    get_reducing_state = get_aggregating_state = _state


class WindowContent:
    """The content of the window that the scope is turned to: an accumulator if there is a function that
    combines elements, otherwise the elements."""

    def __init__(self, scope: WindowScope, combine: Any, element_type: TypeLike) -> None:
        self._scope = scope
        descriptor: StateDescriptor
        if combine is None:
            descriptor = ListStateDescriptor("content", element_type)
        elif isinstance(combine, ReduceFunction) or not hasattr(combine, "create_accumulator"):
            descriptor = ReducingStateDescriptor("content", combine, element_type)
        else:
            descriptor = AggregatingStateDescriptor("content", combine, element_type)
        self._descriptor = descriptor
        self.kind = descriptor.kind
        self._handle = scope.state(_CONTENT, descriptor)
        self.add: Callable[[Any], None] = self._handle.add
        self.clear: Callable[[], None] = self._handle.clear

    def get(self) -> object:
        """Return the list of elements, or the result so far; MISSING if the window has no content."""
        if self.kind is StateKind.LIST:
            return list(self._handle.get()) or MISSING
        if self._scope.current.key not in self.table.data:
            return MISSING
        return self._handle.get()

    @property
    def table(self) -> DataTable:
        """The table of the shard: (key, namespace) -> content at rest."""
        table: DataTable = self._handle._table
        return table

    def replace(self, elements: list[Any]) -> None:
        """Replace all elements by these."""
        self._handle.update(elements)

    def merge(self, key: object, into: Namespace, others: Iterable[Namespace]) -> None:
        """Move the content of other windows of a key into one, so that nothing is lost (C51)."""
        spec_of(self.kind).merge(self.table, self._descriptor, key, into, others)


OnMerge = Callable[[Window, list[Window], Namespace, list[Namespace]], None]
"""Takes the merged window, the windows that it was merged from, the namespace that its content will be kept
under, and the namespaces whose content must be moved there."""


class MergedWindows:
    """The windows that each key has, and the namespace that the content of each is kept under: that of one of
    the windows it was merged from, so that its content need not be moved."""

    _table: ValueTable

    def __init__(self, clock: TaskClock, assigner: MergingWindowAssigner[Any, Any]) -> None:
        self._assigner = assigner
        clock.bound.append(self)

    def bind(self, state: ShardState) -> None:
        """Turn to the state of another shard."""
        self._table = state.table(_MERGED, StateKind.VALUE)

    def of(self, key: object) -> dict[Namespace, Namespace]:
        """Return the windows of a key, each with the namespace that its content is kept under."""
        return dict(self._table.data.get(key, ()))

    def keep(self, key: object, windows: dict[Namespace, Namespace]) -> None:
        """Write the windows of a key to the state."""
        if windows:
            self._table.set(key, tuple(windows.items()))
        else:
            self._table.remove(key)

    def add(
        self, windows: dict[Namespace, Namespace], window: Window, on_merge: OnMerge
    ) -> Namespace:
        """Add a window to those of a key, merging it with those that it touches. Return the namespace of the
        window that it is now part of."""
        new = namespace_of(window)
        if not windows:
            windows[new] = new
            return new
        collect = _CollectMerges()
        known = [window_of(namespace) for namespace in windows]
        self._assigner.merge_windows([*known, *([window] if new not in windows else [])], collect)
        result = new
        merged_new = False
        for cover, members in collect.merges:
            spaces = [namespace_of(member) for member in members]
            cover_space = namespace_of(cover)
            if new in spaces:
                merged_new = True
                result = cover_space
            old = [space for space in spaces if space in windows]
            contents = [windows.pop(space) for space in old]
            windows[cover_space] = contents[0]
            if old != [cover_space]:
                on_merge(cover, [window_of(space) for space in old], contents[0], contents[1:])
        if not merged_new and new not in windows:
            windows[new] = new
        return result


class _CollectMerges(MergingWindowAssigner.MergeCallback[Window]):
    def __init__(self) -> None:
        self.merges: list[tuple[Window, list[Window]]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.merges.append((merge_result, list(to_be_merged)))
