"""The backend that keeps state as Python objects in the memory of the slot."""

from __future__ import annotations

from millpond.datastream.state import StateKind
from millpond.datastream.state_backend import ShardStorage, StateBackend
from millpond.state.kinds.registry import spec_of
from millpond.state.tables import StateTable
from millpond.state.timers import TimerQueue, Timers


class HashShard(ShardStorage):
    """The tables and timers of a shard in memory."""

    def table(self, name: str, kind: StateKind) -> StateTable:
        """Return an empty table in memory."""
        return spec_of(kind).hash_table()  # type: ignore[no-any-return]

    def timers(self, domain: str) -> Timers:
        """Return empty timers in memory."""
        return TimerQueue()


class HashMapStateBackend(StateBackend):
    """Holds the state of a slot in dictionaries: the fastest backend (`state.backend.type=hashmap`)."""

    in_memory = True
    reads_from_any_thread = True

    def shard(self, operator: int, number: int) -> ShardStorage:
        """Return empty storage for a shard."""
        return HashShard()


class MemoryStateBackend(HashMapStateBackend):
    """The same without a change log: state is gone with its slot (`state.backend.type=memory`)."""

    keeps_log = False
