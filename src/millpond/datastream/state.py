"""Keyed state: contracts and descriptors. A state belongs to the current key; those of other keys are not
visible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millpond.common.typeinfo import TypeLike, to_type_info
from millpond.datastream.state_ttl import StateTtlConfig
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.missing import module_getattr

if TYPE_CHECKING:
    from millpond.datastream.functions import AggregateFunction, ReduceFunction

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Base class of all states. Every method works on the current key."""

    @abstractmethod
    def clear(self) -> None:
        """Remove what the state holds for the current key."""


class ValueState(State, Generic[T]):
    """A single value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the current key's value, or None if there is none.

        If it is mutable, it is a copy: changing it has no effect until `update`.
        """

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the current key's value; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State to which values are added."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result of the values added so far, or None if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value."""


class MergingState(AppendingState[IN, OUT]):
    """State that can be merged when windows merge."""


class ReducingState(MergingState[T, T]):
    """A single value per key; `add` combines it with the new one by a ReduceFunction."""


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator per key; `get` returns the result computed from it."""


class ListState(MergingState[T, Iterable[T]]):
    """A list of elements per key."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """Return the elements in the order in which they were added; empty if there are none."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace all elements."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append several elements."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    """A map per key. It also supports `state[key]`, `del state[key]`, `key in state` and iteration over
    keys."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of a map key, or None if there is none."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a map key."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several map keys."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a map key; do nothing if it is absent."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return True if the map key has a value."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return the entries in the order in which they were first put; with the rocksdb backend, in the
        order of their keys.

        Entries may be put or removed meanwhile.
        """

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the map keys, in the order of `items`."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values, in the order of `items`."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if the current key has no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """Broadcast state for reading only: if a keyed record could change it, every subtask would see
    something else."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of a map key, or None if there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return True if the map key has a value."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return the entries in the order in which they were first put."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the map keys, in the order of `items`."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values, in the order of `items`."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if there are no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """A map of which every subtask has its own copy, made from the same records (E32)."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a map key."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several map keys."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a map key; do nothing if it is absent."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class StateKind(Enum):
    """The kinds of state that a descriptor can declare. COLUMN is beyond PyFlink
    (millpond.datastream.columns)."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    COLUMN = "column"


class StateDescriptor(ABC):
    """Declares a state: its name, kind and types. The name is unique within a function.

    Types are given as `Types` or as type hints; values are checked against them.
    """

    kind: StateKind

    def __init__(self, name: str, type_info: TypeLike) -> None:
        if not isinstance(name, str) or not name:
            raise ProgramError(f"The name of a state must be a non-empty string, not {name!r}.")
        self.name = name
        self.type_info = to_type_info(type_info)
        self.ttl_config: StateTtlConfig | None = None
        self.queryable_name: str | None = None

    def set_queryable(self, queryable_state_name: str) -> None:
        """Let other processes look this state up by key, under a name that is unique within the job
        (millpond.queryable).

        Only keyed state can be queryable. A look-up sees what committed batches have left. Raise ProgramError
        if the state is already queryable under another name, UnsupportedFeatureError for column state.
        """
        if not isinstance(queryable_state_name, str) or not queryable_state_name:
            raise ProgramError(
                f"set_queryable of state '{self.name}' takes a non-empty string, not "
                f"{queryable_state_name!r}."
            )
        if self.kind is StateKind.COLUMN:
            raise UnsupportedFeatureError(
                f"Column state '{self.name}' cannot be queryable: use a KeyedProcessFunction with value "
                "or map state, or as_queryable_state on what the function emits."
            )
        if self.queryable_name not in (None, queryable_state_name):
            raise ProgramError(
                f"State '{self.name}' is already queryable as '{self.queryable_name}'; it cannot also be "
                f"'{queryable_state_name}'."
            )
        self.queryable_name = queryable_state_name

    def is_queryable(self) -> bool:
        """Return True if `set_queryable` was called."""
        return self.queryable_name is not None

    def refuse_queryable(self, what: str) -> None:
        """Raise ProgramError if the state is queryable; for states that do not belong to a single key."""
        if self.queryable_name is not None:
            raise ProgramError(
                f"{what} '{self.name}' cannot be queryable (as '{self.queryable_name}'), because it does not "
                "belong to a single key. Keep it in keyed state, or use as_queryable_state."
            )

    def get_queryable_state_name(self) -> str | None:
        """Return the name under which the state is looked up, or None."""
        return self.queryable_name

    def get_name(self) -> str:
        """Return the name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries of this state expire.

        In a job that already has this state, entries start to age when the job starts with this setting;
        without the setting again, they stay. Raise UnsupportedFeatureError for column state.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(
                f"enable_time_to_live of state '{self.name}' takes a StateTtlConfig, not "
                f"{type(ttl_config).__name__}"
            )
        if self.kind is StateKind.COLUMN:
            raise UnsupportedFeatureError(
                f"Column state '{self.name}' cannot have a time to live: register timers, and set it back "
                "to the default when they fire."
            )
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None


class ValueStateDescriptor(StateDescriptor):
    """Declares a ValueState."""

    kind = StateKind.VALUE

    def __init__(self, name: str, value_type_info: TypeLike) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Declares a ListState with the type of its elements."""

    kind = StateKind.LIST

    def __init__(self, name: str, elem_type_info: TypeLike) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Declares a MapState or broadcast state, with the types of its keys and values."""

    kind = StateKind.MAP

    def __init__(
        self,
        name: str,
        key_type_info: TypeLike,
        value_type_info: TypeLike,
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = to_type_info(key_type_info)


class ReducingStateDescriptor(StateDescriptor):
    """Declares a ReducingState with its ReduceFunction, or a plain function of two values."""

    kind = StateKind.REDUCING

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        type_info: TypeLike,
    ) -> None:
        super().__init__(name, type_info)
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> ReduceFunction | Callable[[Any, Any], Any]:
        """Return the reduce function."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Declares an AggregatingState with its AggregateFunction and the type of the accumulator."""

    kind = StateKind.AGGREGATING

    def __init__(
        self,
        name: str,
        agg_function: AggregateFunction,
        state_type_info: TypeLike,
    ) -> None:
        super().__init__(name, state_type_info)
        self._agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction:
        """Return the aggregate function."""
        return self._agg_function


def __getattr__(name: str) -> Any:
    if name == "OperatorStateStore":  # PyFlink has it in this module
        from millpond.datastream.operator_state import OperatorStateStore

        return OperatorStateStore
    return _missing(name)


_missing = module_getattr(__name__)
