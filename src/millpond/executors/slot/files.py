"""The files of a slot in the private folder of its job: socket, log, lock, and state on disk.

Each process has a folder of its own for state, named after its id: one that was replaced, and does not know
it yet, must not lose its files to the one that comes after it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from typing import NamedTuple

from millpond.executors.slot.settings import SlotSettings


class SocketId(NamedTuple):
    """Tells the socket of one slot from that of its successor, which has the same path and may get the same
    inode."""

    inode: int
    made_at_ns: int


def socket_id(settings: SlotSettings, partition: int) -> SocketId:
    """Return the id of the socket that is there now. Raises OSError if there is none."""
    status = os.stat(settings.path(partition, "sock"))
    return SocketId(status.st_ino, status.st_mtime_ns)


def remove_files(settings: SlotSettings, partition: int, own: SocketId) -> None:
    """Remove the files of a slot, unless another slot has taken its place meanwhile. `own` is the id of its
    socket."""
    with (
        contextlib.suppress(OSError),
        open(settings.path(partition, "lock"), "w", encoding="ascii") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if socket_id(settings, partition) == own:
            for suffix in ("sock", "log", "lock"):
                os.unlink(settings.path(partition, suffix))
            shutil.rmtree(_own_folder(settings, partition), ignore_errors=True)
            with contextlib.suppress(OSError):  # an outdated slot may still have its own there
                os.rmdir(settings.state_folder(partition))
            os.rmdir(settings.folder)  # succeeds for the last slot of the job only


def own_state_folder(settings: SlotSettings, partition: int) -> str:
    """Return the folder in which this process may keep state, after removing those of processes that are
    gone."""
    folder = settings.state_folder(partition)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if not os.path.exists(f"/proc/{name}"):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return _own_folder(settings, partition)


def _own_folder(settings: SlotSettings, partition: int) -> str:
    return os.path.join(settings.state_folder(partition), str(os.getpid()))


@contextlib.contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """Listen at a path that only this user can connect to. The caller holds the partition's lock."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # a slot that was killed has left it; we hold the partition's lock
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        listener.bind(path)
        os.umask(before)
        listener.listen(16)
        yield listener
