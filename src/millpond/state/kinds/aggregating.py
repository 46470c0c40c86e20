"""Aggregating state: one accumulator per key; what is read is the result computed from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.common.json_values import JsonValue
from millpond.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    State,
    StateKind,
)
from millpond.state.combining import Combining
from millpond.state.handles import AggregatingStateHandle, CurrentKey
from millpond.state.kinds.kind import BackendFamily, BoundHandle, DecodeJson, Opened
from millpond.state.kinds.read_only import ReadOnlyAppendingView
from millpond.state.kinds.single_value import SingleValueKind, merge_values
from millpond.state.tables import MISSING, ValueTable
from millpond.state.ttl.expiry import Expiry
from millpond.state.ttl.handles import TtlAggregatingState


class AggregatingKind(SingleValueKind[AggregatingStateDescriptor]):
    """The specification of aggregating state. Its declared type is that of the accumulator."""

    kind = StateKind.AGGREGATING

    def handle(
        self, descriptor: AggregatingStateDescriptor, current: CurrentKey, family: BackendFamily
    ) -> BoundHandle:
        """Return an AggregatingState."""
        return AggregatingStateHandle(descriptor, current)

    def ttl_handle(
        self, descriptor: AggregatingStateDescriptor, current: CurrentKey, expiry: Expiry
    ) -> BoundHandle:
        """Return an AggregatingState whose accumulator expires."""
        return TtlAggregatingState(descriptor, current, expiry)

    def look_up_value(
        self, descriptor: AggregatingStateDescriptor, content: object, opened: Opened
    ) -> object:
        """Return the result of the accumulator."""
        accumulator = opened(content)
        if accumulator is MISSING:
            return MISSING
        return descriptor.get_agg_function().get_result(accumulator)

    def read_only_view(
        self, descriptor: AggregatingStateDescriptor, data: JsonValue, decode: DecodeJson
    ) -> State:
        """Return an AggregatingState that cannot be changed. The type of its result is not declared."""
        return _ReadOnlyAggregating(decode(data, None))

    def merge(
        self,
        table: ValueTable,
        descriptor: AggregatingStateDescriptor,
        key: object,
        into: object,
        others: Iterable[Any],
    ) -> None:
        """Merge the accumulators of other windows into that of one of them."""
        combining = Combining(descriptor.get_agg_function())
        merge_values(table, combining, descriptor.ttl_config is not None, key, into, others)


class _ReadOnlyAggregating(ReadOnlyAppendingView, AggregatingState[Any, Any]):
    pass
