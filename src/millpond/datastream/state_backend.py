"""Where the state of a job lies while the job works (E34).

A backend serves one slot: it holds the state of the key groups that the slot has. It is a cache. What counts
is the log of each key group, which goes into Spark's state store with every batch and is the same for all
backends; a slot that comes back fills its backend from there. `state.backend.type` says which one:

    hashmap           Python objects in the slot's memory: the fastest
    rocksdb           an embedded RocksDB on the slot's local disk: for state larger than memory
    memory            as hashmap, but without a log: state is gone if the slot is. For tests
    package.Class     a StateBackend of your own; mostly one made of an ordered store of bytes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class BackendContext:
    """What a backend is told when it is opened."""

    folder: Path
    """Its own folder on the local disk: empty, and removed after `close`."""
    options: dict[str, str] = field(default_factory=dict)
    """The job's settings that begin with `state.backend.`."""
    memory_limit_mb: int | None = None
    """Of the slot, all in all."""


class StateBackend(ABC):
    """Holds the state of one slot. Needs a constructor without arguments."""

    keeps_log = True
    """False: state lives only here, and a job cannot go on without it."""
    in_memory = False
    """True if tables hold Python objects in dictionaries (`hash_tables.py`)."""
    reads_from_any_thread = False
    """True if look-ups of queryable state may read while another thread works. Else they wait until that one
    has done a key group, so that no two threads are ever here at once."""

    def open(self, context: BackendContext) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def key_group(self, operator: int, number: int) -> KeyGroupStorage:
        """Storage for a key group of an operator, empty. What was there under this name is forgotten."""

    def close(self) -> None:
        """The slot ends."""


class KeyGroupStorage(ABC):
    """Holds the tables and timers of a key group."""

    @abstractmethod
    def table(self, name: str, kind: Any) -> Any:
        """An empty table for a state: a ValueTable, ListTable or MapTable of `millpond.state.tables`."""

    @abstractmethod
    def timers(self, domain: str) -> Any:
        """The timers of a time domain, empty: `millpond.state.timers.Timers`."""


class OrderedStore(ABC):
    """Bytes by bytes, in the order of keys: all that `OrderedStoreBackend` needs."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    def getter(self) -> Callable[[bytes], bytes | None]:
        """What is called for every look-up: `get`, or something that does the same with fewer calls."""
        return self.get

    @abstractmethod
    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` up to, not including, `end`, with their values, in order, as they were when this
        was called."""

    @abstractmethod
    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        """First the deletes, then the puts. Need not survive the process."""

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.write((), [key for key, _ in self.scan(start, end)])

    def close(self) -> None: ...


class OrderedStoreBackend(ABC):
    """A backend that keeps state as bytes in an ordered store: write `open_store`, and you have your own.

    Needs a constructor without arguments. The flags mean what they mean for a StateBackend."""

    keeps_log = True
    reads_from_any_thread = False

    @abstractmethod
    def open_store(self, context: BackendContext) -> OrderedStore:
        """Open an empty store in the context's folder. It is closed when the slot ends."""
