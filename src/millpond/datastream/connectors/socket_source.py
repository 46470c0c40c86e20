"""Lines of text from a TCP socket. For trials only: a socket cannot be asked to send something again.

A line counts as read once it is in the plan of a batch, which is written before the batch runs; from then on
it is processed exactly once. Lines that the driver has received but not planned yet are lost when it dies,
and so is what the other side sends while nobody is connected.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext
from millpond.errors import JobExecutionError, ProgramError

_log = logging.getLogger(__name__)
_RECEIVE_BYTES = 65536
_WAITING_BYTES = 64 * 1024 * 1024  # beyond that, the other side has to wait
_CONNECT_S = 10.0
_RETRY_S = 0.5


class SocketSource(Source):
    """Reads lines from a TCP server.

    `max_retry` says for how many seconds to try to connect, and to reconnect. 0: try once, and end the input
    when the other side closes; negative: forever.
    """

    bounded = False

    def __init__(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: float = 0
    ) -> None:
        if not 0 < port < 65536:
            raise ProgramError(f"The port must be between 1 and 65535, not {port}.")
        if not delimiter:
            raise ProgramError("A socket source needs a delimiter between records.")
        self._hostname, self._port = hostname, port
        self._delimiter = delimiter
        self._max_retry_s = max_retry
        self.endless = max_retry < 0

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _SocketEnumerator(self._hostname, self._port, self._delimiter, self._max_retry_s)

    def read(self, arguments: list[str]) -> Iterator[tuple[Any, int | None]]:
        return ((line, None) for line in arguments)

    def read_many(
        self, arguments: list[str]
    ) -> Iterator[tuple[list[Any], list[int | None] | None]]:
        yield arguments, None


class _SocketEnumerator(SplitEnumerator):
    """Receives in a thread; `poll` hands out whole records."""

    def __init__(self, hostname: str, port: int, delimiter: str, max_retry_s: float) -> None:
        super().__init__()
        self._address = (hostname, port)
        self._delimiter = delimiter.encode()
        self._max_retry_s = max_retry_s
        self._lock = threading.Condition()
        self._records: list[bytes] = []
        self._waiting_bytes = 0
        self._has_ended = False
        self._failure: Exception | None = None
        self._is_closed = False
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="millpond-socket", daemon=True)
        self._thread.start()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._connect():
                self._receive()
                if self._max_retry_s == 0:
                    break
        except Exception as problem:  # handed to the thread that polls
            self._failure = problem
        finally:
            self._has_ended = True
            self.available.set()

    def _connect(self) -> bool:
        """Connect; return False if the job has ended. Raise OSError after trying for long enough."""
        give_up_s = time.monotonic() + self._max_retry_s
        while True:
            with self._lock:
                if self._is_closed:
                    return False
            try:
                connected = socket.create_connection(self._address, _CONNECT_S)
            except OSError:
                if self._max_retry_s >= 0 and time.monotonic() >= give_up_s:
                    raise
                with self._lock:
                    self._lock.wait_for(lambda: self._is_closed, _RETRY_S)
                continue
            connected.settimeout(None)
            with self._lock:
                if self._is_closed:
                    connected.close()
                    return False
                self._socket = connected
            return True

    def _receive(self) -> None:
        assert self._socket is not None
        rest = b""
        try:
            while data := self._socket.recv(_RECEIVE_BYTES):
                *whole, rest = (rest + data).split(self._delimiter)
                if len(rest) > _WAITING_BYTES:
                    raise ValueError(f"more than {_WAITING_BYTES} bytes came without a delimiter")
                self._add(whole)
        except OSError as problem:
            if self._is_closed:
                return
            if self._max_retry_s == 0:
                raise
            _log.warning("Socket %s:%s failed: %s. Reconnecting.", *self._address, problem)
        finally:
            self._socket.close()
        if rest:
            self._add([rest])

    def _add(self, records: list[bytes]) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._waiting_bytes < _WAITING_BYTES or self._is_closed)
            self._records += records
            self._waiting_bytes += sum(map(len, records))
        if records:
            self.available.set()

    # --- the driver ------------------------------------------------------------------------------

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        with self._lock:
            taken, self._records = self._records[:max_records], self._records[max_records:]
            self._waiting_bytes -= sum(map(len, taken))
            self._lock.notify_all()
        if not taken and self._failure is not None:
            raise JobExecutionError(
                f"The socket {self._address[0]}:{self._address[1]} cannot be read: {self._failure}."
            )
        lines = [line.decode(errors="replace").removesuffix("\r") for line in taken]
        return [SplitWork(0, lines)] if lines else []

    def position(self) -> None:
        """Return None: there is no way back."""

    def restore(self, position: None) -> None:
        pass

    def ended(self) -> list[bool]:
        # Whether it has ended is read first, so that everything that came before is visible below.
        done = self._has_ended and self._failure is None
        return [done and not self._records]

    def caught_up(self) -> bool:
        return self._has_ended and not self._records

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(_CONNECT_S)
