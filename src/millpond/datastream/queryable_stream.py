"""Streams as queryable state: the end of a stream that keeps the newest value of each key for other processes
to look up.

Beyond PyFlink, with Flink's names and meaning.

stream.key_by(...).as_queryable_state("prices")
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from millpond.datastream.data_stream_sink import DataStreamSink
from millpond.datastream.functions import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import StateDescriptor, StateKind, ValueStateDescriptor
from millpond.datastream.stream_graph import Node, OperatorKind
from millpond.errors import ProgramError

if TYPE_CHECKING:
    from millpond.datastream.data_stream import DataStream

_FITTING = (StateKind.VALUE, StateKind.REDUCING, StateKind.AGGREGATING)


class QueryableSink(KeyedProcessFunction):
    """Keeps the newest value of each key, or what a reducing or aggregating state makes of all its values."""

    is_sink = True

    def __init__(self, descriptor: StateDescriptor) -> None:
        self._descriptor = descriptor
        self.queryable_name = descriptor.queryable_name

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor: Any = self._descriptor
        state: Any = runtime_context.get_state(descriptor)  # of any kind
        self._keep = state.update if self._descriptor.kind is StateKind.VALUE else state.add

    def process_element(self, value: object, ctx: object) -> None:
        self._keep(value)


class QueryableStateStream(DataStreamSink):
    """The end of a stream that is kept as queryable state."""

    def __init__(self, node: Node, descriptor: StateDescriptor) -> None:
        super().__init__(node)
        self._descriptor = descriptor

    def get_queryable_state_name(self) -> str | None:
        """Return the name under which the state is looked up."""
        return self._descriptor.queryable_name

    def get_state_descriptor(self) -> StateDescriptor:
        """Return the descriptor of the state."""
        return self._descriptor


class Queryable:
    """A mixin for streams without keys."""

    def as_queryable_state(
        self, queryable_state_name: str, state_descriptor: StateDescriptor | None = None
    ) -> QueryableStateStream:
        """Raise ProgramError: state can only be looked up by key."""
        raise ProgramError(
            f"as_queryable_state('{queryable_state_name}') needs a keyed stream, because state is looked "
            "up by key: call key_by(...) before it."
        )


class KeyedQueryable:
    """A mixin for keyed streams."""

    def as_queryable_state(
        self: Any, queryable_state_name: str, state_descriptor: StateDescriptor | None = None
    ) -> QueryableStateStream:
        """Keep the newest value of each key where other processes can look it up (millpond.queryable).

        With a ReducingStateDescriptor or AggregatingStateDescriptor, values are combined instead. Raise
        ProgramError for other kinds of state, which would grow without limit.
        """
        if state_descriptor is None:
            state_descriptor = ValueStateDescriptor(queryable_state_name, self.get_type())
        if state_descriptor.kind not in _FITTING:
            raise ProgramError(
                f"as_queryable_state('{queryable_state_name}') takes value, reducing or aggregating "
                f"state, not {state_descriptor.kind.value} state, which would grow without limit: write a "
                "KeyedProcessFunction, and call set_queryable on its descriptor."
            )
        descriptor = copy.copy(state_descriptor)
        descriptor.set_queryable(queryable_state_name)
        stream: DataStream = self._add(
            OperatorKind.KEYED_PROCESS,
            f"Queryable state: {queryable_state_name}",
            QueryableSink(descriptor),
            None,
        )
        return QueryableStateStream(stream._node, descriptor)
