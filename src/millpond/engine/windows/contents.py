"""What the window operator remembers: the content of windows, and which windows were merged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

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
from millpond.state.key_group_state import KeyGroupState
from millpond.state.kinds.registry import spec_of
from millpond.state.tables import MISSING, DataTable

# How a window is written in state and timers: plain tuples pack well. A user's own window is itself.
Namespace = Any
_CONTENT = "_window"
_MERGED = "_merged_windows"


def namespace_of(window: Window) -> Namespace:
    kind = type(window)
    if kind is TimeWindow:
        return (window.start, window.end)  # type: ignore[attr-defined]
    if kind is CountWindow:
        return (window.id,)  # type: ignore[attr-defined]
    return () if kind is GlobalWindow else window


def window_of(namespace: Namespace) -> Window:
    if type(namespace) is not tuple:
        return namespace  # type: ignore[no-any-return]
    if len(namespace) == 2:
        return TimeWindow(*namespace)
    return CountWindow(*namespace) if namespace else GlobalWindow.get()


class WindowScope:
    """States of one key and window. `turn_to` says which."""

    def __init__(self, clock: TaskClock) -> None:
        self._clock = clock
        self.current = CurrentKey()
        self._handles: dict[tuple[str, str], Any] = {}
        self._asked: set[str] = set()  # prefixes of the handles
        self.prefixes: set[str] = set()  # and of what is in the state of the key group
        clock.bound.append(self)

    def bind(self, state: KeyGroupState) -> None:
        self.prefixes = self._asked | {name.partition(".")[0] for name in state.tables}

    def turn_to(self, key: Any, namespace: Namespace) -> None:
        self.current.key = (key, namespace)

    def state(self, prefix: str, descriptor: StateDescriptor) -> Any:
        """A handle to the state `prefix.name`, made when it is first asked for."""
        handle = self._handles.get((prefix, descriptor.name))
        if handle is None:
            descriptor.refuse_queryable("State of a window or trigger")
            own = copy.copy(descriptor)
            own.name = f"{prefix}.{descriptor.name}"
            handle = make_handle(own, self.current, self._clock, self._clock.backend_family)
            self._handles[prefix, descriptor.name] = handle
            self._asked.add(prefix)
            self.prefixes.add(prefix)
            self._clock.bound.append(handle)
            if self._clock.state is not None:
                handle.bind(self._clock.state)
        return handle

    def clear(self, prefix: str) -> None:
        """Forget all states with this prefix, also those that nobody has asked for since a restart."""
        state = self._clock.state
        assert state is not None
        for name in [name for name in state.tables if name.startswith(f"{prefix}.")]:
            table = state.tables[name]
            assert isinstance(table, DataTable)
            table.clear(self.current.key)


class WindowStateStore(KeyedStateStore):
    """`ProcessWindowFunction.Context.window_state()`: goes when the window goes."""

    PREFIX = "_window_state"

    def __init__(self, scope: WindowScope, windows_merge: bool) -> None:
        self._scope = scope
        self._windows_merge = windows_merge

    def _state(self, state_descriptor: Any) -> Any:
        if self._windows_merge:
            raise ProgramError(
                f"State '{state_descriptor.name}' of a window: session windows merge, and their state would "
                "not. Use context.global_state(), or an accumulator."
            )
        return self._scope.state(self.PREFIX, state_descriptor)

    get_state = get_list_state = get_map_state = _state
    get_reducing_state = get_aggregating_state = _state


class WindowContent:
    """The content of the window that the scope is turned to: one accumulator if there is a function that
    combines elements, else the elements."""

    def __init__(self, scope: WindowScope, combine: Any, element_type: Any) -> None:
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

    def get(self) -> Any:
        """A list of elements, or the result so far; MISSING if there is none."""
        if self.kind is StateKind.LIST:
            return list(self._handle.get()) or MISSING
        if self._scope.current.key not in self.table.data:
            return MISSING
        return self._handle.get()

    @property
    def table(self) -> Any:
        """(key, namespace) -> content at rest."""
        return self._handle._table

    def replace(self, elements: list[Any]) -> None:
        """Only these elements stay."""
        self._handle.update(elements)

    def merge(self, key: Any, into: Namespace, others: Iterable[Namespace]) -> None:
        """Bring the content of other windows of a key into one; nothing is lost (C51)."""
        spec_of(self.kind).merge(self.table, self._descriptor, key, into, others)


# merged window, the windows it was made of, the namespace its content is in, those of the others
OnMerge = Callable[[Window, list[Window], Namespace, list[Namespace]], None]


class MergedWindows:
    """Which windows of each key there are, and under which namespace the content of each is kept: that of
    one of the windows it was merged from, so that content need not move."""

    def __init__(self, clock: TaskClock, assigner: MergingWindowAssigner[Any, Any]) -> None:
        self._assigner = assigner
        self._table: Any = None
        clock.bound.append(self)

    def bind(self, state: Any) -> None:
        self._table = state.table(_MERGED, StateKind.VALUE)

    def of(self, key: Any) -> dict[Namespace, Namespace]:
        return dict(self._table.data.get(key, ()))

    def keep(self, key: Any, windows: dict[Namespace, Namespace]) -> None:
        if windows:
            self._table.set(key, tuple(windows.items()))
        else:
            self._table.remove(key)

    def add(
        self, windows: dict[Namespace, Namespace], window: Window, on_merge: OnMerge
    ) -> Namespace:
        """Add a window, merging it with those it touches; the one it is part of now."""
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


class _CollectMerges(MergingWindowAssigner.MergeCallback):
    def __init__(self) -> None:
        self.merges: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.merges.append((merge_result, list(to_be_merged)))
