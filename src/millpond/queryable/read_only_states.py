"""States as a client gets them: with Flink's methods, and values of declared types. They can only be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from millpond.datastream.formats.avro_schemas import map_schema
from millpond.datastream.state import (
    AggregatingState,
    ListState,
    MapState,
    MapStateDescriptor,
    ReducingState,
    State,
    StateDescriptor,
    StateKind,
    ValueState,
)
from millpond.errors import QueryableStateError
from millpond.queryable.json_codec import value_from_json
from millpond.state.types.schemas import schema_of


def read_only_state(descriptor: StateDescriptor, data: Any) -> State:
    """The state with the content that a look-up gave, as JSON."""
    schema = schema_of(descriptor.type_info)
    if descriptor.kind is StateKind.LIST:
        return _List([value_from_json(element, schema) for element in data])
    if isinstance(descriptor, MapStateDescriptor):
        entry_schema = schema_of(descriptor.key_type_info)
        return _Map(value_from_json(data, map_schema(entry_schema, schema)))
    if descriptor.kind is StateKind.AGGREGATING:
        return _Result(value_from_json(data))  # the declared type is that of the accumulator
    value = value_from_json(data, schema)
    return _Reduced(value) if descriptor.kind is StateKind.REDUCING else _Value(value)


def _refuse() -> NoReturn:
    raise QueryableStateError("A state that was looked up can only be read.")


class _ReadOnly(State):
    def __init__(self, content: Any) -> None:
        self._content = content

    def clear(self) -> None:
        _refuse()


class _Value(_ReadOnly, ValueState[Any]):
    def value(self) -> Any:
        return self._content

    def update(self, value: Any) -> None:
        _refuse()


class _One(_ReadOnly):
    def get(self) -> Any:
        return self._content

    def add(self, value: Any) -> None:
        _refuse()


class _Reduced(_One, ReducingState[Any]):
    """Its value."""


class _Result(_One, AggregatingState[Any, Any]):
    """What get_result made of the accumulator."""


class _List(_One, ListState[Any]):
    def update(self, values: list[Any]) -> None:
        _refuse()

    def add_all(self, values: list[Any]) -> None:
        _refuse()


class _Map(_ReadOnly, MapState[Any, Any]):
    def get(self, key: Any) -> Any:
        return self._content.get(key)

    def contains(self, key: Any) -> bool:
        return key in self._content

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._content.items())

    def keys(self) -> Iterable[Any]:
        return list(self._content)

    def values(self) -> Iterable[Any]:
        return list(self._content.values())

    def is_empty(self) -> bool:
        return not self._content

    def put(self, key: Any, value: Any) -> None:
        _refuse()

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        _refuse()

    def remove(self, key: Any) -> None:
        _refuse()
