"""The relay in a Spark worker: finds the partition's slot, or starts it, and hands work over to it.

One relay serves one task attempt.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

import millpond.errors
from millpond.engine.passes import Sent
from millpond.errors import SlotError
from millpond.executors.slot.adoption import Offer, send_offer
from millpond.executors.slot.protocol import (
    Connection,
    ConnectionLost,
    MessageKind,
    peer_of,
    private_folder,
    same_user,
)
from millpond.executors.slot.settings import SlotSettings, base_folder

_START_TIMEOUT_S = 60.0
_EXIT_TIMEOUT_S = 1.0  # between the end of a slot's connection and the end of its process
_OUTPUT_SHOWN = 2000
# It leaves no names in the slot's __main__, because the classes of the program's main script go there.
_PROGRAM = "__import__('millpond.executors.slot.process', fromlist=['main']).main()"
_children: list[subprocess.Popen[bytes]] = []


class Relay:
    """The connection of one task attempt to its partition's slot. All methods raise SlotError if the slot
    dies or hangs, and the error that the slot reports if its work fails.

    `attempt` is Spark's number of the task attempt; `blob` and `job_attempt` are for a slot that does not
    have the job yet."""

    def __init__(
        self, settings: SlotSettings, partition: int, attempt: int, blob: bytes, job_attempt: int
    ) -> None:
        self._settings = settings
        self._partition = partition
        self._pid = 0
        self._connection = self._enter(attempt)
        # The slot may still be busy with a task that is over. It reads nothing until then, but gives signs of
        # life.
        self._receive()
        if not self._has_plan:
            self._ask(MessageKind.PLAN, (blob, job_attempt))

    # --- work ------------------------------------------------------------------------------------

    def run_lane(self, lane: bytes) -> Sent:
        """Run the source tasks for a lane, given its plan as a blob. Return the chunks for the next stage."""
        self._send(MessageKind.LANE, lane)
        return self._result()

    def run_stage(self, stage: int, epoch: int, chunks: list[bytes]) -> Sent:
        """Run a later stage of a batch on the chunks for this partition. Return those for the next stage."""
        self._send(MessageKind.STAGE, (stage, epoch, chunks))
        return self._result()

    def _result(self) -> Sent:
        sent: Sent = self._receive()[1]
        return sent

    def close(self) -> None:
        """End the connection at the end of the task. The slot lives on."""
        self._connection.close()

    def _ask(self, kind: MessageKind, content: object) -> None:
        """Send a message and wait until the slot has done what it says."""
        self._send(kind, content)
        self._receive()

    def _send(self, kind: MessageKind, content: object) -> None:
        try:
            self._connection.send(kind, content)
        except TimeoutError:
            raise self._hung() from None
        except ConnectionLost as lost:
            raise self._died(lost) from None

    def _receive(self) -> tuple[MessageKind, Any]:
        while True:
            try:
                kind, content = self._connection.receive()
            except TimeoutError:
                raise self._hung() from None
            except ConnectionLost as lost:
                raise self._died(lost) from None
            if kind is MessageKind.ERROR:
                name, arguments = content
                raise getattr(millpond.errors, name)(*arguments)
            if kind is not MessageKind.ALIVE:
                return kind, content

    # --- errors ----------------------------------------------------------------------------------

    def _hung(self) -> SlotError:
        """Kill a slot that gives no sign of life: it is stopped, or stuck outside Python. A new slot takes
        over."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self.close()
        return SlotError(
            f"Slot {self._partition} (process {self._pid}) gave no sign of life for "
            f"{self._settings.hang_timeout_s:g} s and was killed."
        )

    def _died(self, lost: ConnectionLost) -> SlotError:
        self.close()
        return SlotError(
            f"Slot {self._partition} (process {self._pid}) is gone: {lost}.{_exit_of(self._pid)}"
            f"{self._last_output()}"
        )

    def _last_output(self) -> str:
        try:
            with open(self._settings.path(self._partition, "log"), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _OUTPUT_SHOWN))
                text = file.read().decode(errors="replace").strip()
        except OSError:
            return ""
        return f" Its last output:\n{text}" if text else ""

    # --- finding and starting --------------------------------------------------------------------

    def _enter(self, attempt: int) -> Connection:
        settings = self._settings
        private_folder(base_folder())
        private_folder(settings.folder)
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        with open(settings.path(self._partition, "lock"), "w", encoding="ascii") as lock:
            # One relay at a time starts a slot; those that waited find the slot that it has started.
            fcntl.flock(lock, fcntl.LOCK_EX)
            while True:
                connection = self._connect()
                if connection is None:
                    self._start()
                    connection = self._connect()
                if connection is not None and self._introduce(connection, attempt):
                    return connection
                if time.monotonic() > deadline_s + settings.hang_timeout_s:
                    raise SlotError(
                        f"Slot {self._partition} could not be started within "
                        f"{_START_TIMEOUT_S:g} s.{self._last_output()}"
                    )
                time.sleep(0.02)  # the slot of an earlier run is on its way out

    def _connect(self) -> Connection | None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self._settings.hang_timeout_s)
        try:
            sock.connect(self._settings.path(self._partition, "sock"))
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        if not same_user(sock):
            sock.close()
            raise SlotError(f"The socket of slot {self._partition} belongs to another user.")
        return Connection(sock)

    def _introduce(self, connection: Connection, attempt: int) -> bool:
        """Return whether the slot lets this relay in. False means that it ends: it belongs to an older run
        and cannot be adopted, or it hung. Raises SlotError if it refuses the task."""
        settings = self._settings
        hello = {"run": settings.run_id, "generation": settings.generation, "attempt": attempt}
        try:
            connection.send(MessageKind.HELLO, hello)
            kind, content = connection.receive()
            if kind is MessageKind.ORPHAN:
                send_offer(connection, self._offer())
                kind, content = connection.receive()
        except ConnectionLost:
            connection.close()
            return False
        except TimeoutError:  # the slot is stopped, or stuck outside Python
            with contextlib.suppress(ProcessLookupError):
                os.kill(peer_of(connection.socket)[0], signal.SIGKILL)
            connection.close()
            return False
        if kind is MessageKind.REFUSED:
            connection.close()
            raise SlotError(f"Slot {self._partition} refused this task: {content}.")
        if kind is MessageKind.OUTDATED:
            connection.close()
            return False
        self._pid = content["pid"]
        self._has_plan = content["has_plan"]
        return True

    def _offer(self) -> Offer:
        path = [os.path.abspath(part) for part in sys.path if part]
        return Offer(self._settings, executor_pid(), dict(os.environ), path, 2)

    def _start(self) -> None:
        settings, partition = self._settings, self._partition
        reading, writing = os.pipe()
        output = os.dup(2)
        arguments = {
            "settings": asdict(settings),
            "partition": partition,
            "executor_pid": executor_pid(),
            "ready_fd": writing,
            "output_fd": output,
        }
        log_flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        log = os.open(settings.path(partition, "log"), log_flags, 0o600)
        try:
            child = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writing, output),
                start_new_session=True,  # signals to the worker's process group are not for the slot
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        finally:
            for descriptor in (log, writing, output):
                os.close(descriptor)
        _children[:] = [c for c in _children if c.poll() is None] + [child]
        with open(reading, "rb") as ready:
            answered, _, _ = select.select([ready], [], [], _START_TIMEOUT_S)
            if not answered or ready.read(5) != b"ready":
                child.kill()
                raise SlotError(f"Slot {partition} could not be started.{self._last_output()}")


def _exit_of(pid: int) -> str:
    """Return how a slot that this worker started has ended, as a sentence; "" if that is not known."""
    for child in _children:
        if child.pid == pid:
            try:
                code = child.wait(_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return ""
            return (
                f" It was killed by signal {-code}." if code < 0 else f" Its exit code is {code}."
            )
    return ""


def executor_pid() -> int:
    """Return the process id of the executor's JVM: the parent of the daemon that forked this worker."""
    with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as file:
        return int(file.read().rpartition(")")[2].split()[1])
