"""Where the state of a job lives while the job runs (E34).

A backend serves one slot: it holds the state of the slot's shards. It is a cache. The truth is the change
log of each shard, which the slot writes with every batch and which is the same for all backends; a new
slot fills its backend from there. `state.backend.type` selects the backend:

    hashmap           Python objects in the slot's memory: the fastest
    rocksdb           an embedded RocksDB on the slot's local disk: for state larger than memory
    memory            like hashmap, but without a change log: state is lost with the slot. For tests
    package.Class     a StateBackend of your own, usually an OrderedStoreBackend
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class BackendContext:
    """What a backend gets when it is opened."""

    folder: Path
    """A folder of its own on the local disk: empty, and removed after `close`."""
    options: dict[str, str] = field(default_factory=dict)
    """The job's settings that begin with `state.backend.`."""
    memory_limit_mb: int | None = None
    """The memory limit of the whole slot; None if there is none."""


class StateBackend(ABC):
    """Holds the state of one slot. Its constructor takes no arguments."""

    keeps_log = True
    """False: state lives only here, and a job that loses it cannot continue."""
    in_memory = False
    """True if tables hold Python objects in dictionaries (`state/hash/tables.py`)."""
    reads_from_any_thread = False
    """True if look-ups of queryable state may read while another thread works. Otherwise they wait until that
    thread has finished a shard, so that there is never more than one thread in the backend."""

    def open(self, context: BackendContext) -> None:
        """Prepare the backend. Called once, before anything else."""

    @abstractmethod
    def shard(self, operator: int, number: int) -> ShardStorage:
        """Return empty storage for a shard of an operator. What was there under this name is
        forgotten."""

    def close(self) -> None:
        """Release everything. Called when the slot ends."""


class ShardStorage(ABC):
    """Holds the tables and timers of a shard."""

    @abstractmethod
    def table(self, name: str, kind: Any) -> Any:
        """Return an empty table for a state: a ValueTable, ListTable or MapTable of
        `millpond.state.tables`."""

    @abstractmethod
    def timers(self, domain: str) -> Any:
        """Return the timers of a time domain, empty: `millpond.state.timers.Timers`."""


class OrderedStore(ABC):
    """A map from bytes to bytes, ordered by key: all that an `OrderedStoreBackend` needs."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def getter(self) -> Callable[[bytes], bytes | None]:
        """Return the function to call for every look-up: `get`, or something that does the same with fewer
        calls."""
        return self.get

    @abstractmethod
    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) from `start` up to, but not including, `end`, in order, as they are at the
        time of the call."""

    @abstractmethod
    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        """Apply the deletes, then the puts. They need not survive the process."""

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete the keys from `start` up to, but not including, `end`."""
        self.write((), [key for key, _ in self.scan(start, end)])

    def close(self) -> None:
        """Release everything."""


class OrderedStoreBackend(ABC):
    """A backend that keeps state as bytes in an ordered store. To write your own, implement `open_store`.

    Its constructor takes no arguments. The flags mean what they mean for a StateBackend.
    """

    keeps_log = True
    reads_from_any_thread = False

    @abstractmethod
    def open_store(self, context: BackendContext) -> OrderedStore:
        """Open an empty store in the context's folder. It is closed when the slot ends."""
