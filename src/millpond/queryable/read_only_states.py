"""States as a client gets them: with Flink's methods, and with values of the declared types."""

from __future__ import annotations

from millpond.common.json_values import JsonValue
from millpond.datastream.state import State, StateDescriptor
from millpond.queryable.json_codec import value_from_json
from millpond.state.kinds.registry import spec_of


def read_only_state(descriptor: StateDescriptor, data: JsonValue) -> State:
    """Return a state with the content that a look-up gave, as JSON. Its methods that change raise
    QueryableStateError."""
    view: State = spec_of(descriptor.kind).read_only_view(descriptor, data, value_from_json)
    return view
