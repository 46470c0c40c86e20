"""Queryable state (O6): other processes look up state of running jobs by key.

`QueryableStateClient` and its asynchronous twin ask; `locations` and `proxy` are for the dispatcher. The
rest is internal: `server` in each slot, `desk` in the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.errors import (
    QueryableStateError,
    RetryLaterError,
    UnknownKeyError,
    UnknownStateError,
)

if TYPE_CHECKING:
    from millpond.queryable.async_client import AsyncQueryableStateClient
    from millpond.queryable.client import QueryableStateClient
    from millpond.queryable.desk import states_of
    from millpond.queryable.proxy import StateProxy

__all__ = [
    "AsyncQueryableStateClient",
    "QueryableStateClient",
    "QueryableStateError",
    "RetryLaterError",
    "StateProxy",
    "UnknownKeyError",
    "UnknownStateError",
    "states_of",
]
_MODULES = {
    "AsyncQueryableStateClient": "async_client",
    "QueryableStateClient": "client",
    "StateProxy": "proxy",
    "states_of": "desk",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: drivers and slots need none of the clients."""
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module 'millpond.queryable' has no attribute '{name}'")
    return getattr(importlib.import_module(f"millpond.queryable.{_MODULES[name]}"), name)
