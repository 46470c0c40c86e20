"""Reducing state: one value per key, which `add` combines with the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.common.json_values import JsonValue
from millpond.datastream.state import ReducingState, ReducingStateDescriptor, State, StateKind
from millpond.state.combining import Combining
from millpond.state.handles import CurrentKey, ReducingStateHandle
from millpond.state.kinds.kind import BackendFamily, BoundHandle, DecodeJson
from millpond.state.kinds.read_only import ReadOnlyAppendingView
from millpond.state.kinds.single_value import SingleValueKind, merge_values
from millpond.state.tables import ValueTable
from millpond.state.ttl.expiry import Expiry
from millpond.state.ttl.handles import TtlReducingState
from millpond.state.types.schemas import schema_of


class ReducingKind(SingleValueKind[ReducingStateDescriptor]):
    """The specification of reducing state."""

    kind = StateKind.REDUCING

    def handle(
        self, descriptor: ReducingStateDescriptor, current: CurrentKey, family: BackendFamily
    ) -> BoundHandle:
        """Return a ReducingState."""
        return ReducingStateHandle(descriptor, current)

    def ttl_handle(
        self, descriptor: ReducingStateDescriptor, current: CurrentKey, expiry: Expiry
    ) -> BoundHandle:
        """Return a ReducingState whose value expires."""
        return TtlReducingState(descriptor, current, expiry)

    def read_only_view(
        self, descriptor: ReducingStateDescriptor, data: JsonValue, decode: DecodeJson
    ) -> State:
        """Return a ReducingState that cannot be changed."""
        return _ReadOnlyReducing(decode(data, schema_of(descriptor.type_info)))

    def merge(
        self,
        table: ValueTable,
        descriptor: ReducingStateDescriptor,
        key: object,
        into: object,
        others: Iterable[Any],
    ) -> None:
        """Reduce the values of other windows into that of one of them."""
        combining = Combining(descriptor.get_reduce_function())
        merge_values(table, combining, descriptor.ttl_config is not None, key, into, others)


class _ReadOnlyReducing(ReadOnlyAppendingView, ReducingState[Any]):
    pass
