"""A backend on an ordered store of bytes, such as RocksDB or one of a user's own."""

from __future__ import annotations

from millpond.datastream.state_backend import (
    BackendContext,
    OrderedStore,
    OrderedStoreBackend,
    ShardStorage,
    StateBackend,
)
from millpond.state.ordered.shard import StoredShard


class OrderedBackend(StateBackend):
    """Puts the tables and timers of shards on the store that `opener` opens."""

    _store: OrderedStore

    def __init__(self, opener: OrderedStoreBackend) -> None:
        self._opener = opener
        self.keeps_log = opener.keeps_log
        self.reads_from_any_thread = opener.reads_from_any_thread

    def open(self, context: BackendContext) -> None:
        """Open the store."""
        self._store = self._opener.open_store(context)

    def shard(self, operator: int, number: int) -> ShardStorage:
        """Return storage for a shard. What the store had of it is deleted."""
        return StoredShard(self._store, operator, number)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
