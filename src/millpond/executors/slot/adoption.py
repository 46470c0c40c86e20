"""How a slot whose run is gone comes to work for the next run of its job, instead of a new process.

What it holds needs no other proof than in any batch: the journal says how far the log counts, and a state is
used only if it was left at exactly this position (`engine/kept_states.py`). What must be right besides is the
process: its limits, and the code that it has imported. Functions are closed, and opened anew from the plan of
the new run; their modules, however, stay as they are.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from millpond.executors.slot.protocol import Connection, ConnectionLost, MessageKind
from millpond.executors.slot.settings import SlotSettings

_Signature = tuple[int, int, int, int]


@dataclass(frozen=True)
class Offer:
    """What a relay gives to a slot that it adopts: what it would give to a new one."""

    settings: SlotSettings
    executor_pid: int
    environment: dict[str, str]
    module_path: list[str]
    output_fd: int
    """A descriptor of the relay's error output. Whoever receives the offer must close it."""


def send_offer(connection: Connection, offer: Offer) -> None:
    """Adopt the slot at the other end. Raises ConnectionLost if it is gone."""
    content = (asdict(offer.settings), offer.executor_pid, offer.environment, offer.module_path)
    connection.send(MessageKind.ADOPT, content)
    try:
        socket.send_fds(connection.socket, [b"o"], [offer.output_fd])
    except OSError as problem:
        raise ConnectionLost(str(problem)) from None


def receive_offer(connection: Connection) -> Offer:
    """Say that this slot may be adopted, and return the offer. Raises ConnectionLost if there is none, or
    TimeoutError if the socket has a timeout."""
    connection.send(MessageKind.ORPHAN)
    kind, content = connection.receive()
    if kind is not MessageKind.ADOPT:
        raise ConnectionLost(f"{kind.name} is no offer")
    settings, executor_pid, environment, module_path = content
    _, descriptors, _, _ = socket.recv_fds(connection.socket, 1, 1)
    if not descriptors:
        raise ConnectionLost("the offer is not complete")
    return Offer(SlotSettings(**settings), executor_pid, environment, module_path, descriptors[0])


class ImportedFiles:
    """The files from which this process has imported modules, as they were then."""

    def __init__(self) -> None:
        self._files: dict[str, _Signature | None] = {}
        self._modules = 0

    def note(self) -> None:
        """Look for modules that were imported since the last call. Costs nothing if there are none."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for module in list(sys.modules.values()):
            # Not with getattr, at which some modules import others.
            path = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(path, str) and path not in self._files:
                self._files[path] = _signature(path)

    def changed(self) -> str | None:
        """Return a file that is not what it was when it was imported; None if all are."""
        self.note()
        for path, signature in self._files.items():
            if signature is None or _signature(path) != signature:
                return path
        return None

    def any_below(self, folders: Iterable[str]) -> bool:
        """Return whether a module was imported from one of these folders."""
        prefixes = tuple(os.path.join(folder, "") for folder in folders if folder)
        return any(path.startswith(prefixes) for path in self._files)


def _signature(path: str) -> _Signature | None:
    """Return what tells a file from its successors; None if there is no such file (as in a zip)."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
