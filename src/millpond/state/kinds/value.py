"""Value state: one value per key."""

from __future__ import annotations

from typing import Any

from millpond.common.json_values import JsonValue
from millpond.datastream.state import State, StateKind, ValueState, ValueStateDescriptor
from millpond.state.handles import CurrentKey, ValueStateHandle
from millpond.state.kinds.kind import BackendFamily, BoundHandle, DecodeJson
from millpond.state.kinds.read_only import ReadOnlyView, refuse_change
from millpond.state.kinds.single_value import SingleValueKind
from millpond.state.ttl.expiry import Expiry
from millpond.state.ttl.handles import TtlValueState
from millpond.state.types.schemas import schema_of


class ValueKind(SingleValueKind[ValueStateDescriptor]):
    """The specification of value state."""

    kind = StateKind.VALUE

    def handle(
        self, descriptor: ValueStateDescriptor, current: CurrentKey, family: BackendFamily
    ) -> BoundHandle:
        """Return a ValueState."""
        return ValueStateHandle(descriptor, current)

    def ttl_handle(
        self, descriptor: ValueStateDescriptor, current: CurrentKey, expiry: Expiry
    ) -> BoundHandle:
        """Return a ValueState whose value expires."""
        return TtlValueState(descriptor, current, expiry)

    def read_only_view(
        self, descriptor: ValueStateDescriptor, data: JsonValue, decode: DecodeJson
    ) -> State:
        """Return a ValueState that cannot be changed."""
        return _ReadOnlyValue(decode(data, schema_of(descriptor.type_info)))


class _ReadOnlyValue(ReadOnlyView, ValueState[Any]):
    def value(self) -> Any:
        return self._content

    def update(self, value: object) -> None:
        refuse_change()
