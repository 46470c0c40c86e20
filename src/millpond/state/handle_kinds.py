"""Makes the handle that a function gets for a descriptor."""

from __future__ import annotations

from millpond.datastream.state import StateDescriptor
from millpond.datastream.state_backend import StateBackend
from millpond.errors import UnsupportedFeatureError
from millpond.state.handles import CurrentKey
from millpond.state.kinds.kind import BackendFamily, BoundHandle
from millpond.state.kinds.registry import spec_of
from millpond.state.ordered.backend import OrderedBackend
from millpond.state.ttl.expiry import Clock, Expiry


def family_of(backend: StateBackend) -> BackendFamily:
    """Return which tables a backend has."""
    if backend.in_memory:
        return BackendFamily.HASH
    return BackendFamily.ORDERED if isinstance(backend, OrderedBackend) else BackendFamily.OTHER


def make_handle(
    descriptor: StateDescriptor, current: CurrentKey, clock: Clock, family: BackendFamily
) -> BoundHandle:
    """Return a handle of the descriptor's kind: a State of the API with a method `bind`.

    Raises UnsupportedFeatureError if the kind is unknown, or cannot do what the descriptor asks for.
    """
    spec = spec_of(descriptor.kind)
    if descriptor.is_queryable() and not spec.can_be_queryable:
        raise UnsupportedFeatureError(f"{spec.title} '{descriptor.name}' cannot be queryable.")
    if descriptor.ttl_config is not None:
        return spec.ttl_handle(descriptor, current, Expiry(descriptor.ttl_config, clock))
    return spec.handle(descriptor, current, family)
