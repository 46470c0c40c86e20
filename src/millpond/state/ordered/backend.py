"""A backend on an ordered store of bytes, such as RocksDB or one of a user's own."""

from __future__ import annotations

from millpond.datastream.state_backend import (
    BackendContext,
    KeyGroupStorage,
    OrderedStore,
    OrderedStoreBackend,
    StateBackend,
)
from millpond.state.ordered.key_group import StoredKeyGroup


class OrderedBackend(StateBackend):
    """Puts the tables and timers of key groups on the store that `opener` opens."""

    _store: OrderedStore

    def __init__(self, opener: OrderedStoreBackend) -> None:
        self._opener = opener
        self.keeps_log = opener.keeps_log
        self.reads_from_any_thread = opener.reads_from_any_thread

    def open(self, context: BackendContext) -> None:
        """Open the store."""
        self._store = self._opener.open_store(context)

    def key_group(self, operator: int, number: int) -> KeyGroupStorage:
        """Return storage for a key group. What the store had of it is deleted."""
        return StoredKeyGroup(self._store, operator, number)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
