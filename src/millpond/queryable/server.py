"""The server of a slot that answers look-ups: one thread, any number of connections.

It reads state while the slot's main thread works (`engine/state_views.py` says why that is correct), and
needs the interpreter for some tens of microseconds per key. Each system call gives the interpreter away,
and the main thread gives it back only after the switch interval: so there are four of them per round
(wait, receive, look which batch is committed, send), however many questions have come meanwhile, and none
per question. Connections begin with the token that is written beside the address, for those who may read
the job folder (`files.py`).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.common import options
from millpond.engine.state_views import StateViews
from millpond.errors import SetupError
from millpond.queryable import files
from millpond.queryable.answers import Answers, description
from millpond.queryable.protocol import (
    MAX_ANSWER_BYTES,
    MAX_HELLO_BYTES,
    MAX_REQUEST_BYTES,
    Decoder,
    Message,
    MessageKind,
    ProtocolError,
    Status,
    encode,
)

_SWITCH_INTERVAL_S = 0.0002
_PAUSE_S = 0.0005
_HELLO_S = 5.0  # how long a connection may wait before it shows the token
_TICK_S = 1.0
_CLAIM_S = 0.05
_MAX_CONNECTIONS = 512
_RECEIVED_AT_ONCE = 64 * 1024
_MAX_UNSENT = 1 << 20  # a client with more unfetched answers is not read from
_WANTED_EVERY_S = 0.2


@dataclass(frozen=True)
class ServerSettings:
    """Where a server answers, and for which partition. `host` "" is the name of this machine; `ports` is
    as in `queryable-state.server.ports`."""

    job_folder: Path
    generation: int
    partition: int
    partitions: int
    host: str = "127.0.0.1"
    ports: str = "0"


class StateServer:
    """Answers the look-ups of a slot. Call `start`, then `announce` whenever a state was declared, `claim`
    once per batch, and `stop` before the states go."""

    def __init__(self, settings: ServerSettings, views: StateViews) -> None:
        self._settings = settings
        self._views = views
        self._token = secrets.token_hex(32)
        self._committed = files.CommittedEpoch(settings.job_folder, settings.generation)
        self._written: tuple[int, int] | None = None  # which location file is ours
        self._claim_checked_s = 0.0
        self._is_ours = True
        self._wanted_s = 0.0
        self.used_at_s = time.monotonic()
        self._answers = Answers(
            views,
            settings.partition,
            settings.partitions,
            lambda: self._committed.epoch,
            lambda: time.time_ns() // 1_000_000,
            self._pause,
            self._want_batch,
        )
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._stopping = threading.Event()
        self._woken, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="look-ups", daemon=True)

    def start(self) -> StateServer:
        """Listen, and start the thread. Raises SetupError if no port is free."""
        self._listener = _listen(self._settings)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        # When the thread that works gives up the interpreter, if another thread wants it. By default: 5 ms.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._thread.start()
        return self

    def announce(self) -> None:
        """Write where this server answers, and which states there are."""
        settings = self._settings
        host, port = settings.host, self._listener.getsockname()[1]
        location = files.Location(
            settings.generation,
            settings.partition,
            settings.partitions,
            own_host() if host in ("", "0.0.0.0") else host,
            port,
            self._token,
            os.uname().nodename,
            os.getpid(),
            {name: description(state) for name, state in self._views.states.copy().items()},
        )
        self._written = _identity(files.write_location(settings.job_folder, location))

    def claim(self) -> None:
        """Announce this server again if another slot has had the partition meanwhile: a batch runs here
        now."""
        if not self._is_still_ours():
            self.announce()
            self._is_ours = True

    def stop(self) -> None:
        """End the thread. No state is read any more when this returns."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        self._thread.join()
        if self._is_still_ours():
            path = files.location_path(self._settings.job_folder, self._settings.partition)
            path.unlink(missing_ok=True)

    def _is_still_ours(self) -> bool:
        path = files.location_path(self._settings.job_folder, self._settings.partition)
        try:
            return _identity(os.stat(path)) == self._written
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a shared folder that is away for a moment

    def _pause(self) -> None:
        time.sleep(_PAUSE_S)
        self._committed.read()

    def _want_batch(self) -> None:
        now_s = time.monotonic()
        if now_s - self._wanted_s > _WANTED_EVERY_S:
            self._wanted_s = now_s
            files.want_batch(self._settings.job_folder)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                asking: list[_Connection] = []
                for key, events in self._selector.select(_TICK_S):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.data, _Connection) and self._receive(key.data, events):
                        asking.append(key.data)
                if asking:
                    self._committed.read()  # after the questions were asked, once for all of them
                for connection in asking:
                    self._serve(connection)
                self._close_strangers()
        except Exception:  # the slot goes on; look-ups end
            traceback.print_exc()
        finally:
            for connection in list(self._connections):
                self._close(connection)
            self._selector.close()
            for sock in (self._listener, self._woken, self._waker):
                sock.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the client is gone again
        if len(self._connections) >= _MAX_CONNECTIONS:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(sock)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _close_strangers(self) -> None:
        deadline_s = time.monotonic() - _HELLO_S
        for connection in [c for c in self._connections if not c.is_known]:
            if connection.since_s < deadline_s:
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()

    def _receive(self, connection: _Connection, events: int) -> bool:
        """Return True if there is something to do for the connection."""
        if not events & selectors.EVENT_READ:
            return True
        try:
            data = connection.socket.recv(_RECEIVED_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return False
        connection.decoder.feed(data)
        return True

    def _serve(self, connection: _Connection) -> None:
        try:
            self._work(connection)
        except OSError:
            self._close(connection)
        except (ProtocolError, ValueError) as problem:
            if connection.is_known:  # without the token nobody is told anything
                reason = encode(MessageKind.REFUSED, 0, {"reason": str(problem)})
                with contextlib.suppress(OSError):
                    connection.socket.send(reason)
            self._close(connection)

    def _work(self, connection: _Connection) -> None:
        """Answer what has come, as long as the answers are fetched."""
        while len(connection.unsent) < _MAX_UNSENT:
            message = connection.decoder.next()
            if message is None:
                break
            connection.unsent += self._answer(connection, message)
        if connection.unsent:
            with contextlib.suppress(BlockingIOError):
                sent = connection.socket.send(connection.unsent)
                del connection.unsent[:sent]
        wanted = selectors.EVENT_WRITE if connection.unsent else selectors.EVENT_READ
        if wanted != connection.events:
            connection.events = wanted
            self._selector.modify(connection.socket, wanted, connection)

    def _answer(self, connection: _Connection, message: Message) -> bytes:
        kind, number, content = message
        settings = self._settings
        if not connection.is_known:
            self._check_token(kind, content)
            connection.is_known = True
            connection.decoder.limit = MAX_REQUEST_BYTES
            welcome = {
                "generation": settings.generation,
                "partition": settings.partition,
                "partitions": settings.partitions,
            }
            return encode(MessageKind.WELCOME, number, welcome)
        if kind is not MessageKind.GET:
            raise ProtocolError(f"a server does not answer {kind.name}")
        self.used_at_s = now_s = time.monotonic()
        if now_s - self._claim_checked_s > _CLAIM_S:
            self._claim_checked_s, self._is_ours = now_s, self._is_still_ours()
        answer = self._answers.get(content)
        if self._committed.is_outdated or not self._is_ours:
            _replace_all(answer, Status.ELSEWHERE, "another slot has the partition by now")
        data = encode(MessageKind.ANSWER, number, answer)
        if len(data) > MAX_ANSWER_BYTES:
            text = (
                f"the answer has {len(data)} bytes; ask for fewer keys, or for one entry of a map"
            )
            _replace_all(answer, Status.FAILED, text)
            data = encode(MessageKind.ANSWER, number, answer)
        return data

    def _check_token(self, kind: MessageKind, content: object) -> None:
        token = content.get("token") if isinstance(content, dict) else None
        given = token.encode() if isinstance(token, str) else b""
        if kind is not MessageKind.HELLO or not hmac.compare_digest(given, self._token.encode()):
            raise ProtocolError("the token is missing or wrong")


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.decoder = Decoder(MAX_HELLO_BYTES)
        self.unsent = bytearray()
        self.is_known = False
        self.since_s = time.monotonic()
        self.events = selectors.EVENT_READ


def _replace_all(answer: dict[str, Any], status: Status, text: str) -> None:
    answer["results"] = [[status, text]] * len(answer["results"])


def _listen(settings: ServerSettings) -> socket.socket:
    problem: OSError | None = None
    host = settings.host or own_host()
    for port in files.parse_ports(settings.ports):
        try:
            return socket.create_server((host, port), backlog=64)
        except OSError as failed:  # in use, by another slot of this machine
            problem = failed
    raise SetupError(
        f"No look-ups of queryable state can be answered: none of the ports {settings.ports} on {host} is "
        f"free ({problem}). Set {options.QUERYABLE_PORTS.key} to 0 (any) or to as many ports as there are "
        f"slots on a machine, and {options.QUERYABLE_HOST.key} to an address of the machine."
    )


def own_host() -> str:
    """Return the name of this machine in the cluster, as Spark knows it."""
    named = os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_LOCAL_IP")
    return named or socket.gethostname()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_mtime_ns
