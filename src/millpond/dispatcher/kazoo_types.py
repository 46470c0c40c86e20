"""Types for the part of kazoo that `zookeeper_leadership.py` uses; kazoo itself has no type annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
Watch = Callable[[object], None]


class AsyncResult(Protocol[T_co]):
    """A request to ZooKeeper that may not have been answered yet."""

    def get(self, *, timeout: float) -> T_co:
        """Wait for the answer and return it. Raise what ZooKeeper answers instead, or KazooTimeoutError after
        `timeout` seconds."""


class NodeStat(Protocol):
    """Facts about a node."""

    version: int
    ephemeralOwner: int  # noqa: N815


class Transaction(Protocol):
    """Operations that are done together or not at all."""

    def check(self, path: str, version: int) -> None:
        """Add the condition that a node has this version."""

    def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        """Add the creation of a node, which ends with the session if it is ephemeral."""

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        """Add a write to a node, on the condition that it has this version; -1 means any."""

    def delete(self, path: str) -> None:
        """Add the removal of a node."""

    def commit_async(self) -> AsyncResult[list[Any]]:
        """Send the operations. The answer has one element for each: its result, or an exception."""


class Client(Protocol):
    """A connection to ZooKeeper. It reconnects by itself."""

    @property
    def connected(self) -> bool:
        """Whether the client is connected to a server at the moment."""

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """The id of the session and its password; None while it is not connected."""

    @property
    def client_state(self) -> str:
        """One of KeeperState."""

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a KazooState whenever the connection changes, in a thread that must not
        wait."""

    def start_async(self) -> object:
        """Begin to connect, and return at once."""

    def stop(self) -> None:
        """End the session."""

    def close(self) -> None:
        """Release what a stopped client still holds."""

    def get_async(
        self, path: str, watch: Watch | None = None
    ) -> AsyncResult[tuple[bytes, NodeStat]]:
        """Ask for the content of a node. `watch` is called once, when it changes."""

    def exists_async(self, path: str, watch: Watch | None = None) -> AsyncResult[NodeStat | None]:
        """Ask whether a node exists. `watch` is called once, when it is created, changed or removed."""

    def get_children_async(self, path: str) -> AsyncResult[list[str]]:
        """Ask for the names of the nodes below a node."""

    def create_async(self, path: str, value: bytes) -> AsyncResult[str]:
        """Create a node."""

    def transaction(self) -> Transaction:
        """Return a new, empty transaction."""
