"""Identifies processes that an earlier command has started, and ends them.

A process id alone does not identify a process, because the system reuses ids. So an identity also has the
time when the process was started and the boot of the machine. Only a process that matches in all three is
ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_POLL_S = 0.05
_PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessIdentity:
    """What tells a process of this machine from any other, past or future."""

    pid: int
    started: str  # in the system's format; only compared, never interpreted
    boot: str


class Ending(Enum):
    """How a process ended; the value is a text for people."""

    GONE = "had already ended"
    TERMINATED = "ended"
    KILLED = "was killed because it did not end in time"


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process; None if there is no process with this id, or a zombie."""
    started = _started(pid)
    return None if started is None else ProcessIdentity(pid, started, _boot())


def is_alive(process: ProcessIdentity) -> bool:
    """Return True if this very process still runs."""
    return identify(process.pid) == process


def end(process: ProcessIdentity, grace_s: float) -> Ending:
    """Send SIGTERM, and SIGKILL if the process has not ended after `grace_s`; return how it ended."""
    if not _signal(process, signal.SIGTERM):
        return Ending.GONE
    if _ends_within(process, grace_s):
        return Ending.TERMINATED
    if not _signal(process, signal.SIGKILL):
        return Ending.TERMINATED
    _ends_within(process, 10)
    return Ending.KILLED


def _ends_within(process: ProcessIdentity, wait_s: float) -> bool:
    until_s = time.monotonic() + wait_s
    while is_alive(process):
        if time.monotonic() >= until_s:
            return False
        time.sleep(_POLL_S)
    return True


def _signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal; return False if the process no longer runs. With pidfd (Linux), the id cannot pass to
    another process between the check and the signal."""
    try:
        if not hasattr(os, "pidfd_open"):
            if not is_alive(process):
                return False
            os.kill(process.pid, number)
            return True
        handle = os.pidfd_open(process.pid)
        try:
            if not is_alive(process):
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        finally:
            os.close(handle)
    except ProcessLookupError:
        return False


def _started(pid: int) -> str | None:
    if (_PROC / "self" / "stat").exists():
        try:
            text = (_PROC / str(pid) / "stat").read_text()
        except (OSError, ValueError):
            return None
        fields = text.rpartition(")")[
            2
        ].split()  # the name in (...) may contain spaces and brackets
        return None if fields[0] in ("Z", "X") else fields[19]
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return None if not answer or answer[0].startswith("Z") else " ".join(answer[1:])


def _boot() -> str:
    try:
        return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return ""
