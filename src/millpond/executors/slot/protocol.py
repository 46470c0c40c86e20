"""The messages between a relay (in Spark's Python worker) and a slot, over a Unix socket.

Every message, version 1 (little endian):

    offset  size  content
    0       2     magic "MS"
    2       1     protocol version (1)
    3       1     kind, see MessageKind
    4       4     CRC-32 of the payload
    8       8     length of the payload
    16      ...   payload: a pickle of plain containers, numbers, text and bytes

Both ends belong to the same user: the socket's folder is private, and each end asks the kernel who is at the
other end before it reads anything (`same_user`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import threading
import zlib
from enum import IntEnum
from typing import Any

from millpond.errors import SlotError

MAGIC = b"MS"
VERSION = 1
_HEADER = struct.Struct("<2sBBIQ")
_SENT_TOGETHER = 64 * 1024
_CREDENTIALS = struct.Struct("3i")

BEFORE_ALL_TASKS = -1  # the number of a task attempt that is older than any other


class MessageKind(IntEnum):
    """The kinds of messages. The comments say who sends one, what it contains, and (->) what the answer
    is."""

    HELLO = 1  # relay: {run, generation, attempt}
    WELCOME = 2  # slot: {pid, has_plan}; READY follows
    REFUSED = 3  # slot: the reason
    OUTDATED = 4  # slot: nothing; it belongs to an older run and ends now
    PLAN = 5  # relay: (job blob, attempt) -> DONE
    LANE = 6  # relay: plan of a lane -> DONE with [(partition, chunk)]
    STAGE = 7  # relay: (stage, epoch, chunks) -> DONE with [(partition, chunk)]
    DONE = 8  # slot: the result
    ERROR = 9  # slot: (name of a Millpond error, its arguments)
    ALIVE = 10  # slot: nothing; it is still working
    ORPHAN = 11  # slot: nothing; its run is gone, and a newer one may adopt it
    ADOPT = (
        12  # relay: (settings, executor, environment, module path), then a descriptor -> WELCOME
    )
    READY = (
        13  # slot: nothing; it has done with relays before this one, and reads what this one sends
    )


class ConnectionLost(Exception):
    """The other end is gone, or what it has sent is damaged."""


class Connection:
    """Messages over a connected socket. Several threads may send, but only one may receive."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._sending = threading.Lock()

    def send(self, kind: MessageKind, content: object = None) -> None:
        """Send a message. Raises ConnectionLost if the other end is gone, TimeoutError if the socket has a
        timeout and the other end does not read."""
        payload = pickle.dumps(content, 5)
        header = _HEADER.pack(MAGIC, VERSION, kind, zlib.crc32(payload), len(payload))
        try:
            with self._sending:
                if len(payload) <= _SENT_TOGETHER:  # otherwise the other end would wake up twice
                    self.socket.sendall(header + payload)
                else:
                    self.socket.sendall(header)
                    self.socket.sendall(payload)
        except TimeoutError:
            raise
        except OSError as problem:
            raise ConnectionLost(str(problem)) from None

    def send_alive(self) -> None:
        """Send a sign of life, unless another message is being sent anyway. Never raises or waits for a
        lock."""
        if self._sending.acquire(blocking=False):
            try:
                payload = pickle.dumps(None, 5)
                kind = MessageKind.ALIVE
                header = _HEADER.pack(MAGIC, VERSION, kind, zlib.crc32(payload), len(payload))
                self.socket.sendall(header + payload)
            except OSError:
                pass  # the other end is gone; the thread that receives will notice
            finally:
                self._sending.release()

    def receive(self) -> tuple[MessageKind, Any]:
        """Wait for the next message and return it. Raises ConnectionLost if the other end is gone or the
        message is damaged, TimeoutError if the socket has a timeout and nothing came."""
        magic, version, kind, checksum, length = _HEADER.unpack(self._read(_HEADER.size))
        if magic != MAGIC or version != VERSION:
            raise ConnectionLost(f"this is not protocol version {VERSION}: {magic!r} {version}")
        payload = self._read(length)
        if zlib.crc32(payload) != checksum:
            raise ConnectionLost("a message is damaged")
        return MessageKind(kind), pickle.loads(payload)

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        done = 0
        while done < length:
            try:
                count = self.socket.recv_into(view[done:])
            except TimeoutError:
                raise
            except OSError as problem:
                raise ConnectionLost(str(problem)) from None
            if count == 0:
                where = "in the middle of a message" if done else "between two messages"
                raise ConnectionLost(f"the other end went away {where}")
            done += count
        return data

    def close(self) -> None:
        """End the connection. A thread that is receiving from it gets ConnectionLost."""
        with contextlib.suppress(OSError):  # it may be closed already
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Return (process id, user id) of the other end, as the kernel knows them. For a connection to a
    listening socket, that is the process that listens."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(peer)
    return pid, user


def same_user(sock: socket.socket) -> bool:
    """Return whether the process at the other end belongs to the user of this process."""
    return peer_of(sock)[1] == os.getuid()


def private_folder(path: str) -> None:
    """Create a folder that only this user can look into. Raises SlotError if another user has created it, or
    if it is open to others."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    status = os.stat(path, follow_symlinks=False)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SlotError(
            f"The folder {path} for slots' sockets belongs to another user or is open to others. "
            "Remove it, or set TMPDIR to a folder of your own."
        )
