"""Keyed state: contracts and descriptors. A state belongs to the current key; no other is visible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millpond.common.typeinfo import TypeInformation, to_type_info
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
    @abstractmethod
    def clear(self) -> None:
        """Forget the value of the current key."""


class ValueState(State, Generic[T]):
    @abstractmethod
    def value(self) -> T | None:
        """The current key's value, None if there is none. It is a copy where it is mutable:
        changing it has no effect until `update`."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the current key's value; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    @abstractmethod
    def get(self) -> OUT | None: ...

    @abstractmethod
    def add(self, value: IN) -> None: ...


class MergingState(AppendingState[IN, OUT]):
    """State that can be merged when windows merge."""


class ReducingState(MergingState[T, T]):
    """One value; `add` combines it with what is there."""


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator; `get` gives the result computed from it."""


class ListState(MergingState[T, Iterable[T]]):
    @abstractmethod
    def get(self) -> Iterable[T]:
        """The elements in the order they were added; empty if there are none."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace all elements."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None: ...

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    @abstractmethod
    def get(self, key: K) -> V | None: ...

    @abstractmethod
    def put(self, key: K, value: V) -> None: ...

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None: ...

    @abstractmethod
    def remove(self, key: K) -> None: ...

    @abstractmethod
    def contains(self, key: K) -> bool: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Entries in the order they were first put. Entries may be put or removed meanwhile."""

    @abstractmethod
    def keys(self) -> Iterable[K]: ...

    @abstractmethod
    def values(self) -> Iterable[V]: ...

    @abstractmethod
    def is_empty(self) -> bool: ...

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
    """Broadcast state where it must not change: every subtask would see something else."""

    @abstractmethod
    def get(self, key: K) -> V | None: ...

    @abstractmethod
    def contains(self, key: K) -> bool: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Entries in the order they were first put."""

    @abstractmethod
    def keys(self) -> Iterable[K]: ...

    @abstractmethod
    def values(self) -> Iterable[V]: ...

    @abstractmethod
    def is_empty(self) -> bool: ...

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """A map that all subtasks have, each its own copy, made from the same records (E32)."""

    @abstractmethod
    def put(self, key: K, value: V) -> None: ...

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None: ...

    @abstractmethod
    def remove(self, key: K) -> None: ...

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class StateKind(Enum):
    """Which of the keyed states a descriptor describes. COLUMN is beyond PyFlink (columns.py)."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    COLUMN = "column"


class StateDescriptor(ABC):
    """Name and type of a state. Within one function the name is unique."""

    kind: StateKind

    def __init__(self, name: str, type_info: TypeInformation | Any) -> None:
        if not isinstance(name, str) or not name:
            raise ProgramError(f"A state needs a name that is not empty, not {name!r}.")
        self.name = name
        self.type_info = to_type_info(type_info)
        self.ttl_config: StateTtlConfig | None = None
        self.queryable_name: str | None = None

    def set_queryable(self, queryable_state_name: str) -> None:
        """Let other processes look this state up by key, under a name that is unique within the job
        (millpond.queryable). Keyed state only; they see what committed batches left."""
        if not isinstance(queryable_state_name, str) or not queryable_state_name:
            raise ProgramError(
                f"set_queryable of state '{self.name}' takes a name that is not empty, not "
                f"{queryable_state_name!r}."
            )
        if self.kind is StateKind.COLUMN:
            raise UnsupportedFeatureError(
                f"Column state '{self.name}' cannot be queryable: use a KeyedProcessFunction with value "
                "or map state, or as_queryable_state on what the function emits."
            )
        if self.queryable_name not in (None, queryable_state_name):
            raise ProgramError(
                f"State '{self.name}' is queryable as '{self.queryable_name}' already; it cannot be "
                f"'{queryable_state_name}', too."
            )
        self.queryable_name = queryable_state_name

    def is_queryable(self) -> bool:
        return self.queryable_name is not None

    def refuse_queryable(self, what: str) -> None:
        """For states that are not keyed, or belong to more than a key."""
        if self.queryable_name is not None:
            raise ProgramError(
                f"{what} '{self.name}' cannot be queryable (as '{self.queryable_name}'): only state that "
                "belongs to a key alone can. Keep it in keyed state, or use as_queryable_state."
            )

    def get_queryable_state_name(self) -> str | None:
        return self.queryable_name

    def get_name(self) -> str:
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries of this state expire. A state that is there already begins to live when the job
        starts with this; one without it again keeps what is there."""
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(
                f"enable_time_to_live of state '{self.name}' takes a StateTtlConfig, not "
                f"{type(ttl_config).__name__}"
            )
        if self.kind is StateKind.COLUMN:
            raise UnsupportedFeatureError(
                f"Column state '{self.name}' cannot have a time to live: register timers and put the "
                "default back when they fire."
            )
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None


class ValueStateDescriptor(StateDescriptor):
    kind = StateKind.VALUE

    def __init__(self, name: str, value_type_info: TypeInformation | Any) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    kind = StateKind.LIST

    def __init__(self, name: str, elem_type_info: TypeInformation | Any) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    kind = StateKind.MAP

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | Any,
        value_type_info: TypeInformation | Any,
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = to_type_info(key_type_info)


class ReducingStateDescriptor(StateDescriptor):
    kind = StateKind.REDUCING

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        type_info: TypeInformation | Any,
    ) -> None:
        super().__init__(name, type_info)
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> ReduceFunction | Callable[[Any, Any], Any]:
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    kind = StateKind.AGGREGATING

    def __init__(
        self,
        name: str,
        agg_function: AggregateFunction,
        state_type_info: TypeInformation | Any,
    ) -> None:
        super().__init__(name, state_type_info)
        self._agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction:
        return self._agg_function


def __getattr__(name: str) -> Any:
    if name == "OperatorStateStore":  # where PyFlink has it
        from millpond.datastream.operator_state import OperatorStateStore

        return OperatorStateStore
    return _missing(name)


_missing = module_getattr(__name__)
